//! `drover job …`: what people do with jobs. Wishes go into specs, under the person's field manager; the controller acts on them.

mod change;
mod dispatch;
mod history;
mod restart;
mod run;
mod status;

use anyhow::bail;
use drover_api::{Deployment, Job, JobVersion, field_manager};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::trouble::{About, explain};

pub(super) use change::{ScaleArgs, StopArgs, scale, stop};
pub(super) use dispatch::{DispatchArgs, PeriodicCommand, dispatch, periodic};
pub(super) use history::{HistoryArgs, RevertArgs, history, revert};
pub(super) use restart::{RestartArgs, restart};
pub(super) use run::{RunArgs, run};
pub(super) use status::{StatusArgs, status};

/// A job of a namespace, and the way to it.
pub(super) struct Jobs {
    pub(super) client: Client,
    pub(super) namespace: String,
}

impl Jobs {
    pub(super) fn api(&self) -> Api<Job> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn about<'a>(&'a self, verb: &'a str, name: &'a str) -> About<'a> {
        About { verb, namespace: &self.namespace, name }
    }

    /// The job.
    pub(super) async fn get(&self, name: &str) -> anyhow::Result<Job> {
        self.api().get(name).await.map_err(|error| explain::<Job>(self.about("read", name), error))
    }

    /// Changes the job's spec, unless somebody else changed it since it was read.
    async fn change(&self, verb: &str, job: &Job, spec: &Value) -> anyhow::Result<Job> {
        let name = job.metadata.name.as_deref().unwrap_or_default();
        let body = json!({ "metadata": { "resourceVersion": job.metadata.resource_version }, "spec": spec });
        let params = PatchParams { field_manager: Some(field_manager::CLI.to_owned()), ..PatchParams::default() };
        let changed = self.api().patch(name, &params, &Patch::Merge(&body)).await;
        changed.map_err(|error| explain::<Job>(self.about(verb, name), error))
    }

    /// The deployments of a job's present incarnation, newest first.
    pub(super) async fn deployments(&self, job: &Job) -> anyhow::Result<Vec<Deployment>> {
        let name = job.metadata.name.as_deref().unwrap_or_default();
        let params = ListParams::default().fields(&format!("spec.jobName={name}"));
        let found = Api::<Deployment>::namespaced(self.client.clone(), &self.namespace).list(&params).await;
        let found = found.map_err(|error| explain::<Deployment>(self.about("list", ""), error))?;
        let mut own: Vec<Deployment> =
            found.items.into_iter().filter(|one| Some(&one.spec.job_uid) == job.metadata.uid.as_ref()).collect();
        own.sort_by_key(|one| std::cmp::Reverse((one.metadata.creation_timestamp.clone(), one.spec.job_version)));
        Ok(own)
    }

    /// The versions of a job's present incarnation, newest first.
    async fn versions(&self, job: &Job) -> anyhow::Result<Vec<JobVersion>> {
        let name = job.metadata.name.as_deref().unwrap_or_default();
        let params = ListParams::default().fields(&format!("spec.jobName={name}"));
        let found = Api::<JobVersion>::namespaced(self.client.clone(), &self.namespace).list(&params).await;
        let found = found.map_err(|error| explain::<JobVersion>(self.about("list", ""), error))?;
        let mut own: Vec<JobVersion> =
            found.items.into_iter().filter(|one| Some(&one.spec.job_uid) == job.metadata.uid.as_ref()).collect();
        own.sort_by_key(|one| std::cmp::Reverse(one.spec.version));
        Ok(own)
    }
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
