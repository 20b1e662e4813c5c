//! Whether what a plan wants on one node can still be had there: the last look before anything is written
//! (`spec/scheduler.md` 8). Plans are made side by side on pictures that may be old; this is asked on the newest one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use drover_api::allocation::{ClientStatus, DesiredStatus};
use drover_api::client_node::NodePhase;

use crate::ids::{AllocKey, JobKey, NodeName};
use crate::model::{Alloc, Job};
use crate::scheduler::place::fit;
use crate::scheduler::plan::{Placement, Plan, Stop, StopReason};
use crate::scheduler::reconcile::is_replaced_while_away;
use crate::snapshot::ClusterView;
use crate::usage::{Usage, ports_alone};

/// What a plan does on one node.
#[derive(Debug, Default)]
pub struct OnNode<'a> {
    /// Allocations that end there, evicted ones included.
    pub ends: Vec<&'a Arc<Alloc>>,
    /// Marks of a client status.
    pub marks: Vec<(&'a Arc<Alloc>, ClientStatus)>,
    /// Allocations that begin there.
    pub placements: Vec<&'a Placement>,
    /// Allocations that go on there with other resources.
    pub updates: Vec<(&'a Arc<Alloc>, &'a drover_api::allocation::AllocatedResources)>,
}

/// Splits a plan by node.
pub fn by_node(plan: &Plan) -> BTreeMap<&NodeName, OnNode<'_>> {
    let mut nodes: BTreeMap<&NodeName, OnNode<'_>> = BTreeMap::new();
    for stop in plan.stops.iter().chain(plan.replaced()) {
        let on = nodes.entry(&stop.alloc.node).or_default();
        on.ends.push(&stop.alloc);
        on.marks.extend(stop.client.map(|client| (&stop.alloc, client)));
    }
    for (victim, _) in plan.preempted() {
        nodes.entry(&victim.node).or_default().ends.push(victim);
    }
    for disconnect in &plan.disconnects {
        let on = nodes.entry(&disconnect.alloc.node).or_default();
        on.marks.push((&disconnect.alloc, ClientStatus::Unknown));
    }
    for placement in &plan.placements {
        nodes.entry(&placement.node).or_default().placements.push(placement);
    }
    for update in &plan.in_place {
        nodes.entry(&update.alloc.node).or_default().updates.push((&update.alloc, &update.resources));
    }
    nodes
}

/// Adds the stops that an earlier plan began and did not finish: an allocation that is marked lost ends for good, or
/// its node would go on with it when it comes back. The mark and the stop are two writes.
pub fn finish_lost(view: &ClusterView, job: &JobKey, plan: &mut Plan) {
    let half: Vec<Stop> = {
        let known: BTreeSet<&AllocKey> = plan.stops.iter().chain(plan.replaced()).map(|stop| &stop.alloc.key).collect();
        let is_half = |alloc: &&Arc<Alloc>| {
            alloc.client == ClientStatus::Lost && alloc.desired == DesiredStatus::Run && !known.contains(&alloc.key)
        };
        view.allocs_of_job(job).filter(is_half).map(|alloc| Stop::new(alloc, StopReason::Lost)).collect()
    };
    plan.stops.extend(half);
}

/// Takes out of a plan what its nodes refuse, and says what that is. With `allAtOnce` one refusal leaves nothing, the
/// deployment included. Canaries that are left out leave their deployment too.
pub fn admit(view: &ClusterView, job: Option<&Job>, plan: &mut Plan) -> Vec<(NodeName, Rejection)> {
    let refused: Vec<(NodeName, Rejection)> = by_node(plan)
        .iter()
        .filter_map(|(node, wanted)| Some(((*node).clone(), check(view, job, node, wanted).err()?)))
        .collect();
    if refused.is_empty() {
        return refused;
    }
    if job.is_some_and(|job| job.definition.spec.all_at_once) {
        *plan = Plan { desired: std::mem::take(&mut plan.desired), ..Plan::default() };
        return refused;
    }
    let is_out = |node: &NodeName| refused.iter().any(|(out, _)| out == node);
    plan.placements.retain(|placement| {
        let elsewhere = placement.preempts.iter().map(|victim| &victim.node);
        !is_out(&placement.node) && !elsewhere.into_iter().any(is_out)
    });
    plan.in_place.retain(|update| !is_out(&update.alloc.node));
    plan.disconnects.retain(|cut| !is_out(&cut.alloc.node));
    refused
}

/// Why a node does not take its part of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The node does not exist any more.
    Gone,
    /// The node is in a phase in which it takes nothing like this.
    Phase(NodePhase),
    /// It is ineligible or draining.
    NotEligible,
    /// Something is no longer free.
    Exhausted(String),
}

impl std::fmt::Display for Rejection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Gone => f.write_str("the node is gone"),
            Self::Phase(phase) => write!(f, "the node is {phase}"),
            Self::NotEligible => f.write_str("the node is ineligible or being drained"),
            Self::Exhausted(dimension) => write!(f, "the node has no room: {dimension}"),
        }
    }
}

/// Checks a node's part of a job's plan against the newest state. O(allocations on the node).
///
/// # Errors
/// Why nothing but stops may happen there.
pub fn check(view: &ClusterView, job: Option<&Job>, node: &NodeName, wanted: &OnNode<'_>) -> Result<(), Rejection> {
    if wanted.placements.is_empty()
        && wanted.updates.is_empty()
        && wanted.marks.iter().all(|(_, to)| *to == ClientStatus::Lost)
    {
        return Ok(());
    }
    let Some(entry) = view.node_entry(node) else { return Err(Rejection::Gone) };
    let known = &entry.node;
    let only_marks = wanted.placements.is_empty() && wanted.updates.is_empty();
    match known.phase {
        NodePhase::Disconnected if only_marks => return Ok(()),
        NodePhase::Down => {
            let may = |(alloc, to): &(&Arc<Alloc>, ClientStatus)| match to {
                ClientStatus::Lost => true,
                ClientStatus::Unknown => !is_replaced_while_away(view, alloc),
                _ => false,
            };
            let accepts = only_marks && wanted.marks.iter().all(may);
            return if accepts { Ok(()) } else { Err(Rejection::Phase(known.phase)) };
        }
        NodePhase::Disconnected | NodePhase::Initializing if !only_marks => return Err(Rejection::Phase(known.phase)),
        NodePhase::Disconnected | NodePhase::Initializing | NodePhase::Ready => {}
    }
    let is_there = |alloc: &Arc<Alloc>| view.alloc(&alloc.key).is_some_and(|stored| !stored.is_terminal());
    if wanted.placements.is_empty() && wanted.updates.iter().all(|(alloc, _)| is_there(alloc)) {
        return Ok(());
    }
    if !known.is_ready() {
        return Err(Rejection::NotEligible);
    }
    fits(view, job, node, wanted)
}

fn fits(view: &ClusterView, job: Option<&Job>, node: &NodeName, wanted: &OnNode<'_>) -> Result<(), Rejection> {
    let Some(entry) = view.node_entry(node) else { return Err(Rejection::Gone) };
    let mut usage = entry.usage.clone();
    let mut released: BTreeSet<&AllocKey> = BTreeSet::new();
    let updated = wanted.updates.iter().map(|(alloc, _)| *alloc);
    for alloc in wanted.ends.iter().copied().chain(updated) {
        let stored = view.alloc(&alloc.key).filter(|stored| stored.holds_room() && stored.node == *node);
        if let Some(stored) = stored.filter(|stored| released.insert(&stored.key)) {
            usage.remove(&view.held_by(stored));
        }
    }
    let placed = wanted.placements.iter().map(|placement| {
        let version = job.and_then(|job| view.version(&job.key, &job.uid, placement.job_version));
        let group = version.or(job.map(|job| &job.definition)).and_then(|known| known.group(&placement.group));
        (&*placement.resources, group)
    });
    let updated = wanted.updates.iter().map(|(alloc, resources)| {
        let group = view.definition_of(alloc).and_then(|known| known.group(&alloc.group));
        (*resources, group)
    });
    let mut added = Usage::default();
    for (resources, group) in placed.chain(updated) {
        let is_taken =
            |(address, port): &(IpAddr, u16)| [&usage, &added].iter().any(|it| it.holds_port(*address, *port));
        if let Some((_, port)) = ports_alone(resources, group).find(is_taken) {
            return Err(Rejection::Exhausted(format!("network: port {port} is taken")));
        }
        added.add(&Usage::of(resources, group));
    }
    exhausted(entry, &usage, &added).map_or(Ok(()), |dimension| Err(Rejection::Exhausted(dimension)))
}

fn exhausted(entry: &crate::snapshot::NodeEntry, usage: &Usage, added: &Usage) -> Option<String> {
    let node = &entry.node;
    let mut total = usage.clone();
    total.add(added);
    if added.cores.iter().enumerate().any(|(at, core)| usage.cores.contains(core) || added.cores[..at].contains(core)) {
        return Some("cores".to_owned());
    }
    let twice = |at: usize, device: &crate::usage::DeviceKey| {
        usage.devices.contains(device) || added.devices[..at].contains(device)
    };
    if added.devices.iter().enumerate().any(|(at, device)| twice(at, device)) {
        return Some("devices: no devices left".to_owned());
    }
    if node.max_allocs.is_some_and(|most| total.n_allocs > most) {
        return Some("maxAllocs".to_owned());
    }
    fit::exhausted(node.allocatable, usage.amounts, added.amounts).map(str::to_owned)
}
