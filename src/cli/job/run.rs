//! `drover job run`: applies a manifest and shows the roll-out.

use std::path::PathBuf;

use anyhow::{Context, anyhow, bail, ensure};
use drover_api::{Job, field_manager};
use kube::api::{Patch, PatchParams};
use serde_json::Value;

use super::super::connect::{ConnectArgs, block_on};
use super::super::state::documents;
use super::super::validate::violations;
use super::super::{complain, read_input};
use super::AfterArgs;

/// Where a change is only tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum DryRun {
    /// Check the manifest without a cluster.
    Client,
    /// Let the API server check it.
    Server,
}

/// Arguments of `drover job run`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 it runs (a batch job: is done), 1 error, 2 it failed, 3 the time was over, 130 detached by Ctrl-C."
)]
pub(in super::super) struct RunArgs {
    /// A file with one Job; `-` is standard input.
    file: PathBuf,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    after: AfterArgs,
    /// Change nothing.
    #[arg(long, value_enum)]
    dry_run: Option<DryRun>,
    /// Take over fields that somebody else set, as a pipeline or kubectl.
    #[arg(long)]
    force_conflicts: bool,
}

/// Applies the manifest, and follows the job.
pub(in super::super) fn run(args: &RunArgs) -> anyhow::Result<u8> {
    let manifest = read(args)?;
    let name = manifest["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    // The same checks as the controller's, before anything is changed.
    let violations = violations(&manifest);
    let texts: Vec<String> = violations.iter().map(|violation| format!("\n  {violation}")).collect();
    ensure!(texts.is_empty(), "djob/{name} is invalid:{}", texts.concat());
    if args.dry_run == Some(DryRun::Client) {
        complain(&format!("djob/{name} is valid; nothing was changed"));
        return Ok(0);
    }
    block_on(async {
        let mut connection = args.connect.connect().await?;
        let own = manifest["metadata"]["namespace"].as_str().map(str::to_owned);
        connection.namespace = match (&args.connect.namespace, own) {
            (Some(asked), Some(own)) if *asked != own => {
                bail!("djob/{name}: the manifest names namespace {own}, and -n names {asked}; leave one out")
            }
            (_, Some(own)) => own,
            (_, None) => connection.namespace.clone(),
        };
        let jobs = connection.objects::<Job>();
        let params = PatchParams {
            dry_run: args.dry_run == Some(DryRun::Server),
            force: args.force_conflicts,
            field_manager: Some(field_manager::CLI.to_owned()),
            ..PatchParams::default()
        };
        let applied = jobs.api.patch(&name, &params, &Patch::Apply(&manifest)).await;
        let applied = applied.map_err(|error| match error {
            // The API server names the fields and who has set them.
            kube::Error::Api(status) if status.code == 409 => anyhow!(
                "cannot apply djob/{name}: {}; take these values over into the manifest, or give --force-conflicts to set them anew",
                status.message
            ),
            error => jobs.explain("apply", &name, error),
        })?;
        args.after.print(&applied)?;
        if args.dry_run.is_some() {
            complain(&format!("djob/{name} is valid; nothing was changed"));
            return Ok(0);
        }
        args.after.follow(&connection, &applied, "is applied").await
    })
}

fn read(args: &RunArgs) -> anyhow::Result<Value> {
    let source = args.file.display().to_string();
    let bytes = read_input(&args.file)?;
    let found = documents::read(&bytes).with_context(|| source.clone())?;
    ensure!(found.len() == 1, "{source}: holds {} objects; give a file with one Job", found.len());
    let value = found[0].value().with_context(|| source.clone())?;
    let kind = value["kind"].as_str().unwrap_or_default();
    ensure!(
        kind == "Job" && value["apiVersion"] == drover_api::API_VERSION,
        "{source}: holds a {kind} of {}; give a Job of {}",
        value["apiVersion"].as_str().unwrap_or_default(),
        drover_api::API_VERSION
    );
    Ok(value)
}
