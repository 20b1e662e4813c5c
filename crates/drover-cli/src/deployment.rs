//! `drover deployment …`: look at roll-outs, and say what is to become of them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, anyhow};
use drover_api::deployment::{DeploymentStatus, Promote};
use drover_api::{Deployment, GoDuration, Job};
use drover_core::deployment::request::{self, Refusal, Request};
use kube::api::ListParams;
use serde_json::{Value, json};

use super::completion::names;
use super::connect::{ConnectArgs, block_on};
use super::follow::{Follow, follow};
use super::objects::{Objects, named, starting};
use super::output::{self, Output};
use super::table::Table;
use crate::stdio::complain;
use drover_clock::{Clock, SystemClock};

/// What to do with deployments.
#[derive(Debug, clap::Subcommand)]
pub(super) enum DeploymentCommand {
    /// Lists deployments.
    List(ListArgs),
    /// Shows a deployment with its groups.
    Status(StatusArgs),
    /// Lets healthy canaries take over.
    Promote(PromoteArgs),
    /// Stops updating until it is resumed.
    Pause(TargetArgs),
    /// Goes on with a paused deployment.
    Resume(TargetArgs),
    /// Fails a deployment; its groups with autoRevert go back to the newest stable version.
    Fail(TargetArgs),
}

/// Arguments of `drover deployment list`.
#[derive(Debug, clap::Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    /// List those of all namespaces.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Only those of this job.
    #[arg(long, add = names::<Job>())]
    job: Option<String>,
    /// How they are printed.
    #[arg(short, long, default_value = "table")]
    output: Output,
}

/// Arguments of `drover deployment status`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes with -w: 0 the job runs, 1 error, 2 it failed, 3 the time was over, 130 detached by Ctrl-C."
)]
pub(super) struct StatusArgs {
    /// The deployment, or the start of its name; or a job, for its newest one.
    #[arg(add = names::<Deployment>())]
    name: String,
    #[command(flatten)]
    connect: ConnectArgs,
    /// Follow its job until it runs or fails.
    #[arg(short, long)]
    watch: bool,
    /// How long to watch, as 10m.
    #[arg(long, requires = "watch")]
    timeout: Option<GoDuration>,
    /// How it is printed.
    #[arg(short, long, default_value = "table")]
    output: Output,
}

/// A deployment to act on.
#[derive(Debug, clap::Args)]
pub(super) struct TargetArgs {
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
pub(super) struct PromoteArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Only this group; may be given several times.
    #[arg(long = "group")]
    groups: Vec<String>,
}

impl PromoteArgs {
    fn request(&self) -> Request {
        Request::Promote(Promote { all: self.groups.is_empty(), groups: self.groups.clone() })
    }
}

/// Promotes.
pub(super) fn promote(args: &PromoteArgs) -> anyhow::Result<u8> {
    block_on(act(&args.target, args.request()))
}

/// Does it.
pub(super) fn run(command: &DeploymentCommand) -> anyhow::Result<u8> {
    block_on(async {
        match command {
            DeploymentCommand::List(args) => list(args).await,
            DeploymentCommand::Status(args) => status(args).await,
            DeploymentCommand::Promote(args) => act(&args.target, args.request()).await,
            DeploymentCommand::Pause(args) => act(args, Request::Pause).await,
            DeploymentCommand::Resume(args) => act(args, Request::Resume).await,
            DeploymentCommand::Fail(args) => act(args, Request::Fail).await,
        }
    })
}

async fn list(args: &ListArgs) -> anyhow::Result<u8> {
    let connection = args.connect.connect().await?;
    let field_selector = args.job.as_ref().map(|job| format!("spec.jobName={job}"));
    let params = ListParams { field_selector, ..ListParams::default() };
    let mut found = connection.objects_of::<Deployment>(args.all_namespaces).list(&params).await?;
    found.sort_by_key(|one| std::cmp::Reverse((one.metadata.creation_timestamp.clone(), one.metadata.name.clone())));
    let now = SystemClock.now();
    output::list(&found, &args.output, || {
        let head = [
            "NAMESPACE",
            "NAME",
            "JOB",
            "VERSION",
            "PHASE",
            "DESIRED",
            "PLACED",
            "HEALTHY",
            "UNHEALTHY",
            "PROMOTED",
            "REASON",
            "AGE",
        ];
        let mut table = Table::new(&head);
        for one in &found {
            let status = one.status.clone().unwrap_or_default();
            let columns = status.columns;
            table.row(vec![
                one.metadata.namespace.clone().unwrap_or_default(),
                one.metadata.name.clone().unwrap_or_default(),
                one.spec.job_name.clone(),
                one.spec.job_version.to_string(),
                status.phase.to_string(),
                columns.desired,
                columns.placed,
                columns.healthy,
                columns.unhealthy,
                columns.promoted,
                columns.reason,
                output::age(one, now),
            ]);
        }
        table
    })?;
    Ok(0)
}

async fn status(args: &StatusArgs) -> anyhow::Result<u8> {
    let connection = args.connect.connect().await?;
    let found = find(&connection.objects(), &args.name).await?;
    let job = found.spec.job_name.clone();
    if args.watch {
        let again = format!("drover deployment status {} -n {} -w", args.name, connection.namespace);
        let (generation, timeout) = (found.spec.job_generation, args.timeout.map(GoDuration::to_std));
        let wanted = Follow { namespace: &connection.namespace, job: &job, generation, again, timeout };
        return follow(connection.client, &wanted).await;
    }
    if !args.output.is_for_people() {
        output::object(&found, &args.output)?;
        return Ok(0);
    }
    describe(&found, SystemClock.now())?;
    Ok(0)
}

/// The deployment, its conditions and its groups.
fn describe(deployment: &Deployment, now: jiff::Timestamp) -> anyhow::Result<()> {
    let status = deployment.status.clone().unwrap_or_default();
    let name = deployment.metadata.name.as_deref().unwrap_or_default();
    let mut text = format!(
        "ddep/{name}  job {}  version {}  {}  ({})\n",
        deployment.spec.job_name, deployment.spec.job_version, status.phase, status.description
    );
    if let Some(condition) = status.conditions.first() {
        // Writing to a String cannot fail.
        writeln!(text, "  {}: {}", condition.reason, condition.message).ok();
    }
    let mut table =
        Table::new(&["GROUP", "DESIRED", "PLACED", "HEALTHY", "UNHEALTHY", "CANARIES", "PROMOTED", "DEADLINE"]);
    for (group, state) in &status.groups {
        let deadline = state.require_progress_by.filter(|_| status.phase.is_active());
        table.row(vec![
            group.clone(),
            state.desired_total.to_string(),
            state.placed_allocs.to_string(),
            state.healthy_allocs.to_string(),
            state.unhealthy_allocs.to_string(),
            state.desired_canaries.to_string(),
            state.promoted.to_string(),
            deadline
                .map_or_else(|| "-".to_owned(), |at| format!("in {}", output::span(at.duration_since(now).as_secs()))),
        ]);
    }
    table.write(&mut text);
    crate::stdio::answer(text.as_bytes())
}

/// The deployment of that name, the newest of the job of that name, or the only one whose name starts so.
async fn find(deployments: &Objects<Deployment>, name: &str) -> anyhow::Result<Deployment> {
    let all = deployments.list(&ListParams::default()).await?;
    if let Some(exact) = named(&all, name) {
        return Ok(exact.clone());
    }
    let of_job = all.iter().filter(|one| one.spec.job_name == name);
    if let Some(newest) = of_job.max_by_key(|one| (one.metadata.creation_timestamp.clone(), one.spec.job_version)) {
        return Ok(newest.clone());
    }
    let namespace = deployments.namespace.as_deref().unwrap_or_default();
    starting(&all, name)?.cloned().with_context(|| {
        format!(
            "no deployment {name} in namespace {namespace}, and no job of that name with one; `drover deployment list -n {namespace}` shows all"
        )
    })
}

/// Checks a request, and writes it into the spec unless somebody else wrote since.
async fn act(args: &TargetArgs, request: Request) -> anyhow::Result<u8> {
    let connection = args.connect.connect().await?;
    let deployments = connection.objects::<Deployment>();
    let found = find(&deployments, &args.name).await?;
    let name = found.metadata.name.clone().unwrap_or_default();
    let status = found.status.clone().unwrap_or_default();
    check(&request, &status).map_err(|refusal| anyhow!("ddep/{name}: {refusal}"))?;
    let is_paused = found.spec.paused;
    let is_so = match request {
        Request::Pause if is_paused => Some("is paused already"),
        Request::Resume if !is_paused => Some("is not paused"),
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

fn check(request: &Request, status: &DeploymentStatus) -> Result<(), Refusal> {
    request::check_phase(request, status.phase)?;
    if let Request::Promote(request) = request {
        // Until they are promoted, only canaries of the new version run, so that what is healthy of it are canaries.
        let healthy: BTreeMap<String, i64> =
            status.groups.iter().map(|(name, state)| (name.clone(), state.healthy_allocs)).collect();
        request::promoted_groups(request, &status.groups, &healthy)?;
    }
    Ok(())
}

/// The change of the spec that a request is, its verb, and what is said when it is written.
fn change(request: &Request) -> (Value, &'static str, &'static str) {
    match request {
        Request::Pause => (json!({ "paused": true }), "pause", "is paused"),
        Request::Resume => (json!({ "paused": false }), "resume", "goes on"),
        Request::Fail => (json!({ "fail": true }), "fail", "fails"),
        Request::Promote(Promote { all: true, .. }) => {
            (json!({ "promote": { "all": true, "groups": null } }), "promote", "is promoted")
        }
        Request::Promote(request) => {
            (json!({ "promote": { "all": null, "groups": request.groups } }), "promote", "is promoted")
        }
    }
}
