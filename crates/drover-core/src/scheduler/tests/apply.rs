//! Cases of `spec/scheduler.md` 8: what a node still takes of a plan when it is applied.

use super::*;
use crate::scheduler::apply::{self, Rejection};

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
    let mut world = World::new(spec);
    for n in 0..10 {
        world.view.remove_node(&NodeName::from(format!("n-{n}")));
    }
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
