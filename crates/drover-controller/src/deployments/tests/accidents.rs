//! Roll-outs during which one write meets an accident, each write in turn.

use drover_api::Deployment;
use drover_store::Object as _;
use serde_json::{Value, json};

use super::{apply, ask, deployment, rolled};
use crate::tests::{Story, World, group, no_accident_changes_the_end};

fn rules(more: &Value) -> Value {
    let mut rules =
        json!({ "maxParallel": 1, "minHealthyTime": "1s", "healthyDeadline": "1m", "progressDeadline": "2m" });
    for (name, value) in more.as_object().unwrap() {
        rules[name] = value.clone();
    }
    rules
}

fn begun(more: &Value) -> World {
    let world = World::with_nodes(["n1", "n2"]);
    world.create(&rolled(&[("g", 2, rules(more))], "a"));
    world
}

#[tokio::test(start_paused = true)]
async fn a_version_is_rolled_out_and_stopped() {
    let story = Story {
        begin: || begun(&json!({})),
        acts: &[
            (|_| {}, 30),
            (|world| apply(world, "b"), 60),
            (|world| world.change_job("web", &json!({ "stop": true })), 60),
        ],
    };
    no_accident_changes_the_end(story).await;
}

#[tokio::test(start_paused = true)]
async fn a_canary_is_promoted() {
    let story = Story {
        begin: || begun(&json!({ "canary": 1 })),
        acts: &[
            (|_| {}, 30),
            (|world| apply(world, "b"), 30),
            (|world| ask(world, 1, &json!({ "promote": { "all": true } })), 90),
        ],
    };
    no_accident_changes_the_end(story).await;
}

#[tokio::test(start_paused = true)]
async fn a_version_that_never_becomes_healthy_is_taken_back() {
    let story = Story {
        begin: || {
            let mut world = begun(&json!({ "autoRevert": true }));
            world.sick_versions.insert(1);
            world
        },
        acts: &[(|_| {}, 30), (|world| apply(world, "b"), 300)],
    };
    no_accident_changes_the_end(story).await;
}

#[tokio::test(start_paused = true)]
async fn a_newer_version_takes_the_place_of_one_that_waits_for_its_promotion() {
    let story = Story {
        begin: || begun(&json!({ "canary": 1 })),
        acts: &[(|_| {}, 30), (|world| apply(world, "b"), 30), (|world| apply(world, "a"), 60)],
    };
    no_accident_changes_the_end(story).await;
}

#[tokio::test(start_paused = true)]
async fn canaries_that_never_become_healthy_leave_the_old_version_alone() {
    let story = Story {
        begin: || {
            let mut world = begun(&json!({ "canary": 2 }));
            world.sick_versions.insert(1);
            world
        },
        acts: &[(|_| {}, 30), (|world| apply(world, "b"), 240)],
    };
    no_accident_changes_the_end(story).await;
}

#[tokio::test(start_paused = true)]
async fn a_roll_out_is_paused_and_resumed() {
    let story = Story {
        begin: || begun(&json!({})),
        acts: &[
            (|_| {}, 30),
            (
                |world| {
                    apply(world, "b");
                    world.settle();
                },
                4,
            ),
            (|world| ask_if_there(world, &json!({ "paused": true })), 30),
            (|world| ask_if_there(world, &json!({ "paused": false })), 90),
        ],
    };
    no_accident_changes_the_end(story).await;
}

/// A person waits for the deployment of version 1 before asking it for something.
fn ask_if_there(world: &World, spec: &Value) {
    if world.all::<Deployment>().iter().any(|one| one.spec.job_version == 1) {
        ask(world, 1, spec);
    }
}

#[tokio::test(start_paused = true)]
async fn a_user_fails_a_roll_out_and_the_job_goes_back() {
    let story = Story {
        begin: || {
            let mut world = begun(&json!({ "autoRevert": true, "progressDeadline": "1h" }));
            world.sick_versions.insert(1);
            world
        },
        acts: &[(|_| {}, 30), (|world| apply(world, "b"), 40), (|world| ask(world, 1, &json!({ "fail": true })), 90)],
    };
    no_accident_changes_the_end(story).await;
}

#[tokio::test(start_paused = true)]
async fn two_groups_are_rolled_out_and_then_one_is_left() {
    let story = Story {
        begin: || {
            let world = World::with_nodes(["n1", "n2"]);
            world.create(&rolled(&[("g", 1, rules(&json!({}))), ("h", 1, rules(&json!({})))], "a"));
            world
        },
        acts: &[
            (|_| {}, 20),
            (|world| apply(world, "b"), 40),
            (|world| world.change_job("web", &json!({ "groups": [group("g", 2)] })), 40),
        ],
    };
    no_accident_changes_the_end(story).await;
}

#[tokio::test(start_paused = true)]
async fn a_deployment_is_deleted_while_it_rolls() {
    let story = Story {
        begin: || begun(&json!({ "canary": 1 })),
        acts: &[
            (|_| {}, 30),
            (|world| apply(world, "b"), 30),
            (|world| world.delete::<Deployment>(&deployment(world, 1).key()), 90),
        ],
    };
    no_accident_changes_the_end(story).await;
}
