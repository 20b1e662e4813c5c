//! Nodes that beat, fall silent and come back.

use std::time::Duration;

use drover_api::ClientNode;
use drover_api::allocation::ClientStatus;
use drover_api::client_node::{NodeConditionType, NodePhase};
use drover_store::{Key, Part};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use super::{past, phase, running};
use crate::tests::{World, conflict, group, job, node, service, unavailable};

/// Longer than a beat may take: the TTL of 10 s and the grace of 10 s.
const SILENCE: Duration = Duration::from_secs(25);
/// For so long after its begin a leader proves nobody's silence.
const FRESH: Duration = Duration::from_mins(6);

fn condition(world: &World, name: &str, kind: NodeConditionType) -> String {
    let status = world.the::<ClientNode>(name).status.unwrap_or_default();
    let found = status.conditions.iter().find(|one| one.r#type == kind);
    found.map(|one| format!("{} {}", one.status, one.reason)).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_registered_node_is_initializing_until_it_beats_and_then_ready() {
    let mut world = World::new();
    let object = node("n1");
    world.create(&object);
    world.merge::<ClientNode>(&Key::cluster("n1"), Part::Status, json!({ "status": object.status }));
    world.advance(Duration::from_secs(5)).await;
    assert_eq!(phase(&world, "n1"), NodePhase::Initializing);
    world.wake("n1");
    world.settle();
    world.beat();
    world.settle();
    assert_eq!(phase(&world, "n1"), NodePhase::Ready);
    let status = world.the::<ClientNode>("n1").status.unwrap();
    assert!(status.phase_changed_at.is_some());
    assert_eq!(past(&world, "n1"), ["Cluster: ready: heartbeats arrive"]);
    assert_eq!(condition(&world, "n1", NodeConditionType::Ready), "True HeartbeatsArrive");
    assert!(world.events().contains(&"Normal Ready n1: heartbeats arrive".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn the_columns_of_a_node_say_what_it_has_and_what_is_in_use() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&service("web", 2));
    world.live(Duration::from_secs(30)).await;
    let columns = world.the::<ClientNode>("n1").status.unwrap().columns;
    let words = [&columns.allocs, &columns.cpu, &columns.memory, &columns.drain, &columns.drivers, &columns.version];
    assert_eq!(words, ["2", "200/1000", "128/1000", "false", "mock", "-"]);
}

#[tokio::test(start_paused = true)]
async fn a_silent_node_is_down_and_what_ran_there_is_lost_and_runs_elsewhere() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&service("web", 2));
    world.live(FRESH).await;
    world.register(&node("n2"));
    world.silence("n1");
    world.live(Duration::from_secs(15)).await;
    assert_eq!(phase(&world, "n1"), NodePhase::Ready, "a beat may still be on its way");
    assert_eq!(running(&world, "web", "n1"), 2);
    world.live(SILENCE).await;
    assert_eq!(phase(&world, "n1"), NodePhase::Down);
    assert_eq!(running(&world, "web", "n2"), 2);
    let lost = world.shown("web").iter().filter(|shown| shown.ends_with("on n1: stop lost")).count();
    assert_eq!(lost, 2);
    assert!(world.events().contains(&"Warning Down n1: no heartbeat arrived in time".to_owned()));
    assert_eq!(condition(&world, "n1", NodeConditionType::Ready), "False Down");
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_takes_nobodys_silence_for_proven_before_it_has_listened_for_a_while() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&service("web", 1));
    world.live(FRESH).await;
    world.silence("n1");
    world.elect_another();
    world.live(Duration::from_mins(4)).await;
    assert_eq!(phase(&world, "n1"), NodePhase::Ready);
    assert_eq!(running(&world, "web", "n1"), 1);
    world.live(Duration::from_mins(3)).await;
    assert_eq!(phase(&world, "n1"), NodePhase::Down);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_beats_again_is_ready_and_gets_back_nothing_that_was_given_away() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&service("web", 1));
    world.live(FRESH).await;
    world.register(&node("n2"));
    world.silence("n1");
    world.live(Duration::from_mins(1)).await;
    assert_eq!((phase(&world, "n1"), running(&world, "web", "n2")), (NodePhase::Down, 1));
    world.wake("n1");
    world.live(Duration::from_mins(1)).await;
    assert_eq!(phase(&world, "n1"), NodePhase::Ready);
    assert_eq!((running(&world, "web", "n1"), running(&world, "web", "n2")), (0, 1));
    let expected = ["Cluster: ready: heartbeats arrive", "Cluster: down: no heartbeat arrived in time"];
    assert_eq!(past(&world, "n1")[..2], expected);
}

fn away(after: &str, replace: bool) -> drover_api::Job {
    let mut of = group("g", 1);
    of["disconnect"] = json!({ "lostAfter": after, "replace": replace });
    job("web", &json!({ "groups": [of] }))
}

#[tokio::test(start_paused = true)]
async fn a_node_is_disconnected_while_what_runs_there_may_be_away_and_down_after_that() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&away("10m", false));
    world.live(FRESH).await;
    world.silence("n1");
    world.live(Duration::from_mins(2)).await;
    assert_eq!(phase(&world, "n1"), NodePhase::Disconnected);
    assert_eq!(world.shown("web"), ["g[0] v0 on n1: run unknown"], "it is neither lost nor replaced");
    world.live(Duration::from_mins(10)).await;
    assert_eq!(phase(&world, "n1"), NodePhase::Down);
    assert_eq!(
        past(&world, "n1").last().map(String::as_str),
        Some("Cluster: down: nothing there may be away any longer")
    );
    assert!(world.shown("web").contains(&"g[0] v0 on n1: stop lost".to_owned()), "{:?}", world.shown("web"));
}

#[tokio::test(start_paused = true)]
async fn a_disconnected_node_that_is_back_is_ready_once_its_agent_has_told_how_its_allocations_fare() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&away("10m", false));
    world.live(FRESH).await;
    world.silence("n1");
    world.advance(Duration::from_mins(2)).await;
    world.wake("n1");
    world.settle();
    assert_eq!(phase(&world, "n1"), NodePhase::Initializing);
    world.advance(Duration::from_mins(1)).await;
    assert_eq!(phase(&world, "n1"), NodePhase::Initializing, "its agent has told nothing");
    world.live(Duration::from_secs(10)).await;
    assert_eq!(phase(&world, "n1"), NodePhase::Ready);
    assert_eq!(world.shown("web"), ["g[0] v0 on n1: run running"]);
}

#[tokio::test(start_paused = true)]
async fn of_an_allocation_that_was_away_and_its_replacement_one_stays() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&away("1h", true));
    world.live(FRESH).await;
    world.register(&node("n2"));
    world.silence("n1");
    world.live(Duration::from_mins(2)).await;
    assert_eq!(running(&world, "web", "n2"), 1, "{:?}", world.shown("web"));
    world.wake("n1");
    world.live(Duration::from_mins(2)).await;
    assert_eq!(running(&world, "web", "n1") + running(&world, "web", "n2"), 1, "{:?}", world.shown("web"));
    assert_eq!(phase(&world, "n1"), NodePhase::Ready);
}

#[tokio::test(start_paused = true)]
async fn when_most_of_a_pool_fall_silent_at_once_they_are_marked_one_after_the_other_and_people_are_told_once() {
    let mut world = World::with_nodes(["n1", "n2", "n3", "n4", "n5", "n6"]);
    world.live(FRESH).await;
    for name in ["n1", "n2", "n3", "n4", "n5"] {
        world.silence(name);
    }
    let down = |world: &World| {
        ["n1", "n2", "n3", "n4", "n5"].into_iter().filter(|name| phase(world, name) == NodePhase::Down).count()
    };
    world.live(Duration::from_secs(27)).await;
    let first = down(&world);
    assert!((1..=2).contains(&first), "{first} of five are down");
    world.live(Duration::from_secs(10)).await;
    assert_eq!(down(&world), first + 1, "one more every ten seconds");
    let told: Vec<String> =
        world.events().into_iter().filter(|event| event.starts_with("Warning PoolSilent")).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("5 of 6 nodes of pool default fell silent at once"), "{told:?}");
    world.live(Duration::from_mins(1)).await;
    assert_eq!(down(&world), 5);
    assert_eq!(phase(&world, "n6"), NodePhase::Ready);
}

#[tokio::test(start_paused = true)]
async fn nothing_new_is_placed_on_a_node_that_is_silent_and_not_marked_yet() {
    let mut world = World::with_nodes(["n1", "n2", "n3", "n4", "n5", "n6"]);
    world.live(FRESH).await;
    for name in ["n1", "n2", "n3", "n4", "n5"] {
        world.silence(name);
    }
    world.live(Duration::from_secs(27)).await;
    world.create(&service("web", 6));
    world.live(Duration::from_secs(3)).await;
    assert_eq!(running(&world, "web", "n6"), 6, "{:?}", world.shown("web"));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_deleted_takes_its_allocations_with_it() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&service("web", 1));
    world.live(Duration::from_secs(20)).await;
    world.register(&node("n2"));
    world.silence("n1");
    world.delete::<ClientNode>(&Key::cluster("n1"));
    world.live(Duration::from_secs(20)).await;
    assert_eq!(running(&world, "web", "n2"), 1, "{:?}", world.shown("web"));
    let gone = world.allocs().into_iter().find(|alloc| alloc.spec.node_name == "n1").unwrap();
    assert_eq!(gone.status.unwrap().client_status, ClientStatus::Lost);
    assert_eq!(gone.metadata.finalizers.unwrap_or_default(), Vec::<String>::new(), "no agent will take it off");
}

#[tokio::test(start_paused = true)]
async fn what_was_on_a_node_that_stays_down_counts_as_gone_after_ten_minutes() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&service("web", 1));
    world.live(FRESH).await;
    world.silence("n1");
    let held = |world: &World| !world.allocs()[0].metadata.finalizers.clone().unwrap_or_default().is_empty();
    world.live(Duration::from_mins(9)).await;
    assert_eq!((phase(&world, "n1"), held(&world)), (NodePhase::Down, true));
    world.live(Duration::from_mins(2)).await;
    assert!(!held(&world));
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_status_cannot_be_written_is_marked_nevertheless_a_little_later() {
    for error in [unavailable(), conflict()] {
        let mut world = World::with_nodes(["n1"]);
        world.live(FRESH).await;
        world.silence("n1");
        world.store.refuse("apply ClientNode n1", error.clone());
        world.live(Duration::from_secs(30)).await;
        assert_eq!(phase(&world, "n1"), NodePhase::Down, "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_ttl_is_published_once_and_again_when_the_configuration_changes_it() {
    let ttl = |world: &World| {
        let key = Key::namespaced(drover_api::SYSTEM_NAMESPACE, "drover-heartbeat");
        world.store.read::<ConfigMap>(&key).and_then(|map| map.data?.get("ttlSeconds").cloned())
    };
    let mut world = World::new();
    assert_eq!(ttl(&world).as_deref(), Some("10"));
    let mut config: ConfigMap = serde_json::from_value(json!({ "metadata": { "name": "drover-config",
        "namespace": drover_api::SYSTEM_NAMESPACE }, "data": { "config.yaml": "heartbeat: { minTTL: 20s }" } }))
    .unwrap();
    world.store.refuse("merge ConfigMap", unavailable());
    world.create(&config);
    world.advance(Duration::from_secs(5)).await;
    assert_eq!(ttl(&world).as_deref(), Some("20"), "what failed is tried again");
    config.metadata.name = Some("another".to_owned());
    world.create(&config);
    world.writes();
    world.advance(Duration::from_mins(1)).await;
    assert_eq!(world.writes(), Vec::<String>::new());
}
