//! Plugins that come, fall ill and go, and what that means for their volumes.

use drover_api::CSIVolume;
use drover_api::csi_volume::VolumeConditionType;
use drover_store::Part;
use serde_json::json;

use super::{Cluster, user, volume, with_plugin};
use crate::tests::in_default;

#[tokio::test(start_paused = true)]
async fn v_080_a_volume_counts_the_healthy_instances_of_its_plugin() {
    let mut cluster = Cluster::with_data("single-node-writer").await;
    let counts = |cluster: &Cluster| {
        let status = cluster.status("data");
        (status.nodes_healthy, status.controllers_healthy, status.schedulable)
    };
    assert_eq!(counts(&cluster), (2, 2, true));
    cluster.tell("n1", &json!({ "csi": { "p": { "healthy": false } } }));
    cluster.world.writes();
    cluster.live(5).await;
    assert_eq!(counts(&cluster), (2, 2, true), "a count alone is told with the next change");
    cluster.tell("n2", &json!({ "csi": { "p": null } }));
    cluster.live(5).await;
    assert_eq!(counts(&cluster), (0, 0, false));
    assert_eq!(cluster.condition("data", VolumeConditionType::Schedulable), "False PluginMissing");
    cluster.tell("n1", &json!({ "csi": { "p": { "healthy": true } } }));
    cluster.live(5).await;
    assert_eq!(counts(&cluster), (1, 1, true));
}

#[tokio::test(start_paused = true)]
async fn v_040_a_release_waits_for_the_plugin_and_goes_on_when_it_is_back() {
    let mut cluster = Cluster::with_data("single-node-writer").await;
    cluster.world.create(&user("db", 1, "data", "single-node-writer"));
    cluster.live(10).await;
    for node in ["n1", "n2"] {
        cluster.tell(node, &json!({ "csi": { "p": { "healthy": false } } }));
    }
    cluster.stop("db");
    cluster.live(60).await;
    assert_eq!(cluster.status("data").claims.len(), 1);
    cluster.calls.clear();
    cluster.tell("n2", &json!({ "csi": { "p": { "healthy": true } } }));
    cluster.live(5).await;
    assert_eq!(cluster.claims("data"), Vec::<String>::new(), "at once, and not after a pause");
    assert!(cluster.take_calls().iter().all(|call| call.ends_with("by n2")));
}

#[tokio::test(start_paused = true)]
async fn a_call_to_a_controller_that_falls_ill_is_taken_back_and_made_by_another() {
    let mut cluster = Cluster::with_data("single-node-writer").await;
    cluster.is_answering = false;
    cluster.world.create(&user("db", 1, "data", "single-node-writer"));
    cluster.live(5).await;
    let requests = |cluster: &Cluster, node: &str| {
        cluster.world.the::<drover_api::ClientNode>(node).status.unwrap().csi_requests.len()
    };
    assert_eq!((requests(&cluster, "n1"), requests(&cluster, "n2")), (1, 0));
    cluster.tell("n1", &json!({ "csi": { "p": { "healthy": false } } }));
    cluster.live(5).await;
    assert_eq!((requests(&cluster, "n1"), requests(&cluster, "n2")), (0, 1));
    cluster.is_answering = true;
    cluster.live(5).await;
    assert_eq!(cluster.status("data").claims[0].attach.as_str(), "attached");
}

#[tokio::test(start_paused = true)]
async fn an_answer_counts_for_the_request_of_its_name_alone() {
    let mut cluster = Cluster::with_data("single-node-writer").await;
    cluster.is_answering = false;
    cluster.world.create(&user("db", 1, "data", "single-node-writer"));
    cluster.live(5).await;
    // One that was never asked, and the right name by a node that was not asked.
    let name =
        cluster.world.the::<drover_api::ClientNode>("n1").status.unwrap().csi_requests.into_keys().next().unwrap();
    cluster.tell("n1", &json!({ "csiAnswers": { "1-1": {} } }));
    cluster.tell("n2", &json!({ "csiAnswers": { name.as_str(): {} } }));
    cluster.live(5).await;
    assert_eq!(cluster.status("data").claims[0].attach.as_str(), "pending");
    cluster.tell("n1", &json!({ "csiAnswers": { name.as_str(): {} } }));
    cluster.live(5).await;
    assert_eq!(cluster.status("data").claims[0].attach.as_str(), "attached");
    let left = cluster.world.the::<drover_api::ClientNode>("n1").status.unwrap().csi_requests;
    assert!(left.is_empty(), "what is answered is asked no more");
}

#[tokio::test(start_paused = true)]
async fn requests_that_somebody_else_wrote_over_are_written_again() {
    let mut cluster = Cluster::with_data("single-node-writer").await;
    cluster.is_answering = false;
    cluster.world.create(&user("db", 1, "data", "single-node-writer"));
    cluster.live(5).await;
    let asked = |cluster: &Cluster| cluster.world.the::<drover_api::ClientNode>("n1").status.unwrap().csi_requests;
    let before = asked(&cluster);
    let gone: serde_json::Value = before.keys().map(|name| (name.clone(), json!(null))).collect();
    let body = json!({ "status": { "csiRequests": gone } });
    cluster.world.merge::<drover_api::ClientNode>(&drover_store::Key::cluster("n1"), Part::Status, body);
    cluster.live(5).await;
    assert_eq!(asked(&cluster), before);
}

#[tokio::test(start_paused = true)]
async fn a_volume_whose_plugin_is_another_one_is_looked_at_with_that_one() {
    let mut cluster = Cluster::new(&[with_plugin("n1")]);
    let mut other = volume("data", "single-node-writer");
    other.spec.plugin_id = "q".to_owned();
    cluster.world.create(&other);
    cluster.live(5).await;
    assert!(!cluster.status("data").schedulable);
    cluster.world.merge::<CSIVolume>(&in_default("data"), Part::Spec, json!({ "spec": { "pluginID": "p" } }));
    cluster.live(5).await;
    assert!(cluster.status("data").schedulable);
}
