//! What becomes of HostVolumes in a cluster whose agents answer as a test says.

use std::time::Duration;

use drover_api::allocation::ClientStatus;
use drover_api::host_volume::{HostVolumeCall, HostVolumePhase, HostVolumeStatus};
use drover_api::{ClientNode, HostVolume, finalizer};
use drover_store::{Key, Part};
use serde_json::{Value, json};

use crate::tests::{Scene, Story, World, conflict, group, in_default, job, no_accident_changes_the_end};

fn volume(name: &str, more: &Value) -> HostVolume {
    let mut spec = json!({ "plugin": "mkdir", "nodePool": "default",
        "capabilities": [{ "accessMode": "single-node-writer", "attachmentMode": "file-system" }] });
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    serde_json::from_value(json!({ "apiVersion": "drover.dev/v1alpha1", "kind": "HostVolume",
        "metadata": { "name": name, "namespace": "default" }, "spec": spec }))
    .unwrap()
}

fn user(name: &str) -> drover_api::Job {
    let mut of = group("g", 1);
    of["volumes"] = json!([{ "name": "v", "type": "host", "source": "data" }]);
    job(name, &json!({ "groups": [of] }))
}

fn status(world: &World, name: &str) -> HostVolumeStatus {
    world.the::<HostVolume>(name).status.unwrap_or_default()
}

fn reason(world: &World, name: &str) -> String {
    status(world, name).conditions[0].reason.to_string()
}

/// The agent of a node does what it is asked for, or says why it does not.
fn answer(world: &mut World, node: &str, error: &str) {
    let asked = world.the::<ClientNode>(node).status.unwrap().volume_requests;
    for (id, request) in asked {
        let is_kept = request.call == HostVolumeCall::Keep && error.is_empty();
        let said = json!({ "id": id, "namespace": request.namespace, "ready": is_kept, "error": error,
            "path": if is_kept { format!("/v/{id}") } else { String::new() } });
        let status = json!({ "status": { "fingerprint": { "hostVolumes": { id: said } } } });
        world.merge::<ClientNode>(&Key::cluster(node), Part::Status, status);
    }
    world.settle();
}

/// A cluster whose node `n1` has volume `data`.
fn with_volume() -> World {
    let mut world = World::with_nodes(["n1", "n2"]);
    world.create(&volume("data", &json!({ "nodeName": "n1" })));
    world.settle();
    answer(&mut world, "n1", "");
    world
}

#[tokio::test(start_paused = true)]
async fn b_066_a_volume_is_ready_when_its_node_has_it_and_goes_when_its_last_user_has_ended() {
    let mut world = with_volume();
    let found = status(&world, "data");
    let object = world.the::<HostVolume>("data");
    assert_eq!((found.phase, found.node_name.as_str()), (HostVolumePhase::Ready, "n1"));
    assert_eq!(Some(found.id), object.metadata.uid);
    assert!(world.the::<ClientNode>("n1").status.unwrap().volume_requests.is_empty(), "it has what it is to have");
    world.create(&user("web"));
    world.settle();
    assert_eq!(world.shown("web"), ["g[0] v0 on n1: run pending"]);
    assert_eq!(status(&world, "data").columns.allocs, "1");
    world.delete::<HostVolume>(&in_default("data"));
    world.settle();
    assert_eq!((status(&world, "data").phase, reason(&world, "data")), (HostVolumePhase::Unavailable, "InUse".into()));
    assert!(world.the::<ClientNode>("n1").status.unwrap().volume_requests.is_empty());
    let alloc = world.allocs().remove(0);
    world.change_job("web", &json!({ "stop": true }));
    world.settle();
    assert_eq!(reason(&world, "data"), "InUse", "its agent has not reported the end");
    world.end(&alloc, ClientStatus::Complete);
    world.settle();
    assert_eq!(reason(&world, "data"), "Removing");
    answer(&mut world, "n1", "");
    assert!(world.find::<HostVolume>("data").is_none());
    assert!(world.the::<ClientNode>("n1").status.unwrap().volume_requests.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_job_waits_for_its_volume_and_is_placed_when_that_is_ready() {
    let mut world = World::with_nodes(["n1", "n2"]);
    world.create(&user("web"));
    world.settle();
    assert!(world.allocs().is_empty());
    world.create(&volume("data", &json!({ "nodeName": "n2" })));
    world.settle();
    assert!(world.allocs().is_empty(), "its node has not made it");
    answer(&mut world, "n2", "");
    world.settle();
    let alloc = world.allocs().remove(0);
    assert_eq!(alloc.spec.node_name, "n2");
    assert_eq!(alloc.spec.host_volumes["v"], status(&world, "data").id);
}

#[tokio::test(start_paused = true)]
async fn volumes_that_come_together_go_to_different_nodes_and_another_leader_writes_nothing() {
    let mut world = World::with_nodes(["n1", "n2"]);
    for name in ["a", "b"] {
        world.create(&volume(name, &json!({ "name": "data" })));
    }
    world.settle();
    let mut nodes = ["a", "b"].map(|name| status(&world, name).node_name);
    nodes.sort();
    assert_eq!(nodes, ["n1", "n2"]);
    answer(&mut world, "n1", "");
    answer(&mut world, "n2", "");
    world.store.take_writes();
    world.elect_another();
    world.settle();
    let writes: Vec<String> = world.writes().into_iter().filter(|write| write.contains("HostVolume")).collect();
    assert!(writes.is_empty(), "{writes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_the_agent_is_told_and_mended_by_a_later_answer() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&volume("data", &json!({})));
    world.settle();
    answer(&mut world, "n1", "no room");
    let found = status(&world, "data");
    assert_eq!((found.phase, found.columns.reason.as_str()), (HostVolumePhase::Pending, "MakeFailed"));
    assert_eq!(found.conditions[0].message, "node n1: no room");
    answer(&mut world, "n1", "");
    assert_eq!(status(&world, "data").phase, HostVolumePhase::Ready);
}

#[tokio::test(start_paused = true)]
async fn a_volume_without_a_node_gets_the_first_one_that_will_do() {
    let mut world = World::new();
    world.create(&volume("data", &json!({})));
    world.settle();
    assert_eq!(reason(&world, "data"), "NoNode");
    world.register(&crate::tests::node("n1"));
    world.settle();
    assert_eq!(status(&world, "data").node_name, "n1");
}

#[tokio::test(start_paused = true)]
async fn the_finalizer_is_there_before_a_node_is_asked_and_a_conflict_is_tried_again() {
    let mut world = World::with_nodes(["n1"]);
    world.store.refuse("merge HostVolume", conflict());
    world.create(&volume("data", &json!({})));
    world.settle();
    assert!(world.the::<ClientNode>("n1").status.unwrap().volume_requests.is_empty());
    world.advance(Duration::from_secs(1)).await;
    assert!(finalizer::is_held(&world.the::<HostVolume>("data").metadata, finalizer::REMOVE_VOLUME));
    assert_eq!(world.the::<ClientNode>("n1").status.unwrap().volume_requests.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_volume_of_a_node_that_was_deleted_goes_without_it() {
    let mut world = with_volume();
    world.silence("n1");
    world.delete::<ClientNode>(&Key::cluster("n1"));
    world.settle();
    assert_eq!(
        (status(&world, "data").phase, reason(&world, "data")),
        (HostVolumePhase::Unavailable, "NodeUnavailable".into())
    );
    world.delete::<HostVolume>(&in_default("data"));
    world.settle();
    assert!(world.find::<HostVolume>("data").is_none());
}

#[tokio::test(start_paused = true)]
async fn b_067_a_slot_keeps_its_volume_over_the_deletion_of_its_allocation_until_its_job_gives_it_up() {
    let mut world = with_volume();
    let sticky = |is_sticky: bool| {
        let mut of = group("g", 1);
        of["volumes"] = json!([{ "name": "v", "type": "host", "source": "data", "sticky": is_sticky }]);
        json!({ "groups": [of] })
    };
    world.create(&job("web", &sticky(true)));
    world.settle();
    let alloc = world.allocs().remove(0);
    let claims = |world: &World| {
        let claims = status(world, "data").claims;
        claims.into_iter().map(|one| format!("{}.{}[{}]", one.job_name, one.group, one.index)).collect::<Vec<_>>()
    };
    assert_eq!(claims(&world), ["web.g[0]"]);
    world.create(&volume("data-2", &json!({ "name": "data", "nodeName": "n2" })));
    world.settle();
    answer(&mut world, "n2", "");
    let ineligible = json!({ "spec": { "eligibility": "ineligible" } });
    world.merge::<ClientNode>(&Key::cluster("n1"), Part::Spec, ineligible);
    world.end(&alloc, ClientStatus::Complete);
    let name = alloc.metadata.name.unwrap_or_default();
    world.delete::<drover_api::Allocation>(&in_default(&name));
    world.settle();
    assert!(world.find::<drover_api::Allocation>(&name).is_none(), "nothing of it is left");
    assert_eq!(claims(&world), ["web.g[0]"]);
    assert!(world.allocs().is_empty(), "{:?}", world.shown("web"));
    world.change_job("web", &sticky(false));
    world.settle();
    assert!(claims(&world).is_empty());
    assert_eq!(world.allocs().remove(0).spec.node_name, "n2");
}

/// A cluster whose agents do what they are asked for.
struct Obliging(World);

impl Scene for Obliging {
    fn world(&mut self) -> &mut World {
        &mut self.0
    }

    async fn live(&mut self, seconds: u64) {
        for _ in 0..seconds {
            for node in ["n1", "n2"] {
                answer(&mut self.0, node, "");
            }
            self.0.live(Duration::from_secs(1)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_accident_of_a_write_changes_what_becomes_of_a_volume_and_its_user() {
    let story = Story {
        begin: || Obliging(World::with_nodes(["n1", "n2"])),
        acts: &[
            (|cluster| drop(cluster.0.create(&volume("data", &json!({})))), 10),
            (|cluster| drop(cluster.0.create(&user("web"))), 20),
            (|cluster| cluster.0.delete::<HostVolume>(&in_default("data")), 10),
            (|cluster| cluster.0.change_job("web", &json!({ "stop": true })), 30),
        ],
    };
    no_accident_changes_the_end(story).await;
}
