//! How fast a roll-out goes, and how it ends.

use std::time::Duration;

use drover_api::Deployment;
use serde_json::json;

use super::{all_running, apply, ask, deployment, is_stable, rolled, running, standing, status};
use crate::tests::{World, conflict, in_default, unavailable};

const LONG: Duration = Duration::from_mins(2);

#[tokio::test(start_paused = true)]
async fn the_first_version_is_rolled_out_and_stable_once_everything_is_healthy() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&rolled(&[("g", 2, json!({ "maxParallel": 1 }))], "a"));
    world.settle();
    assert_eq!(standing(&world, 0), "running Running");
    assert!(!is_stable(&world, 0));
    world.live(LONG).await;
    assert_eq!(standing(&world, 0), "successful Successful");
    let state = &status(&world, 0).groups["g"];
    assert_eq!((state.desired_total, state.placed_allocs, state.healthy_allocs, state.unhealthy_allocs), (2, 2, 2, 0));
    assert!(is_stable(&world, 0));
    let owner = &deployment(&world, 0).metadata.owner_references.unwrap()[0];
    assert_eq!((owner.kind.as_str(), owner.name.as_str()), ("Job", "web"));
}

#[tokio::test(start_paused = true)]
async fn no_more_than_max_parallel_are_replaced_before_those_that_came_are_healthy() {
    for max_parallel in [1_usize, 2, 3] {
        let mut world = World::with_nodes(["n1"]);
        world.create(&rolled(&[("g", 5, json!({ "maxParallel": max_parallel }))], "a"));
        world.live(LONG).await;
        apply(&world, "b");
        // Agents that do nothing: nothing becomes healthy.
        world.advance(LONG).await;
        assert_eq!(running(&world, 0), 5 - max_parallel, "{max_parallel}: {:?}", world.shown("web"));
        world.live(LONG).await;
        assert_eq!((running(&world, 0), running(&world, 1)), (0, 5), "{max_parallel}");
        assert_eq!(standing(&world, 1), "successful Successful");
    }
}

#[tokio::test(start_paused = true)]
async fn s_048_a_newer_version_cancels_the_roll_out_of_the_one_before() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&rolled(&[("g", 3, json!({ "maxParallel": 1 }))], "a"));
    world.live(LONG).await;
    apply(&world, "b");
    world.advance(Duration::from_secs(10)).await;
    assert_eq!(standing(&world, 1), "running Running");
    apply(&world, "c");
    world.live(LONG).await;
    assert_eq!(standing(&world, 1), "cancelled NewerJob");
    assert_eq!((standing(&world, 2).as_str(), running(&world, 2)), ("successful Successful", 3));
    assert!(!is_stable(&world, 1) && is_stable(&world, 2));
}

#[tokio::test(start_paused = true)]
async fn a_stopped_job_cancels_its_roll_out() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&rolled(&[("g", 3, json!({ "maxParallel": 1 }))], "a"));
    world.settle();
    world.change_job("web", &json!({ "stop": true }));
    world.live(LONG).await;
    assert_eq!(standing(&world, 0), "cancelled StoppedJob");
    assert_eq!(all_running(&world), 0);
}

#[tokio::test(start_paused = true)]
async fn a_paused_roll_out_stands_still_whatever_its_deadline_and_goes_on_when_it_is_resumed() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&rolled(&[("g", 3, json!({ "maxParallel": 1 }))], "a"));
    world.live(LONG).await;
    apply(&world, "b");
    world.settle();
    ask(&world, 1, &json!({ "paused": true }));
    world.live(Duration::from_mins(30)).await;
    assert_eq!(standing(&world, 1), "paused Paused");
    assert_eq!((running(&world, 0), running(&world, 1)), (2, 1), "only what had begun");
    ask(&world, 1, &json!({ "paused": false }));
    world.live(LONG).await;
    assert_eq!((standing(&world, 1).as_str(), running(&world, 1)), ("successful Successful", 3));
    let told = world.events();
    for reason in ["Paused", "Resumed"] {
        let begin = format!("Normal {reason} {}", deployment(&world, 1).metadata.name.unwrap());
        assert_eq!(told.iter().filter(|event| event.starts_with(&begin)).count(), 1, "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn counts_are_written_at_most_once_per_second_and_the_end_at_once() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&rolled(&[("g", 8, json!({ "maxParallel": 8 }))], "a"));
    world.settle();
    let name = deployment(&world, 0).metadata.name.unwrap();
    world.writes();
    for alloc in world.allocs() {
        world.report(&alloc, &json!({ "clientStatus": "running" }));
        world.advance(Duration::from_millis(100)).await;
    }
    let status_writes = |world: &World| {
        let of = format!("apply Deployment default/{name}");
        world.writes().iter().filter(|write| **write == of).count()
    };
    let n = status_writes(&world);
    assert!(n <= 2, "{n} writes within a second");
    world.live(Duration::from_secs(5)).await;
    assert_eq!(standing(&world, 0), "successful Successful");
}

#[tokio::test(start_paused = true)]
async fn d_066_five_verdicts_within_a_second_are_one_evaluation() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&rolled(&[("g", 3, json!({ "maxParallel": 1 }))], "a"));
    world.live(LONG).await;
    apply(&world, "b");
    world.advance(Duration::from_secs(5)).await;
    let of_b = |world: &World| {
        let mut all = world.allocs();
        all.retain(|alloc| alloc.spec.job_version == 1);
        all
    };
    let first = of_b(&world).remove(0);
    world.report(&first, &json!({ "clientStatus": "running" }));
    world.advance(Duration::from_secs(5)).await;
    let before = world.n_evaluations;
    for _ in 0..5 {
        let health =
            json!({ "healthy": true, "timestamp": world.clock.now(), "deploymentName": first.spec.deployment_name });
        world.report(&first, &json!({ "health": health }));
        world.advance(Duration::from_millis(190)).await;
    }
    assert_eq!(world.n_evaluations, before, "the second is not over");
    world.advance(Duration::from_secs(5)).await;
    assert_eq!((world.n_evaluations - before, of_b(&world).len()), (1, 2), "the next one is replaced");
}

#[tokio::test(start_paused = true)]
async fn a_roll_out_ends_well_although_one_of_its_writes_fails() {
    let writes = [
        "create Deployment",
        "apply Deployment",
        "create Allocation",
        "merge Allocation",
        "merge status of JobVersion",
    ];
    for write in writes {
        for error in [unavailable(), conflict()] {
            let mut world = World::with_nodes(["n1"]);
            world.create(&rolled(&[("g", 3, json!({ "maxParallel": 1 }))], "a"));
            world.live(LONG).await;
            world.store.refuse(write, error.clone());
            apply(&world, "b");
            world.live(LONG).await;
            assert_eq!(standing(&world, 1), "successful Successful", "{write}: {error}");
            assert_eq!((running(&world, 0), running(&world, 1)), (0, 3), "{write}: {error}");
            assert!(is_stable(&world, 1), "{write}: {error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn another_leader_finishes_what_one_has_begun_at_any_moment() {
    // So many actions are carried out before the leader dies; what it decided besides is lost with it.
    for n_done in 0..24 {
        let mut world = World::with_nodes(["n1"]);
        world.create(&rolled(&[("g", 2, json!({ "maxParallel": 1 }))], "a"));
        world.live(LONG).await;
        apply(&world, "b");
        let mut left = n_done;
        while left > 0 {
            let mut actions = world.decide();
            if actions.is_empty() {
                if !world.agents_act() {
                    world.advance(Duration::from_secs(1)).await;
                }
                left -= 1;
                continue;
            }
            actions.truncate(left);
            left -= actions.len();
            world.carry_out(actions);
        }
        world.elect_another();
        world.live(LONG).await;
        assert_eq!(standing(&world, 1), "successful Successful", "after {n_done} actions");
        assert_eq!(
            (all_running(&world), running(&world, 1)),
            (2, 2),
            "after {n_done} actions: {:?}",
            world.shown("web")
        );
        assert_eq!(world.all::<Deployment>().len(), 2, "after {n_done} actions");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deployment_that_is_deleted_is_let_go_and_the_roll_out_goes_on() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&rolled(&[("g", 3, json!({ "maxParallel": 1 }))], "a"));
    world.live(LONG).await;
    apply(&world, "b");
    world.advance(Duration::from_secs(5)).await;
    world.delete::<Deployment>(&in_default(&deployment(&world, 1).metadata.name.unwrap()));
    world.live(LONG).await;
    assert_eq!((running(&world, 0), running(&world, 1)), (0, 3), "{:?}", world.shown("web"));
}
