//! `drover deployment promote|pause|resume|fail`.

use anyhow::anyhow;
use drover_api::Deployment;
use drover_api::deployment::Promote;
use drover_core::deployment::request::{self, DeploymentRequest};
use serde_json::{Value, json};

use crate::cluster::connect::{ConnectArgs, block_on};
use crate::completion::names;
use crate::ui::output::{self, Output};
use crate::ui::stdio::complain;

use super::status::find;

/// A deployment to act on.
#[derive(Debug, clap::Args)]
pub(crate) struct DeploymentTarget {
    /// The deployment, or the start of its name; or a job, for its newest one.
    #[arg(add = names::<Deployment>())]
    name: String,
    #[command(flatten)]
    connect: ConnectArgs,
    /// How the changed deployment is printed.
    #[arg(short, long)]
    output: Option<Output>,
}

/// Arguments of `drover deployment promote`.
#[derive(Debug, clap::Args)]
pub(crate) struct PromoteArgs {
    #[command(flatten)]
    target: DeploymentTarget,
    /// Only this group; may be given several times.
    #[arg(long = "group")]
    groups: Vec<String>,
}

impl PromoteArgs {
    fn request(&self) -> DeploymentRequest {
        DeploymentRequest::Promote(Promote { all: self.groups.is_empty(), groups: self.groups.clone() })
    }
}

/// Promotes.
pub(crate) fn promote(args: &PromoteArgs) -> anyhow::Result<u8> {
    block_on(promote_groups(args))
}

pub(super) async fn promote_groups(args: &PromoteArgs) -> anyhow::Result<u8> {
    act(&args.target, args.request()).await
}

/// Checks a request, and writes it into the spec unless another writer changed it since.
pub(super) async fn act(args: &DeploymentTarget, request: DeploymentRequest) -> anyhow::Result<u8> {
    let connection = args.connect.connect().await?;
    let deployments = connection.objects::<Deployment>();
    let found = find(&deployments, &args.name).await?;
    let name = found.metadata.name.clone().unwrap_or_default();
    let status = found.status.clone().unwrap_or_default();
    request::check(&request, &status).map_err(|refusal| anyhow!("ddep/{name}: {refusal}"))?;
    let is_paused = found.spec.paused;
    let is_so = match request {
        DeploymentRequest::Pause if is_paused => Some("is paused already"),
        DeploymentRequest::Resume if !is_paused => Some("is not paused"),
        _ => None,
    };
    if let Some(is_so) = is_so {
        output::changed(&found, args.output.as_ref())?;
        complain(&format!("ddep/{name} {is_so}; nothing was changed"));
        return Ok(0);
    }
    let (spec, verb, done) = change(&request);
    let changed = deployments.change(verb, &found, &spec).await?;
    output::changed(&changed, args.output.as_ref())?;
    complain(&format!(
        "ddep/{name} {done}; watch it with `drover deployment status {name} -n {} -w`",
        connection.namespace
    ));
    Ok(0)
}

/// The change of the spec that a request is, its verb, and what is reported when it is written.
fn change(request: &DeploymentRequest) -> (Value, &'static str, &'static str) {
    match request {
        DeploymentRequest::Pause => (json!({ "paused": true }), "pause", "is paused"),
        DeploymentRequest::Resume => (json!({ "paused": false }), "resume", "goes on"),
        DeploymentRequest::Fail => (json!({ "fail": true }), "fail", "fails"),
        DeploymentRequest::Promote(request) => (json!({ "promote": request.patch() }), "promote", "is promoted"),
    }
}
