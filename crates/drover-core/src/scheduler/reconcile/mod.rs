//! What should exist of a service or batch job: which allocations stay, stop, change, are replaced or are missing
//! (`spec/scheduler.md` 3). Never looks at what nodes have room for, but for one question about allocations that may go on
//! where they are.

mod currency;
mod group;
mod names;
mod reconnect;
mod sort;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drover_api::allocation::{AllocatedResources, FollowUp};
use drover_api::deployment::{DeploymentDescription, DeploymentPhase, GroupState};
use drover_api::group::Group;
use drover_api::names::deployment_name;

use crate::model::{Alloc, Deployment, Job};
use crate::scheduler::plan::{
    AttributeUpdate, DeploymentPlan, DeploymentUpdate, DesiredUpdates, Disconnect, Evaluation, Stop, StopReason,
};
use crate::snapshot::ClusterView;

pub use currency::{Currency, currency};
pub(crate) use sort::{expires_at, is_lost, is_replaced_while_away, lost_after};

/// An allocation that should exist and does not.
#[derive(Clone, Debug)]
pub struct Missing {
    /// Its slot.
    pub index: i64,
    /// The allocation that it replaces.
    pub previous: Option<Arc<Alloc>>,
    /// Whether it replaces one that failed or is cut off.
    pub is_reschedule: bool,
    /// Whether it is a canary.
    pub canary: bool,
    /// The allocation that ends only if a node is found.
    pub replaces: Option<Stop>,
    /// Whether it brings a new version to the slot of `replaces`.
    pub is_destructive: bool,
    /// The version that it is to run, where that is not the job's.
    pub job_version: Option<i64>,
}

impl Missing {
    /// A missing allocation of a slot.
    pub fn new(index: i64, previous: Option<Arc<Alloc>>) -> Self {
        Self {
            index,
            previous,
            is_reschedule: false,
            canary: false,
            replaces: None,
            is_destructive: false,
            job_version: None,
        }
    }
}

/// What should become of one group.
#[derive(Debug, Default)]
pub struct GroupOutcome {
    /// Allocations to end.
    pub stops: Vec<Stop>,
    /// Allocations to make: destructive updates first.
    pub missing: Vec<Missing>,
    /// Allocations that go on with the new version where they are, and what they hold there.
    pub in_place: Vec<(Arc<Alloc>, Arc<AllocatedResources>)>,
    /// Allocations that are cut off.
    pub disconnects: Vec<Disconnect>,
    /// Allocations that are back.
    pub reconnects: Vec<Arc<Alloc>>,
    /// Destructive updates that wait.
    pub held_back: i64,
    /// Follow-ups to note on allocations.
    pub attributes: Vec<AttributeUpdate>,
    /// Evaluations to make later.
    pub follow_ups: Vec<FollowUp>,
    /// Counters.
    pub desired: DesiredUpdates,
    /// Where the group stands in a deployment that it enters anew.
    pub enters: Option<GroupState>,
    /// Whether nothing of it is under way.
    pub is_complete: bool,
}

/// What should become of a job.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Each group of the job, and groups that only allocations name.
    pub groups: BTreeMap<Arc<str>, GroupOutcome>,
    /// Deployments that end.
    pub deployment_updates: Vec<DeploymentUpdate>,
    /// A deployment to make, or to enter.
    pub deployment: Option<DeploymentPlan>,
    /// The active deployment that new allocations join.
    pub joins: Option<Arc<str>>,
}

/// Says whether an allocation can go on where it is under the job's version, and what it holds then. The flag says whether its
/// node must still suit.
pub type Fits<'a> = dyn FnMut(&Group, &Arc<Alloc>, bool) -> Option<Arc<AllocatedResources>> + 'a;

/// The deployments of a job as one evaluation sees them (3.12).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rollout<'a> {
    /// The one of the job's version, unless it was successful.
    pub(super) current: Option<&'a Deployment>,
    /// Another one, which is over.
    pub(super) old: Option<&'a Deployment>,
    /// What must be said about it.
    pub(super) ended: Option<(DeploymentPhase, DeploymentDescription)>,
}

impl<'a> Rollout<'a> {
    /// Finds out which deployment counts.
    pub(super) fn of(view: &'a ClusterView, key: &crate::ids::JobKey, job: Option<&Job>) -> Self {
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
    pub(super) fn is_paused(&self) -> bool {
        let phase = self.current.map(|current| current.phase);
        matches!(phase, Some(DeploymentPhase::Paused | DeploymentPhase::Pending | DeploymentPhase::Initializing))
    }

    /// Whether the roll-out of this version failed.
    pub(super) fn is_failed(&self) -> bool {
        self.current.is_some_and(|current| current.phase == DeploymentPhase::Failed)
    }

    /// The update of a deployment that this evaluation ends.
    pub(super) fn cancelled(&self) -> Option<DeploymentUpdate> {
        let ((phase, description), old) = self.ended.zip(self.old)?;
        Some(DeploymentUpdate { deployment: old.key.clone(), phase, description })
    }

    /// The update of the current deployment when all its groups are complete.
    pub(super) fn succeeded(&self) -> Option<DeploymentUpdate> {
        let current = self.current.filter(|current| current.phase == DeploymentPhase::Running)?;
        Some(DeploymentUpdate {
            deployment: current.key.clone(),
            phase: DeploymentPhase::Successful,
            description: DeploymentDescription::Successful,
        })
    }

    /// The deployment for groups that enter one: the current one, or a new one.
    pub(super) fn entered(
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
        let name = self.current.map_or_else(
            || {
                let newest = view.latest_deployment(&job.key).map(|latest| latest.uid.as_str());
                Arc::from(deployment_name(&job.key.name, job.uid.as_str(), job.version, newest))
            },
            |current| Arc::clone(&current.key.name),
        );
        Some(DeploymentPlan { name, is_new: self.current.is_none(), job_version: job.version, description, groups })
    }
}

/// Decides for a job; one that is absent counts as stopped. O(allocations of the job).
pub fn reconcile(view: &ClusterView, job: Option<&Job>, eval: &Evaluation, fits: &mut Fits<'_>) -> Outcome {
    let rollout = Rollout::of(view, &eval.job, job);
    let mut outcome = Outcome { deployment_updates: rollout.cancelled().into_iter().collect(), ..Outcome::default() };
    let mut by_group: BTreeMap<Arc<str>, Vec<Arc<Alloc>>> = BTreeMap::new();
    for alloc in view.allocs_of_job(&eval.job) {
        by_group.entry(Arc::from(alloc.group.as_str())).or_default().push(Arc::clone(alloc));
    }
    let running = job.filter(|job| !job.stopped);
    for group in running.iter().flat_map(|job| &job.definition.spec.groups) {
        by_group.entry(Arc::from(group.name.as_str())).or_default();
    }
    for (name, allocs) in by_group {
        let known = running.and_then(|job| Some((job, job.definition.group(&name)?)));
        let mut decided = match known {
            Some((job, group)) => group::decide(view, group::Subject { job, group, rollout, eval }, &allocs, fits),
            None => stop_all(view, &allocs, eval),
        };
        decided.stops.extend(marks(view, &allocs, &decided.stops));
        outcome.groups.insert(name, decided);
    }
    let Some(job) = running else { return outcome };
    let enters: BTreeMap<String, GroupState> =
        outcome.groups.iter_mut().filter_map(|(name, group)| Some((name.to_string(), group.enters.take()?))).collect();
    outcome.deployment = rollout.entered(view, job, enters);
    if outcome.deployment.is_none() && outcome.groups.values().all(|group| group.is_complete) {
        outcome.deployment_updates.extend(rollout.succeeded());
    }
    let active = rollout.current.filter(|current| current.phase.is_active()).map(|current| &current.key.name);
    outcome.joins = outcome.deployment.as_ref().map(|plan| &plan.name).or(active).map(Arc::clone);
    outcome
}

/// Stops everything of a job or group that is not wanted any more.
pub(super) fn stop_all(view: &ClusterView, allocs: &[Arc<Alloc>], eval: &Evaluation) -> GroupOutcome {
    let stops: Vec<Stop> = allocs
        .iter()
        .filter(|alloc| !alloc.is_terminal())
        .map(|alloc| {
            let is_over = is_lost(view, alloc) || sort::classify(view, alloc, eval.now) == sort::Class::Lost;
            if is_over { Stop::lost(alloc) } else { Stop::new(alloc, StopReason::NotNeeded) }
        })
        .collect();
    let desired = DesiredUpdates { stop: size(stops.len()), ..DesiredUpdates::default() };
    GroupOutcome { stops, desired, is_complete: true, ..GroupOutcome::default() }
}

/// Marks of allocations that are to end already and whose node will never say so.
pub(super) fn marks(view: &ClusterView, allocs: &[Arc<Alloc>], stops: &[Stop]) -> Vec<Stop> {
    let decided: BTreeSet<_> = stops.iter().map(|stop| &stop.alloc.key).collect();
    let is_stuck = |alloc: &&Arc<Alloc>| {
        alloc.is_server_terminal()
            && !alloc.is_client_terminal()
            && is_lost(view, alloc)
            && !decided.contains(&alloc.key)
    };
    allocs.iter().filter(is_stuck).map(Stop::lost).collect()
}

/// A number of things as a count.
pub(super) fn size(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
