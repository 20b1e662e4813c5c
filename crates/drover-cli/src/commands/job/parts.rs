//! The deployments and versions of a job.

use anyhow::bail;
use drover_api::{Deployment, Job, JobVersion};
use kube::api::ListParams;

use crate::cluster::connect::Connection;

/// The deployments of a job's present incarnation, newest first.
pub(crate) async fn deployments_of(connection: &Connection, job: &Job) -> anyhow::Result<Vec<Deployment>> {
    let mut own: Vec<Deployment> = connection.objects::<Deployment>().list(&of_job(job)).await?;
    own.retain(|one| Some(&one.spec.job_uid) == job.metadata.uid.as_ref());
    own.sort_by_key(|one| std::cmp::Reverse((one.metadata.creation_timestamp.clone(), one.spec.job_version)));
    Ok(own)
}

/// The versions of a job's present incarnation, newest first.
pub(super) async fn versions_of(connection: &Connection, job: &Job) -> anyhow::Result<Vec<JobVersion>> {
    let mut own: Vec<JobVersion> = connection.objects::<JobVersion>().list(&of_job(job)).await?;
    own.retain(|one| Some(&one.spec.job_uid) == job.metadata.uid.as_ref());
    own.sort_by_key(|one| std::cmp::Reverse(one.spec.version));
    Ok(own)
}

fn of_job(job: &Job) -> ListParams {
    ListParams::default().fields(&format!("spec.jobName={}", job.metadata.name.as_deref().unwrap_or_default()))
}

/// Refuses what must not happen while a roll-out is under way.
pub(super) fn refuse_during_rollout(job: &str, deployments: &[Deployment]) -> anyhow::Result<()> {
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
