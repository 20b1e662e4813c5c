//! Roll-outs that fail, and the way back.

use std::time::Duration;

use drover_api::deployment::RollbackResult;
use drover_api::job::JobConditionType;
use drover_api::{Deployment, Job, JobVersion};
use drover_store::{Object as _, Part};
use serde_json::{Value, json};

use super::{all_running, apply, ask, deployment, is_stable, rolled, running, standing, status};
use crate::tests::{World, conflict, unavailable};

const LONG: Duration = Duration::from_mins(2);

/// A job of two whose second version never becomes healthy.
async fn with_sick(update: &Value) -> World {
    let mut world = World::with_nodes(["n1"]);
    let mut rules =
        json!({ "maxParallel": 1, "minHealthyTime": "1s", "healthyDeadline": "1m", "progressDeadline": "2m" });
    for (name, value) in update.as_object().unwrap() {
        rules[name] = value.clone();
    }
    world.create(&rolled(&[("g", 2, rules)], "a"));
    world.live(LONG).await;
    world.sick_versions.insert(1);
    apply(&world, "b");
    world
}

fn rollback(world: &World) -> Option<(RollbackResult, Option<i64>)> {
    status(world, 1).rollback.map(|rollback| (rollback.result, rollback.version))
}

fn versions(world: &World) -> Vec<i64> {
    let mut versions: Vec<i64> = world.all::<JobVersion>().iter().map(|version| version.spec.version).collect();
    versions.sort_unstable();
    versions
}

#[tokio::test(start_paused = true)]
async fn without_progress_until_the_deadline_a_roll_out_fails_and_leaves_the_job_as_it_is() {
    let mut world = with_sick(&json!({})).await;
    world.live(Duration::from_secs(100)).await;
    assert_eq!(standing(&world, 1), "running Running", "the deadline is two minutes");
    world.live(Duration::from_secs(40)).await;
    assert_eq!(standing(&world, 1), "failed ProgressDeadline");
    assert_eq!((rollback(&world), versions(&world)), (None, vec![0, 1]));
    assert!(!is_stable(&world, 1));
    assert_eq!(running(&world, 0), 1, "the other one is not touched: {:?}", world.shown("web"));
    let told = world.events().iter().filter(|event| event.starts_with("Warning ProgressDeadlineExceeded")).count();
    assert_eq!(told, 1);
}

#[tokio::test(start_paused = true)]
async fn d_044_an_automatic_revert_brings_the_stable_spec_back_as_a_new_stable_version() {
    let mut world = with_sick(&json!({ "autoRevert": true })).await;
    world.live(Duration::from_mins(5)).await;
    assert_eq!(standing(&world, 1), "failed ProgressDeadline");
    assert_eq!(rollback(&world), Some((RollbackResult::RolledBack, Some(0))));
    assert_eq!(versions(&world), [0, 1, 2]);
    let restored: JobVersion = world.the("web-v2");
    assert_eq!(restored.spec.revert_of, Some(0));
    assert_eq!(restored.spec.job.groups, world.the::<JobVersion>("web-v0").spec.job.groups);
    assert!(is_stable(&world, 2));
    assert_eq!((all_running(&world), running(&world, 1)), (2, 0), "{:?}", world.shown("web"));
    let job: Job = world.the("web");
    let status = job.status.unwrap();
    assert_eq!(status.version, Some(2));
    assert_eq!(status.reverted_generation, job.metadata.generation);
    let reverted = status.conditions.iter().find(|one| one.r#type == JobConditionType::Reverted).unwrap();
    assert_eq!(format!("{} {}", reverted.status, reverted.reason), "True AutoReverted");
    assert!(serde_json::to_string(&job.spec.groups).unwrap().contains("\"b\""), "the person's spec stays");
    assert_eq!(world.events().iter().filter(|event| event.starts_with("Warning AutoReverted")).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn d_085_after_a_revert_the_manifest_that_failed_is_not_started_again_by_applying_it_again() {
    let mut world = with_sick(&json!({ "autoRevert": true })).await;
    world.live(Duration::from_mins(5)).await;
    let n_deployments = world.all::<Deployment>().len();
    world.change_job("web", &json!({ "stop": false }));
    world.live(LONG).await;
    assert_eq!(versions(&world), [0, 1, 2]);
    assert_eq!((all_running(&world), world.all::<Deployment>().len()), (2, n_deployments));
    apply(&world, "c");
    world.live(LONG).await;
    assert_eq!((versions(&world), running(&world, 3)), (vec![0, 1, 2, 3], 2), "another spec is another version");
}

#[tokio::test(start_paused = true)]
async fn d_045_without_a_stable_version_there_is_no_way_back() {
    let mut world = World::with_nodes(["n1"]);
    world.sick_versions.insert(0);
    let rules = json!({ "maxParallel": 1, "minHealthyTime": "1s", "healthyDeadline": "1m", "progressDeadline": "2m", "autoRevert": true });
    world.create(&rolled(&[("g", 2, rules)], "a"));
    world.live(Duration::from_mins(4)).await;
    assert_eq!(standing(&world, 0), "failed ProgressDeadline");
    let rollback = status(&world, 0).rollback.unwrap();
    assert_eq!((rollback.result, rollback.version), (RollbackResult::NoStableVersion, None));
    assert_eq!(versions(&world), [0]);
}

#[tokio::test(start_paused = true)]
async fn a_person_who_fails_a_roll_out_gets_the_stable_version_back_where_it_reverts() {
    for reverts in [false, true] {
        let mut world = with_sick(&json!({ "autoRevert": reverts, "progressDeadline": "1h" })).await;
        world.live(Duration::from_secs(10)).await;
        ask(&world, 1, &json!({ "fail": true }));
        world.live(LONG).await;
        assert_eq!(standing(&world, 1), "failed FailedByUser");
        let expected = if reverts { vec![0, 1, 2] } else { vec![0, 1] };
        assert_eq!(versions(&world), expected, "reverts: {reverts}");
    }
}

#[tokio::test(start_paused = true)]
async fn d_050_an_allocation_that_a_person_calls_unhealthy_fails_the_roll_out_at_once() {
    let mut world = with_sick(&json!({ "autoRevert": true, "progressDeadline": "1h" })).await;
    world.advance(Duration::from_secs(5)).await;
    let alloc = world.allocs().into_iter().find(|alloc| alloc.spec.job_version == 1).unwrap();
    ask(&world, 1, &json!({ "allocationHealth": { "unhealthy": [alloc.metadata.uid] } }));
    world.live(Duration::from_secs(30)).await;
    assert_eq!(standing(&world, 1), "failed FailedAllocations");
    assert_eq!(rollback(&world), Some((RollbackResult::RolledBack, Some(0))));
}

#[tokio::test(start_paused = true)]
async fn allocations_that_a_person_calls_healthy_count_so() {
    let mut world = with_sick(&json!({ "progressDeadline": "1h", "healthCheck": "manual" })).await;
    world.advance(Duration::from_secs(5)).await;
    for _ in 0..4 {
        for alloc in world.allocs().iter().filter(|alloc| alloc.spec.desired_status.as_str() == "stop") {
            world.end(alloc, drover_api::allocation::ClientStatus::Complete);
        }
        let new = world.allocs().into_iter().filter(|alloc| alloc.spec.job_version == 1);
        let uids: Vec<_> = new
            .map(|alloc| {
                world.report(&alloc, &json!({ "clientStatus": "running" }));
                alloc.metadata.uid
            })
            .collect();
        ask(&world, 1, &json!({ "allocationHealth": { "healthy": uids } }));
        world.advance(Duration::from_secs(5)).await;
    }
    assert_eq!(standing(&world, 1), "successful Successful", "{:?}", world.shown("web"));
    let own: Vec<_> = world.allocs().into_iter().filter(|alloc| alloc.spec.job_version == 1).collect();
    assert!(
        own.iter().all(|alloc| alloc.status.as_ref().unwrap().health.is_none()),
        "only agents write an allocation's health"
    );
}

#[tokio::test(start_paused = true)]
async fn a_revert_happens_once_whatever_write_fails_and_whoever_leads() {
    for write in
        ["create JobVersion", "merge status of JobVersion", "apply Deployment", "apply Job", "create Deployment"]
    {
        for (error, elects) in [(unavailable(), false), (conflict(), false), (unavailable(), true)] {
            let mut world = with_sick(&json!({ "autoRevert": true })).await;
            world.live(Duration::from_secs(100)).await;
            world.store.refuse(write, error.clone());
            world.live(Duration::from_secs(25)).await;
            if elects {
                world.elect_another();
            }
            world.live(Duration::from_mins(4)).await;
            let context = format!("{write}: {error}, another leader: {elects}");
            assert_eq!(versions(&world), [0, 1, 2], "{context}");
            assert!(is_stable(&world, 2), "{context}");
            assert_eq!((all_running(&world), running(&world, 1)), (2, 0), "{context}: {:?}", world.shown("web"));
            assert_eq!(status(&world, 1).intent, None, "{context}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn d_047_a_revert_that_fails_itself_is_not_reverted_again() {
    let mut world = with_sick(&json!({ "autoRevert": true })).await;
    world.sick_versions.extend([0, 2]);
    world.live(Duration::from_mins(20)).await;
    assert_eq!(versions(&world), [0, 1, 2]);
    assert_eq!(deployment(&world, 1).status.unwrap().phase.as_str(), "failed");
}

#[tokio::test(start_paused = true)]
async fn an_unhealthy_allocation_of_a_roll_out_is_replaced_and_people_are_told() {
    let mut world = with_sick(&json!({ "progressDeadline": "1h" })).await;
    world.live(Duration::from_secs(20)).await;
    let told: Vec<String> =
        world.events().into_iter().filter(|event| event.starts_with("Warning AllocationUnhealthy")).collect();
    assert!(!told.is_empty() && told[0].ends_with("is unhealthy and will be replaced"), "{told:?}");
    let marked = world.allocs().into_iter().filter(|alloc| alloc.spec.desired_transition.reschedule).count();
    assert!(marked >= 1);
}

/// what the agent says of the tasks outweighs what it says of the health.
#[tokio::test(start_paused = true)]
async fn must_survive_x_026_an_agent_that_calls_healthy_what_does_not_run() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&rolled(&[("g", 2, json!({ "minHealthyTime": "1s" }))], "a"));
    world.settle();
    let name = deployment(&world, 0).metadata.name.unwrap();
    let report = |world: &World, tasks: &Value| {
        let health = json!({ "healthy": true, "timestamp": world.clock.now(), "deploymentName": name });
        for alloc in world.allocs() {
            world.report(&alloc, &json!({ "clientStatus": "running", "taskStates": tasks, "health": health }));
        }
    };
    let n_healthy = |world: &World| status(world, 0).groups["g"].healthy_allocs;
    let began = world.clock.now();
    for task in [
        Value::Null,
        json!({ "state": "pending" }),
        json!({ "state": "dead" }),
        json!({ "state": "dead", "startedAt": began, "finishedAt": began }),
    ] {
        report(&world, &json!({ "t": task }));
        world.advance(Duration::from_secs(10)).await;
        assert_eq!((standing(&world, 0).as_str(), n_healthy(&world)), ("running Running", 0), "{task}");
    }
    report(&world, &json!({ "t": { "state": "running", "startedAt": began, "finishedAt": null } }));
    world.advance(Duration::from_secs(10)).await;
    assert_eq!((standing(&world, 0).as_str(), n_healthy(&world)), ("successful Successful", 2));
}

/// What a user says of a version.
fn call(world: &World, version: i64, stable: bool) {
    let key = world.the::<JobVersion>(&format!("web-v{version}")).key();
    world.merge::<JobVersion>(&key, Part::Status, json!({ "status": { "stable": stable } }));
}

#[tokio::test(start_paused = true)]
async fn what_a_user_says_of_a_version_is_shown_and_stays_and_a_revert_goes_back_by_it() {
    let mut world = World::with_nodes(["n1"]);
    let rules = json!({ "maxParallel": 1, "minHealthyTime": "1s", "healthyDeadline": "1m", "progressDeadline": "2m",
                        "autoRevert": true });
    world.create(&rolled(&[("g", 2, rules)], "a"));
    world.live(LONG).await;
    apply(&world, "b");
    world.live(LONG).await;
    let shown = |world: &World| world.the::<Job>("web").status.unwrap().stable;
    assert!(is_stable(&world, 0) && is_stable(&world, 1) && shown(&world));
    call(&world, 1, false);
    world.live(LONG).await;
    assert!(!is_stable(&world, 1) && !shown(&world), "the controller has taken it back");
    world.change_job("web", &json!({ "scale": { "group": "g", "count": 3 } }));
    world.live(LONG).await;
    assert!(!is_stable(&world, 1) && !shown(&world), "an evaluation has taken it back");
    call(&world, 1, true);
    world.live(LONG).await;
    assert!(shown(&world));
    // The newest one that is stable is the first again.
    call(&world, 1, false);
    world.sick_versions.insert(2);
    apply(&world, "c");
    world.live(Duration::from_mins(5)).await;
    assert_eq!(standing(&world, 2), "failed ProgressDeadline");
    let rollback = status(&world, 2).rollback.unwrap();
    assert_eq!((rollback.result, rollback.version), (RollbackResult::RolledBack, Some(0)));
    assert_eq!(world.the::<JobVersion>("web-v3").spec.revert_of, Some(0));
    assert!(is_stable(&world, 3) && !is_stable(&world, 1) && shown(&world));
}
