//! Cases of `spec/deployments.md` that the scheduler decides: when a deployment begins, what it may change, when it is
//! over.

use drover_api::deployment::DeploymentDescription as Why;
use drover_api::names::deployment_name;

use super::*;

/// A service with an `update` block.
fn rolling(count: i64, update: &Value) -> Value {
    with(spec(count), "update", update.clone())
}

fn one_at_a_time() -> Value {
    rolling(3, &json!({ "maxParallel": 1 }))
}

/// Three allocations of version 0, and a version 1 that needs new ones.
fn changed(spec: &Value) -> World {
    let mut world = World::new(spec);
    world.old(&before_a_destructive_change(spec.clone()));
    let count = world.job.counts["web"];
    world.allocs(0..count, |alloc| alloc.job_version = 0);
    world
}

fn total(desired_total: i64) -> GroupState {
    GroupState { desired_total, ..GroupState::default() }
}

/// The allocation of a slot becomes one of the deployment of version 1.
fn updated(world: &mut World, slots: std::ops::Range<i64>, health: Option<bool>) {
    entered(world, slots, 1, health);
}

/// The allocation of a slot becomes one of the deployment of a version.
fn entered(world: &mut World, slots: std::ops::Range<i64>, version: i64, health: Option<bool>) {
    let old: Vec<_> = world.view.allocs_of_job(&key()).filter(|alloc| slots.contains(&alloc.index)).cloned().collect();
    for alloc in old {
        let mut alloc = (*alloc).clone();
        of_deployment(&mut alloc, version, health);
        world.view.put_alloc(alloc);
    }
}

#[test]
fn d_001_the_first_run_places_all_at_once() {
    let world = World::new(&one_at_a_time());
    let plan = check(&world, &[0, 1, 2], &[], &[]);
    let begun = plan.deployment.as_ref().expect("a deployment");
    assert_eq!((begun.description, begun.groups["web"].desired_total), (Why::Running, 3));
}

#[test]
fn d_002_a_change_replaces_one_of_three() {
    let world = changed(&one_at_a_time());
    let plan = check(&world, &[], &[], &[0]);
    assert_eq!(plan.deployment.expect("a deployment").job_version, 1);
}

#[test]
fn d_003_d_004_the_next_follows_when_one_is_healthy_and_not_before() {
    for (health, next) in [(None, &[][..]), (Some(true), &[1])] {
        let mut world = changed(&one_at_a_time());
        world.deployment(1, DeploymentPhase::Running, total(3));
        updated(&mut world, 0..1, health);
        drop(check(&world, &[], &[], next));
    }
}

#[test]
fn d_005_all_healthy_is_successful() {
    let mut world = changed(&one_at_a_time());
    world.deployment(1, DeploymentPhase::Running, total(3));
    updated(&mut world, 0..3, Some(true));
    let update = &world.plan().deployment_updates[0];
    assert_eq!((update.phase, update.description), (DeploymentPhase::Successful, Why::Successful));
}

#[test]
fn d_006_jobs_that_have_no_deployments() {
    let mut batch = one_at_a_time();
    batch["type"] = json!("batch");
    let mut sysbatch = spec(1);
    sysbatch["type"] = json!("sysbatch");
    sysbatch["groups"][0].as_object_mut().expect("a group").remove("update");
    // A system job has one unless it says that it wants none.
    let mut system = spec(1);
    system["type"] = json!("system");
    for spec in [batch, system, sysbatch] {
        let plan = World::new(&spec).plan();
        assert!(plan.deployment.is_none() && !plan.placements.is_empty(), "{}", spec["type"]);
    }
}

#[test]
fn d_007_without_a_limit_all_are_replaced_at_once() {
    let world = changed(&rolling(3, &json!({ "maxParallel": 0 })));
    let plan = check(&world, &[], &[], &[0, 1, 2]);
    assert!(plan.deployment.is_none());
}

#[test]
fn d_008_d_009_an_unchanged_job_needs_no_deployment() {
    let mut world = World::new(&one_at_a_time());
    world.allocs(0..3, |_| {});
    assert!(check(&world, &[], &[], &[]).deployment.is_none(), "D-008");
    world.set_phase(&["n-1"], NodePhase::Down);
    assert!(check(&world, &[1], &[1], &[]).deployment.is_none(), "D-009");
}

#[test]
fn d_010_changes_in_place_join_a_deployment() {
    let mut world = World::new(&one_at_a_time());
    world.old(&before_an_in_place_change(one_at_a_time()));
    world.allocs(0..3, |alloc| alloc.job_version = 0);
    let plan = check(&world, &[], &[], &[]);
    let begun = plan.deployment.as_ref().expect("a deployment");
    assert_eq!((begun.groups["web"].desired_total, plan.in_place.len()), (3, 3));
    assert!(plan.in_place.iter().all(|update| update.deployment.as_ref() == Some(&begun.name)));
}

#[test]
fn d_042_a_paused_deployment_replaces_what_is_lost() {
    let mut world = changed(&one_at_a_time());
    world.deployment(1, DeploymentPhase::Paused, total(3));
    updated(&mut world, 0..1, Some(true));
    world.set_phase(&["n-2"], NodePhase::Down);
    drop(check(&world, &[2], &[2], &[]));
}

#[test]
fn d_056_d_084_stopping_the_job_cancels() {
    let mut world = World::new(&one_at_a_time());
    world.deployment(1, DeploymentPhase::Running, total(3));
    world.allocs(0..3, |alloc| of_deployment(alloc, 1, None));
    world.job.stopped = true;
    world.put_job();
    let update = &world.plan().deployment_updates[0];
    assert_eq!((update.phase, update.description), (DeploymentPhase::Cancelled, Why::StoppedJob));
}

#[test]
fn d_057_a_newer_version_cancels_and_takes_the_canaries_back() {
    let mut world = changed(&rolling(3, &json!({ "maxParallel": 1, "canary": 1 })));
    let state = GroupState { desired_canaries: 1, placed_canaries: vec!["c".into()], ..total(3) };
    world.deployment(0, DeploymentPhase::Running, state);
    world.allocs([0], |alloc| {
        of_deployment(alloc, 0, Some(true));
        alloc.canary = true;
    });
    let plan = world.plan();
    let update = &plan.deployment_updates[0];
    assert_eq!((update.phase, update.description), (DeploymentPhase::Cancelled, Why::NewerJob));
    assert!(plan.stops.iter().any(|stop| stop.alloc.canary));
    assert_eq!(plan.deployment.expect("a deployment").job_version, 1);
}

#[test]
fn d_058_a_deployment_of_an_earlier_incarnation_is_cancelled() {
    let mut world = World::new(&one_at_a_time());
    world.deployment(1, DeploymentPhase::Running, total(3));
    let known = world.view.latest_deployment(&key()).cloned().expect("a deployment");
    world.view.put_deployment(Deployment { job_uid: Uid::from("earlier"), ..(*known).clone() });
    let plan = world.plan();
    assert_eq!(plan.deployment_updates[0].description, Why::NewerJob);
    assert!(plan.deployment.expect("a deployment").is_new);
}

#[test]
fn d_063_a_group_without_room_does_not_hold_another_back() {
    let mut two = rolling(3, &json!({ "maxParallel": 1 }));
    let mut big = two["groups"][0].clone();
    (big["name"], big["count"]) = (json!("big"), json!(1));
    big["tasks"][0]["resources"]["memoryMB"] = json!(10_000_000);
    two["groups"].as_array_mut().expect("groups").push(big);
    let mut world = changed(&two);
    world.deployment(1, DeploymentPhase::Running, total(3));
    let mut known = (**world.view.latest_deployment(&key()).expect("a deployment")).clone();
    known.groups.insert("big".into(), total(1));
    world.view.put_deployment(known);
    for healthy in 0..3 {
        updated(&mut world, 0..healthy, Some(true));
        let plan = world.plan();
        assert!(plan.failed.contains_key("big"));
        assert_eq!(slots(&plan).destructive, [healthy], "the next one of the other group");
    }
}

#[test]
fn d_068_a_failed_deployment_replaces_only_what_is_lost() {
    let mut world = World::new(&one_at_a_time());
    world.deployment(1, DeploymentPhase::Failed, total(3));
    world.allocs(0..3, |alloc| {
        of_deployment(alloc, 1, Some(alloc.index != 0));
        if alloc.index == 0 {
            alloc.client = ClientStatus::Failed;
            alloc.transition.reschedule = true;
            alloc.last_event_at = now() - SignedDuration::from_secs(3600);
        }
    });
    drop(check(&world, &[], &[], &[]));
    world.set_phase(&["n-1"], NodePhase::Down);
    drop(check(&world, &[1], &[1], &[]));
}

#[test]
fn d_069_one_unhealthy_stops_destructive_updates() {
    let mut world = changed(&rolling(6, &json!({ "maxParallel": 3 })));
    world.deployment(1, DeploymentPhase::Running, total(6));
    updated(&mut world, 0..1, Some(false));
    updated(&mut world, 1..2, Some(true));
    drop(check(&world, &[], &[], &[]));
}

#[test]
fn d_070_those_without_a_verdict_take_their_places_of_the_limit() {
    let mut world = changed(&rolling(10, &json!({ "maxParallel": 3 })));
    world.deployment(1, DeploymentPhase::Running, total(10));
    updated(&mut world, 0..2, None);
    drop(check(&world, &[], &[], &[2]));
}

#[test]
fn a_promotion_that_a_crash_cut_in_two_is_finished() {
    let mut world = changed(&rolling(4, &json!({ "maxParallel": 1, "canary": 1 })));
    let state = GroupState { desired_canaries: 1, promoted: true, ..total(4) };
    world.deployment(1, DeploymentPhase::Running, state);
    world.allocs([0], |alloc| {
        of_deployment(alloc, 1, Some(true));
        alloc.canary = true;
    });
    drop(check(&world, &[], &[0], &[1]));
    // The update of slot 1 was written, the end of the one beside the canary was not.
    let updating = world.view.allocs_of_job(&key()).find(|alloc| alloc.index == 1).cloned().expect("a slot");
    let (desired, client) = (DesiredStatus::Stop, ClientStatus::Complete);
    world.view.put_alloc(Alloc { desired, client, ..(*updating).clone() });
    drop(check(&world, &[1], &[0], &[]));
}

#[test]
fn a_change_in_the_middle_of_a_roll_out_takes_no_more_away_than_one_alone() {
    let mut world = changed(&rolling(6, &json!({ "maxParallel": 2 })));
    // Version 0 was being rolled out itself: slots 3 and 4 hold it, and nobody knows yet whether they are well.
    entered(&mut world, 3..5, 0, None);
    drop(check(&world, &[], &[], &[3, 4]));
    entered(&mut world, 3..4, 0, Some(true));
    drop(check(&world, &[], &[], &[0, 4]));
}

#[test]
fn d_078_while_a_canary_waits_the_old_version_is_replaced_by_itself() {
    let mut world = changed(&rolling(3, &json!({ "maxParallel": 1, "canary": 1 })));
    let state = GroupState { desired_canaries: 1, ..total(3) };
    world.deployment(0, DeploymentPhase::Successful, total(3));
    world.deployment(1, DeploymentPhase::Running, state);
    world.allocs([0], |alloc| {
        of_deployment(alloc, 1, Some(true));
        alloc.canary = true;
    });
    let crashed = world.view.allocs_of_job(&key()).find(|alloc| alloc.index == 2).cloned().expect("a slot");
    world.view.put_alloc(Alloc {
        client: ClientStatus::Failed,
        last_event_at: now() - SignedDuration::from_secs(3600),
        ..(*crashed).clone()
    });
    let plan = world.plan();
    let versions: Vec<_> = plan.placements.iter().map(|placement| (placement.index, placement.job_version)).collect();
    assert_eq!(versions, [(2, 0)]);
}

#[test]
fn scaling_down_in_the_middle_completes_with_what_is_left() {
    let mut world = changed(&rolling(5, &json!({ "maxParallel": 5 })));
    world.deployment(1, DeploymentPhase::Running, total(5));
    updated(&mut world, 0..3, Some(true));
    let gone: Vec<_> = world.view.allocs_of_job(&key()).filter(|alloc| alloc.index >= 3).cloned().collect();
    for alloc in gone {
        world.view.put_alloc(Alloc {
            desired: DesiredStatus::Stop,
            client: ClientStatus::Complete,
            ..(*alloc).clone()
        });
    }
    world.job.counts.insert("web".into(), 3);
    world.put_job();
    assert_eq!(world.plan().deployment_updates[0].phase, DeploymentPhase::Successful);
}

#[test]
fn a_canary_that_failed_is_replaced_by_a_canary_and_nothing_else_moves() {
    let mut world = changed(&rolling(3, &json!({ "maxParallel": 1, "canary": 1 })));
    world.deployment(1, DeploymentPhase::Running, GroupState { desired_canaries: 1, ..total(3) });
    world.allocs([0], |alloc| {
        of_deployment(alloc, 1, Some(false));
        (alloc.canary, alloc.client) = (true, ClientStatus::Failed);
        alloc.transition.reschedule = true;
        alloc.last_event_at = now() - SignedDuration::from_secs(3600);
    });
    let plan = world.plan();
    let placed: Vec<_> = plan.placements.iter().map(|one| (one.index, one.canary, one.job_version)).collect();
    assert_eq!((placed, plan.stops.len()), (vec![(0, true, 1)], 0));
    assert!(plan.placements[0].replaces.is_some());
}

#[test]
fn the_canary_that_failed_its_deployment_leaves_its_slot() {
    let mut world = changed(&rolling(3, &json!({ "maxParallel": 1, "canary": 1 })));
    world.deployment(1, DeploymentPhase::Failed, GroupState { desired_canaries: 1, ..total(3) });
    world.allocs([0], |alloc| {
        of_deployment(alloc, 1, Some(false));
        (alloc.canary, alloc.client) = (true, ClientStatus::Failed);
    });
    let plan = world.plan();
    let stopped: Vec<_> = plan.stops.iter().map(|stop| (stop.alloc.index, stop.alloc.canary)).collect();
    assert_eq!((stopped, plan.placements.len()), (vec![(0, true)], 0));
}

#[test]
fn one_that_failed_for_good_is_replaced_by_the_next_version() {
    let spec = rolling(2, &json!({ "maxParallel": 2 }));
    let mut world = World::new(&spec);
    world.old(&before_a_destructive_change(spec));
    world.allocs(0..2, |alloc| {
        (alloc.job_version, alloc.last_event_at) = (0, now());
        if alloc.index == 0 {
            alloc.client = ClientStatus::Failed;
        }
    });
    drop(check(&world, &[], &[], &[0, 1]));
}

/// Version 2 runs what version 0 runs; version 1 between them failed on one node.
fn reverted(failed_ago: i64, follow_up_in: Option<i64>) -> World {
    let policy = json!({ "delay": "5s", "delayFunction": "constant", "unlimited": true });
    let same = with(rolling(3, &json!({ "maxParallel": 1 })), "reschedule", policy);
    let mut world = World::new(&same);
    world.old(&same);
    let failed = Definition::new(&serde_json::from_value(before_a_destructive_change(same)).unwrap(), "web");
    world.view.put_version(key(), world.job.uid.clone(), 1, failed);
    world.view.put_version(key(), world.job.uid.clone(), 2, Arc::clone(&world.job.definition));
    world.job.version = 2;
    world.put_job();
    world.allocs([0, 1], |alloc| alloc.job_version = 0);
    world.allocs([2], |alloc| {
        of_deployment(alloc, 1, Some(false));
        alloc.client = ClientStatus::Failed;
        alloc.last_event_at = now() - SignedDuration::from_secs(failed_ago);
        let at = |seconds| FollowUp {
            trigger: EvalTrigger::AllocReschedule,
            at: now() + SignedDuration::from_secs(seconds),
        };
        alloc.follow_up = follow_up_in.map(at);
        alloc.transition.reschedule = true;
    });
    world.deployment(1, DeploymentPhase::Failed, total(3));
    world
}

#[test]
fn d_088_a_revert_has_a_deployment_whenever_the_failed_one_is_due() {
    for (failed_ago, follow_up_in) in [(0, None), (3, Some(2)), (5, Some(0)), (9, Some(-4)), (60, None)] {
        let world = reverted(failed_ago, follow_up_in);
        for (trigger, wait_until) in [
            (EvalTrigger::DeploymentWatcher, None),
            (EvalTrigger::AllocReschedule, follow_up_in.map(|seconds| now() + SignedDuration::from_secs(seconds))),
        ] {
            let plan = world.plan_for(trigger, wait_until);
            let begun = plan.deployment.as_ref().expect("a deployment");
            let placed: Vec<_> = plan.placements.iter().map(|one| (one.index, one.deployment.as_deref())).collect();
            assert_eq!(
                (begun.job_version, begun.groups["web"].desired_total, placed),
                (2, 1, vec![(2, Some(&*begun.name))]),
                "failed {failed_ago} s ago, due in {follow_up_in:?}, {trigger}"
            );
        }
    }
}

#[test]
fn d_088_one_whose_node_is_lost_too_is_tracked_as_well() {
    let mut world = reverted(60, None);
    let failed = world.view.allocs_of_job(&key()).find(|alloc| alloc.index == 2).unwrap();
    let running = Alloc { client: ClientStatus::Running, ..(**failed).clone() };
    world.view.put_alloc(running);
    world.set_phase(&["n-2"], NodePhase::Down);
    let plan = world.plan();
    assert_eq!(plan.deployment.expect("a deployment").groups["web"].desired_total, 1);
}

#[test]
fn of_deployments_of_one_second_the_newest_is_the_one_that_none_was_made_after() {
    let mut world = World::new(&one_at_a_time());
    world.deployment(1, DeploymentPhase::Successful, total(3));
    let known = (**world.view.latest_deployment(&key()).expect("a deployment")).clone();
    world.view.remove_deployment(&key(), &known.key);
    let mut newest = None;
    for n in 0..20 {
        let name = deployment_name("web", known.job_uid.as_str(), 1, newest.as_ref().map(Uid::as_str));
        let uid = Uid::from(format!("{n}"));
        world.view.put_deployment(Deployment { key: JobKey::new("shop", name), uid: uid.clone(), ..known.clone() });
        assert_eq!(world.view.latest_deployment(&key()).map(|one| &one.uid), Some(&uid));
        newest = Some(uid);
    }
}
