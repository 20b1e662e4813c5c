//! Who gets a volume, and who waits for it.

use drover_api::csi_volume::VolumeConditionType;
use drover_api::{CSIVolume, ClientNode, finalizer};
use drover_store::Part;
use serde_json::json;

use super::{Cluster, user, volume, with_plugin};
use crate::tests::{conflict, in_default, unavailable};

#[tokio::test(start_paused = true)]
async fn a_volume_gets_its_finalizer_before_anybody_holds_it_and_is_ready_when_its_provider_confirms_it() {
    let mut cluster = Cluster::new(&[with_plugin("n1")]);
    cluster.world.create(&volume("data", "single-node-writer"));
    cluster.world.settle();
    assert_eq!(cluster.world.writes()[0], "merge CSIVolume default/data");
    assert!(finalizer::is_held(&cluster.world.the::<CSIVolume>("data").metadata, finalizer::RELEASE_CLAIMS));
    cluster.live(5).await;
    assert_eq!(cluster.take_calls(), ["validate-volume data by n1"]);
    let status = cluster.status("data");
    assert!(status.schedulable);
    assert_eq!((status.controllers_healthy, status.nodes_healthy, status.controller_required), (1, 1, true));
    assert_eq!(cluster.condition("data", VolumeConditionType::Ready), "True Available");
}

#[tokio::test(start_paused = true)]
async fn v_001_a_claim_is_recorded_attached_and_shown_with_the_modes_of_the_volume() {
    let mut cluster = Cluster::with_data("single-node-writer").await;
    cluster.world.create(&user("db", 1, "data", "single-node-writer"));
    cluster.live(10).await;
    let node = cluster.node_of("db");
    assert_eq!(cluster.claims("data"), [format!("write taken attached on {node}")]);
    assert_eq!(cluster.take_calls(), [format!("controller-publish data to ext-{node} by n1")]);
    let status = cluster.status("data");
    assert_eq!(status.access_mode.unwrap().as_str(), "single-node-writer");
    assert_eq!((status.phase.as_str(), status.columns.claims.as_str()), ("claimed", "0/1/0"));
    let claim = &status.claims[0];
    let alloc = &cluster.world.allocs()[0];
    assert_eq!(
        (Some(&claim.alloc_id), Some(&claim.allocation)),
        (alloc.metadata.uid.as_ref(), alloc.metadata.name.as_ref())
    );
}

#[tokio::test(start_paused = true)]
async fn what_the_controller_says_of_an_attachment_stands_in_the_claim() {
    let mut cluster = Cluster::with_data("single-node-writer").await;
    cluster.answer("controller-publish", [json!({ "context": { "device": "/dev/sdb" } })]);
    cluster.world.create(&user("db", 1, "data", "single-node-writer"));
    cluster.live(5).await;
    let claim = &cluster.status("data").claims[0];
    assert_eq!(claim.publish_context.get("device").map(String::as_str), Some("/dev/sdb"));
}

#[tokio::test(start_paused = true)]
async fn a_publish_context_is_sealed_to_the_key_of_the_node_that_mounts() {
    let mut cluster = Cluster::with_data("single-node-writer").await;
    for node in ["n1", "n2"] {
        cluster.tell(node, &json!({ "sealingKey": format!("key of {node}") }));
    }
    cluster.is_answering = false;
    cluster.world.create(&user("db", 1, "data", "single-node-writer"));
    cluster.live(5).await;
    let nodes = cluster.world.all::<ClientNode>();
    let requests = nodes.iter().flat_map(|node| node.status.iter().flat_map(|status| status.csi_requests.values()));
    let keys: Vec<(&str, &str)> = requests.map(|request| (request.call.as_str(), &*request.node_key)).collect();
    let mounts = cluster.status("data").claims[0].node_name.clone();
    assert_eq!(keys, [("controller-publish", &*format!("key of {mounts}"))]);
}

#[tokio::test(start_paused = true)]
async fn an_attachment_that_fails_for_good_is_told_in_the_claim_and_asked_for_no_more() {
    let mut cluster = Cluster::with_data("single-node-writer").await;
    cluster.answer("controller-publish", [json!({ "error": "no such disk" })]);
    cluster.world.create(&user("db", 1, "data", "single-node-writer"));
    cluster.serve_for(60).await;
    let claim = &cluster.status("data").claims[0];
    assert_eq!((claim.attach.as_str(), claim.error.as_str()), ("failed", "no such disk"));
    assert_eq!(cluster.take_calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn v_048_where_one_controller_lets_others_try_the_next_by_name_is_asked() {
    let mut cluster = Cluster::with_data("single-node-writer").await;
    cluster.answer("controller-publish", [json!({ "error": "busy", "retryable": true })]);
    cluster.world.create(&user("db", 1, "data", "single-node-writer"));
    cluster.live(10).await;
    let node = cluster.node_of("db");
    let to = format!("controller-publish data to ext-{node} by");
    assert_eq!(cluster.take_calls(), [format!("{to} n1"), format!("{to} n2")]);
    assert_eq!(cluster.claims("data"), [format!("write taken attached on {node}")]);
}

#[tokio::test(start_paused = true)]
async fn when_every_controller_is_busy_the_claim_says_so_and_is_tried_again() {
    let mut cluster = Cluster::with_data("single-node-writer").await;
    // Two rounds of both.
    cluster.answer("controller-publish", vec![json!({ "error": "busy", "retryable": true }); 4]);
    cluster.world.create(&user("db", 1, "data", "single-node-writer"));
    cluster.serve_for(2).await;
    let claim = &cluster.status("data").claims[0];
    assert_eq!(claim.attach.as_str(), "pending");
    assert!(claim.error.contains("busy"), "{}", claim.error);
    cluster.live(60).await;
    assert_eq!(cluster.status("data").claims[0].attach.as_str(), "attached");
    assert_eq!(cluster.status("data").claims[0].error, "");
}

#[tokio::test(start_paused = true)]
async fn v_044_another_job_gets_the_volume_only_when_the_one_before_has_given_it_back() {
    let mut cluster = Cluster::with_data("single-node-writer").await;
    cluster.world.create(&user("db", 1, "data", "single-node-writer"));
    cluster.live(10).await;
    cluster.world.create(&user("copy", 1, "data", "single-node-writer"));
    cluster.live(30).await;
    assert_eq!((cluster.running("db"), cluster.running("copy")), (1, 0));
    cluster.stop("db");
    cluster.is_answering = false;
    cluster.live(30).await;
    assert_eq!(cluster.running("copy"), 0, "it is not detached yet");
    cluster.is_answering = true;
    cluster.live(20).await;
    assert_eq!(cluster.running("copy"), 1);
    let node = cluster.node_of("copy");
    assert_eq!(cluster.claims("data"), [format!("write taken attached on {node}")]);
}

#[tokio::test(start_paused = true)]
async fn readers_share_and_of_writers_there_is_as_many_as_the_mode_allows() {
    let cases = [
        ("multi-node-multi-writer", 3, 3),
        ("multi-node-reader-only", 3, 3),
        ("single-node-writer", 2, 1),
        ("multi-node-single-writer", 2, 1),
    ];
    for (access, n_jobs, expected) in cases {
        let mut cluster = Cluster::with_data(access).await;
        for n in 0..n_jobs {
            cluster.world.create(&user(&format!("user-{n}"), 1, "data", access));
            cluster.live(10).await;
        }
        let running: usize = (0..n_jobs).map(|n| cluster.running(&format!("user-{n}"))).sum();
        assert_eq!((running, cluster.claims("data").len()), (expected, expected), "{access}");
    }
}

#[tokio::test(start_paused = true)]
async fn v_074_a_job_waits_for_a_volume_that_is_not_there_and_runs_when_it_comes() {
    let mut cluster = Cluster::new(&[with_plugin("n1")]);
    cluster.world.create(&user("db", 1, "data", "single-node-writer"));
    cluster.live(10).await;
    assert!(cluster.world.allocs().iter().all(|alloc| alloc.spec.job_name != "db"));
    cluster.world.create(&volume("data", "single-node-writer"));
    cluster.live(20).await;
    assert_eq!(cluster.running("db"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_note_of_a_person_on_a_volume_wakes_no_job_that_waits_for_it() {
    let mut cluster = Cluster::with_data("single-node-writer").await;
    cluster.world.create(&user("db", 1, "data", "single-node-writer"));
    cluster.live(10).await;
    cluster.world.create(&user("copy", 1, "data", "single-node-writer"));
    cluster.live(10).await;
    cluster.world.writes();
    cluster.annotate("data", "team", &json!("shop"));
    cluster.live(10).await;
    assert_eq!(cluster.world.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_taken_although_its_write_fails_once() {
    for write in ["apply CSIVolume", "apply ClientNode", "create Allocation"] {
        for error in [unavailable(), conflict()] {
            let mut cluster = Cluster::with_data("single-node-writer").await;
            cluster.world.create(&user("db", 1, "data", "single-node-writer"));
            cluster.world.store.refuse(write, error.clone());
            cluster.live(20).await;
            let node = cluster.node_of("db");
            assert_eq!(cluster.claims("data"), [format!("write taken attached on {node}")], "{write}: {error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_allocation_that_could_not_be_created_leaves_no_claim() {
    let mut cluster = Cluster::with_data("single-node-writer").await;
    cluster.world.create(&user("db", 1, "data", "single-node-writer"));
    cluster.world.store.refuse("create Allocation", unavailable());
    // The job goes before it is planned again.
    let mut actions = cluster.world.decide();
    while !actions.is_empty() {
        cluster.world.carry_out(actions);
        actions = cluster.world.decide();
    }
    cluster.world.change_job("db", &json!({ "groups": [] , "stop": true }));
    cluster.live(20).await;
    assert_eq!(cluster.claims("data"), Vec::<String>::new());
    cluster.world.create(&user("copy", 1, "data", "single-node-writer"));
    cluster.live(20).await;
    assert_eq!(cluster.running("copy"), 1, "nothing is assumed of it any more");
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_somebody_marked_with_another_status_is_written_as_it_is() {
    let mut cluster = Cluster::with_data("single-node-writer").await;
    let wrong = json!({ "status": { "schedulable": false, "nodesHealthy": 7 } });
    cluster.world.merge::<CSIVolume>(&in_default("data"), Part::Status, wrong);
    cluster.live(5).await;
    let status = cluster.status("data");
    assert_eq!((status.schedulable, status.nodes_healthy), (true, 2));
}
