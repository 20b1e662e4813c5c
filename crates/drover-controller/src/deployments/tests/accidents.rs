//! Roll-outs during which one write meets an accident, each write in turn.

use serde_json::{Value, json};

use super::{apply, ask, rolled};
use crate::tests::{Story, World, no_accident_changes_the_end};

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
