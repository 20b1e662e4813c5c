//! What a node takes of a plan (`spec/scheduler.md` 8), beside the rows of its table in their order.

use std::collections::BTreeSet;
use std::net::IpAddr;

use fastrand::Rng;

use super::*;
use crate::scheduler::apply::{self, OnNode, Rejection};
use crate::scheduler::plan::Placement;
use crate::usage::Usage;

/// A node with allocations on it, and what a plan wants there.
struct PlanOnNode {
    world: World,
    ends: Vec<usize>,
    marks: Vec<(usize, ClientStatus)>,
    updates: Vec<(usize, AllocatedResources)>,
    placements: Vec<Placement>,
    is_replaced: bool,
}

fn resources(rng: &mut Rng) -> AllocatedResources {
    let ids: Vec<String> = if rng.u8(..4) == 0 { vec![rng.u8(..3).to_string()] } else { Vec::new() };
    let devices: Vec<Value> =
        ids.iter().map(|id| json!({ "vendor": "v", "type": "gpu", "name": "g", "ids": [id] })).collect();
    let cores: Vec<u8> = if rng.u8(..4) == 0 { vec![rng.u8(..4)] } else { Vec::new() };
    let ports: Vec<Value> = if rng.u8(..4) == 0 {
        vec![json!({ "label": "p", "value": rng.u8(80..83), "hostIP": "10.0.0.1" })]
    } else {
        Vec::new()
    };
    let task = json!({ "cpu": rng.i64(0..200), "memoryMB": rng.i64(0..200), "cores": cores, "devices": devices });
    serde_json::from_value(json!({ "tasks": { "t": task }, "diskMB": rng.i64(0..200), "ports": ports })).unwrap()
}

fn some_plan(template: &Placement, rng: &mut Rng) -> PlanOnNode {
    let is_replaced = rng.bool();
    let disconnect = json!({ "lostAfter": "5m", "replace": is_replaced });
    let mut world = World::without_nodes(&with(spec(9), "disconnect", disconnect));
    let phases = [NodePhase::Ready, NodePhase::Ready, NodePhase::Ready, NodePhase::Down, NodePhase::Disconnected];
    let phase = [phases.as_slice(), &[NodePhase::Initializing]].concat()[rng.usize(..6)];
    if rng.u8(..12) > 0 {
        let amount = |rng: &mut Rng| rng.i64(100..900);
        let allocatable = Amounts { cpu: amount(rng), memory_mb: amount(rng), disk_mb: amount(rng) };
        let max_allocs = (rng.u8(..4) == 0).then(|| rng.i64(0..6));
        let (is_eligible, is_draining) = (rng.u8(..10) > 0, rng.u8(..10) == 0);
        world.view.put_node(Node { phase, is_eligible, is_draining, allocatable, max_allocs, ..node("n-0") });
    }
    let n = rng.usize(0..5);
    for index in 0..n {
        let held = Arc::new(resources(rng));
        let client = [ClientStatus::Running, ClientStatus::Running, ClientStatus::Complete][rng.usize(..3)];
        let desired = [DesiredStatus::Run, DesiredStatus::Run, DesiredStatus::Stop][rng.usize(..3)];
        world.allocs([i64::try_from(index).unwrap()], |alloc| {
            (alloc.node, alloc.resources) = ("n-0".into(), Arc::clone(&held));
            (alloc.client, alloc.desired) = (client, desired);
        });
    }
    let some = |rng: &mut Rng, one_in: u8| (0..n).filter(|_| rng.u8(..one_in) == 0).collect::<Vec<_>>();
    let ends = some(rng, 3);
    let marks = some(rng, 4).into_iter().map(|at| (at, [ClientStatus::Lost, ClientStatus::Unknown][rng.usize(..2)]));
    let marks = marks.collect();
    // One that ends and is rewritten too frees its room once.
    let updates = some(rng, 4).into_iter().map(|at| (at, resources(rng))).collect();
    let placements = (0..[0, 0, 1, 2][rng.usize(..4)])
        .map(|_| Placement { resources: Arc::new(resources(rng)), ..template.clone() })
        .collect();
    PlanOnNode { world, ends, marks, updates, placements, is_replaced }
}

impl PlanOnNode {
    fn allocs(&self) -> Vec<&Arc<Alloc>> {
        self.world.view.allocs().collect()
    }

    fn checked(&self) -> Result<(), Rejection> {
        let allocs = self.allocs();
        let wanted = OnNode {
            ends: self.ends.iter().map(|at| allocs[*at]).collect(),
            marks: self.marks.iter().map(|(at, to)| (allocs[*at], *to)).collect(),
            placements: self.placements.iter().collect(),
            updates: self.updates.iter().map(|(at, held)| (allocs[*at], held)).collect(),
        };
        apply::check(&self.world.view, Some(&self.world.job), &"n-0".into(), &wanted)
    }

    /// The first row that matches.
    fn by_table(&self) -> Result<(), Rejection> {
        let is_mark_only = self.placements.is_empty() && self.updates.is_empty();
        let is_lost = |(_, to): &(usize, ClientStatus)| *to == ClientStatus::Lost;
        if is_mark_only && self.marks.iter().all(is_lost) {
            return Ok(());
        }
        let Some(on) = self.world.view.node(&"n-0".into()) else { return Err(Rejection::Gone) };
        match on.phase {
            NodePhase::Disconnected if is_mark_only => return Ok(()),
            NodePhase::Down if is_mark_only && self.marks.iter().all(|mark| is_lost(mark) || !self.is_replaced) => {
                return Ok(());
            }
            NodePhase::Disconnected | NodePhase::Down => return Err(Rejection::Phase(on.phase)),
            NodePhase::Initializing if !is_mark_only => return Err(Rejection::Phase(on.phase)),
            NodePhase::Initializing | NodePhase::Ready => {}
        }
        let allocs = self.allocs();
        let is_there = |at: usize| allocs[at].desired == DesiredStatus::Run && !allocs[at].client.is_terminal();
        if self.placements.is_empty() && self.updates.iter().all(|(at, _)| is_there(*at)) {
            return Ok(());
        }
        if !on.is_eligible || on.is_draining {
            return Err(Rejection::NotEligible);
        }
        self.fit(on).map_or(Ok(()), |dimension| Err(Rejection::Exhausted(dimension)))
    }

    /// The first dimension that lacks, of what stays beside what is planned.
    fn fit(&self, on: &Node) -> Option<String> {
        let usage = |held: &AllocatedResources| Usage::of(held, Some(&self.world.job.definition.spec.groups[0]));
        let is_changed = |at: &usize| self.ends.contains(at) || self.updates.iter().any(|(of, _)| of == at);
        let allocs = self.allocs();
        let stays = (0..allocs.len()).filter(|at| !allocs[*at].client.is_terminal() && !is_changed(at));
        let mut all: Vec<Usage> = stays.map(|at| usage(&allocs[at].resources)).collect();
        let placed = self.placements.iter().map(|placement| usage(&placement.resources));
        let planned: Vec<Usage> = placed.chain(self.updates.iter().map(|(_, held)| usage(held))).collect();
        // Ports: each against all before it.
        for one in &planned {
            let held: BTreeSet<(IpAddr, u16)> = all.iter().flat_map(|usage| usage.ports.clone()).collect();
            if let Some((_, port)) = one.ports.iter().find(|port| held.contains(port)) {
                return Some(format!("network: port {port} is taken"));
            }
            all.push(one.clone());
        }
        let first_planned = all.len() - planned.len();
        let twice = |pick: &dyn Fn(&Usage) -> Vec<String>| {
            let mut held: Vec<String> = all[..first_planned].iter().flat_map(pick).collect();
            planned.iter().flat_map(pick).any(|one| {
                let is_held = held.contains(&one);
                held.push(one);
                is_held
            })
        };
        if twice(&|usage| usage.cores.iter().map(ToString::to_string).collect()) {
            return Some("cores".into());
        }
        if twice(&|usage| usage.devices.iter().map(|device| format!("{device:?}")).collect()) {
            return Some("devices: no devices left".into());
        }
        if on.max_allocs.is_some_and(|most| all.len() > usize::try_from(most).unwrap()) {
            return Some("maxAllocs".into());
        }
        let sum = |pick: fn(Amounts) -> i64| all.iter().map(|usage| pick(usage.amounts)).sum::<i64>();
        let sums = [sum(|of| of.cpu), sum(|of| of.memory_mb), sum(|of| of.disk_mb)];
        let Amounts { cpu, memory_mb, disk_mb } = on.allocatable;
        let lacks = ["cpu", "memory", "disk"].into_iter().zip(sums.into_iter().zip([cpu, memory_mb, disk_mb]));
        lacks.filter(|(_, (sum, most))| sum > most).map(|(name, _)| name.to_owned()).next()
    }
}

#[test]
fn a_node_takes_exactly_what_the_rows_say() {
    let template = World::new(&spec(1)).plan().placements.remove(0);
    let mut rng = Rng::with_seed(8);
    let mut outcomes: BTreeMap<String, usize> = BTreeMap::new();
    for case in 0..20_000 {
        let planned = some_plan(&template, &mut rng);
        let (got, wanted) = (planned.checked(), planned.by_table());
        assert_eq!(
            got,
            wanted,
            "case {case}: ends {:?}, marks {:?}, updates {:?}, placements {:?} with {:?} on {:?}",
            planned.ends,
            planned.marks,
            planned.updates,
            planned.placements.iter().map(|placement| &placement.resources).collect::<Vec<_>>(),
            planned.allocs(),
            planned.world.view.node(&"n-0".into()),
        );
        let outcome = wanted.err().map_or_else(|| "taken".to_owned(), |why| why.to_string());
        let outcome = outcome.split(": port").next().unwrap_or_default().to_owned();
        *outcomes.entry(outcome).or_default() += 1;
    }
    assert!(outcomes.len() == 13 && outcomes.values().all(|n| *n > 50), "{outcomes:#?}");
}

#[test]
fn a_plan_is_split_by_where_each_part_of_it_happens() {
    let mut world = World::new(&spec(9));
    world.allocs(0..6, |_| {});
    let in_slot = |index| Arc::clone(world.view.allocs().find(|alloc| alloc.index == index).unwrap());
    let mut plan = World::new(&spec(1)).plan();
    let mut on_n9 = plan.placements.remove(0);
    on_n9.node = "n-9".into();
    on_n9.preempts = vec![in_slot(3)];
    on_n9.replaces = Some(crate::scheduler::plan::Stop::lost(&in_slot(1)));
    let resources = Arc::clone(&on_n9.resources);
    plan.placements.push(on_n9);
    let stop = crate::scheduler::plan::Stop::new(&in_slot(0), crate::scheduler::plan::StopReason::NotNeeded);
    plan.stops.push(stop);
    plan.disconnects.push(crate::scheduler::plan::Disconnect { alloc: in_slot(4), follow_up: None });
    plan.in_place.push(crate::scheduler::plan::InPlace {
        alloc: in_slot(5),
        job_version: 1,
        deployment: None,
        resources,
    });
    let split: Vec<String> = apply::by_node(&plan)
        .iter()
        .map(|(node, on)| {
            let ends: Vec<i64> = on.ends.iter().map(|alloc| alloc.index).collect();
            let marks: Vec<String> = on.marks.iter().map(|(alloc, to)| format!("{} {to}", alloc.index)).collect();
            let updates: Vec<i64> = on.updates.iter().map(|(alloc, _)| alloc.index).collect();
            format!("{node}: {ends:?} {marks:?} {} {updates:?}", on.placements.len())
        })
        .collect();
    assert_eq!(
        split,
        [
            "n-0: [0] [] 0 []",
            "n-1: [1] [\"1 lost\"] 0 []",
            "n-3: [3] [] 0 []",
            "n-4: [] [\"4 unknown\"] 0 []",
            "n-5: [] [] 0 [5]",
            "n-9: [] [] 1 []",
        ]
    );
}
