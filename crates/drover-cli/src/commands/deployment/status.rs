//! `drover deployment status`, and how a deployment is found by a name.

use std::fmt::Write as _;

use anyhow::Context;
use drover_api::{Deployment, GoDuration};
use drover_core::deployment::newest;
use kube::api::ListParams;

use crate::cluster::connect::ConnectArgs;
use crate::cluster::objects::{Objects, named, starting};
use crate::completion::names;
use crate::ui::follow::{Follow, Goal, follow};
use crate::ui::output::{self, Output};
use crate::ui::table::Table;
use drover_clock::{Clock, SystemClock};

/// Arguments of `drover deployment status`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes with -w: 0 the job runs, 1 error, 2 it failed, 3 the time was over, 130 detached by Ctrl-C."
)]
pub(crate) struct DeploymentStatusArgs {
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

pub(super) async fn status(args: &DeploymentStatusArgs) -> anyhow::Result<u8> {
    let connection = args.connect.connect().await?;
    let found = find(&connection.objects(), &args.name).await?;
    let job = found.spec.job_name.clone();
    if args.watch {
        let again = format!("drover deployment status {} -n {} -w", args.name, connection.namespace);
        let (generation, timeout) = (found.spec.job_generation, args.timeout.map(GoDuration::to_std));
        let (namespace, goal) = (&*connection.namespace, Goal::AsWanted);
        let wanted = Follow { namespace, job: &job, generation, again, timeout, goal };
        return follow(connection.client.clone(), &wanted).await;
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
    crate::ui::stdio::answer(text.as_bytes())
}

/// The deployment of that name, the newest of the job of that name, or the only one whose name starts so.
pub(super) async fn find(deployments: &Objects<Deployment>, name: &str) -> anyhow::Result<Deployment> {
    let all = deployments.list(&ListParams::default()).await?;
    if let Some(exact) = named(&all, name) {
        return Ok(exact.clone());
    }
    let of_job = all.iter().filter(|one| one.spec.job_name == name);
    if let Some(found) = newest(of_job) {
        return Ok(found.clone());
    }
    let namespace = deployments.namespace.as_deref().unwrap_or_default();
    starting(&all, name)?.cloned().with_context(|| {
        format!(
            "no deployment {name} in namespace {namespace}, and no job of that name with one; `drover deployment list -n {namespace}` shows all"
        )
    })
}
