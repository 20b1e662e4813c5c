//! What is asked of a volume's provider for the volume itself.

use drover_api::csi_volume::VolumeConditionType;
use drover_api::{CSIVolume, annotation};
use drover_store::Part;
use serde_json::{Value, json};

use super::{Cluster, user, volume, with_info, with_plugin};
use crate::tests::in_default;

const WRITER: &str = "single-node-writer";

/// A volume that is to be made.
fn unmade(name: &str) -> CSIVolume {
    let mut volume = volume(name, WRITER);
    volume.spec.external_id = String::new();
    volume.spec.capacity = serde_json::from_value(json!({ "min": "1Gi" })).unwrap();
    volume
}

async fn with_made() -> Cluster {
    let mut cluster = Cluster::new(&[with_plugin("n1"), with_plugin("n2")]);
    cluster.answer(
        "create-volume",
        [json!({ "externalID": "disk-7", "capacityBytes": 1 << 30, "context": { "fs": "x" } })],
    );
    cluster.world.create(&unmade("data"));
    cluster.live(10).await;
    cluster
}

fn note(cluster: &Cluster, name: &str) -> Option<String> {
    cluster.world.the::<CSIVolume>("data").metadata.annotations.unwrap_or_default().get(name).cloned()
}

#[tokio::test(start_paused = true)]
async fn a_volume_without_an_id_is_made_once_and_what_the_provider_said_is_stored() {
    let mut cluster = with_made().await;
    assert_eq!(cluster.take_calls().iter().filter(|call| *call == "create-volume data by n1").count(), 1);
    let status = cluster.status("data");
    assert_eq!((status.external_id.as_str(), status.capacity.as_str()), ("disk-7", "1073741824"));
    assert_eq!(status.context.get("fs").map(String::as_str), Some("x"));
    assert!(status.schedulable);
    cluster.live(600).await;
    assert_eq!(cluster.take_calls(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_could_not_be_made_says_why_and_is_tried_again() {
    let mut cluster = Cluster::new(&[with_plugin("n1")]);
    cluster.answer("create-volume", [json!({ "error": "quota exceeded" }), json!({ "externalID": "disk-7" })]);
    cluster.world.create(&unmade("data"));
    cluster.live(2).await;
    assert_eq!(cluster.condition("data", VolumeConditionType::Stalled), "True CreateFailed");
    assert!(!cluster.status("data").schedulable, "nobody is placed for what is not there");
    let told =
        cluster.world.events().iter().filter(|event| *event == "Warning ProviderFailed data: quota exceeded").count();
    assert_eq!(told, 1);
    cluster.live(60).await;
    assert_eq!(cluster.status("data").external_id, "disk-7");
    assert_eq!(cluster.condition("data", VolumeConditionType::Ready), "True Available");
}

#[tokio::test(start_paused = true)]
async fn of_controllers_that_let_others_try_each_is_asked_in_turn() {
    let mut cluster = Cluster::new(&[with_plugin("n1"), with_plugin("n2")]);
    cluster.answer("create-volume", [json!({ "error": "busy", "retryable": true }), json!({ "externalID": "disk-7" })]);
    cluster.world.create(&unmade("data"));
    cluster.live(5).await;
    let made: Vec<String> = cluster.take_calls().into_iter().filter(|call| call.starts_with("create")).collect();
    assert_eq!(made, ["create-volume data by n1", "create-volume data by n2"]);
}

#[tokio::test(start_paused = true)]
async fn a_spec_that_is_changed_is_confirmed_anew() {
    let mut cluster = Cluster::with_data(WRITER).await;
    let capabilities = json!([{ "accessMode": WRITER, "attachmentMode": "file-system" },
        { "accessMode": "multi-node-reader-only", "attachmentMode": "file-system" }]);
    cluster.answer("validate-volume", [json!({ "error": "no readers here" })]);
    cluster.world.merge::<CSIVolume>(
        &in_default("data"),
        Part::Spec,
        json!({ "spec": { "capabilities": capabilities } }),
    );
    cluster.live(1).await;
    assert_eq!(cluster.take_calls(), ["validate-volume data by n1"]);
    cluster.live(60).await;
    assert_eq!(cluster.take_calls(), ["validate-volume data by n1"], "tried again");
    let object: CSIVolume = cluster.world.the("data");
    assert_eq!(object.status.map(|status| status.validated_generation), object.metadata.generation);
}

#[tokio::test(start_paused = true)]
async fn v_066_a_volume_is_made_larger_and_its_mounts_follow_where_the_driver_asks() {
    for follows in [false, true] {
        let mut cluster = with_made().await;
        cluster.world.create(&user("db", 1, "data", WRITER));
        cluster.live(10).await;
        let node = cluster.node_of("db");
        cluster.calls.clear();
        cluster
            .answer("controller-expand", [json!({ "capacityBytes": 2_i64 << 30, "nodeExpansionRequired": follows })]);
        cluster.world.merge::<CSIVolume>(
            &in_default("data"),
            Part::Spec,
            json!({ "spec": { "capacity": { "min": "2Gi" } } }),
        );
        cluster.live(10).await;
        let calls: Vec<String> = cluster.take_calls().into_iter().filter(|call| call.contains("expand")).collect();
        let mut expected = vec!["controller-expand data by n1".to_owned()];
        expected.extend(follows.then(|| format!("node-expand data by {node}")));
        assert_eq!(calls, expected);
        assert_eq!(cluster.status("data").capacity, "2147483648");
    }
}

#[tokio::test(start_paused = true)]
async fn data_are_deleted_only_where_a_person_asks_for_it_and_only_when_nobody_uses_them() {
    for asks in [false, true] {
        let mut cluster = with_made().await;
        cluster.world.create(&user("db", 1, "data", WRITER));
        cluster.live(10).await;
        cluster.calls.clear();
        if asks {
            cluster.annotate("data", annotation::DELETE_DATA, &json!("true"));
        }
        cluster.world.delete::<CSIVolume>(&in_default("data"));
        cluster.live(10).await;
        assert_eq!(cluster.take_calls(), Vec::<String>::new(), "it is in use");
        cluster.stop("db");
        cluster.live(20).await;
        assert!(cluster.world.find::<CSIVolume>("data").is_none());
        let n_deletes = cluster.take_calls().iter().filter(|call| *call == "delete-volume data by n1").count();
        assert_eq!(n_deletes, usize::from(asks));
    }
}

#[tokio::test(start_paused = true)]
async fn a_volume_whose_data_could_not_be_deleted_stays_and_is_tried_again() {
    let mut cluster = with_made().await;
    cluster.answer("delete-volume", [json!({ "error": "still attached" })]);
    cluster.annotate("data", annotation::DELETE_DATA, &json!("true"));
    cluster.world.delete::<CSIVolume>(&in_default("data"));
    cluster.live(2).await;
    assert!(cluster.world.find::<CSIVolume>("data").is_some());
    assert!(cluster.world.events().contains(&"Warning ProviderFailed data: still attached".to_owned()));
    cluster.live(60).await;
    assert!(cluster.world.find::<CSIVolume>("data").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_request_about_snapshots_is_answered_once_in_the_status_and_then_taken_away() {
    let snapshot = json!({ "id": "snap-1", "name": "before", "sizeBytes": 7, "readyToUse": true });
    let cases: [(&str, Value, &'static str, Value, Vec<&str>); 3] = [
        (annotation::TAKE_SNAPSHOT, json!("before"), "create-snapshot", json!([snapshot]), vec!["snap-1"]),
        (annotation::LIST_SNAPSHOTS, json!("true"), "list-snapshots", json!([snapshot]), vec!["snap-1"]),
        (annotation::DELETE_SNAPSHOT, json!("snap-1"), "delete-snapshot", json!([]), vec![]),
    ];
    for (request, value, call, answer, expected) in cases {
        let mut cluster = with_made().await;
        cluster.calls.clear();
        cluster.answer(call, [json!({ "snapshots": answer })]);
        cluster.annotate("data", request, &value);
        cluster.live(10).await;
        assert_eq!(cluster.take_calls(), [format!("{call} data by n1")]);
        let status = cluster.status("data");
        let ids: Vec<&str> = status.snapshots.iter().map(|one| one.id.as_str()).collect();
        assert_eq!((ids, status.snapshot_error.as_str()), (expected, ""), "{call}");
        assert_eq!(note(&cluster, request), None, "{call}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_fails_is_told_and_not_tried_again() {
    let mut cluster = with_made().await;
    cluster.calls.clear();
    cluster.answer("create-snapshot", [json!({ "error": "no space" })]);
    cluster.annotate("data", annotation::TAKE_SNAPSHOT, &json!("before"));
    cluster.live(120).await;
    assert_eq!(cluster.take_calls().len(), 1);
    assert_eq!(cluster.status("data").snapshot_error, "no space");
    assert!(cluster.world.events().contains(&"Warning SnapshotFailed data: no space".to_owned()));
    assert_eq!(note(&cluster, annotation::TAKE_SNAPSHOT), None);
}

#[tokio::test(start_paused = true)]
async fn what_a_driver_cannot_do_is_not_asked_of_it() {
    let mut cluster = Cluster::new(&[with_info("n1", &json!({ "capabilities": ["PUBLISH_UNPUBLISH_VOLUME"] }))]);
    cluster.world.create(&volume("data", WRITER));
    cluster.live(5).await;
    cluster.calls.clear();
    cluster.annotate("data", annotation::TAKE_SNAPSHOT, &json!("before"));
    cluster.live(10).await;
    assert_eq!(cluster.take_calls(), Vec::<String>::new());
    assert_ne!(cluster.status("data").snapshot_error, "");
    assert_eq!(note(&cluster, annotation::TAKE_SNAPSHOT), None);
}

#[tokio::test(start_paused = true)]
async fn v_056_the_same_volume_applied_again_keeps_its_claims_and_asks_nobody() {
    let mut cluster = Cluster::with_data(WRITER).await;
    cluster.world.create(&user("db", 1, "data", WRITER));
    cluster.live(10).await;
    let (claims, before) = (cluster.claims("data"), cluster.status("data").modified_at);
    assert_eq!(claims.len(), 1);
    cluster.calls.clear();
    let spec = serde_json::to_value(volume("data", WRITER).spec).unwrap();
    cluster.world.merge::<CSIVolume>(&in_default("data"), Part::Spec, json!({ "spec": spec }));
    cluster.live(10).await;
    assert_eq!((cluster.claims("data"), cluster.take_calls()), (claims.clone(), Vec::new()));
    // An API server takes what says nothing new without a change, so that there is nothing to date either.
    assert_eq!(cluster.status("data").modified_at, before);
    // What is new is dated, and is no reason to take a claim away.
    let more = json!({ "spec": { "context": { "tier": "fast" } } });
    cluster.world.merge::<CSIVolume>(&in_default("data"), Part::Spec, more);
    cluster.live(10).await;
    assert_eq!(cluster.claims("data"), claims);
    assert!(cluster.status("data").modified_at > before);
}

#[tokio::test(start_paused = true)]
async fn v_058_the_providers_context_is_kept_when_the_manifest_has_none() {
    let mut cluster = with_made().await;
    for context in [json!({ "tier": "fast" }), json!({ "tier": null })] {
        cluster.world.merge::<CSIVolume>(&in_default("data"), Part::Spec, json!({ "spec": { "context": context } }));
        cluster.live(10).await;
        assert_eq!(cluster.status("data").context.get("fs").map(String::as_str), Some("x"));
    }
    assert_eq!(cluster.world.the::<CSIVolume>("data").spec.context.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn v_063_a_volume_that_is_registered_can_be_reached_from_where_its_manifest_says() {
    let mut cluster = Cluster::new(&[with_plugin("n1")]);
    let mut zoned = volume("data", WRITER);
    let zone = json!({ "segments": { "zone": "a" } });
    zoned.spec.topology_request = serde_json::from_value(json!({ "required": [zone] })).unwrap();
    cluster.world.create(&zoned);
    cluster.live(5).await;
    assert_eq!(serde_json::to_value(cluster.status("data").topologies).unwrap(), json!([zone]));
}

#[tokio::test(start_paused = true)]
async fn v_064_a_volume_of_a_plugin_that_is_unknown_or_has_no_healthy_controller_says_so_and_is_given_to_nobody() {
    let sick = json!({ "healthy": false });
    // Nodes can mount, and nothing can attach.
    let (sick_controller, node_half) = (json!({ "node": false, "healthy": false }), json!({ "controller": false }));
    for (nodes, plugin) in [
        (vec![with_plugin("n1")], "other"),
        (vec![with_info("n1", &sick)], "p"),
        (vec![with_info("n1", &sick_controller), with_info("n2", &node_half)], "p"),
    ] {
        let mut cluster = Cluster::new(&nodes);
        let mut wanted = volume("data", WRITER);
        plugin.clone_into(&mut wanted.spec.plugin_id);
        cluster.world.create(&wanted);
        cluster.world.create(&user("db", 1, "data", WRITER));
        cluster.live(10).await;
        assert_eq!(cluster.condition("data", VolumeConditionType::Schedulable), "False PluginMissing", "{plugin}");
        assert_eq!((cluster.claims("data"), cluster.running("db")), (Vec::new(), 0));
        assert_eq!(cluster.take_calls(), Vec::<String>::new());
        // It is well as soon as the plugin is.
        if plugin == "p" {
            cluster.tell("n1", &json!({ "csi": { "p": { "healthy": true } } }));
            cluster.live(10).await;
            assert_eq!((cluster.claims("data").len(), cluster.running("db")), (1, 1));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn v_065_a_volume_is_made_only_by_a_controller_that_can_and_one_that_is_made_only_once() {
    let cannot = json!({ "capabilities": ["PUBLISH_UNPUBLISH_VOLUME"] });
    for (field, source) in [("cloneID", "vol-1"), ("snapshotID", "snap-1")] {
        let mut cluster = Cluster::new(&[with_info("n1", &cannot)]);
        let mut copy = serde_json::to_value(unmade("data")).unwrap();
        copy["spec"][field] = json!(source);
        cluster.world.create(&serde_json::from_value::<CSIVolume>(copy).unwrap());
        cluster.world.create(&user("db", 1, "data", WRITER));
        cluster.live(30).await;
        assert!(!cluster.take_calls().iter().any(|call| call.starts_with("create")));
        assert_eq!((cluster.claims("data"), cluster.running("db")), (Vec::new(), 0));
        assert_eq!(cluster.condition("data", VolumeConditionType::Stalled), "True InvalidSpec");
        let status = cluster.status("data");
        let told = status
            .conditions
            .iter()
            .any(|one| one.message.starts_with(&format!("spec.{field}: no controller of plugin p")));
        assert!(told, "{:?}", status.conditions);
    }

    let mut cluster = with_made().await;
    cluster.calls.clear();
    let more = json!({ "spec": { "context": { "tier": "fast" }, "externalID": "" } });
    cluster.world.merge::<CSIVolume>(&in_default("data"), Part::Spec, more);
    cluster.live(30).await;
    let made: Vec<String> = cluster.take_calls().into_iter().filter(|call| call.starts_with("create")).collect();
    assert_eq!((made, cluster.status("data").external_id.as_str()), (Vec::new(), "disk-7"));
}
