//! Drains, from an operator's request to its end.

use std::time::Duration;

use drover_api::ClientNode;
use drover_api::client_node::{DrainStatus, Eligibility};
use drover_store::{Key, Part};
use serde_json::{Value, json};

use super::{past, running};
use crate::tests::{World, conflict, group, job, node, service, unavailable};

fn drain(world: &World, name: &str, how: &Value) {
    world.merge::<ClientNode>(&Key::cluster(name), Part::Spec, json!({ "spec": { "drain": how } }));
}

fn eligibility(world: &World, name: &str) -> Eligibility {
    world.the::<ClientNode>(name).spec.eligibility
}

/// Where the drain of a node stands: its status, and how many allocations hold it.
fn standing(world: &World, name: &str) -> Option<(DrainStatus, i64)> {
    world.the::<ClientNode>(name).status?.drain.map(|drain| (drain.status, drain.remaining))
}

async fn with_service(count: i64) -> World {
    let mut world = World::with_nodes(["n1"]);
    world.create(&service("web", count));
    world.live(Duration::from_secs(30)).await;
    world.register(&node("n2"));
    world
}

#[tokio::test(start_paused = true)]
async fn a_drained_node_is_made_ineligible_first_and_stays_so_when_everything_has_left() {
    let mut world = with_service(2).await;
    drain(&world, "n1", &json!({ "deadline": "1h" }));
    world.writes();
    world.settle();
    assert_eq!(world.writes()[0], "merge ClientNode n1", "before anything is marked");
    assert_eq!(eligibility(&world, "n1"), Eligibility::Ineligible);
    assert_eq!(standing(&world, "n1"), Some((DrainStatus::Draining, 2)));
    world.live(Duration::from_mins(2)).await;
    assert_eq!((running(&world, "web", "n1"), running(&world, "web", "n2")), (0, 2));
    assert_eq!(world.the::<ClientNode>("n1").spec.drain, None);
    assert_eq!(eligibility(&world, "n1"), Eligibility::Ineligible);
    assert_eq!(standing(&world, "n1"), Some((DrainStatus::Complete, 0)));
    assert_eq!(past(&world, "n1")[1..], ["Drain: drain started", "Drain: drain complete"]);
    let told = world.events();
    assert!(told.contains(&"Normal DrainStarted n1: allocations leave the node".to_owned()));
    assert!(told.contains(&"Normal DrainComplete n1: all allocations have left the node".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn allocations_leave_one_at_a_time_and_each_waits_for_the_one_before_to_be_healthy_elsewhere() {
    let mut world = with_service(3).await;
    drain(&world, "n1", &json!({ "deadline": "1h" }));
    let stopping = |world: &World| world.shown("web").iter().filter(|shown| shown.ends_with("stop running")).count();
    world.advance(Duration::from_mins(1)).await;
    assert_eq!(stopping(&world), 1, "one leaves, and the agent of its replacement has not begun");
    world.live(Duration::from_mins(2)).await;
    assert_eq!((running(&world, "web", "n1"), running(&world, "web", "n2")), (0, 3));
}

#[tokio::test(start_paused = true)]
async fn what_has_nowhere_to_go_stays_until_the_deadline_and_is_stopped_then() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&service("web", 2));
    world.live(Duration::from_secs(30)).await;
    drain(&world, "n1", &json!({ "deadline": "10m" }));
    world.live(Duration::from_mins(9)).await;
    let before = running(&world, "web", "n1");
    assert!(before >= 1, "at most one is on its way");
    world.live(Duration::from_mins(2)).await;
    assert_eq!(running(&world, "web", "n1"), 0);
    assert_eq!(standing(&world, "n1").map(|(status, _)| status), Some(DrainStatus::Complete));
}

#[tokio::test(start_paused = true)]
async fn a_forced_drain_stops_everything_at_once() {
    let mut world = with_service(3).await;
    drain(&world, "n1", &json!({ "force": true }));
    world.live(Duration::from_secs(10)).await;
    assert_eq!((running(&world, "web", "n1"), running(&world, "web", "n2")), (0, 3));
    assert_eq!(world.the::<ClientNode>("n1").spec.drain, None);
}

#[tokio::test(start_paused = true)]
async fn system_jobs_leave_last_and_not_at_all_where_they_are_to_be_ignored() {
    for ignores in [false, true] {
        let mut world = with_service(2).await;
        world.create(&job("log", &json!({ "type": "system", "groups": [group("s", 1)] })));
        world.live(Duration::from_secs(20)).await;
        assert_eq!(running(&world, "log", "n1"), 1);
        drain(&world, "n1", &json!({ "deadline": "1h", "ignoreSystemJobs": ignores }));
        let mut was_last = true;
        for _ in 0..60 {
            world.live(Duration::from_secs(1)).await;
            was_last &= running(&world, "log", "n1") == 1 || running(&world, "web", "n1") == 0;
        }
        assert!(was_last, "ignores: {ignores}");
        assert_eq!(running(&world, "log", "n1"), usize::from(ignores), "ignores: {ignores}");
        assert_eq!(running(&world, "log", "n2"), 1);
        assert_eq!(world.the::<ClientNode>("n1").spec.drain, None, "ignores: {ignores}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_is_taken_back_ends_as_canceled_and_what_has_not_left_stays() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&service("web", 3));
    world.live(Duration::from_secs(30)).await;
    drain(&world, "n1", &json!({ "deadline": "1h" }));
    world.live(Duration::from_secs(30)).await;
    drain(&world, "n1", &Value::Null);
    world.live(Duration::from_secs(30)).await;
    assert_eq!(standing(&world, "n1").map(|(status, _)| status), Some(DrainStatus::Canceled));
    assert_eq!(eligibility(&world, "n1"), Eligibility::Ineligible, "an operator makes it eligible again");
    assert!(running(&world, "web", "n1") >= 2, "{:?}", world.shown("web"));
    assert_eq!(past(&world, "n1").last().map(String::as_str), Some("Drain: drain canceled"));
}

#[tokio::test(start_paused = true)]
async fn another_leader_keeps_the_deadline_of_a_drain_and_begins_it_no_second_time() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&service("web", 2));
    world.live(Duration::from_secs(30)).await;
    drain(&world, "n1", &json!({ "deadline": "10m" }));
    world.live(Duration::from_mins(6)).await;
    let deadline = |world: &World| world.the::<ClientNode>("n1").status.unwrap().drain.unwrap().force_deadline;
    let before = deadline(&world);
    world.elect_another();
    world.live(Duration::from_mins(3)).await;
    assert_eq!(deadline(&world), before);
    assert!(
        running(&world, "web", "n1") >= 1,
        "{:?} {:?} {:?}",
        world.shown("web"),
        past(&world, "n1"),
        world.events()
    );
    assert_eq!(past(&world, "n1").iter().filter(|said| *said == "Drain: drain started").count(), 1);
    world.live(Duration::from_mins(2)).await;
    assert_eq!(running(&world, "web", "n1"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_drain_without_allocations_is_over_at_once() {
    let mut world = World::with_nodes(["n1"]);
    drain(&world, "n1", &json!({}));
    world.live(Duration::from_secs(5)).await;
    assert_eq!(standing(&world, "n1"), Some((DrainStatus::Complete, 0)));
    assert_eq!(world.the::<ClientNode>("n1").spec.drain, None);
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_although_one_of_its_writes_fails() {
    for write in ["merge ClientNode", "merge Allocation", "apply ClientNode", "create Allocation"] {
        for error in [unavailable(), conflict()] {
            let mut world = with_service(2).await;
            world.store.refuse(write, error.clone());
            drain(&world, "n1", &json!({ "deadline": "1h" }));
            world.live(Duration::from_mins(3)).await;
            assert_eq!(running(&world, "web", "n2"), 2, "{write}: {error}");
            assert_eq!(world.the::<ClientNode>("n1").spec.drain, None, "{write}: {error}");
            assert_eq!(standing(&world, "n1"), Some((DrainStatus::Complete, 0)), "{write}: {error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_ineligible_node_keeps_what_it_has_and_gets_nothing_new() {
    let mut world = with_service(2).await;
    world.merge::<ClientNode>(&Key::cluster("n1"), Part::Spec, json!({ "spec": { "eligibility": "ineligible" } }));
    world.settle();
    world.change_job("web", &json!({ "scale": { "group": "g", "count": 4 } }));
    world.live(Duration::from_secs(30)).await;
    assert_eq!((running(&world, "web", "n1"), running(&world, "web", "n2")), (2, 2));
}
