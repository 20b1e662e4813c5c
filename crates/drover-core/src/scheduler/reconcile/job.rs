//! What should exist of a whole job: each of its groups, and the deployment that they share.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_api::deployment::GroupState;

use super::ending::{marks, stop_all};
use super::group::{self, Subject};
use super::outcome::{Fits, JobOutcome};
use super::rollout::Rollout;
use crate::model::{Alloc, Job};
use crate::scheduler::plan::Evaluation;
use crate::snapshot::ClusterView;

/// Decides for a job; one that is absent counts as stopped. O(allocations of the job).
pub fn reconcile(view: &ClusterView, job: Option<&Job>, eval: &Evaluation, fits: &mut Fits<'_>) -> JobOutcome {
    let rollout = Rollout::of(view, &eval.job, job);
    let mut outcome =
        JobOutcome { deployment_updates: rollout.cancelled().into_iter().collect(), ..JobOutcome::default() };
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
            Some((job, group)) => group::decide(view, Subject { job, group, rollout, eval }, &allocs, fits),
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
