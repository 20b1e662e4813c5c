//! Cases of `spec/scheduler.md` 8: what a node still takes of a plan when it is applied.

use super::*;
use crate::scheduler::apply::{self, Rejection};
use crate::scheduler::plan::Stop;

/// The nodes that refuse their part of a plan made in `world`, when `change` came in between.
fn refused(world: &World, plan: &Plan, change: impl Fn(&mut ClusterView)) -> Vec<(String, Rejection)> {
    let mut view = world.view.clone();
    change(&mut view);
    let check = |(node, wanted): (&NodeName, &apply::OnNode<'_>)| {
        apply::check(&view, Some(&world.job), node, wanted).err().map(|why| (node.to_string(), why))
    };
    apply::by_node(plan).iter().filter_map(|(node, wanted)| check((node, wanted))).collect()
}

fn only_two(spec: &Value) -> World {
    let mut world = World::without_nodes(spec);
    for name in ["n-1", "n-2"] {
        world.view.put_node(Node { allocatable: Amounts { cpu: 100, memory_mb: 100, disk_mb: 300 }, ..node(name) });
    }
    world
}

fn filled(view: &mut ClusterView, node: &str) {
    let mut world = World::new(&spec(1));
    let held: AllocatedResources =
        serde_json::from_value(json!({ "tasks": { "t": { "cpu": 1, "memoryMB": 1 } } })).unwrap();
    world.allocs(0..1, |alloc| {
        alloc.key = JobKey::new("shop", "meanwhile");
        (alloc.job, alloc.node) = (JobKey::new("shop", "other"), node.into());
        alloc.resources = Arc::new(held.clone());
    });
    let alloc = world.view.allocs_of_job(&JobKey::new("shop", "other")).next().unwrap();
    view.put_alloc((**alloc).clone());
}

#[test]
fn s_150_a_node_that_was_filled_meanwhile_refuses_its_part_alone() {
    let world = only_two(&spec(2));
    let plan = world.plan();
    assert_eq!(plan.placements.len(), 2);
    assert_eq!(refused(&world, &plan, |_| {}), []);
    let refused = refused(&world, &plan, |view| filled(view, "n-2"));
    assert_eq!(refused, [("n-2".to_owned(), Rejection::Exhausted("cpu".into()))]);
}

#[test]
fn s_150_what_one_node_refuses_is_left_out_and_the_rest_happens() {
    let world = only_two(&spec(2));
    let mut plan = world.plan();
    let mut view = world.view.clone();
    filled(&mut view, "n-2");
    let refused = apply::admit(&view, Some(&world.job), &mut plan);
    assert_eq!(refused.len(), 1);
    assert_eq!(plan.placements.iter().map(|one| one.node.as_str()).collect::<Vec<_>>(), ["n-1"]);
}

#[test]
fn s_151_all_at_once_is_all_or_nothing() {
    let mut at_once = with(spec(2), "update", json!({ "maxParallel": 1 }));
    at_once["allAtOnce"] = json!(true);
    let world = only_two(&at_once);
    let mut plan = world.plan();
    assert!(plan.deployment.is_some());
    let mut view = world.view.clone();
    filled(&mut view, "n-2");
    assert_eq!(apply::admit(&view, Some(&world.job), &mut plan).len(), 1);
    assert!(plan.is_empty());
}

#[test]
fn s_152_stops_are_taken_in_every_phase() {
    let mut world = World::new(&spec(0));
    world.allocs(0..1, |_| {});
    let plan = world.plan();
    assert_eq!(plan.stops.len(), 1);
    let down = |view: &mut ClusterView| view.put_node(Node { phase: NodePhase::Down, ..node("n-0") });
    assert_eq!(refused(&world, &plan, down), []);
    assert_eq!(refused(&world, &plan, |view| drop(view.remove_node(&"n-0".into()))), []);
}

#[test]
fn s_153_what_is_there_may_be_rewritten_on_a_full_and_ineligible_node() {
    let mut world = World::new(&spec(1));
    world.old(&before_an_in_place_change(spec(1)));
    world.allocs(0..1, |alloc| alloc.job_version = 0);
    let plan = world.plan();
    assert_eq!(plan.in_place.len(), 1);
    let closed = |view: &mut ClusterView| {
        view.put_node(Node { is_eligible: false, allocatable: Amounts::default(), ..node("n-0") });
    };
    assert_eq!(refused(&world, &plan, closed), []);
}

#[test]
fn s_154_a_node_that_is_not_ready_takes_nothing_new() {
    let world = World::new(&spec(1));
    let plan = world.plan();
    let at = plan.placements[0].node.clone();
    let becomes = |change: &dyn Fn(&mut Node)| {
        let refused = refused(&world, &plan, |view| {
            let mut changed = node(at.as_str());
            change(&mut changed);
            view.put_node(changed);
        });
        refused.into_iter().next().map(|(_, why)| why)
    };
    let initializing = NodePhase::Initializing;
    assert_eq!(becomes(&|node| node.phase = initializing), Some(Rejection::Phase(initializing)));
    assert_eq!(becomes(&|node| node.is_draining = true), Some(Rejection::NotEligible));
    assert_eq!(becomes(&|node| node.is_eligible = false), Some(Rejection::NotEligible));
    assert_eq!(refused(&world, &plan, |view| drop(view.remove_node(&at))), [(at.to_string(), Rejection::Gone)]);
}

#[test]
fn marks_are_taken_where_they_make_sense() {
    let mut one = spec(1);
    one["groups"][0]["disconnect"] = json!({ "lostAfter": "5m" });
    let mut world = World::new(&one);
    world.allocs(0..1, |_| {});
    world.set_phase(&["n-0"], NodePhase::Disconnected);
    let mut plan = world.plan();
    plan.placements.clear();
    assert_eq!(plan.disconnects.len(), 1);
    assert_eq!(refused(&world, &plan, |_| {}), []);
    let down = |view: &mut ClusterView| view.put_node(Node { phase: NodePhase::Down, ..node("n-0") });
    assert_eq!(refused(&world, &plan, down), [("n-0".to_owned(), Rejection::Phase(NodePhase::Down))]);
}

#[test]
fn s_132_a_port_that_may_collide_is_given_to_several() {
    for (may_collide, n_refused) in [(false, 1), (true, 0)] {
        let mut two = spec(2);
        let port = json!({ "label": "dns", "static": 53, "ignoreCollision": may_collide });
        two["groups"][0]["networks"] = json!([{ "ports": [port] }]);
        let world = World::new(&two);
        let mut plan = world.plan();
        assert_eq!(plan.placements.len(), 2);
        // Both on one node.
        let first = plan.placements[0].clone();
        (plan.placements[1].node, plan.placements[1].resources) = (first.node, first.resources);
        let refused = refused(&world, &plan, |_| {});
        assert_eq!(refused.len(), n_refused, "{may_collide}: {refused:?}");
    }
}

#[test]
fn a_port_or_core_that_was_given_away_is_refused() {
    let mut one = spec(1);
    one["groups"][0]["networks"] = json!([{ "ports": [{ "label": "http", "static": 80 }] }]);
    let world = World::new(&one);
    let plan = world.plan();
    let at = plan.placements[0].node.clone();
    let refused = refused(&world, &plan, |view| {
        filled(view, at.as_str());
        let taken = view.alloc(&JobKey::new("shop", "meanwhile")).unwrap();
        let mut resources = (*taken.resources).clone();
        resources.ports = serde_json::from_value(json!([{ "label": "p", "value": 80 }])).unwrap();
        let taken = Alloc { resources: Arc::new(resources), ..(**taken).clone() };
        view.put_alloc(taken);
    });
    assert_eq!(refused, [(at.to_string(), Rejection::Exhausted("network: port 80 is taken".into()))]);
}

/// A cluster of one node that has room for the plan's only placement, with that plan.
fn one_placement(change: impl FnOnce(&mut Node)) -> (World, Plan) {
    let mut world = World::new(&spec(1));
    for n in 1..10 {
        world.view.remove_node(&NodeName::from(format!("n-{n}")));
    }
    let plan = world.plan();
    assert_eq!(plan.placements.len(), 1);
    let mut changed = node("n-0");
    change(&mut changed);
    world.view.put_node(changed);
    (world, plan)
}

fn exhausted(what: &str) -> [(String, Rejection); 1] {
    [("n-0".to_owned(), Rejection::Exhausted(what.into()))]
}

#[test]
fn of_a_plan_that_is_all_or_nothing_only_the_counters_are_left() {
    let mut at_once = with(spec(2), "update", json!({ "maxParallel": 1 }));
    at_once["allAtOnce"] = json!(true);
    let world = only_two(&at_once);
    let mut plan = world.plan();
    let mut view = world.view.clone();
    filled(&mut view, "n-2");
    let left = Plan { desired: plan.desired.clone(), ..Plan::default() };
    assert_eq!(apply::admit(&view, Some(&world.job), &mut plan).len(), 1);
    assert_desired!(plan, { place: 2 });
    assert_eq!(plan, left);
}

#[test]
fn what_a_gone_node_was_to_rewrite_is_left_out_and_the_rest_happens() {
    let mut world = World::new(&spec(2));
    world.old(&before_an_in_place_change(spec(2)));
    world.allocs(0..2, |alloc| alloc.job_version = 0);
    let mut plan = world.plan();
    assert_eq!(plan.in_place.len(), 2);
    world.view.remove_node(&"n-0".into());
    let refused = apply::admit(&world.view, Some(&world.job), &mut plan);
    assert_eq!(refused, [("n-0".into(), Rejection::Gone)]);
    assert_eq!(plan.in_place.iter().map(|update| update.alloc.node.as_str()).collect::<Vec<_>>(), ["n-1"]);
}

#[test]
fn a_mark_that_a_node_refuses_is_left_out_and_the_rest_happens() {
    let mut world = World::new(&with(spec(2), "disconnect", json!({ "lostAfter": "5m" })));
    world.allocs(0..2, |_| {});
    world.set_phase(&["n-0", "n-1"], NodePhase::Disconnected);
    let mut plan = world.plan();
    assert_eq!(plan.disconnects.len(), 2);
    world.set_phase(&["n-0"], NodePhase::Down);
    let refused = apply::admit(&world.view, Some(&world.job), &mut plan);
    assert_eq!(refused, [("n-0".into(), Rejection::Phase(NodePhase::Down))]);
    assert_eq!(plan.disconnects.iter().map(|cut| cut.alloc.node.as_str()).collect::<Vec<_>>(), ["n-1"]);
}

#[test]
fn a_node_that_is_down_takes_marks_of_what_is_lost_or_away_without_a_replacement() {
    use ClientStatus::{Complete, Lost, Unknown};
    for (replace, marks, is_taken) in [
        (false, [Lost, Lost], true),
        (false, [Unknown, Unknown], true),
        (false, [Lost, Unknown], true),
        (true, [Lost, Unknown], false),
        (false, [Unknown, Complete], false),
    ] {
        let away = json!({ "lostAfter": "5m", "replace": replace });
        let mut world = World::new(&with(spec(2), "disconnect", away));
        world.allocs(0..2, |alloc| alloc.node = "n-0".into());
        world.set_phase(&["n-0"], NodePhase::Down);
        let wanted = apply::OnNode { marks: world.view.allocs().zip(marks).collect(), ..apply::OnNode::default() };
        let got = apply::check(&world.view, Some(&world.job), &"n-0".into(), &wanted);
        let refused = Err(Rejection::Phase(NodePhase::Down));
        assert_eq!(got, if is_taken { Ok(()) } else { refused }, "replace: {replace}, {marks:?}");
    }
}

#[test]
fn a_node_that_is_disconnected_takes_nothing_new() {
    let (world, plan) = one_placement(|node| node.phase = NodePhase::Disconnected);
    assert_eq!(refused(&world, &plan, |_| {}), [("n-0".to_owned(), Rejection::Phase(NodePhase::Disconnected))]);
}

#[test]
fn what_ends_in_a_plan_and_has_ended_meanwhile_frees_its_room_once() {
    let (mut world, mut plan) =
        one_placement(|node| node.allocatable = Amounts { cpu: 100, memory_mb: 100, disk_mb: 300 });
    let held: AllocatedResources =
        serde_json::from_value(json!({ "tasks": { "t": { "cpu": 100, "memoryMB": 100 } } })).unwrap();
    world.allocs(0..1, |alloc| alloc.resources = Arc::new(held.clone()));
    let old = Arc::clone(world.view.allocs().next().unwrap());
    plan.stops.push(Stop::new(&old, StopReason::Updating));
    assert_eq!(refused(&world, &plan, |_| {}), []);
    let ended = |view: &mut ClusterView| view.put_alloc(Alloc { client: ClientStatus::Complete, ..(*old).clone() });
    assert_eq!(refused(&world, &plan, ended), []);
    let ended_and_filled = |view: &mut ClusterView| {
        ended(view);
        filled(view, "n-0");
    };
    assert_eq!(refused(&world, &plan, ended_and_filled), exhausted("cpu"));
}

#[test]
fn a_core_or_a_device_is_given_to_one_allocation_only() {
    let gpu = |id: &str| json!({ "vendor": "nvidia", "type": "gpu", "name": "a100", "ids": [id] });
    let task = |cores: Value, devices: Value| json!({ "t": { "cores": cores, "devices": devices } });
    let no_devices = "devices: no devices left";
    for (one, other, wanted) in [
        (task(json!([1]), json!([])), task(json!([1]), json!([])), Some("cores")),
        (task(json!([0, 1]), json!([])), task(json!([2, 3, 1]), json!([])), Some("cores")),
        (task(json!([0, 1]), json!([])), task(json!([2, 3]), json!([])), None),
        (task(json!([]), json!([gpu("0")])), task(json!([]), json!([gpu("0")])), Some(no_devices)),
        (task(json!([]), json!([gpu("0")])), task(json!([]), json!([gpu("1"), gpu("0")])), Some(no_devices)),
        (task(json!([]), json!([gpu("0")])), task(json!([]), json!([gpu("1")])), None),
    ] {
        let [one, other] = [one, other].map(|tasks| -> Arc<AllocatedResources> {
            Arc::new(serde_json::from_value(json!({ "tasks": tasks })).unwrap())
        });
        let wanted: Vec<(String, Rejection)> = wanted.into_iter().flat_map(exhausted).collect();
        let (world, mut plan) = one_placement(|_| {});
        plan.placements[0].resources = Arc::clone(&one);
        let mut second = plan.placements[0].clone();
        second.resources = Arc::clone(&other);
        plan.placements.push(second);
        assert_eq!(refused(&world, &plan, |_| {}), wanted, "both are placed: {one:?} {other:?}");

        let (mut world, mut plan) = one_placement(|_| {});
        world.allocs(0..1, |alloc| alloc.resources = Arc::clone(&one));
        plan.placements[0].resources = other;
        assert_eq!(refused(&world, &plan, |_| {}), wanted, "one is there: {one:?} {:?}", plan.placements[0].resources);
    }
}

#[test]
fn a_node_takes_as_many_allocations_as_it_may_have() {
    for (most, wanted) in [(Some(0), Some("maxAllocs")), (Some(1), Some("maxAllocs")), (Some(2), None), (None, None)] {
        let (mut world, plan) = one_placement(|node| node.max_allocs = most);
        world.allocs(0..1, |_| {});
        let wanted: Vec<(String, Rejection)> = wanted.into_iter().flat_map(exhausted).collect();
        assert_eq!(refused(&world, &plan, |_| {}), wanted, "{most:?} at most");
    }
    let (mut world, plan) = one_placement(|node| node.max_allocs = Some(3));
    world.allocs(0..1, |_| {});
    assert_eq!(refused(&world, &plan, |_| {}), [], "there is room for one more");
}

#[test]
fn a_rejection_says_what_is_wrong_with_the_node() {
    for (why, wanted) in [
        (Rejection::Gone, "the node is gone"),
        (Rejection::Phase(NodePhase::Down), "the node is down"),
        (Rejection::NotEligible, "the node is ineligible or being drained"),
        (Rejection::Exhausted("cpu".into()), "the node has no room: cpu"),
    ] {
        assert_eq!(why.to_string(), wanted);
    }
}

#[test]
fn an_allocation_that_is_marked_lost_and_was_not_stopped_is_stopped_once() {
    let mut world = World::new(&spec(5));
    for (index, client, desired) in [
        (0, ClientStatus::Lost, DesiredStatus::Run),
        (1, ClientStatus::Lost, DesiredStatus::Stop),
        (2, ClientStatus::Running, DesiredStatus::Run),
        (3, ClientStatus::Failed, DesiredStatus::Run),
        (4, ClientStatus::Lost, DesiredStatus::Run),
        (5, ClientStatus::Lost, DesiredStatus::Run),
    ] {
        world.allocs([index], |alloc| (alloc.client, alloc.desired) = (client, desired));
    }
    world.allocs([6], |alloc| {
        (alloc.job, alloc.client) = (JobKey::new("shop", "other"), ClientStatus::Lost);
    });
    let in_slot = |index| Arc::clone(world.view.allocs().find(|alloc| alloc.index == index).unwrap());
    let stop = |index, reason| Stop::new(&in_slot(index), reason);
    let mut plan = World::new(&spec(1)).plan();
    plan.stops.push(stop(4, StopReason::NotNeeded));
    plan.placements[0].replaces = Some(stop(5, StopReason::Rescheduled));
    apply::finish_lost(&world.view, &key(), &mut plan);
    assert_eq!(plan.stops, [stop(4, StopReason::NotNeeded), stop(0, StopReason::Lost)]);
    let added = &plan.stops[1];
    assert_eq!((added.desired, added.client), (DesiredStatus::Stop, None));
}
