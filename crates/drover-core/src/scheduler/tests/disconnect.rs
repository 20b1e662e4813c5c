//! Cases of `spec/scheduler.md` 3.4 and 3.5: nodes that are cut off, and allocations that come back.

use drover_api::allocation::LastReschedule;

use super::*;
use crate::scheduler::reconcile::is_expired;

fn disconnecting(count: i64, disconnect: Value) -> Value {
    let policy = json!({ "delay": "0s", "delayFunction": "constant", "unlimited": true });
    with(with(spec(count), "disconnect", disconnect), "reschedule", policy)
}

fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

fn cut_off(alloc: &mut Alloc, seconds_ago: i64) {
    alloc.states.push((ClientStatus::Unknown, ago(seconds_ago)));
    alloc.client = ClientStatus::Unknown;
}

#[test]
fn s_068_cut_off_allocations_are_replaced_and_not_stopped() {
    let mut world = World::new(&disconnecting(5, json!({ "lostAfter": "5m" })));
    world.allocs(0..5, |_| {});
    world.set_phase(&["n-0", "n-1"], NodePhase::Disconnected);
    let plan = check(&world, &[0, 1], &[], &[]);
    assert_desired!(plan, { place: 2, disconnect: 2, reschedule_now: 2, ignore: 3 });
    let expiry = FollowUp { trigger: EvalTrigger::MaxDisconnectTimeout, at: now() + SignedDuration::from_secs(300) };
    assert_eq!(plan.follow_ups, std::slice::from_ref(&expiry));
    let cut: Vec<i64> = plan.disconnects.iter().map(|one| one.alloc.index).collect();
    assert_eq!(cut, [0, 1]);
    assert!(plan.disconnects.iter().all(|one| one.follow_up.as_ref() == Some(&expiry)));
    assert!(plan.placements.iter().all(|one| one.previous.is_some() && one.tracker.is_some()));
}

#[test]
fn one_that_is_replaced_later_is_not_stopped_either() {
    let mut world = World::new(&disconnecting(2, json!({ "lostAfter": "5m" })));
    let due = FollowUp { trigger: EvalTrigger::AllocReschedule, at: now() };
    world.allocs(0..2, |alloc| {
        if alloc.index == 0 {
            cut_off(alloc, 30);
            alloc.follow_up = Some(due.clone());
        }
    });
    world.set_phase(&["n-0"], NodePhase::Disconnected);
    let plan = world.plan_for(EvalTrigger::AllocReschedule, Some(now()));
    assert_eq!((plan.stops.len(), plan.replaced().count(), plan.placements.len()), (0, 0, 1));
    let expiry = FollowUp { trigger: EvalTrigger::MaxDisconnectTimeout, at: now() + SignedDuration::from_secs(270) };
    assert_eq!(plan.attributes[0].follow_up, Some(expiry));
}

#[test]
fn s_069_without_a_window_a_cut_off_allocation_is_lost() {
    let mut world = World::new(&spec(2));
    world.allocs(0..2, |_| {});
    world.set_phase(&["n-0"], NodePhase::Disconnected);
    let plan = check(&world, &[0], &[0], &[]);
    assert_eq!(plan.stops[0].client, Some(ClientStatus::Lost));
}

#[test]
fn s_070_one_that_has_not_started_is_lost() {
    let mut world = World::new(&disconnecting(1, json!({ "lostAfter": "5m" })));
    world.allocs(0..1, |alloc| alloc.client = ClientStatus::Pending);
    world.set_phase(&["n-0"], NodePhase::Disconnected);
    let plan = check(&world, &[0], &[0], &[]);
    assert_eq!(plan.stops[0].client, Some(ClientStatus::Lost));
}

#[test]
fn s_071_one_that_is_away_stays_as_it_is() {
    let mut world = World::new(&disconnecting(2, json!({ "lostAfter": "5m" })));
    let at = ago(10) + SignedDuration::from_secs(300);
    world.allocs(0..1, |alloc| {
        cut_off(alloc, 10);
        alloc.follow_up = Some(FollowUp { trigger: EvalTrigger::MaxDisconnectTimeout, at });
    });
    world.allocs(1..2, |_| {});
    world.allocs(0..1, |alloc| {
        alloc.previous = Some("web-web-0-0".into());
        alloc.node = "n-5".into();
    });
    world.set_phase(&["n-0"], NodePhase::Disconnected);
    let plan = world.plan();
    assert!(plan.is_empty() && plan.follow_ups.is_empty(), "{plan:?}");
}

/// The mark is written before the replacement: a leader may die in between, and a replacement may find no room at
/// first.
#[test]
fn one_that_is_away_without_a_replacement_gets_one() {
    for (delay, job_type) in [(0, "service"), (30, "service"), (30, "batch")] {
        let policy = json!({ "delay": format!("{delay}s"), "delayFunction": "constant", "unlimited": true });
        let mut job = with(with(spec(1), "disconnect", json!({ "lostAfter": "5m" })), "reschedule", policy);
        job["type"] = json!(job_type);
        let expiry =
            FollowUp { trigger: EvalTrigger::MaxDisconnectTimeout, at: ago(10) + SignedDuration::from_secs(300) };
        for follow_up in [None, Some(expiry.clone())] {
            let mut world = World::new(&job);
            world.allocs(0..1, |alloc| {
                cut_off(alloc, 10);
                alloc.follow_up.clone_from(&follow_up);
            });
            world.set_phase(&["n-0"], NodePhase::Disconnected);
            let plan = world.plan();
            let awaited =
                FollowUp { trigger: EvalTrigger::AllocReschedule, at: ago(10) + SignedDuration::from_secs(delay) };
            let replaced = plan.placements.iter().filter(|one| one.previous.is_some()).count();
            let noted: Vec<_> = plan.attributes.iter().filter_map(|update| update.follow_up.clone()).collect();
            let wanted = match (delay, &follow_up) {
                (0, None) => (1, vec![expiry.clone()]),
                (0, Some(_)) => (1, vec![]),
                _ => (0, vec![awaited]),
            };
            assert_eq!((replaced, noted), wanted, "{job_type}, delay {delay}, {follow_up:?}");
            assert!(plan.stops.is_empty() && plan.replaced().count() == 0, "{plan:?}");
            // Heard of again, it is left alone until its agent has said how it is.
            world.set_phase(&["n-0"], NodePhase::Initializing);
            assert_eq!(world.plan().placements.len(), 0);
        }
    }
}

#[test]
fn an_unknown_one_that_nobody_awaits_gets_its_expiry() {
    let mut world = World::new(&disconnecting(1, json!({ "lostAfter": "5m", "replace": false })));
    world.allocs(0..1, |alloc| cut_off(alloc, 10));
    world.set_phase(&["n-0"], NodePhase::Disconnected);
    let plan = world.plan();
    let expiry = FollowUp { trigger: EvalTrigger::MaxDisconnectTimeout, at: now() + SignedDuration::from_secs(290) };
    assert_eq!(plan.attributes[0].follow_up.as_ref(), Some(&expiry));
    assert_eq!(plan.follow_ups, [expiry]);
}

#[test]
fn s_072_one_that_is_not_to_be_replaced_keeps_its_slot() {
    let mut world = World::new(&disconnecting(2, json!({ "lostAfter": "5m", "replace": false })));
    world.allocs(0..2, |_| {});
    world.set_phase(&["n-0"], NodePhase::Disconnected);
    let plan = check(&world, &[], &[], &[]);
    assert_eq!((plan.disconnects.len(), plan.disconnects[0].alloc.index), (1, 0));
}

#[test]
fn s_073_a_down_node_keeps_what_is_not_to_be_replaced() {
    let mut world = World::new(&disconnecting(2, json!({ "lostAfter": "5m", "replace": false })));
    world.allocs(0..1, |_| {});
    world.allocs(1..2, |alloc| {
        cut_off(alloc, 10);
        let at = ago(10) + SignedDuration::from_secs(300);
        alloc.follow_up = Some(FollowUp { trigger: EvalTrigger::MaxDisconnectTimeout, at });
    });
    world.set_phase(&["n-0", "n-1"], NodePhase::Down);
    let plan = check(&world, &[], &[], &[]);
    let cut: Vec<i64> = plan.disconnects.iter().map(|one| one.alloc.index).collect();
    assert_eq!(cut, [0], "the running one is marked, the unknown one untouched");
}

#[test]
fn s_074_the_window_ends_on_time() {
    let mut world = World::new(&disconnecting(3, json!({ "lostAfter": "5s" })));
    for (index, seconds) in [(0, 3), (1, 5), (2, 10)] {
        world.allocs([index], |alloc| cut_off(alloc, seconds));
    }
    let expired: Vec<bool> =
        world.view.allocs_of_job(&key()).map(|alloc| is_expired(&world.view, alloc, now())).collect();
    assert_eq!(expired, [false, true, true]);
    world.set_phase(&["n-0", "n-1", "n-2"], NodePhase::Disconnected);
    let plan = world.plan();
    assert_eq!(slots(&plan).stopped, [1, 2]);
    assert!(plan.stops.iter().all(|stop| stop.client == Some(ClientStatus::Lost)));
}

fn back(alloc: &mut Alloc) {
    alloc.states.push((ClientStatus::Unknown, ago(60)));
}

/// A replacement of the allocation of a slot, on another node.
fn replacement(world: &mut World, index: i64, change: impl Fn(&mut Alloc)) {
    let original = world.view.allocs_of_job(&key()).find(|one| one.index == index).unwrap().key.name.clone();
    world.allocs([index], |alloc| {
        alloc.previous = Some(original.clone());
        alloc.node = format!("n-{}", index + 5).into();
        alloc.created_at = ago(30);
        change(alloc);
    });
}

#[test]
fn s_075_those_that_were_not_replaced_go_on() {
    let mut world = World::new(&disconnecting(2, json!({ "lostAfter": "5m" })));
    world.allocs(0..2, back);
    let plan = check(&world, &[], &[], &[]);
    assert_eq!(plan.reconnects.len(), 2);
    assert_desired!(plan, { reconnect: 2, ignore: 2 });
}

#[test]
fn s_076_the_original_can_be_preferred() {
    let mut world = World::new(&disconnecting(3, json!({ "lostAfter": "5m", "reconcile": "keep_original" })));
    world.allocs(0..1, back);
    world.allocs(1..3, |_| {});
    replacement(&mut world, 0, |_| {});
    let plan = check(&world, &[], &[0], &[]);
    assert_eq!(plan.stops[0].reason, StopReason::Reconnected);
    assert!(plan.stops[0].alloc.previous.is_some(), "the replacement ends");
    assert_desired!(plan, { stop: 1, ignore: 3, reconnect: 1 });
}

/// As a canary of a deployment that has failed it ends, and as the replacement of one that is back it would once more.
#[test]
fn a_canary_ends_once_for_both_reasons() {
    let update = json!({ "canary": 1, "maxParallel": 1 });
    let job = with(disconnecting(1, json!({ "lostAfter": "5m", "reconcile": "keep_original" })), "update", update);
    let mut world = World::new(&job);
    let version = world.job.version;
    world.allocs(0..1, back);
    replacement(&mut world, 0, |alloc| {
        of_deployment(alloc, version, Some(false));
        alloc.canary = true;
    });
    let state = GroupState { desired_canaries: 1, ..GroupState::default() };
    world.deployment(version, DeploymentPhase::Failed, state);
    let plan = check(&world, &[], &[0], &[]);
    let reasons: Vec<&StopReason> = plan.stops.iter().map(|stop| &stop.reason).collect();
    assert_eq!(reasons, [&StopReason::NotNeeded]);
    assert_desired!(plan, { stop: 1, ignore: 1, reconnect: 1 });
}

/// Two of four that failed while they were away.
fn failed_while_away() -> World {
    let mut world = World::new(&disconnecting(4, json!({ "lostAfter": "5m" })));
    world.allocs(0..2, |alloc| {
        back(alloc);
        alloc.client = ClientStatus::Failed;
    });
    world.allocs(2..4, |_| {});
    world
}

#[test]
fn s_077_originals_that_failed_while_away_end() {
    let mut world = failed_while_away();
    replacement(&mut world, 0, |_| {});
    replacement(&mut world, 1, |_| {});
    let plan = check(&world, &[], &[0, 1], &[]);
    assert!(plan.stops.iter().all(|stop| stop.client == Some(ClientStatus::Failed) && stop.alloc.previous.is_none()));
}

#[test]
fn s_078_originals_that_failed_while_away_are_replaced_once() {
    let plan = check(&failed_while_away(), &[0, 1], &[0, 1], &[]);
    assert!(plan.stops.iter().all(|stop| stop.reason == StopReason::Rescheduled));
}

#[test]
fn s_079_what_was_completed_while_away_is_complete() {
    let mut batch = spec(2);
    batch["type"] = json!("batch");
    batch["groups"][0].as_object_mut().unwrap().remove("update");
    let mut world = World::new(&batch);
    world.allocs(0..2, |alloc| {
        back(alloc);
        alloc.client = ClientStatus::Complete;
        alloc.ran_successfully = true;
    });
    let plan = world.plan();
    assert!(plan.is_empty());
    assert_desired!(plan, { ignore: 2 });
}

#[test]
fn s_080_an_older_version_does_not_come_back() {
    let after = disconnecting(1, json!({ "lostAfter": "5m" }));
    let mut world = World::new(&after);
    world.old(&before_a_destructive_change(after));
    world.allocs(0..1, |alloc| {
        back(alloc);
        alloc.job_version = 0;
    });
    let plan = check(&world, &[0], &[0], &[]);
    assert!(plan.reconnects.is_empty());
    assert_eq!(plan.stops[0].reason, StopReason::NotNeeded);
}

#[test]
fn an_update_gives_the_slot_of_one_that_is_away_to_nobody_else() {
    let after = disconnecting(2, json!({ "lostAfter": "5m" }));
    let mut world = World::new(&after);
    world.old(&before_a_destructive_change(after));
    world.allocs(0..2, |alloc| {
        if alloc.index == 0 {
            cut_off(alloc, 60);
            alloc.job_version = 0;
        }
    });
    world.set_phase(&["n-0"], NodePhase::Disconnected);
    replacement(&mut world, 0, |_| {});
    let plan = check(&world, &[], &[], &[]);
    assert_desired!(plan, { ignore: 3 });
}

/// Who stays of an original and its replacement, on slot 0.
fn kept(strategy: &str, original: impl Fn(&mut Alloc), replaced: impl Fn(&mut Alloc)) -> &'static str {
    let mut world = World::new(&disconnecting(1, json!({ "lostAfter": "5m", "reconcile": strategy })));
    world.view.put_version(key(), world.job.uid.clone(), 2, Arc::clone(&world.job.definition));
    world.allocs(0..1, |alloc| {
        back(alloc);
        original(alloc);
    });
    replacement(&mut world, 0, replaced);
    let plan = world.plan();
    assert_eq!(plan.stops.len(), 1, "{plan:?}");
    if plan.stops[0].alloc.previous.is_some() { "original" } else { "replacement" }
}

#[test]
fn s_081_the_better_placed_one_stays() {
    let scored = |score: f64| move |alloc: &mut Alloc| alloc.best_score = Some(score);
    let pending = |alloc: &mut Alloc| {
        alloc.best_score = Some(20.0);
        alloc.client = ClientStatus::Pending;
    };
    assert_eq!(kept("best_score", scored(10.0), scored(20.0)), "replacement");
    assert_eq!(kept("best_score", scored(10.0), pending), "original");
    assert_eq!(kept("best_score", scored(10.0), scored(5.0)), "original");
}

#[test]
fn s_082_the_one_that_runs_longest_stays() {
    let since = |minutes: i64| move |alloc: &mut Alloc| alloc.task_starts = vec![("t".into(), ago(60 * minutes))];
    assert_eq!(kept("longest_running", since(60), since(30)), "original");
    assert_eq!(kept("longest_running", since(10), since(30)), "replacement");
}

#[test]
fn s_083_a_newer_version_wins_over_every_strategy() {
    let newer = |alloc: &mut Alloc| alloc.job_version = 2;
    assert_eq!(kept("keep_original", |_| {}, newer), "replacement");
}

#[test]
fn s_084_what_its_node_stops_by_itself_is_replaced_afterwards() {
    let mut world = World::new(&disconnecting(2, json!({ "stopOnClientAfter": "2m" })));
    world.allocs(0..2, |_| {});
    world.set_phase(&["n-0"], NodePhase::Down);
    let plan = check(&world, &[], &[0], &[]);
    let later = FollowUp { trigger: EvalTrigger::AllocFailure, at: now() + SignedDuration::from_secs(125) };
    assert_eq!(plan.stops[0].follow_up.as_ref(), Some(&later));
    assert_eq!(plan.follow_ups, std::slice::from_ref(&later));
    // Another evaluation in between must not run ahead of the node; the awaited one places it.
    let mut marked = (*plan.stops[0].alloc).clone();
    (marked.client, marked.desired, marked.follow_up) = (ClientStatus::Lost, DesiredStatus::Stop, Some(later));
    marked.states = vec![(ClientStatus::Lost, now())];
    world.view.put_alloc(marked.clone());
    drop(check(&world, &[], &[], &[]));
    marked.follow_up = Some(FollowUp { trigger: EvalTrigger::AllocFailure, at: now() });
    world.view.put_alloc(marked);
    drop(check(&world, &[0], &[], &[]));
}

#[test]
fn s_176_the_newest_note_says_whether_it_must_reconnect() {
    use ClientStatus::{Pending, Running, Unknown};
    let needs = |states: &[ClientStatus]| {
        let mut world = World::new(&spec(1));
        world.allocs(0..1, |alloc| alloc.states = states.iter().map(|status| (*status, now())).collect());
        world.view.allocs_of_job(&key()).next().unwrap().needs_reconnect()
    };
    assert!(needs(&[Pending, Running, Unknown]));
    assert!(!needs(&[Unknown, Running]));
    assert!(needs(&[Unknown, Running, Unknown]));
}

#[test]
fn a_reschedule_without_a_place_is_noted_and_tried_again() {
    let policy = json!({ "delay": "5s", "delayFunction": "constant", "unlimited": true });
    let mut world = World::new(&with(spec(1), "reschedule", policy));
    world.allocs(0..1, |alloc| {
        alloc.client = ClientStatus::Failed;
        alloc.last_event_at = ago(60);
    });
    for n in 0..10 {
        world.view.put_node(Node { is_eligible: false, ..node(&format!("n-{n}")) });
    }
    let plan = check(&world, &[], &[], &[]);
    assert_eq!(plan.attributes[0].last_reschedule, Some(LastReschedule::NoPlacement));
    world.view.put_node(node("n-4"));
    drop(check(&world, &[0], &[0], &[]));
}
