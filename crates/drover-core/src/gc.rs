//! What is no longer needed (`spec/scheduler.md` 12).
//!
//! Input: the view and the time. Output: the objects to delete. Running things are never in question, and the newest
//! allocation of each slot stays, so that a finished batch slot does not run again. Must never know how objects are
//! deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drover_api::allocation::ClientStatus;
use drover_api::client_node::NodePhase;
use drover_api::job::{JobPhase, JobType};
use jiff::{SignedDuration, Timestamp};

use crate::ids::{AllocKey, JobKey, NodeName, ObjectKey};
use crate::model::{Alloc, Job, newest_of_slot};
use crate::snapshot::ClusterView;

/// How old what goes must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// For how long an ended allocation stays.
    pub alloc: SignedDuration,
    /// For how long one of a batch job stays.
    pub batch_alloc: SignedDuration,
    /// For how long an ended launch of a periodic job, or dispatch of a parameterized one, stays.
    pub job: SignedDuration,
    /// For how long a node that is down stays.
    pub node: SignedDuration,
    /// For how long a deployment that is over stays.
    pub deployment: SignedDuration,
    /// Ended allocations of a job whose slot a later one has held, that are kept at most.
    pub kept_allocs: usize,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            alloc: SignedDuration::from_hours(1),
            batch_alloc: SignedDuration::from_hours(24),
            job: SignedDuration::from_hours(4),
            node: SignedDuration::from_hours(24),
            deployment: SignedDuration::from_hours(1),
            kept_allocs: 100,
        }
    }
}

/// The allocations of a job that can go. O(its allocations).
pub fn allocations(view: &ClusterView, job: &JobKey, limits: &Thresholds, now: Timestamp) -> Vec<AllocKey> {
    let known = view.job(job);
    let mut slots: BTreeMap<SlotKey<'_>, Vec<&Arc<Alloc>>> = BTreeMap::new();
    for alloc in view.allocs_of_job(job) {
        slots.entry(slot(view, alloc)).or_default().push(alloc);
    }
    let newest: BTreeSet<&AllocKey> =
        slots.values().filter_map(|held| newest_of_slot(held)).map(|alloc| &alloc.key).collect();
    let is_past = |alloc: &&Arc<Alloc>| alloc.is_client_terminal() && !newest.contains(&alloc.key);
    let mut past: Vec<&Arc<Alloc>> = view.allocs_of_job(job).filter(is_past).collect();
    past.sort_by_key(|alloc| std::cmp::Reverse((alloc.last_event_at, alloc.created_at, &alloc.key)));
    let is_surplus = |at: usize, alloc: &Alloc| at >= limits.kept_allocs || is_old(view, known, alloc, limits, now);
    let gone = past.iter().enumerate().filter(|(at, alloc)| is_surplus(*at, alloc));
    gone.map(|(_, alloc)| alloc.key.clone()).collect()
}

/// Group, index, and the node where each has its own.
type SlotKey<'a> = (&'a str, i64, Option<&'a NodeName>);

fn slot<'a>(view: &ClusterView, alloc: &'a Alloc) -> SlotKey<'a> {
    // A version that is collected was of the job's type: that never changes.
    let of_job = || view.job(&alloc.job).map(|job| &job.definition);
    let job_type = view.definition_of(alloc).or_else(of_job).map(|definition| definition.job_type());
    let is_per_node = matches!(job_type, Some(JobType::System | JobType::Sysbatch));
    (&alloc.group, alloc.index, is_per_node.then_some(&alloc.node))
}

/// Whether an ended allocation is old, and nothing will be decided on it any more.
fn is_old(view: &ClusterView, job: Option<&Arc<Job>>, alloc: &Alloc, limits: &Thresholds, now: Timestamp) -> bool {
    let age = now.duration_since(alloc.last_event_at);
    let Some(job) = job.filter(|job| !job.stopped) else { return age > limits.alloc };
    match job.definition.job_type() {
        JobType::Batch | JobType::Sysbatch => age > limits.batch_alloc && alloc.job_version < job.version,
        JobType::Service | JobType::System => age > limits.alloc && !may_be_replaced(view, job, alloc, now),
    }
}

/// Whether a failed allocation may be replaced still.
fn may_be_replaced(view: &ClusterView, job: &Job, alloc: &Alloc, now: Timestamp) -> bool {
    if alloc.client != ClientStatus::Failed || alloc.is_server_terminal() || view.next_of(alloc).is_some() {
        return false;
    }
    let Some(policy) = job.definition.group(&alloc.group).and_then(|group| group.reschedule.as_ref()) else {
        return false;
    };
    if policy.unlimited.unwrap_or(false) {
        return true;
    }
    let last = alloc
        .tracker
        .as_ref()
        .and_then(|tracker| tracker.events.last())
        .map_or(alloc.last_event_at, |event| event.time);
    let interval = policy.interval.map(drover_api::GoDuration::to_std).unwrap_or_default();
    let interval = SignedDuration::try_from(interval).unwrap_or(SignedDuration::MAX);
    policy.attempts.unwrap_or(0) > 0 && now.duration_since(last) <= interval
}

/// Whether a node that went down that long ago can go: it has been down for long, and all of its allocations have
/// ended.
pub fn is_node_over(
    view: &ClusterView,
    node: &NodeName,
    phase: NodePhase,
    age: SignedDuration,
    limits: &Thresholds,
) -> bool {
    phase == NodePhase::Down && age > limits.node && view.allocs_on_node(node).all(|alloc| alloc.is_client_terminal())
}

/// The deployments of a job that can go: over for long, not its newest, and no live allocation belongs to them.
pub fn deployments(view: &ClusterView, job: &JobKey, limits: &Thresholds, now: Timestamp) -> Vec<ObjectKey> {
    let newest = view.latest_deployment(job).map(|latest| &latest.key);
    let in_use: BTreeSet<&str> = view
        .allocs_of_job(job)
        .filter(|alloc| !alloc.is_client_terminal())
        .filter_map(|alloc| alloc.deployment.as_deref())
        .collect();
    let is_over = |deployment: &&Arc<crate::model::Deployment>| {
        !deployment.phase.is_active()
            && Some(&deployment.key) != newest
            && now.duration_since(deployment.created_at) > limits.deployment
            && !in_use.contains(&*deployment.key.name)
    };
    view.deployments_of_job(job).filter(is_over).map(|deployment| deployment.key.clone()).collect()
}

/// Whether a job that drover or a command made of another one can go. One that a person made, as Git does, stays: it
/// would be made, and run, again.
pub fn is_launch_over(id: &str, phase: JobPhase, age: SignedDuration, limits: &Thresholds) -> bool {
    let is_made = id.contains("/periodic-") || id.contains("/dispatch-");
    is_made && phase == JobPhase::Dead && age > limits.job
}

#[cfg(test)]
mod tests;
