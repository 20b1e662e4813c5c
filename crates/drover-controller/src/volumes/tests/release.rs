//! How a claim comes to its end.

use std::time::Duration;

use drover_api::allocation::ClientStatus;
use drover_api::csi_volume::ClaimState;
use drover_api::{Allocation, CSIVolume, ClientNode, annotation};
use drover_store::{Key, Object};
use serde_json::json;

use super::{Cluster, user, volume, with_info, with_plugin};
use crate::tests::{conflict, in_default, unavailable};

const WRITER: &str = "single-node-writer";

/// A cluster in which job `db` holds `data` on the node that comes back.
async fn with_holder() -> (Cluster, String) {
    let mut cluster = Cluster::with_data(WRITER).await;
    cluster.world.create(&user("db", 1, "data", WRITER));
    cluster.live(10).await;
    cluster.calls.clear();
    let node = cluster.node_of("db");
    (cluster, node)
}

fn holder(cluster: &Cluster) -> Allocation {
    cluster.world.allocs().into_iter().find(|alloc| alloc.spec.job_name == "db").unwrap()
}

#[tokio::test(start_paused = true)]
async fn v_049_what_its_agent_has_unmounted_is_detached_by_the_controller_alone_and_free() {
    let (mut cluster, node) = with_holder().await;
    cluster.stop("db");
    cluster.live(10).await;
    assert_eq!(cluster.take_calls(), [format!("controller-unpublish data to ext-{node} by n1")]);
    assert_eq!(cluster.claims("data"), Vec::<String>::new());
    let status = cluster.status("data");
    assert_eq!((status.access_mode, status.phase.as_str()), (None, "available"));
}

#[tokio::test(start_paused = true)]
async fn v_016_a_claim_is_kept_while_its_allocation_still_stops() {
    let (mut cluster, node) = with_holder().await;
    cluster.stop("db");
    cluster.serve_for(60).await;
    assert_eq!(cluster.claims("data"), [format!("write taken attached on {node}")]);
    assert_eq!(cluster.take_calls(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn v_030_a_detach_that_fails_leaves_the_claim_where_it_is_and_is_tried_again_without_the_node() {
    let (mut cluster, node) = with_holder().await;
    cluster.answer("controller-unpublish", vec![json!({ "error": "the disk is locked" }); 3]);
    cluster.stop("db");
    cluster.live(2).await;
    let claim = cluster.status("data").claims[0].clone();
    assert_eq!(claim.state, ClaimState::NodeDetached);
    assert!(claim.error.contains("the disk is locked"), "{}", claim.error);
    let told = cluster.world.events().iter().filter(|event| event.starts_with("Warning DetachFailed data")).count();
    assert_eq!(told, 1);
    cluster.live(60).await;
    assert_eq!(cluster.claims("data"), Vec::<String>::new());
    let again = format!("controller-unpublish data to ext-{node} by n1");
    assert_eq!(cluster.take_calls(), vec![again; 4], "and no node call");
}

#[tokio::test(start_paused = true)]
async fn v_015_an_allocation_that_is_deleted_leaves_what_its_node_unmounts_first() {
    let (mut cluster, node) = with_holder().await;
    let alloc = holder(&cluster);
    cluster.world.merge::<Allocation>(
        &alloc.key(),
        drover_store::Part::Spec,
        json!({ "metadata": { "finalizers": null } }),
    );
    cluster.world.change_job("db", &json!({ "stop": true }));
    cluster.world.delete::<Allocation>(&alloc.key());
    cluster.live(20).await;
    let expected = [format!("node-unpublish data by {node}"), format!("controller-unpublish data to ext-{node} by n1")];
    assert_eq!(cluster.take_calls(), expected);
    assert_eq!(cluster.claims("data"), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn v_032_what_was_read_is_unmounted_as_something_that_was_read() {
    let mut cluster = Cluster::with_data("multi-node-reader-only").await;
    cluster.world.create(&user("db", 1, "data", "multi-node-reader-only"));
    cluster.live(10).await;
    let node = cluster.node_of("db");
    cluster.calls.clear();
    let alloc = holder(&cluster);
    cluster.world.merge::<Allocation>(
        &alloc.key(),
        drover_store::Part::Spec,
        json!({ "metadata": { "finalizers": null } }),
    );
    cluster.stop("db");
    cluster.world.delete::<Allocation>(&alloc.key());
    cluster.live(20).await;
    assert_eq!(cluster.take_calls()[0], format!("node-unpublish data read-only by {node}"));
}

#[tokio::test(start_paused = true)]
async fn v_038_v_039_without_a_controller_that_detaches_nothing_is_asked_and_the_claim_is_free() {
    for info in [json!({ "controller": false, "requiresControllerPlugin": false }), json!({ "capabilities": [] })] {
        let mut cluster = Cluster::new(&[with_info("n1", &info)]);
        cluster.world.create(&volume("data", WRITER));
        cluster.live(5).await;
        cluster.world.create(&user("db", 1, "data", WRITER));
        cluster.live(10).await;
        assert_eq!(cluster.running("db"), 1, "{info}");
        cluster.calls.clear();
        cluster.stop("db");
        cluster.live(10).await;
        assert_eq!(cluster.take_calls(), Vec::<String>::new(), "{info}");
        assert_eq!(cluster.claims("data"), Vec::<String>::new(), "{info}");
    }
}

#[tokio::test(start_paused = true)]
async fn v_041_a_volume_stays_attached_while_another_allocation_uses_it_on_the_same_node() {
    let access = "multi-node-multi-writer";
    let mut cluster = Cluster::new(&[with_plugin("n1")]);
    cluster.world.create(&volume("data", access));
    for name in ["db", "copy"] {
        cluster.world.create(&user(name, 1, "data", access));
    }
    cluster.live(10).await;
    cluster.calls.clear();
    cluster.stop("db");
    cluster.live(10).await;
    assert_eq!((cluster.take_calls(), cluster.claims("data").len()), (Vec::new(), 1));
    cluster.stop("copy");
    cluster.live(10).await;
    assert_eq!(cluster.take_calls(), ["controller-unpublish data to ext-n1 by n1"]);
    assert_eq!(cluster.claims("data"), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn v_047_of_a_plugin_one_controller_call_is_under_way_at_a_time() {
    let mut cluster = Cluster::with_data(WRITER).await;
    for name in ["a", "b", "c"] {
        cluster.world.create(&volume(name, WRITER));
        cluster.world.create(&user(&format!("user-{name}"), 1, name, WRITER));
    }
    cluster.live(20).await;
    for name in ["a", "b", "c"] {
        cluster.stop(&format!("user-{name}"));
    }
    cluster.is_answering = false;
    cluster.live(10).await;
    let asked = |cluster: &Cluster| -> usize {
        cluster
            .world
            .all::<ClientNode>()
            .iter()
            .filter_map(|node| node.status.as_ref())
            .map(|status| status.csi_requests.len())
            .sum()
    };
    assert_eq!(asked(&cluster), 1);
    cluster.is_answering = true;
    cluster.calls.clear();
    for _ in 0..40 {
        cluster.live(1).await;
        assert!(asked(&cluster) <= 1);
    }
    let detached = cluster.take_calls().iter().filter(|call| call.starts_with("controller-unpublish")).count();
    assert_eq!(detached, 3);
    for name in ["a", "b", "c"] {
        assert_eq!(cluster.claims(name), Vec::<String>::new(), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn v_034_what_a_node_that_is_down_has_written_is_detached_by_the_controller_and_used_elsewhere() {
    let (mut cluster, node) = with_holder().await;
    cluster.live(330).await;
    cluster.world.silence(&node);
    cluster.live(60).await;
    let other = if node == "n1" { "n2" } else { "n1" };
    // The controller on the node that is down is not asked.
    assert_eq!(cluster.node_of("db"), other);
    let calls = cluster.take_calls();
    assert_eq!(calls[0], format!("controller-unpublish data to ext-{node} by {other}"));
    assert!(calls.iter().all(|call| !call.starts_with("node-unpublish")), "{calls:?}");
    assert_eq!(cluster.claims("data"), [format!("write taken attached on {other}")]);
}

/// A cluster without controllers in which `db` holds `data` on `n1`, which has fallen silent and is down.
async fn with_fenced() -> Cluster {
    let info = json!({ "controller": false, "requiresControllerPlugin": false });
    let mut cluster = Cluster::new(&[with_info("n1", &info)]);
    cluster.world.create(&volume("data", WRITER));
    cluster.live(5).await;
    cluster.world.create(&user("db", 1, "data", WRITER));
    cluster.live(330).await;
    cluster.world.register(&with_info("n2", &info));
    cluster.world.silence("n1");
    cluster.live(60).await;
    cluster
}

#[tokio::test(start_paused = true)]
async fn v_034_without_a_controller_a_writer_on_a_node_that_is_down_is_waited_for() {
    let mut cluster = with_fenced().await;
    cluster.live(600).await;
    let claim = cluster.status("data").claims[0].clone();
    assert_eq!((claim.state, claim.node_name.as_str()), (ClaimState::NodeDetached, "n1"));
    assert!(claim.error.contains("n1"), "{}", claim.error);
    assert_eq!(cluster.running("db"), 0, "two could write at once");
    let told = cluster.world.events().iter().filter(|event| event.starts_with("Warning DetachFailed data")).count();
    assert_eq!(told, 1);
}

#[tokio::test(start_paused = true)]
async fn v_034_a_person_who_answers_for_the_node_frees_the_volume_and_the_note_is_taken_away() {
    let mut cluster = with_fenced().await;
    cluster.annotate("data", annotation::FORCE_RELEASE, &json!("n3, n1"));
    cluster.live(30).await;
    assert_eq!((cluster.running("db"), cluster.node_of("db").as_str()), (1, "n2"));
    let annotations = cluster.world.the::<CSIVolume>("data").metadata.annotations.unwrap_or_default();
    assert_eq!(annotations.get(annotation::FORCE_RELEASE), None);
}

#[tokio::test(start_paused = true)]
async fn v_034_a_node_that_is_deleted_writes_no_more() {
    let mut cluster = with_fenced().await;
    cluster.world.delete::<ClientNode>(&Key::cluster("n1"));
    cluster.live(30).await;
    assert_eq!((cluster.running("db"), cluster.node_of("db").as_str()), (1, "n2"));
}

#[tokio::test(start_paused = true)]
async fn v_034_a_node_that_is_back_and_has_ended_what_ran_there_frees_the_volume() {
    let mut cluster = with_fenced().await;
    cluster.world.wake("n1");
    let alloc = cluster.world.allocs().into_iter().find(|alloc| alloc.spec.node_name == "n1").unwrap();
    cluster.world.end(&alloc, ClientStatus::Complete);
    cluster.live(60).await;
    assert_eq!(cluster.running("db"), 1);
    assert_eq!(cluster.claims("data").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn v_019_v_026_another_leader_goes_on_where_the_one_before_stopped() {
    for n_done in 0..14 {
        let (mut cluster, _) = with_holder().await;
        cluster.stop("db");
        let mut left = n_done;
        while left > 0 {
            let mut actions = cluster.world.decide();
            if actions.is_empty() {
                cluster.serve();
                cluster.world.agents_act();
                cluster.world.advance(Duration::from_millis(300)).await;
                left -= 1;
                continue;
            }
            actions.truncate(left);
            left -= actions.len();
            cluster.world.carry_out(actions);
        }
        cluster.world.elect_another();
        cluster.live(30).await;
        assert_eq!(cluster.claims("data"), Vec::<String>::new(), "after {n_done} actions");
        let calls = cluster.take_calls();
        assert!((1..=2).contains(&calls.len()), "after {n_done} actions: {calls:?}");
        assert!(calls.iter().all(|call| call.starts_with("controller-unpublish")), "after {n_done} actions: {calls:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn v_022_a_volume_at_rest_is_neither_written_nor_asked_for() {
    let (mut cluster, _) = with_holder().await;
    cluster.live(10).await;
    cluster.world.writes();
    cluster.live(900).await;
    assert_eq!(cluster.world.writes(), Vec::<String>::new());
    assert_eq!(cluster.take_calls(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_release_ends_although_one_of_its_writes_fails() {
    for write in ["apply CSIVolume", "apply ClientNode", "merge Allocation"] {
        for error in [unavailable(), conflict()] {
            let (mut cluster, _) = with_holder().await;
            cluster.world.store.refuse(write, error.clone());
            cluster.stop("db");
            cluster.live(30).await;
            assert_eq!(cluster.claims("data"), Vec::<String>::new(), "{write}: {error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn v_043_v_050_of_many_claims_on_a_node_that_end_at_once_each_is_detached_and_freed() {
    let access = "multi-node-multi-writer";
    let mut cluster = Cluster::new(&[with_plugin("n1")]);
    cluster.world.create(&volume("data", access));
    cluster.live(5).await;
    cluster.world.create(&user("db", 10, "data", access));
    cluster.live(20).await;
    assert_eq!(cluster.claims("data").len(), 10);
    cluster.stop("db");
    cluster.live(20).await;
    assert_eq!(cluster.claims("data"), Vec::<String>::new());
    assert_eq!(cluster.take_calls().iter().filter(|call| call.starts_with("controller-unpublish")).count(), 10);
}

#[tokio::test(start_paused = true)]
async fn v_053_a_volume_in_use_is_not_deleted_before_it_is_free() {
    let (mut cluster, _) = with_holder().await;
    cluster.world.delete::<CSIVolume>(&in_default("data"));
    cluster.live(30).await;
    assert!(cluster.world.find::<CSIVolume>("data").is_some());
    cluster.annotate("data", annotation::DEREGISTER, &json!("force"));
    cluster.live(10).await;
    assert!(cluster.world.find::<CSIVolume>("data").is_some(), "its allocation runs");
    cluster.annotate("data", annotation::DEREGISTER, &json!(null));
    cluster.stop("db");
    cluster.live(20).await;
    assert!(cluster.world.find::<CSIVolume>("data").is_none());
    assert_eq!(cluster.take_calls().len(), 1, "it was detached first");
}

#[tokio::test(start_paused = true)]
async fn v_053_a_forced_deregistration_asks_no_plugin() {
    let (mut cluster, _) = with_holder().await;
    cluster.is_answering = false;
    cluster.stop("db");
    cluster.live(10).await;
    cluster.world.delete::<CSIVolume>(&in_default("data"));
    cluster.live(10).await;
    assert!(cluster.world.find::<CSIVolume>("data").is_some());
    cluster.annotate("data", annotation::DEREGISTER, &json!("force"));
    cluster.live(10).await;
    assert!(cluster.world.find::<CSIVolume>("data").is_none());
    let asked: usize =
        cluster.world.all::<ClientNode>().iter().map(|node| node.status.as_ref().unwrap().csi_requests.len()).sum();
    assert_eq!(asked, 0, "nobody waits for the answer");
}
