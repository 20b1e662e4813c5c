//! What happens to nodes while one write meets an accident, each write in turn.

use drover_api::ClientNode;
use drover_store::{Key, Part};
use serde_json::{Value, json};

use crate::tests::{Story, World, group, job, no_accident_changes_the_end, service};

/// Silence is proven after it, for a leader that has taken over meanwhile too.
const LISTENED: u64 = 450;

/// Two nodes and a service of two.
fn begun() -> World {
    let world = World::with_nodes(["n1", "n2"]);
    world.create(&service("web", 2));
    world
}

fn drain(world: &World, how: &Value) {
    world.merge::<ClientNode>(&Key::cluster("n1"), Part::Spec, json!({ "spec": { "drain": how } }));
}

#[tokio::test(start_paused = true)]
async fn a_node_is_drained() {
    let story =
        Story { begin: begun, acts: &[(|_| {}, 30), (|world| drain(world, &json!({ "deadline": "1h" })), 120)] };
    no_accident_changes_the_end(story).await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_meets_its_deadline() {
    let story = Story {
        begin: || {
            let world = World::with_nodes(["n1"]);
            world.create(&service("web", 2));
            world
        },
        acts: &[(|_| {}, 30), (|world| drain(world, &json!({ "deadline": "1m" })), 200)],
    };
    no_accident_changes_the_end(story).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_falls_silent_and_comes_back() {
    let story = Story {
        begin: begun,
        acts: &[(|_| {}, 30), (|world| world.silence("n1"), LISTENED), (|world| world.wake("n1"), 60)],
    };
    no_accident_changes_the_end(story).await;
}

#[tokio::test(start_paused = true)]
async fn what_was_away_with_its_node_comes_back() {
    let story = Story {
        begin: || {
            let world = World::with_nodes(["n1", "n2"]);
            let mut of = group("g", 2);
            of["disconnect"] = json!({ "lostAfter": "10m", "replace": true });
            world.create(&job("web", &json!({ "groups": [of] })));
            world
        },
        acts: &[(|_| {}, 30), (|world| world.silence("n1"), LISTENED), (|world| world.wake("n1"), 120)],
    };
    no_accident_changes_the_end(story).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_is_deleted() {
    let story = Story {
        begin: begun,
        acts: &[
            (|_| {}, 30),
            (
                |world| {
                    world.silence("n1");
                    world.delete::<ClientNode>(&Key::cluster("n1"));
                },
                90,
            ),
        ],
    };
    no_accident_changes_the_end(story).await;
}
