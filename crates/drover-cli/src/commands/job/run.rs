//! `drover job run`: applies a manifest, starts the job where it was stopped, and shows the roll-out.

use std::path::PathBuf;

use anyhow::ensure;
use drover_api::Job;
use kube::Resource as _;
use serde_json::{Value, json};

use super::after::AfterArgs;
use super::validate::violations;
use crate::cluster::connect::{ConnectArgs, block_on};
use crate::cluster::manifest::{Applying, Manifest};
use crate::cluster::objects::{CHANGE_TRIES, Objects};
use crate::state::job_files::{self, VariableArgs};
use crate::ui::follow::ENDED_BADLY;
use crate::ui::stdio::complain;

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
pub(crate) struct RunArgs {
    /// A file with one Job: a manifest, a job file in HCL (`*.hcl`, `*.nomad`), or a job in the JSON of `nomad job
    /// inspect`; `-` is a manifest or JSON on standard input.
    file: PathBuf,
    #[command(flatten)]
    variables: VariableArgs,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    after: AfterArgs,
    /// Change nothing.
    #[arg(long, value_enum)]
    dry_run: Option<DryRun>,
    /// Take over fields that another field manager set, such as a pipeline or kubectl.
    #[arg(long)]
    force_conflicts: bool,
}

/// Applies the manifest, starts the job where it was stopped, and follows it.
pub(crate) fn run(args: &RunArgs) -> anyhow::Result<u8> {
    let manifest = Manifest::parse(&args.file, &job_files::read(&args.file, &args.variables)?, &[("Job", "djob")])?;
    let name = &manifest.name;
    // The same checks as the controller's, before anything is changed.
    let violations = violations(&manifest.value);
    let texts: Vec<String> = violations.iter().map(|violation| format!("\n  {violation}")).collect();
    ensure!(texts.is_empty(), "djob/{name} is invalid:{}", texts.concat());
    if args.dry_run == Some(DryRun::Client) {
        complain(&format!("djob/{name} is valid; nothing was changed"));
        return Ok(0);
    }
    block_on(async {
        let connection = manifest.connect(&args.connect).await?;
        let how = Applying { is_dry_run: args.dry_run == Some(DryRun::Server), takes_over: args.force_conflicts };
        let jobs = connection.objects::<Job>();
        let is_to_run = manifest.value["spec"]["stop"] != true;
        let applied = if is_to_run { apply(&manifest, &jobs, how).await? } else { manifest.apply(&jobs, how).await? };
        args.after.print(&applied)?;
        if args.dry_run.is_some() {
            complain(&format!("djob/{name} is valid; nothing was changed"));
            return Ok(0);
        }
        if !is_to_run {
            complain(&format!(
                "djob/{name} is applied, and does not run: its manifest sets spec.stop to true; leave that out to run it"
            ));
            return Ok(ENDED_BADLY);
        }
        args.after.follow(&connection, &applied, "is applied").await
    })
}

/// Applies a manifest of a job that is to run. A stop stays in force when a manifest does not mention it, so that of a
/// stopped job it is taken over; of all other fields only what the manifest's own apply may set.
async fn apply(manifest: &Manifest, jobs: &Objects<Job>, how: Applying) -> anyhow::Result<Job> {
    let mut tries_left = CHANGE_TRIES;
    loop {
        let Some(stopped) = stopped(jobs, &manifest.name).await? else {
            let applied = manifest.apply(jobs, how).await?;
            if !applied.spec.stop {
                return Ok(applied);
            }
            // Stopped meanwhile, and this user may not read jobs.
            tries_left -= 1;
            let name = &manifest.name;
            ensure!(tries_left > 0, "djob/{name} is applied, and is stopped; start it with `drover job start {name}`");
            continue;
        };
        let asked = Applying { is_dry_run: true, ..how };
        let checked = manifest.send(jobs, &without_stop(&manifest.value), asked).await;
        checked.map_err(|error| manifest.explain(jobs, error))?;
        let forced = Applying { takes_over: true, ..how };
        let started = started(&manifest.value, stopped.meta().resource_version.as_deref());
        match manifest.send(jobs, &started, forced).await {
            Ok(applied) => return Ok(applied),
            // A status was written meanwhile, or the spec: it is looked at again.
            Err(kube::Error::Api(status)) if status.code == 409 && tries_left > 1 => tries_left -= 1,
            Err(error) => return Err(jobs.explain("start", &manifest.name, error)),
        }
    }
}

/// The job, where it is there and stopped. A user who may only write jobs writes without having looked.
async fn stopped(jobs: &Objects<Job>, name: &str) -> anyhow::Result<Option<Job>> {
    match jobs.api.get_opt(name).await {
        Ok(found) => Ok(found.filter(|job| job.spec.stop)),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(None),
        Err(error) => Err(jobs.explain("read", name, error)),
    }
}

fn without_stop(manifest: &Value) -> Value {
    let mut value = manifest.clone();
    if let Some(spec) = value["spec"].as_object_mut() {
        spec.remove("stop");
    }
    value
}

/// The manifest with the job running, for the very object that was looked at.
fn started(manifest: &Value, resource_version: Option<&str>) -> Value {
    let mut value = manifest.clone();
    value["spec"]["stop"] = json!(false);
    value["metadata"]["resourceVersion"] = json!(resource_version);
    value
}
