//! The scheduler: `plan` looks at one job and says what to do. Pure and deterministic: the same view, evaluation and seed give
//! the same plan. It must never know how plans are written, or a clock.

pub mod feasible;
pub mod operand;
pub mod plan;
pub mod rank;
pub mod reconcile;
pub mod reschedule;
pub mod system;
pub mod typed;
pub mod usage;
pub mod version;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drover_api::allocation::ClientStatus;
use drover_api::group::Group;
use drover_api::job::JobType;
use drover_api::metric::AllocMetric;

use crate::model::{Alloc, Job};
use crate::scheduler::feasible::Candidates;
use crate::scheduler::plan::{Evaluation, InPlace, Placement, Plan};
use crate::scheduler::rank::Ask;
use crate::scheduler::reconcile::Missing;
use crate::scheduler::usage::Proposed;
use crate::snapshot::ClusterView;

/// Decides what one job needs now. A job that the view does not have counts as stopped.
pub fn plan(view: &ClusterView, eval: &Evaluation, rng: &mut fastrand::Rng) -> Plan {
    let allocs: Vec<Arc<Alloc>> = view.allocs_of_job(&eval.job).cloned().collect();
    let Some(job) = view.job(&eval.job).filter(|job| !job.stopped) else {
        return Plan { stops: reconcile::stop_all(view, allocs.iter()), ..Plan::default() };
    };
    let mut planner = Planner { view, job, eval, rng, proposed: Proposed::new(view), plan: Plan::default() };
    let known: BTreeSet<&str> = job.definition.spec.groups.iter().map(|group| group.name.as_str()).collect();
    let (current, orphans): (Vec<_>, Vec<_>) =
        allocs.into_iter().partition(|alloc| known.contains(alloc.group.as_str()));
    for stop in reconcile::stop_all(view, orphans.iter()) {
        planner.proposed.stop(&stop.alloc);
        planner.plan.stops.push(stop);
    }
    for group in &job.definition.spec.groups {
        let of_group: Vec<Arc<Alloc>> = current.iter().filter(|alloc| alloc.group == group.name).cloned().collect();
        match job.definition.job_type() {
            JobType::Service | JobType::Batch => planner.counted_group(group, &of_group),
            JobType::System | JobType::Sysbatch => planner.system_group(group, &of_group),
        }
    }
    planner.plan
}

struct Planner<'a> {
    view: &'a ClusterView,
    job: &'a Job,
    eval: &'a Evaluation,
    rng: &'a mut fastrand::Rng,
    proposed: Proposed<'a>,
    plan: Plan,
}

impl Planner<'_> {
    fn counted_group(&mut self, group: &Group, allocs: &[Arc<Alloc>]) {
        let outcome = reconcile::group(self.view, self.job, group, allocs, self.eval.now);
        for stop in &outcome.stops {
            self.proposed.stop(&stop.alloc);
        }
        self.plan.stops.extend(outcome.stops);
        self.plan.attributes.extend(outcome.attributes);
        self.plan.follow_ups.extend(outcome.follow_ups);
        self.plan.held_back += outcome.held_back;
        let mut desired = outcome.desired;
        for alloc in outcome.in_place {
            desired.in_place_update += 1;
            self.in_place(alloc);
        }
        let candidates = if outcome.missing.is_empty() {
            Candidates::default()
        } else {
            feasible::candidates(self.view, &self.job.definition, group)
        };
        let mut queued = 0;
        for missing in outcome.missing {
            queued += i64::from(!self.place(group, &candidates, missing));
        }
        self.plan.queued.insert(group.name.clone(), queued);
        self.plan.desired.insert(group.name.clone(), desired);
    }

    fn in_place(&mut self, alloc: Arc<Alloc>) {
        let resources = (*alloc.resources).clone();
        self.plan.in_place.push(InPlace { alloc, job_version: self.job.version, resources });
    }

    /// Places one allocation; false when no node has room.
    fn place(&mut self, group: &Group, candidates: &Candidates, missing: Missing) -> bool {
        if let Some(failed) = self.plan.failed.get_mut(&group.name) {
            failed.coalesced_failures += 1;
            return false;
        }
        if let Some(stop) = &missing.replaces {
            self.proposed.stop(&stop.alloc);
        }
        let penalty = penalty_nodes(missing.previous.as_deref());
        let count = self.job.counts.get(&group.name).copied().unwrap_or(group.count);
        let ask = Ask { job: &self.job.key, definition: &self.job.definition, group, count, penalty: &penalty };
        match rank::best(ask, candidates, &mut self.proposed, self.rng) {
            Ok(choice) => {
                self.proposed.place(&choice.node.name, &self.job.key, group, &choice.resources);
                let policy = group.reschedule.as_ref().filter(|_| missing.is_reschedule);
                let tracker = missing.previous.as_deref().and_then(|previous| {
                    policy.map(|policy| reschedule::successor_tracker(previous, policy, self.eval.now))
                });
                self.plan.placements.push(Placement {
                    group: group.name.clone(),
                    index: missing.index,
                    node: choice.node.name.clone(),
                    job_version: self.job.version,
                    resources: choice.resources,
                    previous: missing.previous,
                    replaces: missing.replaces,
                    tracker,
                    metrics: choice.metrics,
                    score: choice.score,
                });
                true
            }
            Err(metrics) => {
                if let Some(stop) = &missing.replaces {
                    self.proposed.keep(&stop.alloc);
                }
                self.plan.failed.insert(group.name.clone(), *metrics);
                false
            }
        }
    }

    fn system_group(&mut self, group: &Group, allocs: &[Arc<Alloc>]) {
        let outcome = system::group(self.view, self.job, group, allocs);
        for stop in &outcome.stops {
            self.proposed.stop(&stop.alloc);
        }
        self.plan.stops.extend(outcome.stops);
        self.plan.held_back += outcome.held_back;
        let mut desired = outcome.desired;
        for alloc in outcome.in_place {
            desired.in_place_update += 1;
            self.in_place(alloc);
        }
        let all = feasible::candidates(self.view, &self.job.definition, group);
        let fitting: BTreeMap<_, _> = all.nodes.iter().map(|node| (&node.name, node)).collect();
        let mut exhausted: Option<AllocMetric> = None;
        let mut queued = 0;
        for missing in outcome.missing {
            let Some(node) = fitting.get(&missing.node.name) else {
                self.plan.stops.extend(missing.replaces);
                continue;
            };
            let alone = Candidates { nodes: vec![Arc::clone(*node)], metric: all.metric.clone() };
            let one = Missing {
                index: missing.index,
                previous: missing.previous,
                is_reschedule: false,
                replaces: missing.replaces,
            };
            let replaces = one.replaces.clone();
            if !self.place(group, &alone, one) {
                queued += 1;
                self.plan.stops.extend(replaces);
                let failed = self.plan.failed.remove(&group.name);
                match (&mut exhausted, failed) {
                    (Some(first), Some(_)) => first.coalesced_failures += 1,
                    (slot, failed) => *slot = failed,
                }
            }
        }
        if let Some(metric) = exhausted {
            self.plan.failed.insert(group.name.clone(), metric);
        }
        self.plan.queued.insert(group.name.clone(), queued);
        self.plan.desired.insert(group.name.clone(), desired);
    }
}

/// Nodes on which an allocation and those before it failed.
fn penalty_nodes(previous: Option<&Alloc>) -> BTreeSet<crate::ids::NodeName> {
    let Some(previous) = previous.filter(|alloc| alloc.client == ClientStatus::Failed) else { return BTreeSet::new() };
    let events = previous.tracker.iter().flat_map(|tracker| &tracker.events);
    let mut nodes: BTreeSet<_> = events.map(|event| event.prev_node_name.as_str().into()).collect();
    nodes.insert(previous.node.clone());
    nodes
}

#[cfg(test)]
mod tests;
