//! Cases of `spec/scheduler.md` with deployments: rolling limits, canaries, promotion, what pauses and what ends.

use drover_api::deployment::DeploymentDescription;

use super::*;

/// Ten of a service that replaces four at a time.
fn u4(count: i64) -> Value {
    with(spec(count), "update", json!({ "maxParallel": 4 }))
}

/// Ten of a service that replaces two at a time, after two canaries.
fn c2(count: i64) -> Value {
    with(spec(count), "update", json!({ "maxParallel": 2, "canary": 2 }))
}

fn total(desired_total: i64) -> GroupState {
    GroupState { desired_total, ..GroupState::default() }
}

fn canaried(desired_total: i64, placed: &[&str], promoted: bool) -> GroupState {
    let placed_canaries = placed.iter().map(|name| (*name).to_owned()).collect();
    GroupState { desired_total, desired_canaries: 2, placed_canaries, promoted, ..GroupState::default() }
}

/// Job at version 1 with a version 0 before a destructive change.
fn changed(spec: &Value) -> World {
    let mut world = World::new(spec);
    world.old(&before_a_destructive_change(spec.clone()));
    world
}

/// Allocations of version 0.
fn old(world: &mut World, slots: impl IntoIterator<Item = i64>) {
    world.allocs(slots, |alloc| alloc.job_version = 0);
}

fn state(plan: &Plan) -> &GroupState {
    &plan.deployment.as_ref().expect("a deployment").groups["web"]
}

/// Failed allocations of a deployment of version 1 that may be rescheduled now.
fn failed_of_deployment(world: &mut World, slots: std::ops::Range<i64>, is_wished: bool) {
    world.allocs(slots, |alloc| {
        of_deployment(alloc, 1, None);
        alloc.client = ClientStatus::Failed;
        alloc.last_event_at = now() - SignedDuration::from_secs(3600);
        alloc.transition.reschedule = is_wished;
    });
}

#[test]
fn s_032_failed_ones_of_a_running_deployment_wait_for_its_word() {
    let mut world = World::new(&u4(10));
    world.deployment(1, DeploymentPhase::Running, total(10));
    failed_of_deployment(&mut world, 0..5, true);
    failed_of_deployment(&mut world, 5..10, false);
    let plan = check(&world, &range(0..5), &range(0..5), &[]);
    assert_desired!(plan, { place: 5, stop: 5, ignore: 5 });
}

#[test]
fn s_033_failed_ones_of_a_failed_deployment_are_not_replaced() {
    let mut world = World::new(&u4(10));
    world.deployment(1, DeploymentPhase::Failed, total(10));
    failed_of_deployment(&mut world, 0..10, true);
    drop(check(&world, &[], &[], &[]));
}

#[test]
fn s_034_after_a_successful_deployment_failures_are_ordinary() {
    let mut world = World::new(&u4(10));
    world.deployment(1, DeploymentPhase::Successful, total(10));
    failed_of_deployment(&mut world, 0..10, false);
    drop(check(&world, &range(0..10), &range(0..10), &[]));
}

#[test]
fn s_041_a_destructive_change_begins_a_deployment() {
    let mut world = changed(&u4(10));
    old(&mut world, 0..10);
    let plan = check(&world, &[], &[], &range(0..4));
    assert_eq!(state(&plan).desired_total, 10);
    assert_desired!(plan, { destructive_update: 4, ignore: 6 });
    let name = &plan.deployment.as_ref().unwrap().name;
    assert!(plan.placements.iter().all(|placement| placement.deployment.as_ref() == Some(name)));
}

#[test]
fn s_042_a_change_in_place_begins_a_deployment_too() {
    let mut world = World::new(&u4(10));
    world.old(&before_an_in_place_change(u4(10)));
    old(&mut world, 0..10);
    let plan = check(&world, &[], &[], &[]);
    assert_eq!((plan.in_place.len(), state(&plan).desired_total), (10, 10));
    assert!(plan.in_place.iter().all(|update| update.deployment.is_some()));
}

#[test]
fn s_043_what_is_there_already_needs_no_deployment() {
    let mut world = World::new(&u4(10));
    world.allocs(0..10, |_| {});
    assert_eq!(
        world.plan(),
        Plan { queued: BTreeMap::from([("web".into(), 0)]), desired: world.plan().desired, ..Plan::default() }
    );
}

#[test]
fn what_was_stopped_for_a_replacement_that_is_not_there_goes_on_without_a_deployment() {
    for (is_superseded, begins) in [(true, false), (false, true)] {
        let mut world = World::new(&u4(1));
        world.allocs([0], |alloc| {
            alloc.client = ClientStatus::Failed;
            alloc.desired = DesiredStatus::Stop;
            alloc.is_superseded = is_superseded;
        });
        let plan = check(&world, &[0], &[], &[]);
        assert_eq!(plan.deployment.is_some(), begins, "stopped for another one: {is_superseded}");
    }
}

#[test]
fn s_044_an_earlier_incarnation_does_not_count_as_deployed() {
    let mut world = World::new(&u4(10));
    let earlier = Uid::from("an-earlier-incarnation");
    world.view.put_version(key(), earlier.clone(), 1, Arc::clone(&world.job.definition));
    world.allocs(0..5, |alloc| alloc.job_uid = earlier.clone());
    let plan = check(&world, &range(5..10), &[], &[]);
    assert_eq!(state(&plan).desired_total, 5);
    assert_desired!(plan, { place: 5, ignore: 5 });
}

#[test]
fn s_045_a_deployment_that_stands_still_adds_nothing() {
    for phase in [DeploymentPhase::Paused, DeploymentPhase::Failed] {
        let mut world = World::new(&u4(15));
        world.deployment(1, phase, total(15));
        world.allocs(0..10, |alloc| of_deployment(alloc, 1, Some(true)));
        let plan = check(&world, &[], &[], &[]);
        assert_desired!(plan, { ignore: 10 });
    }
}

#[test]
fn s_046_a_deployment_that_stands_still_replaces_nothing() {
    for phase in [DeploymentPhase::Paused, DeploymentPhase::Failed] {
        let mut world = changed(&u4(10));
        world.deployment(1, phase, total(10));
        world.allocs(0..1, |alloc| of_deployment(alloc, 1, Some(true)));
        old(&mut world, 1..10);
        let plan = check(&world, &[], &[], &[]);
        assert_desired!(plan, { ignore: 10 });
    }
}

#[test]
fn s_047_stopping_a_job_cancels_its_deployment() {
    for (phase, wanted) in [(DeploymentPhase::Running, 1), (DeploymentPhase::Successful, 0)] {
        let mut world = World::new(&u4(10));
        world.deployment(1, phase, total(10));
        world.allocs(0..10, |alloc| of_deployment(alloc, 1, Some(true)));
        world.job.stopped = true;
        world.put_job();
        let plan = check(&world, &[], &range(0..10), &[]);
        assert_eq!(plan.deployment_updates.len(), wanted);
        let is_cancelled = plan.deployment_updates.iter().all(|update| {
            update.phase == DeploymentPhase::Cancelled && update.description == DeploymentDescription::StoppedJob
        });
        assert!(is_cancelled);
    }
}

#[test]
fn s_048_a_newer_version_cancels_the_deployment_before() {
    let mut world = changed(&u4(10));
    world.deployment(0, DeploymentPhase::Running, total(10));
    world.allocs(0..10, |alloc| of_deployment(alloc, 0, Some(true)));
    let plan = world.plan();
    let update = &plan.deployment_updates[0];
    assert_eq!((update.phase, update.description), (DeploymentPhase::Cancelled, DeploymentDescription::NewerJob));
    assert_eq!(state(&plan).desired_total, 10);
}

/// Six old ones, four of the deployment with these verdicts.
fn rolling(verdicts: [Option<bool>; 4]) -> World {
    let mut world = changed(&u4(10));
    world.deployment(1, DeploymentPhase::Running, total(10));
    for (index, verdict) in (0..).zip(verdicts) {
        world.allocs([index], |alloc| of_deployment(alloc, 1, verdict));
    }
    old(&mut world, 4..10);
    world
}

#[test]
fn s_049_as_many_follow_as_are_healthy() {
    for healthy in 0..=4_usize {
        let verdicts = std::array::from_fn(|n| (n < healthy).then_some(true));
        let n = i64::try_from(healthy).unwrap();
        let plan = check(&rolling(verdicts), &[], &[], &range(4..4 + n));
        assert_desired!(plan, { destructive_update: n, ignore: 10 - n });
    }
}

#[test]
fn s_050_one_unhealthy_stops_the_roll_out() {
    let plan = check(&rolling([Some(true), Some(true), Some(false), Some(true)]), &[], &[], &[]);
    assert_desired!(plan, { ignore: 10 });
}

#[test]
fn s_051_placements_come_out_of_the_limit() {
    let mut world = changed(&u4(10));
    old(&mut world, 0..7);
    let plan = check(&world, &range(7..10), &[], &[0]);
    assert_desired!(plan, { place: 3, destructive_update: 1, ignore: 6 });
}

#[test]
fn s_052_the_limit_has_a_floor() {
    let mut world = changed(&u4(30));
    world.deployment(1, DeploymentPhase::Running, total(30));
    old(&mut world, 0..10);
    world.allocs(10..30, |alloc| of_deployment(alloc, 1, None));
    let plan = check(&world, &[], &[], &[]);
    assert_desired!(plan, { ignore: 30 });
}

fn is_successful(plan: &Plan) -> bool {
    plan.deployment_updates.iter().any(|update| update.phase == DeploymentPhase::Successful)
}

#[test]
fn s_053_a_deployment_is_successful_when_all_are_healthy() {
    for (healthy, wanted) in [(10, true), (9, false)] {
        let mut world = World::new(&u4(10));
        world.deployment(1, DeploymentPhase::Running, total(10));
        world.allocs(0..10, |alloc| {
            let verdict = (alloc.index < healthy).then_some(true);
            of_deployment(alloc, 1, verdict);
        });
        assert_eq!(is_successful(&world.plan()), wanted, "{healthy}");
    }
}

#[test]
fn s_054_failures_that_were_replaced_do_not_count() {
    let mut world = World::new(&u4(10));
    world.deployment(1, DeploymentPhase::Running, total(10));
    world.allocs(0..10, |alloc| of_deployment(alloc, 1, Some(true)));
    world.allocs(0..10, |alloc| {
        of_deployment(alloc, 1, Some(false));
        alloc.client = ClientStatus::Failed;
        alloc.desired = DesiredStatus::Stop;
    });
    let plan = check(&world, &[], &[], &[]);
    assert!(is_successful(&plan));
}

#[test]
fn s_055_canaries_come_first() {
    let mut world = changed(&c2(10));
    old(&mut world, 0..10);
    let plan = check(&world, &[0, 1], &[], &[]);
    assert!(plan.placements.iter().all(|placement| placement.canary));
    assert_desired!(plan, { canary: 2, ignore: 10 });
    assert_eq!((state(&plan).desired_canaries, state(&plan).desired_total), (2, 10));
    assert_eq!(plan.deployment.as_ref().unwrap().description, DeploymentDescription::NeedsPromotion);
}

#[test]
fn s_056_a_larger_count_waits_for_the_canaries() {
    let mut world = changed(&c2(15));
    old(&mut world, 0..10);
    let plan = check(&world, &[0, 1], &[], &[]);
    assert_eq!(state(&plan).desired_total, 15);
}

#[test]
fn s_057_a_smaller_count_does_not_wait() {
    let mut world = changed(&c2(5));
    old(&mut world, 0..10);
    let plan = check(&world, &[0, 1], &range(5..10), &[]);
    assert_desired!(plan, { canary: 2, stop: 5, ignore: 5 });
    assert_eq!(state(&plan).desired_total, 5);
}

/// Two canaries of version 1 in slots 0 and 1, which the deployment lists.
fn canaries(world: &mut World, version: i64, phase: DeploymentPhase, promoted: bool, count: i64) {
    let n = world.view.allocs_of_job(&key()).count();
    let names = [format!("web-web-0-{n}"), format!("web-web-1-{}", n + 1)];
    world.allocs(0..2, |alloc| {
        of_deployment(alloc, version, Some(true));
        alloc.canary = !promoted;
    });
    world.deployment(version, phase, canaried(count, &[&names[0], &names[1]], promoted));
}

#[test]
fn s_058_promoted_canaries_take_the_place_of_those_of_their_name() {
    let mut world = changed(&c2(10));
    old(&mut world, 0..10);
    canaries(&mut world, 1, DeploymentPhase::Running, true, 10);
    let plan = check(&world, &[], &[0, 1], &[2, 3]);
    assert!(plan.stops.iter().all(|stop| stop.alloc.job_version == 0));
    assert_desired!(plan, { stop: 2, destructive_update: 2, ignore: 8 });
}

#[test]
fn s_059_canaries_may_be_the_whole_roll_out() {
    let mut world = changed(&c2(2));
    old(&mut world, 0..2);
    canaries(&mut world, 1, DeploymentPhase::Running, true, 2);
    let plan = check(&world, &[], &[0, 1], &[]);
    assert!(is_successful(&plan) && plan.stops.iter().all(|stop| stop.alloc.job_version == 0));
}

/// One of two canaries is there.
fn half_canaried(phase: DeploymentPhase) -> World {
    let mut world = changed(&c2(10));
    old(&mut world, 0..10);
    world.allocs(0..1, |alloc| {
        of_deployment(alloc, 1, None);
        alloc.canary = true;
    });
    world.deployment(1, phase, canaried(10, &["web-web-0-10"], false));
    world
}

#[test]
fn s_060_a_paused_deployment_places_no_canary() {
    let plan = check(&half_canaried(DeploymentPhase::Paused), &[], &[], &[]);
    assert_desired!(plan, { ignore: 11 });
}

#[test]
fn s_061_a_failed_deployment_takes_its_canaries_back() {
    let plan = check(&half_canaried(DeploymentPhase::Failed), &[], &[0], &[]);
    assert_eq!(plan.stops[0].alloc.job_version, 1);
    assert_desired!(plan, { ignore: 10, stop: 1 });
}

#[test]
fn s_062_canaries_of_the_version_before_end() {
    let mut world = changed(&c2(10));
    let before = before_a_destructive_change(c2(10));
    let mut tried = before.clone();
    tried["groups"][0]["tasks"][0]["env"]["RELEASE"] = json!("2");
    let tried = Definition::new(&serde_json::from_value(tried).unwrap(), "web");
    world.job.version = 2;
    world.view.put_version(key(), world.job.uid.clone(), 2, Arc::clone(&world.job.definition));
    world.view.put_version(key(), world.job.uid.clone(), 1, tried);
    world.put_job();
    old(&mut world, 0..10);
    canaries(&mut world, 1, DeploymentPhase::Running, false, 10);
    let plan = check(&world, &[0, 1], &[0, 1], &[]);
    assert!(plan.stops.iter().all(|stop| stop.alloc.job_version == 1));
    assert!(plan.placements.iter().all(|placement| placement.canary && placement.job_version == 2));
    assert_eq!(plan.deployment_updates[0].description, DeploymentDescription::NewerJob);
}

#[test]
fn s_063_canaries_that_move_stay_canaries() {
    let mut world = changed(&c2(10));
    old(&mut world, 0..10);
    world.allocs(0..2, |alloc| {
        of_deployment(alloc, 1, Some(true));
        alloc.canary = true;
        alloc.transition.migrate = true;
    });
    world.deployment(1, DeploymentPhase::Running, canaried(10, &["web-web-0-10", "web-web-1-11"], false));
    let plan = check(&world, &[0, 1], &[0, 1], &[]);
    assert!(plan.placements.iter().all(|placement| placement.canary));
    assert_desired!(plan, { canary: 2, ignore: 10 });
}

#[test]
fn s_064_only_what_was_not_promoted_is_taken_back() {
    let mut two = c2(10);
    let mut other = two["groups"][0].clone();
    other["name"] = json!("other");
    two["groups"].as_array_mut().unwrap().push(other);
    let mut world = changed(&two);
    old(&mut world, 0..10);
    world.allocs(0..10, |alloc| {
        alloc.job_version = 0;
        alloc.group = "other".into();
    });
    for group in ["web", "other"] {
        world.allocs(0..2, |alloc| {
            of_deployment(alloc, 1, Some(true));
            alloc.canary = group == "other";
            alloc.group = group.into();
        });
    }
    world.deployment(1, DeploymentPhase::Failed, canaried(10, &["web-web-0-20", "web-web-1-21"], true));
    let mut deployment = (**world.view.latest_deployment(&key()).unwrap()).clone();
    deployment.groups.insert("other".into(), canaried(10, &["web-web-0-22", "web-web-1-23"], false));
    world.view.put_deployment(deployment);
    let plan = world.plan();
    let stopped: Vec<(&str, i64)> = plan
        .stops
        .iter()
        .filter(|stop| stop.alloc.job_version == 1)
        .map(|stop| (stop.alloc.group.as_str(), stop.alloc.index))
        .collect();
    assert_eq!(stopped, [("other", 0), ("other", 1)]);
}

#[test]
fn s_065_while_canaries_run_others_are_replaced_with_what_was_proven() {
    let policy = json!({ "delay": "5s", "delayFunction": "constant", "unlimited": true });
    let mut world = changed(&with(c2(5), "reschedule", policy));
    world.deployment(0, DeploymentPhase::Successful, total(5));
    world.allocs(0..5, |alloc| {
        alloc.job_version = 0;
        if [1, 4].contains(&alloc.index) {
            alloc.client = ClientStatus::Failed;
            alloc.last_event_at = now() - SignedDuration::from_secs(3600);
        }
    });
    canaries(&mut world, 1, DeploymentPhase::Running, false, 5);
    let plan = check(&world, &[1, 4], &[1, 4], &[]);
    assert!(plan.placements.iter().all(|placement| placement.job_version == 0 && !placement.canary));
}

#[test]
fn a_new_deployment_goes_by_the_policy_of_its_group() {
    let of = |update: Value| {
        let mut world = changed(&with(spec(4), "update", update));
        old(&mut world, 0..4);
        let GroupState { auto_revert, auto_promote, progress_deadline, .. } = state(&world.plan()).clone();
        (auto_revert, auto_promote, progress_deadline.to_std().as_secs())
    };
    assert_eq!(of(json!({ "maxParallel": 1 })), (false, false, 600), "the defaults");
    assert_eq!(
        of(json!({ "maxParallel": 1, "canary": 1, "autoPromote": true, "progressDeadline": "90s" })),
        (false, true, 90)
    );
    assert_eq!(of(json!({ "maxParallel": 1, "autoRevert": true, "progressDeadline": "15m" })), (true, false, 900));
}

#[test]
fn updates_that_wait_for_their_turn_are_counted() {
    for (n_old, wanted) in [(10, 6), (5, 1), (4, 0), (1, 0)] {
        let mut world = changed(&u4(10));
        old(&mut world, 0..n_old);
        world.allocs(n_old..10, |_| {});
        assert_eq!(world.plan().held_back, wanted, "{n_old} of the old version");
    }
}
