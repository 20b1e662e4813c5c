//! Cases of `spec/scheduler.md` 7: system and sysbatch jobs.

use super::*;

fn system(update: Value) -> Value {
    let mut system = with(spec(1), "update", update);
    system["type"] = json!("system");
    system
}

fn sysbatch() -> Value {
    let mut sysbatch = spec(1);
    sysbatch["type"] = json!("sysbatch");
    sysbatch["groups"][0].as_object_mut().unwrap().remove("update");
    sysbatch
}

/// An allocation on each of these nodes, all in slot 0.
fn on_nodes(world: &mut World, nodes: impl IntoIterator<Item = i64>, change: impl Fn(&mut Alloc)) {
    for n in nodes {
        world.allocs([0], |alloc| {
            alloc.node = format!("n-{n}").into();
            change(alloc);
        });
    }
}

/// Job at version 1, with allocations of version 0 on each of `n` nodes before a destructive change.
fn outdated(update: Value, n: i64) -> World {
    let mut world = World::new(&system(update.clone()));
    world.old(&before_a_destructive_change(system(update)));
    on_nodes(&mut world, 0..n, |alloc| alloc.job_version = 0);
    world
}

#[test]
fn s_155_every_ready_node_gets_one() {
    let mut world = World::new(&system(json!({ "maxParallel": 0 })));
    world.view.put_node(Node { is_draining: true, ..node("n-3") });
    let plan = world.plan();
    assert_eq!(plan.placements.len(), 9);
    assert!(plan.placements.iter().all(|placement| placement.index == 0 && placement.node.as_str() != "n-3"));
}

/// A system job on three nodes of which a constraint excludes some.
fn constrained(excluded: &[&str]) -> Plan {
    let mut one = system(json!({ "maxParallel": 0 }));
    one["constraints"] = excluded
        .iter()
        .map(|name| json!({ "lTarget": "${node.unique.name}", "operand": "!=", "rTarget": name }))
        .collect();
    let mut world = World::new(&one);
    for n in 3..10 {
        world.view.remove_node(&NodeName::from(format!("n-{n}")));
    }
    world.plan()
}

#[test]
fn s_156_a_filtered_node_is_no_failure() {
    let plan = constrained(&["n-1"]);
    assert_eq!((plan.placements.len(), plan.queued["web"], plan.failed.len()), (2, 0, 0));
}

#[test]
fn s_157_all_nodes_filtered_is_one() {
    let plan = constrained(&["n-0", "n-1", "n-2"]);
    assert_eq!(plan.failed["web"].nodes_filtered, 3);
    assert_eq!(plan.queued["web"], 0);
}

#[test]
fn s_158_updates_roll_by_max_parallel() {
    let plan = outdated(json!({ "maxParallel": 2 }), 10).plan();
    assert_eq!(plan.placements.iter().filter(|one| one.is_destructive).count(), 2);
    assert_eq!(plan.deployment.as_ref().unwrap().groups["web"].desired_total, 10);
    assert_eq!(plan.held_back, 8);
}

#[test]
fn s_159_canaries_are_a_percentage_capped_by_max_parallel() {
    let plan = outdated(json!({ "maxParallel": 2, "canary": 30 }), 10).plan();
    assert_eq!(plan.placements.iter().filter(|one| one.canary).count(), 2);
    assert_eq!((plan.placements.len(), plan.desired["web"].canary), (2, 2));
    assert_eq!(plan.deployment.as_ref().unwrap().groups["web"].desired_canaries, 2);
}

#[test]
fn s_160_empty_nodes_do_not_wait() {
    let plan = outdated(json!({ "maxParallel": 2 }), 5).plan();
    let replaced = plan.placements.iter().filter(|one| one.replaces.is_some()).count();
    assert_eq!((plan.placements.len(), replaced), (7, 2));
}

#[test]
fn s_161_an_ineligible_node_keeps_what_is_current() {
    let mut same = World::new(&system(json!({ "maxParallel": 2 })));
    on_nodes(&mut same, 0..1, |_| {});
    let mut changed = outdated(json!({ "maxParallel": 2 }), 1);
    for (world, stopped) in [(&mut same, 0), (&mut changed, 1)] {
        for n in 1..10 {
            world.view.remove_node(&NodeName::from(format!("n-{n}")));
        }
        world.view.put_node(Node { is_eligible: false, ..node("n-0") });
        let plan = world.plan();
        assert_eq!((plan.stops.len(), plan.placements.len()), (stopped, 0));
    }
}

#[test]
fn s_162_a_finished_sysbatch_slot_runs_again_for_a_new_version() {
    let done = |alloc: &mut Alloc| {
        alloc.client = ClientStatus::Complete;
        alloc.ran_successfully = true;
    };
    let mut same = World::new(&sysbatch());
    on_nodes(&mut same, 0..10, done);
    assert!(same.plan().is_empty());
    let mut changed = World::new(&sysbatch());
    changed.old(&before_a_destructive_change(sysbatch()));
    on_nodes(&mut changed, 0..10, |alloc| {
        done(alloc);
        alloc.job_version = 0;
    });
    let plan = changed.plan();
    assert_eq!((plan.placements.len(), plan.desired["web"].destructive_update), (10, 10));
}

#[test]
fn s_163_a_full_node_is_what_the_evaluation_waits_for() {
    let mut world = World::new(&system(json!({ "maxParallel": 0 })));
    world.view.put_node(Node { allocatable: Amounts::default(), ..node("n-4") });
    let plan = world.plan();
    assert_eq!((plan.placements.len(), plan.queued["web"]), (9, 1));
    assert_eq!(plan.waits_for.nodes.iter().map(NodeName::as_str).collect::<Vec<_>>(), ["n-4"]);
    assert_eq!(plan.failed["web"].dimension_exhausted["cpu"], 1);
}

#[test]
fn s_164_each_group_has_its_own_limit() {
    let mut two = system(json!({ "maxParallel": 2 }));
    let mut other = two["groups"][0].clone();
    (other["name"], other["update"]) = (json!("b"), json!({ "maxParallel": 4 }));
    two["groups"].as_array_mut().unwrap().push(other);
    let mut before = before_a_destructive_change(two.clone());
    before["groups"][1]["tasks"][0]["env"] = json!({ "RELEASE": "1" });
    let mut world = World::new(&two);
    for n in 4..10 {
        world.view.remove_node(&NodeName::from(format!("n-{n}")));
    }
    world.old(&before);
    for group in ["web", "b"] {
        on_nodes(&mut world, 0..4, |alloc| (alloc.job_version, alloc.group) = (0, group.into()));
    }
    let plan = world.plan();
    assert_eq!(plan.placements.iter().filter(|one| one.is_destructive).count(), 6);
}

#[test]
fn system_jobs_evict_others_of_lower_priority() {
    let mut one = system(json!({ "maxParallel": 0 }));
    one["priority"] = json!(80);
    let mut world = World::new(&one);
    let full = Node { allocatable: Amounts { cpu: 150, memory_mb: 1000, disk_mb: 10_000 }, ..node("n-0") };
    world.view.put_node(full);
    let low = Definition::new(&serde_json::from_value(json!({ "priority": 20, "groups": [] })).unwrap(), "low");
    world.view.put_version(JobKey::new("shop", "low"), "low-uid".into(), 1, low);
    let resources: AllocatedResources =
        serde_json::from_value(json!({ "tasks": { "t": { "cpu": 100, "memoryMB": 10 } } })).unwrap();
    world.allocs(0..1, |alloc| {
        (alloc.job, alloc.job_uid) = (JobKey::new("shop", "low"), "low-uid".into());
        alloc.resources = Arc::new(resources.clone());
    });
    let plan = world.plan();
    assert_eq!((plan.placements.len(), plan.preempted().count()), (10, 1));
}

#[test]
fn a_cut_off_node_keeps_its_allocation_as_unknown() {
    let mut one = system(json!({ "maxParallel": 0 }));
    one["groups"][0]["disconnect"] = json!({ "lostAfter": "1h" });
    let mut world = World::new(&one);
    on_nodes(&mut world, 0..10, |_| {});
    world.set_phase(&["n-2"], NodePhase::Disconnected);
    let plan = world.plan();
    assert_eq!((plan.disconnects.len(), plan.stops.len(), plan.placements.len()), (1, 0, 0));
}

#[test]
fn an_update_without_room_stops_the_old_one_all_the_same() {
    let mut world = outdated(json!({ "maxParallel": 0 }), 10);
    world.view.put_node(Node { allocatable: Amounts::default(), ..node("n-0") });
    let plan = world.plan();
    assert_eq!(plan.placements.len(), 9);
    assert_eq!(plan.stops.iter().map(|stop| stop.alloc.node.as_str()).collect::<Vec<_>>(), ["n-0"]);
}
