//! Cases of `spec/scheduler.md` 7: system and sysbatch jobs.

use drover_api::metric::AllocMetric;

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

/// What happens to a cluster.
type Change<'a> = &'a dyn Fn(&mut World);
/// What happens to an allocation.
type AllocChange = fn(&mut Alloc);

fn running(desired_total: i64, desired_canaries: i64) -> GroupState {
    GroupState { desired_total, desired_canaries, ..GroupState::default() }
}

/// Only these of the ten nodes.
fn keep_nodes(world: &mut World, nodes: std::ops::Range<i64>) {
    for n in (0..10).filter(|n| !nodes.contains(n)) {
        world.view.remove_node(&NodeName::from(format!("n-{n}")));
    }
}

/// Three nodes of which two run the new version well, and one has yet to be replaced, by a constraint that `tier`
/// satisfies.
fn rolled_out_on_two() -> World {
    let mut one = system(json!({ "maxParallel": 3 }));
    one["constraints"] = json!([{ "lTarget": "${meta.tier}", "operand": "!=", "rTarget": "old" }]);
    let mut world = World::new(&one);
    keep_nodes(&mut world, 0..3);
    world.deployment(1, DeploymentPhase::Running, running(3, 0));
    on_nodes(&mut world, 0..2, |alloc| of_deployment(alloc, 1, Some(true)));
    on_nodes(&mut world, 2..3, |alloc| of_deployment(alloc, 1, None));
    world
}

/// How the deployment ends, if it does, and what it wants.
fn outcome(plan: &Plan) -> (Option<DeploymentPhase>, Option<i64>) {
    let total = plan.deployment.as_ref().map(|changed| changed.groups["web"].desired_total);
    (plan.deployment_updates.first().map(|update| update.phase), total)
}

#[test]
fn s_196_what_a_roll_out_wants_follows_the_nodes() {
    let old = BTreeMap::from([("tier".to_owned(), "old".to_owned())]);
    let pending = |world: &World| {
        let alloc = world.view.allocs_of_job(&key()).find(|alloc| alloc.node.as_str() == "n-2").unwrap();
        (**alloc).clone()
    };
    assert_eq!(outcome(&rolled_out_on_two().plan()), (None, None), "the third is awaited");
    let changes: [(&str, Change<'_>); 4] = [
        ("down", &|world| world.set_phase(&["n-2"], NodePhase::Down)),
        ("removed", &|world| drop(world.view.remove_node(&NodeName::from("n-2")))),
        ("ineligible", &|world| world.view.put_node(Node { is_eligible: false, ..node("n-2") })),
        ("feasible no more", &|world| {
            let failed = Alloc { client: ClientStatus::Failed, desired: DesiredStatus::Stop, ..pending(world) };
            world.view.put_alloc(failed);
            world.view.put_node(Node { meta: old.clone(), ..node("n-2") });
        }),
    ];
    for (what, change) in changes {
        let mut world = rolled_out_on_two();
        change(&mut world);
        assert_eq!(outcome(&world.plan()), (Some(DeploymentPhase::Successful), Some(2)), "{what}");
    }
    let mut world = rolled_out_on_two();
    let healthy = pending(&world);
    let mut healthy = Alloc { ..healthy };
    of_deployment(&mut healthy, 1, Some(true));
    world.view.put_alloc(healthy);
    world.view.put_node(node("n-3"));
    let plan = world.plan();
    assert_eq!((outcome(&plan), plan.placements.len()), ((None, Some(4)), 1), "a node is added");
}

#[test]
fn a_roll_out_without_a_node_is_no_success() {
    let mut world = rolled_out_on_two();
    world.set_phase(&["n-0", "n-1", "n-2"], NodePhase::Down);
    assert_eq!(outcome(&world.plan()), (None, Some(0)));
}

/// Version 0 on each of `n` nodes, and a version 1 with canaries that excludes those from `n - excluded` on.
fn excluding(update: Value, n: i64, excluded: i64) -> World {
    let mut after = system(update.clone());
    after["constraints"] = json!([{ "lTarget": "${meta.tier}", "operand": "!=", "rTarget": "old" }]);
    let mut world = World::new(&after);
    world.old(&before_a_destructive_change(system(update)));
    keep_nodes(&mut world, 0..n);
    for n in n - excluded..n {
        world.view.put_node(Node { meta: [("tier".into(), "old".into())].into(), ..node(&format!("n-{n}")) });
    }
    on_nodes(&mut world, 0..n, |alloc| alloc.job_version = 0);
    world
}

#[test]
fn s_201_a_canary_goes_to_a_feasible_node_and_nothing_ends_on_the_other() {
    let plan = excluding(json!({ "maxParallel": 2, "canary": 50 }), 2, 1).plan();
    let placed: Vec<(&str, bool)> = plan.placements.iter().map(|one| (one.node.as_str(), one.canary)).collect();
    assert_eq!((placed, plan.stops.len()), (vec![("n-0", true)], 0));
}

#[test]
fn s_212_a_node_that_the_version_excludes_uses_no_slot_and_ends_with_the_promotion() {
    let mut world = excluding(json!({ "maxParallel": 4, "canary": 100 }), 4, 2);
    let plan = world.plan();
    let begun = plan.deployment.as_ref().unwrap().groups["web"].clone();
    assert_eq!((plan.placements.len(), begun.desired_canaries, plan.stops.len()), (2, 2, 0));
    // Both canaries are well and promoted.
    let canaried: Vec<Arc<Alloc>> =
        world.view.allocs_of_job(&key()).filter(|alloc| alloc.node.as_str() < "n-2").cloned().collect();
    for old in &canaried {
        let mut canary = Alloc { key: JobKey::new("shop", format!("canary-{}", old.node)), ..(**old).clone() };
        of_deployment(&mut canary, 1, Some(true));
        canary.canary = true;
        world.view.put_alloc(canary);
        let ended = Alloc { desired: DesiredStatus::Stop, client: ClientStatus::Complete, ..(**old).clone() };
        world.view.put_alloc(ended);
    }
    let state = |desired_canaries, promoted| GroupState { promoted, ..running(2, desired_canaries) };
    // Counted again in each evaluation: with another count in the store, the right one is written.
    world.deployment(1, DeploymentPhase::Running, state(4, false));
    let plan = world.plan();
    assert_eq!(plan.deployment.as_ref().unwrap().groups["web"].desired_canaries, 2);
    assert_eq!((plan.placements.len(), plan.stops.len()), (0, 0));
    world.deployment(1, DeploymentPhase::Running, state(2, true));
    let plan = world.plan();
    let ended: Vec<&str> = plan.stops.iter().map(|stop| stop.alloc.node.as_str()).collect();
    assert_eq!((ended, outcome(&plan).0), (vec!["n-2", "n-3"], Some(DeploymentPhase::Successful)));
}

#[test]
fn s_209_what_was_lost_or_evicted_runs_again_and_what_a_person_stopped_does_not() {
    let cases: [(&str, AllocChange, usize); 6] = [
        ("complete", |alloc| alloc.client = ClientStatus::Complete, 0),
        ("lost", |alloc| (alloc.desired, alloc.client) = (DesiredStatus::Stop, ClientStatus::Lost), 1),
        ("evicted", |alloc| (alloc.desired, alloc.client) = (DesiredStatus::Evict, ClientStatus::Complete), 1),
        ("evicted, still running", |alloc| alloc.desired = DesiredStatus::Evict, 0),
        (
            "stopped by a person",
            |alloc| {
                (alloc.desired, alloc.client) = (DesiredStatus::Stop, ClientStatus::Complete);
                alloc.transition.migrate = true;
            },
            0,
        ),
        (
            "stopped with its job",
            |alloc| (alloc.desired, alloc.client) = (DesiredStatus::Stop, ClientStatus::Failed),
            1,
        ),
    ];
    for (what, change, placed) in cases {
        let mut world = World::new(&sysbatch());
        keep_nodes(&mut world, 0..1);
        on_nodes(&mut world, 0..1, change);
        let plan = world.plan();
        assert_eq!((plan.placements.len(), plan.stops.len()), (placed, 0), "{what}");
    }
}

#[test]
fn s_211_nodes_that_are_only_filtered_leave_no_blocked_evaluation() {
    let plan = constrained(&["n-0", "n-1", "n-2"]);
    assert!(!plan.failed.is_empty() && !plan.is_blocked);
    let mut world = World::new(&system(json!({ "maxParallel": 0 })));
    world.view.put_node(Node { allocatable: Amounts::default(), ..node("n-4") });
    assert!(world.plan().is_blocked);
}

#[test]
fn s_222_a_system_job_without_an_update_block_has_a_deployment_and_its_failed_allocation_is_replaced() {
    let mut one = spec(1);
    one["type"] = json!("system");
    one["groups"][0].as_object_mut().unwrap().remove("update");
    let mut world = World::new(&one);
    keep_nodes(&mut world, 0..2);
    let begun = world.plan().deployment.expect("a deployment");
    assert_eq!((begun.groups["web"].desired_total, begun.groups["web"].progress_deadline), (2, "10m".parse().unwrap()));
    world.deployment(1, DeploymentPhase::Failed, running(2, 0));
    on_nodes(&mut world, 0..1, |alloc| of_deployment(alloc, 1, Some(true)));
    on_nodes(&mut world, 1..2, |alloc| {
        of_deployment(alloc, 1, Some(false));
        alloc.client = ClientStatus::Failed;
    });
    let plan = world.plan();
    assert_eq!(plan.placements.iter().map(|one| one.node.as_str()).collect::<Vec<_>>(), ["n-1"]);
}

#[test]
fn a_distinct_property_limits_a_system_job_too() {
    let mut one = system(json!({ "maxParallel": 0 }));
    one["constraints"] = json!([{ "lTarget": "${meta.rack}", "operand": "distinct_property", "rTarget": "2" }]);
    let mut world = World::new(&one);
    for n in 0..10 {
        world.view.put_node(Node { meta: [("rack".into(), format!("r{}", n % 3))].into(), ..node(&format!("n-{n}")) });
    }
    on_nodes(&mut world, 0..1, |_| {});
    let plan = world.plan();
    // Two on each of three racks, one of them there already.
    assert_eq!(plan.placements.len(), 5);
}

#[test]
fn nodes_without_room_for_a_system_job_are_counted_and_waited_for() {
    let mut world = World::without_nodes(&system(json!({ "maxParallel": 0 })));
    for (name, class, datacenter) in [("a", "old", "dc1"), ("b", "", "dc1"), ("c", "old", "dc2")] {
        let allocatable = Amounts { cpu: 50, memory_mb: 1000, disk_mb: 10_000 };
        let (class, datacenter) = (class.into(), datacenter.into());
        world.view.put_node(Node { datacenter, class, allocatable, ..node(name) });
    }
    let plan = world.plan();
    let wanted = AllocMetric {
        nodes_evaluated: 1,
        nodes_exhausted: 1,
        nodes_in_pool: 3,
        node_pool: "default".to_owned(),
        nodes_available: counts(&[("dc1", 2), ("dc2", 1)]),
        dimension_exhausted: counts(&[("cpu", 1)]),
        class_exhausted: counts(&[("old", 1)]),
        coalesced_failures: 2,
        ..AllocMetric::default()
    };
    assert_eq!(plan.failed["web"], wanted);
    let waits: Vec<&str> = plan.waits_for.nodes.iter().map(NodeName::as_str).collect();
    assert_eq!((plan.queued["web"], plan.is_blocked, waits.as_slice()), (3, true, &["a", "b", "c"][..]));
}

#[test]
fn nodes_that_a_system_job_excludes_are_counted_where_it_runs_nowhere() {
    let mut failed = constrained(&["n-0", "n-1", "n-2"]).failed.remove("web").expect("it runs nowhere");
    let rules = std::mem::take(&mut failed.constraint_filtered);
    assert_eq!(rules.into_values().collect::<Vec<_>>(), [1, 1, 1], "a rule for each node");
    let wanted = AllocMetric {
        nodes_evaluated: 3,
        nodes_filtered: 3,
        nodes_in_pool: 3,
        node_pool: "default".to_owned(),
        nodes_available: counts(&[("dc1", 3)]),
        ..AllocMetric::default()
    };
    assert_eq!(failed, wanted);
}

#[test]
fn a_new_deployment_of_a_system_job_goes_by_the_policy_of_its_group() {
    let of = |update: Value| {
        let plan = outdated(update, 4).plan();
        let GroupState { auto_revert, auto_promote, progress_deadline, .. } =
            plan.deployment.expect("a deployment").groups["web"].clone();
        (auto_revert, auto_promote, progress_deadline.to_std().as_secs())
    };
    assert_eq!(of(json!({ "maxParallel": 1 })), (false, false, 600), "the defaults");
    assert_eq!(of(json!({ "maxParallel": 1, "autoRevert": true, "progressDeadline": "15m" })), (true, false, 900));
    assert_eq!(of(json!({ "maxParallel": 1, "canary": 50, "autoPromote": true })), (false, true, 600));
}
