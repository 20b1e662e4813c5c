//! What should exist of a system or sysbatch job: the same on every node that fits (`spec/scheduler.md`, 7).

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_api::allocation::{ClientStatus, DesiredStatus};
use drover_api::client_node::NodePhase;
use drover_api::group::Group;
use drover_api::job::JobType;

use crate::ids::NodeName;
use crate::model::{Alloc, Job, Node};
use crate::scheduler::feasible;
use crate::scheduler::plan::{DesiredUpdates, Stop, StopReason};
use crate::scheduler::reconcile::{self, Currency, is_lost};
use crate::snapshot::ClusterView;

/// An allocation that should exist on a node and does not.
#[derive(Clone, Debug)]
pub struct MissingOnNode {
    /// The node.
    pub node: Arc<Node>,
    /// Its slot on that node.
    pub index: i64,
    /// The allocation that it replaces.
    pub previous: Option<Arc<Alloc>>,
    /// The allocation that ends for it.
    pub replaces: Option<Stop>,
}

/// What should become of one group.
#[derive(Debug, Default)]
pub struct SystemOutcome {
    /// Allocations to end.
    pub stops: Vec<Stop>,
    /// Allocations to make.
    pub missing: Vec<MissingOnNode>,
    /// Allocations that go on with the new version.
    pub in_place: Vec<Arc<Alloc>>,
    /// Updates that wait for earlier ones to be healthy.
    pub held_back: i64,
    /// Counters.
    pub desired: DesiredUpdates,
}

/// Decides for one group. O(nodes + allocations of the group).
pub fn group(view: &ClusterView, job: &Job, group: &Group, allocs: &[Arc<Alloc>]) -> SystemOutcome {
    let count = job.counts.get(&group.name).copied().unwrap_or(group.count);
    let mut out = SystemOutcome::default();
    let mut on_node: BTreeMap<&NodeName, Vec<&Arc<Alloc>>> = BTreeMap::new();
    for alloc in allocs {
        on_node.entry(&alloc.node).or_default().push(alloc);
    }
    let mut updates = Vec::new();
    let mut unsettled = 0;
    for (name, there) in &on_node {
        let live: Vec<_> = there.iter().filter(|alloc| !alloc.is_terminal()).collect();
        for alloc in live {
            match fate(view, job, group, alloc, count) {
                Fate::Keep => {
                    out.desired.ignore += 1;
                    unsettled +=
                        i64::from(alloc.health != Some(true) && view.node(name).is_some_and(|node| node.is_ready()));
                }
                Fate::Stop(stop) => out.stops.push(stop),
                Fate::InPlace => out.in_place.push(Arc::clone(alloc)),
                Fate::Replace => updates.push(Arc::clone(alloc)),
            }
        }
    }
    roll(view, group, updates, unsettled, &mut out);
    for node in view.nodes().filter(|node| node.is_ready() && feasible::is_covered(node, &job.definition)) {
        let there = on_node.get(&node.name).map_or(&[][..], Vec::as_slice);
        for index in 0..count {
            missing(view, job, group, node, there, index, &mut out);
        }
    }
    out.desired.place =
        i64::try_from(out.missing.iter().filter(|missing| missing.replaces.is_none()).count()).unwrap_or(0);
    out.desired.stop = i64::try_from(out.stops.len()).unwrap_or(0);
    out
}

enum Fate {
    Keep,
    Stop(Stop),
    InPlace,
    Replace,
}

fn fate(view: &ClusterView, job: &Job, group: &Group, alloc: &Arc<Alloc>, count: i64) -> Fate {
    let stop =
        |reason, client| Fate::Stop(Stop { alloc: Arc::clone(alloc), desired: DesiredStatus::Stop, reason, client });
    if alloc.index >= count {
        return stop(StopReason::NotNeeded, None);
    }
    if alloc.transition.migrate {
        return stop(StopReason::NodeTainted, None);
    }
    if is_lost(view, alloc) {
        return stop(StopReason::Lost, Some(ClientStatus::Lost));
    }
    let Some(node) = view.node(&alloc.node) else { return Fate::Keep };
    let currency = reconcile::currency(view, job, group, alloc);
    if node.phase != NodePhase::Ready || node.is_draining {
        return Fate::Keep;
    }
    if !feasible::is_covered(node, &job.definition) {
        return stop(StopReason::NotNeeded, None);
    }
    match currency {
        Currency::Current => Fate::Keep,
        Currency::InPlace | Currency::Destructive if !node.is_eligible => stop(StopReason::NotNeeded, None),
        Currency::InPlace if feasible::is_feasible(node, &job.definition, group) => Fate::InPlace,
        Currency::InPlace | Currency::Destructive => Fate::Replace,
    }
}

/// Replaces as many as maxParallel allows.
fn roll(view: &ClusterView, group: &Group, updates: Vec<Arc<Alloc>>, unsettled: i64, out: &mut SystemOutcome) {
    let max_parallel = group.update.as_ref().and_then(|update| update.max_parallel).unwrap_or(0);
    let limit = if max_parallel == 0 { updates.len() } else { usize::try_from(max_parallel - unsettled).unwrap_or(0) };
    for (n, alloc) in updates.into_iter().enumerate() {
        let Some(node) = view.node(&alloc.node) else { continue };
        if n >= limit {
            out.desired.ignore += 1;
            out.held_back += 1;
            continue;
        }
        out.desired.destructive_update += 1;
        let replaces = Stop {
            alloc: Arc::clone(&alloc),
            desired: DesiredStatus::Stop,
            reason: StopReason::Updating,
            client: None,
        };
        let index = alloc.index;
        out.missing.push(MissingOnNode {
            node: Arc::clone(node),
            index,
            previous: Some(alloc),
            replaces: Some(replaces),
        });
    }
}

/// Adds the slot of a node if nothing holds it.
fn missing(
    view: &ClusterView,
    job: &Job,
    group: &Group,
    node: &Arc<Node>,
    there: &[&Arc<Alloc>],
    index: i64,
    out: &mut SystemOutcome,
) {
    let slot = || there.iter().filter(|alloc| alloc.index == index);
    if slot().any(|alloc| !alloc.is_terminal()) {
        return;
    }
    let newest = slot().max_by_key(|alloc| (alloc.created_at, &alloc.key));
    let is_finished = job.definition.job_type() == JobType::Sysbatch
        && newest.is_some_and(|alloc| {
            alloc.is_client_terminal()
                && !alloc.is_deleting
                && alloc.desired == DesiredStatus::Run
                && reconcile::currency(view, job, group, alloc) == Currency::Current
        });
    if !is_finished {
        out.missing.push(MissingOnNode {
            node: Arc::clone(node),
            index,
            previous: newest.map(|alloc| Arc::clone(alloc)),
            replaces: None,
        });
    }
}
