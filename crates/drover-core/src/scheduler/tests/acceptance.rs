//! Cases S-193 and later of `spec/scheduler.md` 14: what plans do where two rules meet.

use drover_api::allocation::LastReschedule;

use super::*;
use crate::scheduler::reconcile::{UpdateKind, update_kind};
use crate::settings::{Preemption, Settings};

/// A spec of a type that has no `update` block.
fn without_update(mut spec: Value, kind: &str) -> Value {
    spec["type"] = json!(kind);
    spec["groups"][0].as_object_mut().unwrap().remove("update");
    spec
}

fn system(update: Value) -> Value {
    let mut one = with(spec(1), "update", update);
    one["type"] = json!("system");
    one
}

/// A world with only these nodes.
fn only(spec: &Value, nodes: impl IntoIterator<Item = Node>) -> World {
    let mut world = World::without_nodes(spec);
    for node in nodes {
        world.view.put_node(node);
    }
    world
}

fn seconds_ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

/// Failed so long ago that a policy of a few seconds is due.
fn fail(alloc: &mut Alloc) {
    alloc.client = ClientStatus::Failed;
    alloc.last_event_at = seconds_ago(3600);
}

fn rescheduled_at_once(spec: Value) -> Value {
    with(spec, "reschedule", json!({ "delay": "5s", "delayFunction": "constant", "unlimited": true }))
}

/// Slots that stopped, with the reason.
fn stops(plan: &Plan) -> Vec<String> {
    let mut stops: Vec<String> =
        plan.stops.iter().chain(plan.replaced()).map(|stop| format!("{} {}", stop.alloc.index, stop.reason)).collect();
    stops.sort_unstable();
    stops
}

/// Slots of the group that are filled once a plan is carried out, in order.
fn filled(world: &World, plan: &Plan) -> Vec<i64> {
    let gone: Vec<&crate::ids::AllocKey> =
        plan.stops.iter().chain(plan.replaced()).map(|stop| &stop.alloc.key).collect();
    let stays = |alloc: &&Arc<Alloc>| !alloc.is_terminal() && !gone.contains(&&alloc.key);
    let mut slots: Vec<i64> = world.view.allocs_of_job(&key()).filter(stays).map(|alloc| alloc.index).collect();
    slots.extend(plan.placements.iter().map(|placement| placement.index));
    slots.sort_unstable();
    slots
}

#[test]
fn s_193_a_batch_allocation_that_moves_keeps_its_slot_to_itself() {
    let marked = |alloc: &mut Alloc| {
        (alloc.transition.migrate, alloc.transition.reschedule) = (true, true);
        alloc.last_event_at = seconds_ago(60);
    };
    let policy = json!({ "attempts": 1, "interval": "1h", "delay": "5s" });
    let batch = |count| with(without_update(spec(count), "batch"), "reschedule", policy.clone());
    let mut world = World::new(&batch(3));
    world.allocs([0], |_| {});
    world.allocs([1], marked);
    assert_eq!(filled(&world, &world.plan()), [0, 1, 2]);
    let mut world = World::new(&batch(2));
    world.allocs([1], marked);
    assert_eq!(filled(&world, &world.plan()), [0, 1]);
}

/// A job with a group `before` that fills the only node, and its next version, in which the group is called `after`.
fn renamed(kind: &str, before: &str, after: &str, constraint: Option<&Value>) -> World {
    let named = |name: &str| {
        let mut one = without_update(spec(1), kind);
        one["groups"][0]["name"] = json!(name);
        one["constraints"] = json!(Vec::from_iter(constraint));
        one
    };
    let full = Node { allocatable: Amounts { cpu: 100, memory_mb: 100, disk_mb: 300 }, ..node("n-0") };
    let mut world = only(&named(after), [full]);
    world.old(&named(before));
    let held: AllocatedResources =
        serde_json::from_value(json!({ "tasks": { "t": { "cpu": 100, "memoryMB": 100 } }, "diskMB": 300 })).unwrap();
    world.allocs([0], |alloc| {
        (alloc.job_version, alloc.group, alloc.resources) = (0, before.to_owned(), Arc::new(held.clone()));
    });
    world
}

#[test]
fn s_194_a_renamed_group_gets_the_room_of_the_one_before_whatever_the_names() {
    let distinct = json!({ "lTarget": "${node.unique.name}", "operand": "distinct_property", "rTarget": "1" });
    for kind in ["service", "batch", "system", "sysbatch"] {
        for (before, after) in [("web", "api"), ("api", "web")] {
            for constraint in [None, Some(distinct.clone())] {
                let plan = renamed(kind, before, after, constraint.as_ref()).plan();
                let placed: Vec<&str> = plan.placements.iter().map(|one| &*one.group).collect();
                assert_eq!(placed, [after], "{kind}: {before} is {after} now, with {constraint:?}");
                assert_eq!(stops(&plan), ["0 NotNeeded"]);
            }
        }
    }
}

#[test]
fn s_194_an_update_of_one_group_leaves_its_room_to_another() {
    // Group `b` gives up half of the node, group `a` wants that half more.
    let groups = |a: i64, b: i64| {
        let mut one = spec(1);
        let group = |name: &str, cpu: i64| {
            let mut group = one["groups"][0].clone();
            group["name"] = json!(name);
            group["tasks"][0]["resources"]["cpu"] = json!(cpu);
            group
        };
        let groups = json!([group("a", a), group("b", b)]);
        one["groups"] = groups;
        one
    };
    let mut after = groups(100, 100);
    after["groups"][0]["count"] = json!(2);
    let whole = Node { allocatable: Amounts { cpu: 300, memory_mb: 1000, disk_mb: 10_000 }, ..node("n-0") };
    let mut world = only(&after, [whole]);
    world.old(&groups(100, 200));
    for (group, cpu) in [("a", 100), ("b", 200)] {
        let held: AllocatedResources =
            serde_json::from_value(json!({ "tasks": { "t": { "cpu": cpu, "memoryMB": 100 } }, "diskMB": 300 }))
                .unwrap();
        world.allocs([0], |alloc| {
            (alloc.job_version, alloc.group, alloc.resources) = (0, group.to_owned(), Arc::new(held.clone()));
        });
    }
    let plan = world.plan();
    let mut placed: Vec<String> = plan.placements.iter().map(|one| format!("{}[{}]", one.group, one.index)).collect();
    placed.sort_unstable();
    assert_eq!(placed, ["a[1]", "b[0]"], "{:?}", plan.failed);
}

#[test]
fn s_195_a_system_allocation_that_runs_again_is_not_lost_whatever_its_window() {
    let mut world = World::new(&with(system(json!({ "maxParallel": 1 })), "disconnect", json!({ "lostAfter": "1m" })));
    for n in 0..10 {
        world.allocs([0], |alloc| {
            alloc.node = format!("n-{n}").into();
            if n == 0 {
                alloc.states = vec![(ClientStatus::Unknown, seconds_ago(300))];
            }
        });
    }
    let plan = world.plan();
    assert_eq!((plan.reconnects.len(), stops(&plan), plan.placements.len()), (1, Vec::new(), 0));
    // One of which nothing was heard is lost at that time.
    let mut silent = (*plan.reconnects[0]).clone();
    silent.client = ClientStatus::Unknown;
    world.view.put_alloc(silent);
    assert_eq!(stops(&world.plan()), ["0 Lost"]);
}

#[test]
fn s_197_a_finished_sysbatch_slot_runs_again_for_a_destructive_change_alone() {
    let after = |before: fn(Value) -> Value| {
        let mut world = World::new(&without_update(spec(1), "sysbatch"));
        world.old(&before(without_update(spec(1), "sysbatch")));
        for n in 0..10 {
            world.allocs([0], |alloc| {
                alloc.node = format!("n-{n}").into();
                (alloc.client, alloc.ran_successfully, alloc.job_version) = (ClientStatus::Complete, true, 0);
            });
        }
        world.plan().placements.len()
    };
    assert_eq!(after(before_an_in_place_change), 0);
    assert_eq!(after(before_a_destructive_change), 10);
}

fn rack(name: &str, rack: &str) -> Node {
    Node { meta: BTreeMap::from([("rack".into(), rack.into())]), ..node(name) }
}

#[test]
fn s_198_a_failed_allocation_frees_no_place_in_a_spread_that_it_does_not_hold() {
    for targets in [json!([]), json!([{ "value": "r1", "percent": 50 }, { "value": "r2", "percent": 50 }])] {
        let mut spreading = rescheduled_at_once(spec(4));
        spreading["spreads"] = json!([{ "attribute": "${meta.rack}", "weight": 100, "targets": targets }]);
        let mut world = only(&spreading, [rack("a", "r1"), rack("b", "r1"), rack("c", "r2"), rack("d", "r2")]);
        world.allocs([0], |alloc| {
            alloc.node = "a".into();
            fail(alloc);
        });
        for (index, on) in [(1, "a"), (2, "c"), (3, "d")] {
            world.allocs([index], |alloc| alloc.node = on.into());
        }
        let plan = world.plan();
        assert_eq!(plan.placements.len(), 1);
        let score = plan.placements[0].metrics.best[0].1.spread;
        // r1 has one, r2 two: even, r1 is (2 - 1) / 1; with targets of two each, r1 is (2 - 2) / 2, which adds nothing.
        let wanted = if targets == json!([]) { Some(1.0) } else { None };
        assert_eq!((plan.placements[0].node.as_str(), score), ("b", wanted), "{targets}");
    }
}

#[test]
fn s_199_a_value_that_another_took_since_stays_taken() {
    let mut limited = rescheduled_at_once(spec(2));
    limited["constraints"] = json!([{ "lTarget": "${meta.rack}", "operand": "distinct_property", "rTarget": "1" }]);
    let mut world = only(&limited, [rack("a", "r1"), rack("b", "r1")]);
    world.allocs([0], |alloc| {
        alloc.node = "a".into();
        fail(alloc);
    });
    world.allocs([1], |alloc| alloc.node = "b".into());
    let plan = world.plan();
    assert_eq!((plan.placements.len(), stops(&plan)), (0, Vec::new()));
    assert_eq!(plan.failed["web"].constraint_filtered["distinctProperty:${meta.rack}=r1"], 2);
    // With nobody in it the value is free again.
    let mut world = only(&limited, [rack("a", "r1"), rack("b", "r1"), rack("c", "r2")]);
    world.allocs([0], |alloc| {
        alloc.node = "a".into();
        fail(alloc);
    });
    world.allocs([1], |alloc| alloc.node = "c".into());
    assert_eq!(world.plan().placements.len(), 1);
}

#[test]
fn s_203_of_two_that_share_a_slot_an_update_leaves_it_to_one() {
    let mut world = World::new(&spec(2));
    world.old(&before_a_destructive_change(spec(2)));
    world.allocs([0, 0], |alloc| alloc.job_version = 0);
    let plan = check(&world, &[], &[], &[0, 1]);
    assert_eq!(filled(&world, &plan), [0, 1]);
}

#[test]
fn s_204_what_runs_the_version_stays_beside_a_promoted_canary_while_there_is_room() {
    let mut world = World::new(&with(spec(3), "update", json!({ "maxParallel": 2, "canary": 1 })));
    let state = GroupState {
        desired_total: 3,
        desired_canaries: 1,
        promoted: true,
        placed_canaries: vec!["canary".into()],
        ..GroupState::default()
    };
    world.deployment(1, DeploymentPhase::Running, state);
    world.allocs([0], |alloc| {
        alloc.key = JobKey::new("shop", "canary");
        of_deployment(alloc, 1, Some(true));
    });
    world.allocs([0], |alloc| of_deployment(alloc, 1, Some(true)));
    let plan = world.plan();
    assert_eq!(stops(&plan), [""; 0]);
    assert_eq!(plan.placements.len(), 1);
}

#[test]
fn s_210_of_three_for_two_slots_the_failed_one_goes() {
    let mut world = World::new(&rescheduled_at_once(spec(2)));
    world.allocs([0], fail);
    world.allocs([1, 2], |_| {});
    let plan = world.plan();
    assert_eq!((stops(&plan), plan.placements.len()), (vec!["0 NotNeeded".to_owned()], 0));
}

#[test]
fn s_213_a_failed_canary_of_a_system_job_is_one_of_those_that_are_wanted() {
    let mut world = World::new(&system(json!({ "maxParallel": 4, "canary": 30 })));
    world.old(&before_a_destructive_change(system(json!({ "maxParallel": 4, "canary": 30 }))));
    let state = GroupState { desired_total: 10, desired_canaries: 3, ..GroupState::default() };
    world.deployment(1, DeploymentPhase::Running, state);
    for n in 0..10 {
        world.allocs([0], |alloc| {
            alloc.node = format!("n-{n}").into();
            alloc.job_version = 0;
            if n < 2 {
                of_deployment(alloc, 1, None);
                alloc.canary = true;
            }
            if n == 1 {
                fail(alloc);
            }
        });
    }
    let plan = world.plan();
    let canaries = plan.placements.iter().filter(|placement| placement.canary).count();
    assert_eq!((canaries, plan.placements.len()), (2, 2), "the failed one again, and a third");
    assert_eq!(stops(&plan).len(), 1, "one more node gives up the version before");
}

#[test]
fn s_214_without_room_for_what_failed_nothing_healthy_ends() {
    let full =
        |n: i64| Node { allocatable: Amounts { cpu: 100, memory_mb: 100, disk_mb: 300 }, ..node(&format!("n-{n}")) };
    let mut world = only(&rescheduled_at_once(spec(5)), (0..6).map(full));
    let held: AllocatedResources =
        serde_json::from_value(json!({ "tasks": { "t": { "cpu": 100, "memoryMB": 100 } }, "diskMB": 300 })).unwrap();
    world.allocs(0..6, |alloc| {
        alloc.resources = Arc::new(held.clone());
        if alloc.index == 3 {
            fail(alloc);
        }
    });
    world.view.put_node(Node { is_eligible: false, ..full(3) });
    let plan = world.plan();
    assert!(stops(&plan).iter().all(|stop| stop.starts_with("3 ")), "{:?}", stops(&plan));
}

#[test]
fn s_215_the_holder_of_a_device_that_suits_gives_way() {
    let mut one = spec(1);
    one["priority"] = json!(100);
    one["groups"][0]["tasks"][0]["resources"] = json!({ "cpu": 100, "memoryMB": 10, "devices": [{ "name": "gpu",
        "constraints": [{ "lTarget": "${device.attr.memory}", "operand": ">=", "rTarget": "32 GiB" }] }] });
    let gpu = |name: &str, memory: &str| {
        json!({ "vendor": "nvidia", "type": "gpu", "name": name, "attributes": { "memory": memory },
            "instances": [{ "id": "0", "healthy": true }] })
    };
    let devices = serde_json::from_value(json!([gpu("t4", "16 GiB"), gpu("a100", "40 GiB")])).unwrap();
    let mut world = only(&one, [Node { devices, ..node("n-0") }]);
    for (name, priority, device) in [("small", 10, "t4"), ("large", 20, "a100")] {
        let mut other = spec(1);
        other["priority"] = json!(priority);
        let (job, uid) = (JobKey::new("shop", name), Uid::from(name));
        let definition = Definition::new(&serde_json::from_value(other).unwrap(), name);
        world.view.put_version(job.clone(), uid.clone(), 1, definition);
        let held: AllocatedResources = serde_json::from_value(json!({ "tasks": { "t": { "cpu": 100, "memoryMB": 10,
            "devices": [{ "vendor": "nvidia", "type": "gpu", "name": device, "ids": ["0"] }] } } }))
        .unwrap();
        world.allocs([0], |alloc| {
            (alloc.key, alloc.job, alloc.job_uid) = (job.clone(), job.clone(), uid.clone());
            alloc.resources = Arc::new(held.clone());
        });
    }
    let preemption = Preemption { service: true, ..Preemption::default() };
    world.view.set_settings(Settings { preemption, ..Settings::default() });
    let plan = world.plan();
    assert_eq!(plan.preempted().map(|(victim, _)| &*victim.key.name).collect::<Vec<_>>(), ["large"]);
}

#[test]
fn s_217_one_that_is_cut_off_and_finds_no_other_place_is_updated_once() {
    let policy = json!({ "delay": "0s", "delayFunction": "constant", "unlimited": true });
    let one = with(with(spec(1), "disconnect", json!({ "lostAfter": "5m" })), "reschedule", policy);
    let mut world = only(&one, [Node { phase: NodePhase::Disconnected, ..node("n-0") }]);
    world.allocs([0], |_| {});
    let plan = world.plan();
    let window = FollowUp { trigger: EvalTrigger::MaxDisconnectTimeout, at: now() + SignedDuration::from_secs(300) };
    let cut: Vec<&Option<FollowUp>> = plan.disconnects.iter().map(|cut| &cut.follow_up).collect();
    assert_eq!((cut, plan.attributes.len()), (vec![&Some(window)], 0));
    assert_eq!(plan.queued["web"], 1);
}

#[test]
fn s_218_there_are_no_more_canaries_than_the_group_counts() {
    let canaried = with(spec(3), "update", json!({ "maxParallel": 1, "canary": 7 }));
    let mut world = World::new(&canaried);
    world.old(&before_a_destructive_change(canaried));
    world.allocs(0..3, |alloc| alloc.job_version = 0);
    let plan = world.plan();
    let mut slots: Vec<i64> = plan.placements.iter().filter(|one| one.canary).map(|one| one.index).collect();
    slots.sort_unstable();
    assert_eq!(slots, [0, 1, 2]);
    assert_eq!(plan.deployment.unwrap().groups["web"].desired_canaries, 3);
}

#[test]
fn s_221_a_system_placement_counts_whom_it_evicts() {
    let mut one = system(json!({ "maxParallel": 0 }));
    one["priority"] = json!(100);
    one["groups"][0]["tasks"][0]["resources"] = json!({ "cpu": 1000, "memoryMB": 10 });
    let small = Node { allocatable: Amounts { cpu: 1000, memory_mb: 1000, disk_mb: 10_000 }, ..node("n-0") };
    let mut world = only(&one, [small]);
    let mut low = spec(2);
    low["priority"] = json!(10);
    let (job, uid) = (JobKey::new("shop", "low"), Uid::from("low"));
    let definition = Definition::new(&serde_json::from_value(low).unwrap(), "low");
    world.view.put_version(job.clone(), uid.clone(), 1, definition);
    let held: AllocatedResources =
        serde_json::from_value(json!({ "tasks": { "t": { "cpu": 500, "memoryMB": 10 } } })).unwrap();
    world.allocs([0, 1], |alloc| {
        (alloc.job, alloc.job_uid, alloc.node) = (job.clone(), uid.clone(), "n-0".into());
        alloc.resources = Arc::new(held.clone());
    });
    let plan = world.plan();
    assert_eq!((plan.preempted().count(), plan.desired["web"].preemptions), (2, 2));
}

#[test]
fn s_200_a_job_that_is_started_again_has_a_deployment() {
    let mut world = World::new(&with(spec(3), "update", json!({ "maxParallel": 1 })));
    world.deployment(1, DeploymentPhase::Successful, GroupState { desired_total: 3, ..GroupState::default() });
    world.allocs(0..3, |alloc| {
        of_deployment(alloc, 1, Some(true));
        (alloc.desired, alloc.client) = (DesiredStatus::Stop, ClientStatus::Complete);
    });
    let plan = world.plan();
    let begun = plan.deployment.as_ref().expect("a deployment");
    assert_eq!((begun.is_new, begun.groups["web"].desired_total, plan.placements.len()), (true, 3, 3));
    // What was lost and found no place yet begins nothing.
    let lost: Vec<Arc<Alloc>> = world.view.allocs_of_job(&key()).cloned().collect();
    for alloc in lost {
        world.view.put_alloc(Alloc { client: ClientStatus::Lost, ..(*alloc).clone() });
    }
    let plan = world.plan();
    assert_eq!((plan.deployment, plan.placements.len()), (None, 3));
}

#[test]
fn s_205_what_nodes_stop_by_themselves_within_five_seconds_shares_one_evaluation() {
    let mut world = World::new(&with(spec(10), "disconnect", json!({ "stopOnClientAfter": "30s" })));
    world.allocs(0..10, |alloc| {
        alloc.states = vec![(ClientStatus::Lost, now() - SignedDuration::from_millis(450 * alloc.index))];
    });
    let names: Vec<String> = (0..10).map(|n| format!("n-{n}")).collect();
    world.set_phase(&names.iter().map(String::as_str).collect::<Vec<_>>(), NodePhase::Down);
    let plan = world.plan();
    // The last to stop is the first in the list: none may run any more when its replacement comes.
    let last = FollowUp { trigger: EvalTrigger::AllocFailure, at: now() + SignedDuration::from_secs(35) };
    assert_eq!((plan.follow_ups.clone(), plan.placements.len()), (vec![last.clone()], 0));
    assert!(plan.stops.iter().all(|stop| stop.follow_up.as_ref() == Some(&last)));
}

#[test]
fn s_208_the_value_of_one_that_is_stopping_is_free() {
    let mut limited = with(spec(1), "update", json!({ "maxParallel": 1 }));
    limited["constraints"] = json!([{ "lTarget": "${meta.rack}", "operand": "distinct_property", "rTarget": "1" }]);
    let mut world = only(&limited, [rack("a", "r1"), rack("b", "r1")]);
    world.old(&before_a_destructive_change(limited));
    world.allocs([0], |alloc| (alloc.node, alloc.job_version) = ("a".into(), 0));
    // The one that an update stops still runs when its replacement is placed.
    assert_eq!(slots(&world.plan()).destructive, [0]);
}

#[test]
fn s_216_a_batch_allocation_that_moves_is_replaced_when_its_delay_is_over() {
    let policy = json!({ "attempts": 1, "interval": "24h", "delay": "2h" });
    let mut world = World::new(&with(without_update(spec(1), "batch"), "reschedule", policy));
    world.allocs([0], |alloc| (alloc.transition.migrate, alloc.transition.reschedule) = (true, true));
    let plan = world.plan();
    let later = FollowUp { trigger: EvalTrigger::AllocReschedule, at: now() + SignedDuration::from_hours(2) };
    assert_eq!((plan.follow_ups.clone(), plan.desired["web"].reschedule_later), (vec![later.clone()], 1));
    assert_eq!((stops(&plan), plan.placements.len()), (vec!["0 alloc-stop".to_owned()], 0));
    assert_eq!(plan.stops[0].follow_up.as_ref(), Some(&later));
    let stopped = plan.stops[0].alloc.clone();
    world.view.put_alloc(Alloc {
        desired: DesiredStatus::Stop,
        client: ClientStatus::Complete,
        follow_up: Some(later.clone()),
        ..(*stopped).clone()
    });
    let plan = world.plan();
    assert_eq!((stops(&plan), plan.placements.len()), (Vec::new(), 0), "an evaluation before that");
    let evaluation =
        Evaluation { now: later.at, trigger: later.trigger, wait_until: Some(later.at), ..world.evaluation() };
    let plan = super::super::plan(&world.view, &evaluation, &mut fastrand::Rng::with_seed(7));
    assert_eq!(plan.placements.iter().map(|one| one.index).collect::<Vec<_>>(), [0]);
}

#[test]
fn s_219_one_that_is_unknown_without_a_note_never_expires() {
    let mut world = World::new(&with(spec(1), "disconnect", json!({ "lostAfter": "1m" })));
    world.allocs([0], |alloc| (alloc.client, alloc.last_event_at) = (ClientStatus::Unknown, seconds_ago(86_400)));
    world.set_phase(&["n-0"], NodePhase::Disconnected);
    let plan = world.plan();
    assert!(plan.stops.iter().all(|stop| stop.client != Some(ClientStatus::Lost)), "{:?}", stops(&plan));
}

/// What two versions of a group differ in, and what becomes of an allocation of the first.
#[test]
fn each_field_needs_a_new_allocation_or_none() {
    let port = |port: Value| json!([{ "ports": [port] }]);
    let (current, in_place, destructive) =
        (UpdateKind::Current, UpdateKind::InPlace { needs_room: true }, UpdateKind::Destructive);
    for (path, before, after, wanted) in [
        ("count", json!(1), json!(5), current),
        ("update", json!({ "maxParallel": 1 }), json!({ "maxParallel": 2 }), current),
        ("reschedule", json!({ "delay": "5s" }), json!({ "delay": "9s" }), current),
        ("migrate", json!({ "maxParallel": 1 }), json!({ "maxParallel": 2 }), current),
        ("spreads", json!([]), json!([{ "attribute": "${meta.rack}" }]), current),
        ("affinities", json!([]), json!([{ "lTarget": "${meta.a}", "rTarget": "b" }]), current),
        ("constraints", json!([]), json!([{ "lTarget": "${meta.a}", "rTarget": "b" }]), in_place),
        ("restart", json!({ "attempts": 1 }), json!({ "attempts": 2 }), in_place),
        ("shutdownDelay", json!("1s"), json!("2s"), in_place),
        ("services", json!([]), json!([{ "name": "s" }]), in_place),
        ("tasks.0.killTimeout", json!("1s"), json!("2s"), in_place),
        ("tasks.0.leader", json!(false), json!(true), in_place),
        ("tasks.0.driver", json!("mock"), json!("exec"), destructive),
        ("tasks.0.user", json!("a"), json!("b"), destructive),
        ("tasks.0.config", json!({ "run_for": "1s" }), json!({ "run_for": "2s" }), destructive),
        ("tasks.0.env", json!({ "A": "1" }), json!({ "A": "2" }), destructive),
        ("tasks.0.resources.cpu", json!(100), json!(101), destructive),
        ("tasks.0.resources.memoryMB", json!(100), json!(101), destructive),
        ("tasks.0.resources.memoryMaxMB", json!(200), json!(201), destructive),
        ("tasks.0.artifacts", json!([]), json!([{ "getterSource": "https://example.org/a" }]), destructive),
        ("tasks.0.secrets", json!([]), json!([{ "name": "db", "path": "db" }]), destructive),
        ("tasks.0.templates", json!([]), json!([{ "embeddedTmpl": "x", "destPath": "local/a" }]), destructive),
        ("meta", json!({ "a": "1" }), json!({ "a": "2" }), destructive),
        ("ephemeralDisk.sizeMB", json!(300), json!(301), destructive),
        ("networks", port(json!({ "label": "a" })), port(json!({ "label": "b" })), destructive),
        ("networks", port(json!({ "label": "a" })), port(json!({ "label": "a", "static": 80 })), destructive),
        (
            "networks",
            port(json!({ "label": "a", "static": 80 })),
            port(json!({ "label": "a", "static": 81 })),
            destructive,
        ),
        ("volumes", json!([]), json!([{ "name": "v", "type": "host", "source": "s" }]), destructive),
    ] {
        let of = |value: &Value| {
            let mut one = spec(1);
            let pointer = format!("/groups/0/{}", path.replace('.', "/"));
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            if one.pointer(parent).is_none() {
                one["groups"][0][path.split('.').next().unwrap()] = json!({});
            }
            one.pointer_mut(parent).unwrap()[field] = value.clone();
            one
        };
        let mut world = World::new(&of(&after));
        world.old(&of(&before));
        world.allocs([0], |alloc| alloc.job_version = 0);
        let alloc = world.view.allocs_of_job(&key()).next().unwrap();
        let group = &world.job.definition.spec.groups[0];
        assert_eq!(update_kind(&world.view, &world.job, group, alloc), wanted, "{path}: {before} becomes {after}");
    }
}

#[test]
fn a_failed_placement_leaves_its_note_on_the_one_that_failed() {
    let mut world = only(&rescheduled_at_once(spec(1)), [Node { is_eligible: false, ..node("n-0") }]);
    world.allocs([0], fail);
    let plan = world.plan();
    let noted: Vec<Option<LastReschedule>> = plan.attributes.iter().map(|update| update.last_reschedule).collect();
    assert_eq!((noted, stops(&plan)), (vec![Some(LastReschedule::NoPlacement)], Vec::new()));
}
