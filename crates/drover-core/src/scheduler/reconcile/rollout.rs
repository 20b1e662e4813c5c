//! Which deployment an evaluation rolls out, and what becomes of the others.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_api::deployment::{DeploymentDescription, DeploymentPhase, GroupState};
use drover_api::names::deployment_name;

use crate::ids::JobKey;
use crate::model::{Deployment, Job};
use crate::scheduler::plan::{DeploymentPlan, DeploymentUpdate};
use crate::snapshot::ClusterView;

/// The deployments of a job as one evaluation sees them (3.12).
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::scheduler) struct Rollout<'a> {
    /// The one of the job's version, unless it was successful.
    pub(in crate::scheduler) current: Option<&'a Deployment>,
    /// Another one, which is over.
    pub(in crate::scheduler) old: Option<&'a Deployment>,
    /// What must be recorded about it.
    pub(in crate::scheduler) ended: Option<(DeploymentPhase, DeploymentDescription)>,
}

impl<'a> Rollout<'a> {
    /// Finds out which deployment counts.
    pub(in crate::scheduler) fn of(view: &'a ClusterView, key: &JobKey, job: Option<&Job>) -> Self {
        let Some(latest) = view.latest_deployment(key).map(|latest| &**latest) else { return Self::default() };
        let ends = |description| latest.phase.is_active().then_some((DeploymentPhase::Cancelled, description));
        let Some(job) = job.filter(|job| !job.stopped) else {
            return Self { current: None, old: Some(latest), ended: ends(DeploymentDescription::StoppedJob) };
        };
        if latest.job_uid != job.uid || latest.job_version != job.version {
            return Self { current: None, old: Some(latest), ended: ends(DeploymentDescription::NewerJob) };
        }
        if latest.phase == DeploymentPhase::Successful {
            return Self { current: None, old: Some(latest), ended: None };
        }
        Self { current: Some(latest), old: None, ended: None }
    }

    /// Whether nothing new may be placed now.
    pub(in crate::scheduler) fn is_paused(&self) -> bool {
        let phase = self.current.map(|current| current.phase);
        matches!(phase, Some(DeploymentPhase::Paused | DeploymentPhase::Pending | DeploymentPhase::Initializing))
    }

    /// Whether the roll-out of this version failed.
    pub(in crate::scheduler) fn is_failed(&self) -> bool {
        self.current.is_some_and(|current| current.phase == DeploymentPhase::Failed)
    }

    /// The update of a deployment that this evaluation ends.
    pub(in crate::scheduler) fn cancelled(&self) -> Option<DeploymentUpdate> {
        let ((phase, description), old) = self.ended.zip(self.old)?;
        Some(DeploymentUpdate { deployment: old.key.clone(), phase, description })
    }

    /// The update of the current deployment when all its groups are complete.
    pub(in crate::scheduler) fn succeeded(&self) -> Option<DeploymentUpdate> {
        let current = self.current.filter(|current| current.phase == DeploymentPhase::Running)?;
        Some(DeploymentUpdate {
            deployment: current.key.clone(),
            phase: DeploymentPhase::Successful,
            description: DeploymentDescription::Successful,
        })
    }

    /// The deployment for groups that enter one: the current one, or a new one.
    pub(in crate::scheduler) fn entered(
        &self,
        view: &ClusterView,
        job: &Job,
        groups: BTreeMap<String, GroupState>,
    ) -> Option<DeploymentPlan> {
        if groups.is_empty() {
            return None;
        }
        let canaried: Vec<&GroupState> = groups.values().filter(|state| state.desired_canaries > 0).collect();
        let description = match canaried.iter().all(|state| state.auto_promote) {
            _ if canaried.is_empty() => DeploymentDescription::Running,
            true => DeploymentDescription::AutoPromotion,
            false => DeploymentDescription::NeedsPromotion,
        };
        let name = self.current.map_or_else(|| new_name(view, job), |current| Arc::clone(&current.key.name));
        Some(DeploymentPlan { name, is_new: self.current.is_none(), job_version: job.version, description, groups })
    }
}

/// The name of a job's next deployment. Not that of one which was deleted and whose allocations are still there: they
/// would be taken for its own.
fn new_name(view: &ClusterView, job: &Job) -> Arc<str> {
    let after = |newest| Arc::from(deployment_name(&job.key.name, job.uid.as_str(), job.version, newest));
    let name: Arc<str> = after(view.latest_deployment(&job.key).map(|latest| latest.uid.as_str()));
    let is_taken = view.allocs_of_job(&job.key).any(|alloc| alloc.deployment.as_ref() == Some(&name));
    if is_taken { after(Some(&*name)) } else { name }
}
