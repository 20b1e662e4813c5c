//! Cases of `spec/scheduler.md` that service and batch jobs show without a deployment: counts, names, updates,
//! failures.

use drover_api::job::{EvalStatus, JobType};

use super::*;
use crate::ids::EvalId;
use crate::scheduler::attempts::{self, Attempts, BlockedEvaluation, NextAttempt, Submitted};

#[test]
fn s_001_everything_is_placed() {
    let plan = check(&World::new(&spec(10)), &range(0..10), &[], &[]);
    assert_desired!(plan, { place: 10 });
}

#[test]
fn s_002_what_is_missing_is_placed() {
    let mut world = World::new(&spec(10));
    world.allocs(0..5, |_| {});
    let plan = check(&world, &range(5..10), &[], &[]);
    assert_desired!(plan, { place: 5, ignore: 5 });
}

#[test]
fn s_003_the_highest_slots_go_first() {
    let mut world = World::new(&spec(10));
    world.allocs(0..20, |_| {});
    let plan = check(&world, &[], &range(10..20), &[]);
    assert_desired!(plan, { ignore: 10, stop: 10 });
}

#[test]
fn s_004_count_zero_stops_all() {
    let mut world = World::new(&spec(0));
    world.allocs(0..20, |_| {});
    drop(check(&world, &[], &range(0..20), &[]));
}

#[test]
fn s_005_count_zero_stops_all_that_share_names() {
    let mut world = World::new(&spec(0));
    world.allocs((0..20).map(|n| n % 2), |_| {});
    assert_eq!(world.plan().stops.len(), 20);
}

fn in_place(plan: &Plan) -> Vec<i64> {
    let mut slots: Vec<i64> = plan.in_place.iter().map(|update| update.alloc.index).collect();
    slots.sort_unstable();
    slots
}

/// In-place changes with these counts: slots updated, placed and stopped.
fn check_in_place(count: i64, updated: &[i64], placed: &[i64], stopped: &[i64]) {
    let mut world = World::new(&spec(count));
    world.old(&before_an_in_place_change(spec(10)));
    world.allocs(0..10, |alloc| alloc.job_version = 0);
    let plan = check(&world, placed, stopped, &[]);
    assert_eq!(in_place(&plan), updated);
}

#[test]
fn s_006_an_in_place_change_keeps_every_allocation() {
    check_in_place(10, &range(0..10), &[], &[]);
}

#[test]
fn s_007_an_in_place_change_with_a_larger_count() {
    check_in_place(15, &range(0..10), &range(10..15), &[]);
}

#[test]
fn s_008_an_in_place_change_with_a_smaller_count() {
    check_in_place(5, &range(0..5), &[], &range(5..10));
}

#[test]
fn s_011_a_destructive_change_with_a_larger_count() {
    let mut world = World::new(&spec(15));
    world.old(&before_a_destructive_change(spec(10)));
    world.allocs(0..10, |alloc| alloc.job_version = 0);
    drop(check(&world, &range(10..15), &[], &range(0..10)));
}

#[test]
fn s_022_each_group_is_filled_for_itself() {
    let mut two = spec(10);
    let mut other = two["groups"][0].clone();
    other["name"] = json!("b");
    two["groups"].as_array_mut().unwrap().push(other);
    let mut world = World::new(&two);
    world.allocs(0..2, |_| {});
    let plan = world.plan();
    let of = |group: &str| {
        let placed = plan.placements.iter().filter(|placement| &*placement.group == group);
        placed.map(|placement| placement.index).collect::<Vec<_>>()
    };
    assert_eq!((of("web"), of("b")), (range(2..10), range(0..10)));
}

#[test]
fn s_025_failed_allocations_that_were_stopped_are_placed_again() {
    let mut world = World::new(&spec(5));
    world.allocs(0..4, |alloc| {
        alloc.client = ClientStatus::Failed;
        alloc.desired = DesiredStatus::Stop;
    });
    world.allocs(4..5, |_| {});
    drop(check(&world, &range(0..4), &[], &[]));
}

#[test]
fn s_009_a_destructive_change_without_update_replaces_all_at_once() {
    let mut world = World::new(&spec(10));
    world.old(&before_a_destructive_change(spec(10)));
    world.allocs(0..10, |alloc| alloc.job_version = 0);
    let plan = check(&world, &[], &[], &range(0..10));
    assert_eq!(desired(&plan).destructive_update, 10);
}

#[test]
fn s_012_a_destructive_change_with_a_smaller_count_stops_the_rest() {
    let mut world = World::new(&spec(5));
    world.old(&before_a_destructive_change(spec(10)));
    world.allocs(0..10, |alloc| alloc.job_version = 0);
    drop(check(&world, &[], &range(5..10), &range(0..5)));
}

#[test]
fn a_change_of_the_restart_policy_is_made_in_place() {
    let mut world = World::new(&spec(10));
    let mut old = spec(10);
    old["groups"][0]["restart"] = json!({ "attempts": 9, "interval": "1h", "delay": "1s" });
    world.old(&old);
    world.allocs(0..10, |alloc| alloc.job_version = 0);
    let plan = check(&world, &[], &[], &[]);
    assert_eq!(plan.in_place.len(), 10);
}

#[test]
fn a_change_of_the_priority_writes_no_allocation() {
    let mut world = World::new(&spec(10));
    let mut old = spec(10);
    old["priority"] = json!(70);
    world.old(&old);
    world.allocs(0..10, |alloc| alloc.job_version = 0);
    assert!(world.plan().is_empty());
}

#[test]
fn s_013_allocations_of_lost_nodes_are_lost_and_replaced() {
    let mut world = World::new(&spec(10));
    world.allocs(0..10, |_| {});
    world.set_phase(&["n-0", "n-1"], NodePhase::Down);
    let plan = check(&world, &[0, 1], &[0, 1], &[]);
    assert!(plan.stops.iter().all(|stop| stop.client == Some(ClientStatus::Lost) && stop.reason == StopReason::Lost));
    assert_desired!(plan, { place: 2, stop: 2, ignore: 8 });
}

#[test]
fn s_014_lost_ones_are_replaced_and_new_ones_added() {
    let mut world = World::new(&spec(15));
    world.allocs(0..10, |_| {});
    world.set_phase(&["n-0", "n-1"], NodePhase::Down);
    let plan = check(&world, &[0, 1, 10, 11, 12, 13, 14], &[0, 1], &[]);
    assert_desired!(plan, { place: 7, stop: 2, ignore: 8 });
}

#[test]
fn s_015_lost_ones_are_not_replaced_where_enough_remain() {
    let mut world = World::new(&spec(5));
    world.allocs(0..10, |_| {});
    world.set_phase(&["n-0", "n-1"], NodePhase::Down);
    let plan = check(&world, &[], &[0, 1, 7, 8, 9], &[]);
    assert_desired!(plan, { stop: 5, ignore: 5 });
    let mut lost: Vec<i64> = plan
        .stops
        .iter()
        .filter(|stop| (stop.client, &stop.reason) == (Some(ClientStatus::Lost), &StopReason::Lost))
        .map(|stop| stop.alloc.index)
        .collect();
    lost.sort_unstable();
    assert_eq!(lost, [0, 1], "the others only stop");
}

#[test]
fn s_017_marked_allocations_move_and_new_ones_are_added() {
    let mut world = World::new(&spec(15));
    world.allocs(0..2, |alloc| alloc.transition.migrate = true);
    world.allocs(2..10, |_| {});
    let plan = check(&world, &[0, 1, 10, 11, 12, 13, 14], &[0, 1], &[]);
    assert_desired!(plan, { place: 5, migrate: 2, ignore: 8 });
}

#[test]
fn s_018_the_highest_marked_ones_stop_instead_of_moving() {
    let mut world = World::new(&spec(8));
    world.allocs(0..3, |alloc| alloc.transition.migrate = true);
    world.allocs(3..10, |_| {});
    let plan = check(&world, &[0], &[0, 1, 2], &[]);
    assert_desired!(plan, { migrate: 1, stop: 2, ignore: 7 });
}

#[test]
fn s_016_marked_allocations_move() {
    let mut world = World::new(&spec(10));
    world.allocs(0..2, |alloc| alloc.transition.migrate = true);
    world.allocs(2..10, |_| {});
    let plan = check(&world, &[0, 1], &[0, 1], &[]);
    assert!(plan.stops.iter().all(|stop| stop.reason == StopReason::Migrating));
    assert_desired!(plan, { migrate: 2, ignore: 8 });
}

#[test]
fn s_019_a_renamed_group_is_another_group() {
    let mut world = World::new(&spec(10));
    world.allocs(0..10, |alloc| alloc.group = "old".into());
    let plan = world.plan();
    assert_eq!((plan.stops.len(), plan.placements.len()), (10, 10));
}

#[test]
fn s_020_a_stopped_or_absent_job_runs_nothing() {
    let mut world = World::new(&spec(10));
    world.allocs(0..10, |_| {});
    world.job.stopped = true;
    world.put_job();
    drop(check(&world, &[], &range(0..10), &[]));
    world.view.remove_job(&key());
    drop(check(&world, &[], &range(0..10), &[]));
}

#[test]
fn s_021_what_is_stopped_already_is_not_stopped_again() {
    let mut world = World::new(&spec(10));
    world.allocs(0..10, |alloc| {
        alloc.desired = DesiredStatus::Stop;
        alloc.client = ClientStatus::Failed;
    });
    world.job.stopped = true;
    world.put_job();
    assert!(world.plan().is_empty());
}

#[test]
fn s_023_a_draining_node_alone_moves_nothing() {
    let mut world = World::new(&spec(10));
    world.allocs(0..10, |_| {});
    world.view.put_node(Node { is_draining: true, ..node("n-0") });
    assert!(world.plan().is_empty());
}

#[test]
fn s_024_a_service_that_ended_well_is_placed_again() {
    let mut world = World::new(&spec(5));
    world.allocs(0..4, |alloc| alloc.client = ClientStatus::Complete);
    world.allocs(4..5, |_| {});
    let plan = check(&world, &range(0..4), &[], &[]);
    // What has ended well holds nothing and is not counted; the one that runs is.
    assert_desired!(plan, { place: 4, ignore: 1 });
    // The same of the fifth alone: its slot is 4.
    let mut world = World::new(&spec(5));
    world.allocs(0..4, |_| {});
    world.allocs(4..5, |alloc| alloc.client = ClientStatus::Complete);
    let plan = check(&world, &[4], &[], &[]);
    assert_desired!(plan, { place: 1, ignore: 4 });
}

fn failed_a_while_ago(seconds: i64) -> impl Fn(&mut Alloc) {
    move |alloc| {
        alloc.client = ClientStatus::Failed;
        alloc.last_event_at = now() - SignedDuration::from_secs(seconds);
    }
}

fn with_reschedule(mut spec: Value, policy: Value) -> Value {
    spec["groups"][0]["reschedule"] = policy;
    spec
}

#[test]
fn s_026_a_failed_one_is_rescheduled_after_its_delay() {
    let policy = json!({ "delay": "15s", "delayFunction": "constant", "unlimited": true });
    let mut world = World::new(&with_reschedule(spec(5), policy));
    world.allocs(0..1, failed_a_while_ago(0));
    world.allocs(1..5, |_| {});
    let plan = check(&world, &[], &[], &[]);
    let at = now() + SignedDuration::from_secs(15);
    let follow_up = FollowUp { trigger: EvalTrigger::AllocReschedule, at };
    assert_eq!(plan.follow_ups, std::slice::from_ref(&follow_up));
    assert_eq!(desired(&plan).reschedule_later, 1);
    assert_eq!(plan.attributes[0].follow_up.as_ref(), Some(&follow_up));
}

#[test]
fn s_027_one_that_is_due_within_a_second_is_rescheduled_now() {
    let policy = json!({ "delay": "15s", "delayFunction": "constant", "unlimited": true });
    let mut world = World::new(&with_reschedule(spec(5), policy));
    world.allocs(0..1, |alloc| {
        alloc.client = ClientStatus::Failed;
        alloc.last_event_at = now() - SignedDuration::from_millis(14_200);
    });
    world.allocs(1..5, |_| {});
    let plan = check(&world, &[0], &[0], &[]);
    let placement = &plan.placements[0];
    assert_eq!(placement.replaces.as_ref().unwrap().reason, StopReason::Rescheduled);
    assert_eq!(placement.tracker.as_ref().unwrap().events[0].prev_alloc_id, "uid-0");
    assert_ne!(placement.node, NodeName::from("n-0"), "the node on which it failed is the last choice");
}

#[test]
fn s_028_the_awaited_evaluation_reschedules_now() {
    let policy = json!({ "delay": "1h", "maxDelay": "2h", "unlimited": true });
    let mut world = World::new(&with_reschedule(spec(5), policy));
    world.allocs(0..1, |alloc| {
        alloc.client = ClientStatus::Failed;
        let at = now() + SignedDuration::from_secs(3600);
        alloc.follow_up = Some(FollowUp { trigger: EvalTrigger::AllocReschedule, at });
    });
    world.allocs(1..5, |_| {});
    assert!(world.plan().is_empty(), "another evaluation leaves it to the one it waits for");
    let at = now() + SignedDuration::from_secs(3600);
    let plan = world.plan_for(EvalTrigger::AllocReschedule, Some(at));
    assert_eq!(slots(&plan), Slots { placed: vec![0], stopped: vec![0], destructive: vec![] });
}

#[test]
fn s_029_force_reschedules_whatever_the_policy_says() {
    let policy = json!({ "attempts": 0, "unlimited": false });
    let mut world = World::new(&with_reschedule(spec(5), policy));
    world.allocs(0..1, |alloc| {
        alloc.client = ClientStatus::Failed;
        alloc.transition.force_reschedule = true;
    });
    world.allocs(1..5, |_| {});
    drop(check(&world, &[0], &[0], &[]));
}

#[test]
fn s_030_a_failed_one_without_attempts_keeps_its_slot() {
    let policy = json!({ "attempts": 0, "unlimited": false });
    let mut world = World::new(&with_reschedule(spec(5), policy));
    world.allocs(0..1, failed_a_while_ago(100));
    world.allocs(1..5, |_| {});
    let plan = world.plan();
    assert!(plan.is_empty() && plan.follow_ups.is_empty());
}

#[test]
fn s_031_a_failed_one_that_was_replaced_is_left_alone() {
    let mut world = World::new(&spec(1));
    world.allocs(0..1, failed_a_while_ago(100));
    world.allocs(0..1, |alloc| alloc.previous = Some("web-web-0-0".into()));
    assert!(world.plan().is_empty());
}

#[test]
fn s_036_finished_batch_slots_are_not_run_again() {
    let mut batch = spec(10);
    batch["type"] = json!("batch");
    batch["groups"][0].as_object_mut().unwrap().remove("update");
    let mut world = World::new(&batch);
    world.allocs(0..10, |alloc| {
        alloc.client = ClientStatus::Complete;
        alloc.ran_successfully = true;
    });
    let plan = world.plan();
    assert!(plan.is_empty());
    assert_desired!(plan, { ignore: 10 });
}

#[test]
fn a_deleted_allocation_is_replaced_in_its_slot() {
    let mut world = World::new(&spec(2));
    world.allocs(0..1, |alloc| alloc.is_deleting = true);
    world.allocs(1..2, |_| {});
    let plan = check(&world, &[0], &[], &[]);
    assert_eq!(plan.placements[0].previous.as_ref().unwrap().uid, Uid::from("uid-0"));
}

#[test]
fn a_system_job_runs_on_each_node_that_fits() {
    let mut system = spec(1);
    system["type"] = json!("system");
    system["constraints"] = json!([{ "lTarget": "${node.unique.name}", "operand": "!=", "rTarget": "n-3" }]);
    let mut world = World::new(&system);
    world.view.put_node(Node { is_eligible: false, ..node("n-4") });
    let plan = world.plan();
    let nodes: Vec<String> = plan.placements.iter().map(|placement| placement.node.to_string()).collect();
    assert_eq!(nodes, ["n-0", "n-1", "n-2", "n-5", "n-6", "n-7", "n-8", "n-9"]);
    assert!(plan.failed.is_empty(), "a filtered node is no failure");
}

#[test]
fn an_explanation_counts_rules_and_dimensions() {
    let mut wanting = spec(1);
    wanting["constraints"] = json!([{ "lTarget": "${meta.rack}", "rTarget": "r1" }]);
    wanting["groups"][0]["tasks"][0]["resources"]["memoryMB"] = json!(200_000);
    let mut world = World::new(&wanting);
    for name in ["n-0", "n-1", "n-2"] {
        world.view.put_node(Node { meta: BTreeMap::from([("rack".into(), "r1".into())]), ..node(name) });
    }
    let plan = world.plan();
    assert_eq!(
        crate::scheduler::explain::explain(&plan.failed["web"]),
        "filtered by ${meta.rack} = r1 on 7 of 10 nodes, memory exhausted on 3 of 10 nodes; n-0 comes closest and lacks 100000 MiB of memory: ask for less, stop other jobs, or add nodes"
    );
    assert_eq!(plan.queued["web"], 1);
}

#[test]
fn static_ports_are_exclusive_and_dynamic_ones_differ() {
    let mut ports = spec(3);
    ports["groups"][0]["networks"] = json!([{ "ports": [{ "label": "fixed", "static": 8080 }, { "label": "free" }] }]);
    let mut world = World::new(&ports);
    for n in 2..10 {
        world.view.remove_node(&NodeName::from(format!("n-{n}")));
    }
    let plan = world.plan();
    assert_eq!(plan.placements.len(), 2, "one of each node has port 8080");
    assert_eq!(plan.failed["web"].dimension_exhausted["network: reserved port collision fixed=8080"], 2);
    for placement in &plan.placements {
        let free = placement.resources.ports.iter().find(|port| port.label == "free").unwrap();
        assert!((20_000..=29_999).contains(&free.value));
        assert_eq!(free.host_ip, "10.0.0.1");
    }
}

#[test]
fn s_010_without_a_limit_all_are_replaced_and_no_deployment_is_made() {
    let mut world = World::new(&with(spec(10), "update", json!({ "maxParallel": 0 })));
    world.old(&before_a_destructive_change(spec(10)));
    world.allocs(0..10, |alloc| alloc.job_version = 0);
    let plan = check(&world, &[], &[], &range(0..10));
    assert_eq!(plan.deployment, None);
}

/// A batch job of ten.
fn batch(count: i64) -> Value {
    let mut batch = spec(count);
    batch["type"] = json!("batch");
    batch["groups"][0].as_object_mut().unwrap().remove("update");
    batch
}

#[test]
fn s_035_failures_close_together_share_an_evaluation() {
    let mut world =
        World::new(&with(batch(10), "reschedule", json!({ "attempts": 1, "interval": "1h", "delay": "5s" })));
    world.allocs(0..5, |alloc| {
        alloc.client = ClientStatus::Failed;
        alloc.last_event_at = now() + SignedDuration::from_millis(50 * alloc.index);
    });
    world.allocs(5..7, |alloc| {
        alloc.client = ClientStatus::Failed;
        alloc.last_event_at = now() + SignedDuration::from_secs(10);
    });
    world.allocs(7..10, |_| {});
    let plan = check(&world, &[], &[], &[]);
    let at = |seconds| now() + SignedDuration::from_secs(seconds);
    assert_eq!(
        plan.follow_ups,
        [
            FollowUp { trigger: EvalTrigger::AllocReschedule, at: at(5) },
            FollowUp { trigger: EvalTrigger::AllocFailure, at: at(15) },
        ]
    );
    assert_eq!((desired(&plan).reschedule_later, plan.attributes.len()), (7, 7));
}

#[test]
fn s_037_a_batch_job_that_was_purged_runs_again() {
    let mut world = World::new(&batch(10));
    world.allocs(0..10, |alloc| {
        alloc.job_uid = Uid::from("an-earlier-incarnation");
        alloc.client = ClientStatus::Complete;
        alloc.desired = DesiredStatus::Stop;
        alloc.ran_successfully = true;
    });
    let plan = check(&world, &range(0..10), &[], &[]);
    assert_desired!(plan, { place: 10, ignore: 10 });
}

/// Ten batch allocations of which 0 and 1 carry a transition.
fn marked_batch(change: impl Fn(&mut DesiredTransition)) -> World {
    let policy = json!({ "attempts": 1, "interval": "1h", "delay": "5s" });
    let mut world = World::new(&with(batch(10), "reschedule", policy));
    world.allocs(0..2, |alloc| {
        alloc.last_event_at = now() - SignedDuration::from_secs(60);
        change(&mut alloc.transition);
    });
    world.allocs(2..10, |_| {});
    world
}

#[test]
fn s_038_marked_batch_allocations_move() {
    let plan = check(&marked_batch(|transition| transition.migrate = true), &[0, 1], &[0, 1], &[]);
    assert_desired!(plan, { migrate: 2, ignore: 8 });
}

#[test]
fn s_039_drained_batch_allocations_are_not_placed_again() {
    let world = marked_batch(|transition| {
        transition.migrate = true;
        transition.migrate_disable_placement = true;
    });
    let plan = check(&world, &[], &[0, 1], &[]);
    assert_desired!(plan, { migrate: 2, ignore: 8 });
}

#[test]
fn s_040_batch_allocations_that_a_user_stops_run_elsewhere() {
    let world = marked_batch(|transition| {
        transition.migrate = true;
        transition.reschedule = true;
    });
    let plan = check(&world, &[0, 1], &[0, 1], &[]);
    assert_desired!(plan, { migrate: 2, ignore: 8, place: 2 });
}

#[test]
fn s_085_a_shared_name_is_given_up_by_its_next_holder() {
    let mut world = World::new(&spec(4));
    world.allocs([0, 1, 2], |_| {});
    world.allocs([0], |alloc| alloc.transition.migrate = true);
    let plan = check(&world, &[3], &[0], &[]);
    let kept: Vec<i64> =
        world.view.allocs_of_job(&key()).filter(|one| !one.transition.migrate).map(|one| one.index).collect();
    assert_eq!((kept, plan.placements[0].index), (vec![0, 1, 2], 3));
}

/// How an allocation of the spec `before` stands when the job is `after`.
fn update_kind_of(before: &Value, after: &Value) -> crate::scheduler::reconcile::UpdateKind {
    let mut world = World::new(after);
    world.old(before);
    world.allocs(0..1, |alloc| alloc.job_version = 0);
    let alloc = world.view.allocs_of_job(&key()).next().unwrap();
    crate::scheduler::reconcile::update_kind(&world.view, &world.job, &world.job.definition.spec.groups[0], alloc)
}

const IN_PLACE: crate::scheduler::reconcile::UpdateKind =
    crate::scheduler::reconcile::UpdateKind::InPlace { needs_room: true };
const DESTRUCTIVE: crate::scheduler::reconcile::UpdateKind = crate::scheduler::reconcile::UpdateKind::Destructive;

#[test]
fn s_086_what_a_change_needs_depends_on_the_field() {
    let constrained = |value: &str| {
        let kernel = json!([{ "lTarget": "${attr.kernel.name}", "operand": "!=", "rTarget": value }]);
        with(spec(1), "constraints", kernel)
    };
    assert_eq!(update_kind_of(&before_a_destructive_change(spec(1)), &spec(1)), DESTRUCTIVE);
    // In place, and by DESIGN section 2 not even written: nothing that the node acts on differs.
    assert_eq!(update_kind_of(&spec(2), &spec(1)), crate::scheduler::reconcile::UpdateKind::Current);
    assert_eq!(update_kind_of(&constrained("plan9"), &constrained("windows")), IN_PLACE);
}

#[test]
fn s_087_ports_are_what_tasks_see_of_them() {
    let port = |port: Value| with(spec(1), "networks", json!([{ "ports": [port] }]));
    let mut world = World::new(&port(json!({ "label": "http" })));
    world.old(&before_an_in_place_change(port(json!({ "label": "http" }))));
    let assigned = |value| {
        let port = drover_api::allocation::AllocatedPort { label: "http".into(), value, ..Default::default() };
        Arc::new(AllocatedResources { ports: vec![port], ..AllocatedResources::default() })
    };
    world.allocs(0..1, |alloc| {
        alloc.job_version = 0;
        alloc.resources = assigned(23_456);
    });
    let plan = check(&world, &[], &[], &[]);
    assert_eq!(plan.in_place[0].resources.ports[0].value, 23_456, "the value that it got stays its own");
    for change in [json!({ "label": "http", "to": 80 }), json!({ "label": "http", "static": 8080 })] {
        assert_eq!(update_kind_of(&port(json!({ "label": "http" })), &port(change.clone())), DESTRUCTIVE, "{change}");
    }
}

#[test]
fn s_088_what_a_node_takes_over_is_changed_in_place() {
    let mut restart = spec(1);
    restart["groups"][0]["restart"] = json!({ "attempts": 9 });
    let tags = with(spec(1), "services", json!([{ "name": "s", "tags": ["a"] }]));
    let other_tags = with(spec(1), "services", json!([{ "name": "s", "tags": ["b"] }]));
    for (before, after) in [(before_an_in_place_change(spec(1)), spec(1)), (restart, spec(1)), (tags, other_tags)] {
        assert_eq!(update_kind_of(&before, &after), IN_PLACE);
    }
}

#[test]
fn s_089_a_node_that_the_job_no_longer_covers_is_left() {
    let mut moved = spec(1);
    moved["datacenters"] = json!(["dc2"]);
    let mut world = World::new(&moved);
    world.view.put_node(Node { datacenter: "dc2".into(), ..node("n-9") });
    world.old(&spec(1));
    world.allocs(0..1, |alloc| alloc.job_version = 0);
    let plan = check(&world, &[], &[], &[0]);
    assert_eq!(plan.placements[0].node.as_str(), "n-9");
}

#[test]
fn s_090_another_time_limit_needs_no_room() {
    let limited = |limit: &str| with(batch(1), "maxRunDuration", json!(limit));
    let mut world = World::new(&limited("1h"));
    world.old(&limited("2h"));
    world.view.put_node(Node { allocatable: Amounts::default(), ..node("n-0") });
    world.allocs(0..1, |alloc| alloc.job_version = 0);
    let plan = check(&world, &[], &[], &[]);
    assert_eq!(plan.in_place.len(), 1);
    assert_eq!(update_kind_of(&batch(1), &limited("1h")), IN_PLACE, "a first limit is looked at like any change");
}

#[test]
fn s_094_a_trigger_of_another_scheduler_fails_the_evaluation() {
    // A service accepts each trigger that there is; what is none is no trigger.
    for trigger in EvalTrigger::ALL {
        assert_eq!(World::new(&spec(1)).plan_for(*trigger, None).refused, None, "{trigger}");
    }
    let unknown = serde_json::from_value::<EvalTrigger>(json!("by-the-moon"));
    assert!(unknown.is_err(), "{unknown:?}");
    let mut system = spec(1);
    system["type"] = json!("system");
    let plan = World::new(&system).plan_for(EvalTrigger::AllocFailure, None);
    assert!(plan.refused.as_ref().is_some_and(|why| why.contains("alloc-failure")), "{plan:?}");
    assert!(plan.is_empty());
    let ended = attempts::end(JobType::System, &World::new(&system).evaluation(), &plan, NextAttempt::Done, None);
    assert_eq!((ended.status, ended.blocked), (EvalStatus::Failed, None));
}

#[test]
fn s_103_an_unlimited_policy_remembers_the_last_five() {
    let policy = json!({ "delay": "5s", "delayFunction": "exponential", "maxDelay": "1h", "unlimited": true });
    let mut world = World::new(&with(spec(1), "reschedule", policy));
    let event = |n: i64| drover_api::allocation::RescheduleEvent {
        time: now() - SignedDuration::from_secs(4000 - 600 * n),
        prev_alloc_id: format!("uid-{n}"),
        prev_node_name: "n-9".into(),
        delay: drover_api::GoDuration::from_secs(5 << n),
    };
    world.allocs(0..1, |alloc| {
        alloc.client = ClientStatus::Failed;
        alloc.last_event_at = now() - SignedDuration::from_secs(320);
        let events = (0..6).map(event).collect();
        alloc.tracker = Some(drover_api::allocation::RescheduleTracker { events, last_reschedule: None });
    });
    let plan = check(&world, &[0], &[0], &[]);
    let events = &plan.placements[0].tracker.as_ref().unwrap().events;
    assert_eq!(events.len(), 6);
    assert_eq!(events[0].prev_alloc_id, "uid-1", "the oldest is forgotten");
    assert_eq!(events[5].delay, drover_api::GoDuration::from_secs(320));
}

/// The next delay of a policy after failures that waited so long; the last one `ago` seconds before.
fn next_delay(policy: Value, delays: &[i64], ago: i64) -> i64 {
    let policy: drover_api::policy::Reschedule = serde_json::from_value(policy).unwrap();
    let events: Vec<_> = delays
        .iter()
        .map(|delay| drover_api::allocation::RescheduleEvent {
            time: now() - SignedDuration::from_secs(ago),
            prev_alloc_id: String::new(),
            prev_node_name: String::new(),
            delay: drover_api::GoDuration::from_secs(*delay),
        })
        .collect();
    crate::scheduler::reschedule::next_delay(&policy, &events, now()).as_nanos() as i64 / 1_000_000_000
}

#[test]
fn s_177_exponential_delays_double_up_to_the_ceiling() {
    let policy = || json!({ "delay": "5s", "delayFunction": "exponential", "maxDelay": "90s" });
    assert_eq!(next_delay(policy(), &[5, 10, 20], 60), 40);
    assert_eq!(next_delay(policy(), &[5, 10, 20, 40, 80], 60), 90);
    assert_eq!(next_delay(policy(), &[5, 10, 20, 40, 80], 91), 5, "calm for longer than the ceiling starts anew");
}

#[test]
fn s_178_fibonacci_delays_add_the_last_two() {
    let policy = json!({ "delay": "5s", "delayFunction": "fibonacci", "maxDelay": "90s" });
    assert_eq!(next_delay(policy, &[5, 5, 10, 15, 25], 60), 40);
}

#[test]
fn s_179_attempts_count_within_the_interval() {
    let policy =
        json!({ "delay": "5s", "delayFunction": "constant", "attempts": 2, "interval": "10m", "unlimited": false });
    let rescheduled = |ago: &[i64]| {
        let mut world = World::new(&with(spec(1), "reschedule", policy.clone()));
        world.allocs(0..1, |alloc| {
            alloc.client = ClientStatus::Failed;
            alloc.last_event_at = now() - SignedDuration::from_secs(10);
            let event = |minutes: &i64| drover_api::allocation::RescheduleEvent {
                time: now() - SignedDuration::from_secs(60 * minutes),
                prev_alloc_id: String::new(),
                prev_node_name: String::new(),
                delay: drover_api::GoDuration::from_secs(5),
            };
            let events = ago.iter().map(event).collect();
            alloc.tracker = Some(drover_api::allocation::RescheduleTracker { events, last_reschedule: None });
        });
        !world.plan().placements.is_empty()
    };
    assert!(!rescheduled(&[3, 2]) && rescheduled(&[2]));
}

/// Submits plans that are always refused, and counts them.
fn submissions(job_type: JobType) -> (u32, attempts::Ended) {
    let world = World::new(&spec(1));
    let (mut tries, mut n) = (Attempts::of(job_type), 0);
    loop {
        n += 1;
        let next = tries.after(Submitted::Nothing);
        if next != NextAttempt::Again {
            return (n, attempts::end(job_type, &world.evaluation(), &world.plan(), next, None));
        }
    }
}

#[test]
fn s_095_an_evaluation_whose_plans_are_all_refused_fails_and_waits() {
    let blocked = Some(BlockedEvaluation { id: None, trigger: EvalTrigger::MaxPlanAttempts });
    let ended = attempts::Ended { status: EvalStatus::Failed, blocked };
    assert_eq!(submissions(JobType::Service), (5, ended.clone()));
    assert_eq!(submissions(JobType::Batch), (2, ended));
    assert_eq!(submissions(JobType::System).1.blocked, None);
    let mut tries = Attempts::of(JobType::Batch);
    assert_eq!(
        [Submitted::Nothing, Submitted::Part, Submitted::Nothing].map(|outcome| tries.after(outcome)),
        [NextAttempt::Again; 3]
    );
    assert_eq!(tries.after(Submitted::Nothing), NextAttempt::Exhausted, "progress gave the tries back");
}

#[test]
fn s_096_a_blocked_evaluation_without_room_stays_the_same_one() {
    let world = World::without_nodes(&spec(10));
    let end = |was: Option<&EvalId>| {
        attempts::end(JobType::Service, &world.evaluation(), &world.plan(), NextAttempt::Done, was)
    };
    let new = Some(BlockedEvaluation { id: None, trigger: EvalTrigger::QueuedAllocs });
    assert_eq!(end(None), attempts::Ended { status: EvalStatus::Complete, blocked: new });
    let id = EvalId::from("waits");
    let same = Some(BlockedEvaluation { id: Some(id.clone()), trigger: EvalTrigger::QueuedAllocs });
    assert_eq!(end(Some(&id)), attempts::Ended { status: EvalStatus::Blocked, blocked: same });
}

#[test]
fn s_097_a_blocked_evaluation_with_room_is_complete() {
    let world = World::new(&spec(10));
    let plan = world.plan();
    assert_eq!(plan.placements.len(), 10);
    let ended =
        attempts::end(JobType::Service, &world.evaluation(), &plan, NextAttempt::Done, Some(&EvalId::from("waits")));
    assert_eq!(ended, attempts::Ended { status: EvalStatus::Complete, blocked: None });
}

#[test]
fn the_newest_of_a_slot_is_the_last_of_its_chain_although_all_were_made_in_one_second() {
    let mut world = World::new(&spec(1));
    for (name, previous) in [("web-b", None), ("web-a", Some("web-b")), ("web-c", Some("web-a")), ("web-d", None)] {
        world.allocs(0..1, |alloc| {
            alloc.key = JobKey::new("shop", name);
            alloc.previous = previous.map(Arc::from);
            alloc.created_at = now() - SignedDuration::from_secs(if name == "web-d" { 60 } else { 0 });
        });
    }
    let all: Vec<&Arc<Alloc>> = world.view.allocs().collect();
    assert_eq!(&*crate::model::newest_of_slot(&all).unwrap().key.name, "web-c");
}
