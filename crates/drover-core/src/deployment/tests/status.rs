//! What the status of a deployment tells people and programs: its conditions, the columns of `kubectl get` and when it
//! changed.

use drover_api::deployment::DeploymentColumns;

use super::*;
use crate::deployment::{Standing, status};

/// The status of a deployment, as it follows from its phase, groups and allocations.
fn shown(world: &World, before: &DeploymentStatus, seconds: f64) -> DeploymentStatus {
    let standing = Standing { name: "d", generation: 3, created_at: at(0.0), before, wanted: world.status.clone() };
    status(standing, &world.allocs, at(seconds))
}

fn first_shown(world: &World) -> DeploymentStatus {
    shown(world, &DeploymentStatus::default(), 5.0)
}

/// A deployment of group A in a phase, with that many healthy and unhealthy allocations.
fn world_in(phase: Phase, why: Why, healthy: usize, unhealthy: usize) -> World {
    let mut world = World::new(&[("A", 2, 0, "0s")]);
    (world.status.phase, world.status.description) = (phase, why);
    for n in 0..healthy + unhealthy {
        world.alloc("A", Some((n < healthy, 1.0)));
    }
    world
}

/// The conditions, each as `Type=Status Reason: message`.
fn conditions(world: &World) -> Vec<String> {
    let all = first_shown(world).conditions;
    all.iter().map(|one| format!("{}={} {}: {}", one.r#type, one.status, one.reason, one.message)).collect()
}

/// The reason and the message of condition Ready.
fn ready(world: &World) -> String {
    let all = conditions(world);
    let ready = all[0].strip_prefix("Ready=False ").or(all[0].strip_prefix("Ready=True "));
    ready.expect("Ready comes first").to_owned()
}

#[test]
fn a_status_changes_its_time_only_with_something_else() {
    let mut world = world_in(Phase::Running, Why::Running, 1, 0);
    let first = first_shown(&world);
    assert_eq!((first.observed_generation, first.modified_at), (3, Some(at(5.0))));
    world.status = first.clone();
    assert_eq!(shown(&world, &first, 9.0), first);
    world.alloc("A", Some((true, 9.0)));
    let second = shown(&world, &first, 10.0);
    assert_eq!((second.groups["A"].healthy_allocs, second.modified_at), (2, Some(at(10.0))));
}

#[test]
fn the_conditions_of_a_deployment_tell_how_it_goes() {
    let running = |healthy, unhealthy| conditions(&world_in(Phase::Running, Why::Running, healthy, unhealthy));
    assert_eq!(
        running(1, 1),
        [
            "Ready=False InProgress: 1 of 2 allocations are healthy",
            "Reconciling=True InProgress: 1 of 2 allocations are healthy",
            "Promoted=False NoCanaries: it has no canaries",
            "Healthy=False NotAllHealthy: 1 of 2 allocations are healthy",
        ]
    );
    for (healthy, wanted) in [
        (0, "Healthy=False NotAllHealthy: 0 of 2 allocations are healthy"),
        (2, "Healthy=True AllHealthy: 2 of 2 allocations are healthy"),
        (3, "Healthy=True AllHealthy: 3 of 2 allocations are healthy"),
    ] {
        assert_eq!(running(healthy, 0)[3], wanted);
    }
    assert_eq!(
        conditions(&world_in(Phase::Successful, Why::Successful, 2, 0)),
        [
            "Ready=True Successful: 2 of 2 allocations are healthy",
            "Promoted=False NoCanaries: it has no canaries",
            "Healthy=True AllHealthy: 2 of 2 allocations are healthy",
        ]
    );
    assert_eq!(
        conditions(&world_in(Phase::Failed, Why::FailedAllocations, 0, 0))[..2],
        [
            "Ready=False UnhealthyAllocations: 0 of 2 allocations are healthy, 0 unhealthy",
            "Stalled=True UnhealthyAllocations: 0 of 2 allocations are healthy, 0 unhealthy",
        ]
    );
}

#[test]
fn a_deployment_that_wants_nothing_is_not_called_healthy() {
    let world = World::new(&[("A", 0, 0, "0s")]);
    assert_eq!(
        conditions(&world)[2..],
        [
            "Promoted=False NoCanaries: it has no canaries",
            "Healthy=False NotAllHealthy: 0 of 0 allocations are healthy",
        ]
    );
}

#[test]
fn canaries_wait_for_whom_the_description_names() {
    const TEXT: &str = "0 of 4 allocations are healthy";
    let canaried = |why: Why, promoted: &[&str]| {
        let mut world = World::new(&[("A", 2, 1, "0s"), ("B", 1, 1, "0s"), ("C", 1, 0, "0s")]);
        world.status.description = why;
        for group in promoted {
            world.group(group).promoted = true;
        }
        let all = conditions(&world);
        (all[1].clone(), all[2].clone())
    };
    let by_hand = format!(
        "Reconciling=True AwaitingPromotion: {TEXT}; canaries wait to be promoted: set spec.promote to {{all: true}}, \
         or drover deployment promote"
    );
    let by_itself =
        format!("Reconciling=True AwaitingPromotion: {TEXT}; canaries are promoted when all of them are healthy");
    let not_promoted = "Promoted=False NotPromoted: its canaries are not promoted".to_owned();
    let promoted = "Promoted=True Promoted: its canaries are promoted".to_owned();
    for (why, groups, wanted) in [
        (Why::NeedsPromotion, &[][..], (by_hand.clone(), not_promoted.clone())),
        (Why::NeedsPromotion, &["A"], (by_hand, not_promoted.clone())),
        (Why::AutoPromotion, &["B"], (by_itself, not_promoted)),
        (Why::Running, &["A", "B"], (format!("Reconciling=True InProgress: {TEXT}"), promoted)),
    ] {
        assert_eq!(canaried(why, groups), wanted, "{why:?}, {groups:?}");
    }
}

#[test]
fn each_phase_has_its_reason_and_what_to_do() {
    let text = "1 of 2 allocations are healthy";
    for (phase, why, wanted) in [
        (Phase::Running, Why::Running, format!("InProgress: {text}")),
        (
            Phase::Paused,
            Why::Paused,
            format!("Paused: {text}; paused: set spec.paused to false, or drover deployment resume, to go on"),
        ),
        (Phase::Pending, Why::PendingPeer, "Blocked: waits for its region's turn".to_owned()),
        (Phase::Initializing, Why::Running, "Blocked: waits for its region's turn".to_owned()),
        (Phase::Blocked, Why::BlockedOnPeer, "Blocked: waits for other regions".to_owned()),
        (Phase::Unblocking, Why::Unblocking, "Blocked: waits for other regions".to_owned()),
        (Phase::Successful, Why::Successful, format!("Successful: {text}")),
        (Phase::Cancelled, Why::StoppedJob, "Cancelled: the job was stopped".to_owned()),
        (Phase::Cancelled, Why::NewerJob, "Cancelled: a newer version of the job took its place".to_owned()),
        (Phase::Failed, Why::FailedByUser, format!("FailedByUser: {text}; failed by a person")),
        (Phase::Failed, Why::FailedByPeer, format!("FailedByPeer: {text}; failed in another region")),
        (
            Phase::Failed,
            Why::ProgressDeadline,
            format!("ProgressDeadlineExceeded: {text} and no other became so within the progress deadline"),
        ),
        (Phase::Failed, Why::FailedAllocations, format!("UnhealthyAllocations: {text}, 0 unhealthy")),
    ] {
        assert_eq!(ready(&world_in(phase, why, 1, 0)), wanted, "{phase:?}, {why:?}");
    }
}

#[test]
fn a_failed_deployment_names_an_unhealthy_allocation_and_what_became_of_the_job() {
    let failed = |rollback: Option<Rollback>| {
        let mut world = world_in(Phase::Failed, Why::FailedAllocations, 1, 2);
        world.status.rollback = rollback;
        ready(&world)
    };
    let text = "UnhealthyAllocations: 1 of 2 allocations are healthy, 2 unhealthy; kubectl describe alloc/A-1 says why \
                it is unhealthy";
    for (rolled_back, wanted) in [
        (None, ""),
        (Some(rollback(RollbackResult::RolledBack, Some(4))), "; the job goes back to stable version 4"),
        (
            Some(rollback(RollbackResult::RollbackSameSpec, Some(4))),
            "; the newest stable version, 4, has the same spec, so that there is nothing to go back to",
        ),
        (
            Some(rollback(RollbackResult::NoStableVersion, None)),
            "; no version of the job is stable, so that there is none to go back to",
        ),
    ] {
        assert_eq!(failed(rolled_back), format!("{text}{wanted}"));
    }
}

#[test]
fn the_columns_sum_up_all_groups() {
    let mut world = World::new(&[("A", 3, 0, "0s"), ("B", 2, 0, "0s")]);
    for (group, health) in [("A", Some(true)), ("A", Some(true)), ("A", None), ("B", Some(false))] {
        world.alloc(group, health.map(|is_healthy| (is_healthy, 1.0)));
    }
    let text = |text: &str| text.to_owned();
    let wanted = DeploymentColumns {
        desired: text("5"),
        placed: text("4"),
        healthy: text("2"),
        unhealthy: text("1"),
        promoted: text("-"),
        progress_by: text("-"),
        reason: text("InProgress"),
    };
    assert_eq!(first_shown(&world).columns, wanted);
}

#[test]
fn the_columns_tell_the_groups_promoted_the_next_deadline_and_the_reason() {
    let columns = |phase: Phase, why: Why| {
        let mut world = World::new(&[("A", 2, 1, "60s"), ("B", 1, 1, "20s"), ("C", 1, 0, "40s")]);
        world.group("A").promoted = true;
        (world.status.phase, world.status.description) = (phase, why);
        for group in ["A", "B", "C"] {
            world.alloc(group, None);
        }
        let columns = first_shown(&world).columns;
        (columns.promoted, columns.progress_by, columns.reason)
    };
    for (phase, why, by, reason) in [
        (Phase::Running, Why::NeedsPromotion, "1970-01-12T13:47:00Z", "AwaitingPromotion"),
        (Phase::Paused, Why::Paused, "1970-01-12T13:47:00Z", "Paused"),
        (Phase::Failed, Why::FailedByUser, "-", "FailedByUser"),
        (Phase::Successful, Why::Successful, "-", "Successful"),
    ] {
        assert_eq!(columns(phase, why), ("1/2".into(), by.into(), reason.into()), "{phase:?}");
    }
}
