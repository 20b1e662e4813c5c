//! `drover job …`: what people do with jobs. Wishes go into specs, under the person's field manager; the controller acts on them.

mod change;
mod dispatch;
mod history;
mod restart;
mod run;
mod status;

use anyhow::bail;
use drover_api::{Deployment, GoDuration, Job, JobVersion};
use kube::api::ListParams;

use super::connect::Connection;
use super::follow::{Follow, follow};
use super::output::{self, Output};
use crate::stdio::complain;

pub(super) use change::{ScaleArgs, StopArgs, scale, stop};
pub(super) use dispatch::{DispatchArgs, PeriodicCommand, dispatch, periodic};
pub(super) use history::{HistoryArgs, RevertArgs, history, revert};
pub(super) use restart::{RestartArgs, restart};
pub(super) use run::{RunArgs, run};
pub(super) use status::{StatusArgs, status};

/// What a command does with the job that it has written.
#[derive(Clone, Debug, clap::Args)]
struct AfterArgs {
    /// Return when the job is written, instead of following it.
    #[arg(long)]
    detach: bool,
    /// How long to follow the job, as 10m; default until it ends.
    #[arg(long)]
    timeout: Option<GoDuration>,
    /// How the written job is printed.
    #[arg(short, long)]
    output: Option<Output>,
}

impl AfterArgs {
    /// Prints the job, where that is asked for.
    fn print(&self, job: &Job) -> anyhow::Result<()> {
        output::changed(job, self.output.as_ref())
    }

    /// Follows the job to its end, unless nobody waits for that: then `state` is said of it.
    async fn follow(&self, connection: &Connection, job: &Job, state: &str) -> anyhow::Result<u8> {
        let (name, namespace) = (job.metadata.name.as_deref().unwrap_or_default(), &connection.namespace);
        let again = format!("drover job status {name} -n {namespace} -w");
        if self.detach {
            complain(&format!("djob/{name} {state}; watch it with `{again}`"));
            return Ok(0);
        }
        let (generation, timeout) = (job.metadata.generation.unwrap_or(0), self.timeout.map(GoDuration::to_std));
        follow(connection.client.clone(), &Follow { namespace, job: name, generation, again, timeout }).await
    }
}

/// The deployments of a job's present incarnation, newest first.
pub(super) async fn deployments_of(connection: &Connection, job: &Job) -> anyhow::Result<Vec<Deployment>> {
    let mut own: Vec<Deployment> = connection.objects::<Deployment>().list(&of_job(job)).await?;
    own.retain(|one| Some(&one.spec.job_uid) == job.metadata.uid.as_ref());
    own.sort_by_key(|one| std::cmp::Reverse((one.metadata.creation_timestamp.clone(), one.spec.job_version)));
    Ok(own)
}

/// The versions of a job's present incarnation, newest first.
async fn versions_of(connection: &Connection, job: &Job) -> anyhow::Result<Vec<JobVersion>> {
    let mut own: Vec<JobVersion> = connection.objects::<JobVersion>().list(&of_job(job)).await?;
    own.retain(|one| Some(&one.spec.job_uid) == job.metadata.uid.as_ref());
    own.sort_by_key(|one| std::cmp::Reverse(one.spec.version));
    Ok(own)
}

fn of_job(job: &Job) -> ListParams {
    ListParams::default().fields(&format!("spec.jobName={}", job.metadata.name.as_deref().unwrap_or_default()))
}

/// Refuses what must not happen while a roll-out is under way.
fn refuse_during_rollout(job: &str, deployments: &[Deployment]) -> anyhow::Result<()> {
    let active = deployments.iter().find(|one| one.status.as_ref().is_none_or(|status| status.phase.is_active()));
    if let Some(deployment) = active {
        let name = deployment.metadata.name.as_deref().unwrap_or_default();
        let phase = deployment.status.as_ref().map(|status| status.phase).unwrap_or_default();
        bail!(
            "cannot scale djob/{job}: its deployment ddep/{name} is {phase}; wait for its end (`drover job status {job} -w`), or end it with `drover deployment fail {name}`"
        );
    }
    Ok(())
}
