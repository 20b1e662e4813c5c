//! Volumes by the requests of Nomad's clients, on a real API server and with a real driver (`spec/api.md` 4,
//! `spec/volumes.md` 7).

use std::path::PathBuf;

use drover_api::CSIVolume;
use drover_testkit::control_plane::User;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::gateway::Stage;
use crate::nomad_api::{Nomad, Told};
use crate::volumes::{make_at_driver, plugin_job};

/// A cluster whose gateway serves, with a driver on its node that the gateway knows.
pub(crate) async fn stage_with_driver(name: &str) -> Stage {
    let stage = Stage::start(name, "").await;
    let cluster = &stage.cluster;
    cluster.namespace("shop").await;
    cluster.apply("default", &plugin_job(cluster, &[]));
    let nomad = Nomad::of(&stage, User::Admin).await;
    let is_known = async || nomad.get("plugins?type=csi&filter=ControllersHealthy+%3D%3D+1").await.each("ID");
    cluster.eventually("the driver is known", async || is_known().await == ["hostdir"]).await;
    stage
}

/// What a client sends of a volume, with these fields changed.
fn submitted(id: &str, changes: &Value) -> Value {
    let mut volume = json!({
        "ID": id, "Name": "", "Namespace": "", "PluginID": "hostdir", "ExternalID": "", "Secrets": null,
        "RequestedCapabilities": [{ "AccessMode": "single-node-writer", "AttachmentMode": "file-system" }],
        "MountOptions": null, "Parameters": null, "Context": null, "RequestedCapacityMin": 0,
        "RequestedCapacityMax": 0, "RequestedTopologies": null, "CloneID": "", "SnapshotID": "",
    });
    volume.as_object_mut().expect("an object").extend(changes.as_object().expect("fields").clone());
    json!({ "Volumes": [volume] })
}

/// Where the driver keeps what is in a volume.
fn data(cluster: &Cluster, external_id: &str) -> PathBuf {
    cluster.path(&format!("disks/volumes/{external_id}/data"))
}

fn refused(told: &Told, code: u16, words: &[&str]) {
    assert_eq!(told.code, code, "{}", told.text);
    for word in words {
        assert!(told.text.contains(word), "{word} is not in {}", told.text);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_058_volumes_are_registered_changed_and_taken_out_as_nomads_clients_do() {
    let stage = stage_with_driver("nomad-registers").await;
    let cluster = &stage.cluster;
    let nomad = Nomad::of(&stage, User::Admin).await;
    make_at_driver(cluster, "known");
    let register =
        async |id: &str, changes: &Value| nomad.put(&format!("volume/csi/{id}"), &submitted(id, changes)).await;
    refused(&nomad.put("volume/csi/known", &json!({})).await, 400, &["Volumes holds no volume"]);
    refused(&register("known", &json!({ "PluginID": "none" })).await, 404, &["Volumes[0].PluginID", "not found"]);
    refused(&register("known", &json!({ "PluginID": "" })).await, 400, &["spec.pluginID", "is missing"]);
    let flags = json!({ "MountOptions": { "MountFlags": ["password=swordfish"] } });
    refused(&register("known", &flags).await, 400, &["secretsRef"]);
    refused(&register("known", &json!({ "Secrets": { "key": "a" } })).await, 400, &["kubectl create secret generic"]);
    assert_eq!(nomad.get("volumes?type=csi").await.json(), json!([]), "none of it is there");

    // P-072: the id of a volume of one allocation, which is no object's name.
    let known = json!({ "ExternalID": "vol-known", "Name": "Known", "Context": { "a": "b" } });
    let made = register("known[0]", &known).await;
    assert!(made.code == 200 && made.json()["Index"].as_u64() == Some(made.index()), "{}", made.text);
    let shown = nomad.get("volume/csi/known[0]").await.json();
    assert_eq!((&shown["ExternalID"], &shown["Name"]), (&json!("vol-known"), &json!("Known")));
    let volumes: Api<CSIVolume> = Api::default_namespaced(cluster.client.clone());
    let stored = volumes.get("known-0").await.expect("a volume");
    assert_eq!(stored.spec.id, "known[0]");
    let external = nomad.get("volumes/external?plugin_id=hostdir").await.json()["Volumes"].clone();
    assert_eq!((&external[0]["ExternalID"], &external[1]), (&json!("vol-known"), &Value::Null), "{external}");
    cluster
        .eventually("it can be used", async || nomad.get("volume/csi/known[0]").await.json()["Schedulable"] == true)
        .await;

    // V-056, V-057: the same again is nothing new, and each thing that cannot change is named.
    let again = nomad.get("volume/csi/known[0]").await.json();
    let before = volumes.get("known-0").await.expect("a volume").metadata.generation;
    let told = nomad.put("volume/csi/known[0]", &json!({ "Volumes": [again] })).await;
    assert_eq!(told.code, 200, "{}", told.text);
    assert_eq!(volumes.get("known-0").await.expect("a volume").metadata.generation, before);
    let changed = json!({ "ExternalID": "vol-other", "Name": "Other", "Parameters": { "a": "b" } });
    let words = ["externalID cannot be changed", "name cannot be changed", "parameters take effect when"];
    refused(&register("known[0]", &changed).await, 400, &words);
    assert_eq!(register("known[0]", &json!({ "MountOptions": { "FSType": "ext4" } })).await.code, 200);
    let now = volumes.get("known-0").await.expect("a volume").spec;
    assert_eq!((now.external_id.as_str(), now.name.as_str()), ("vol-known", "Known"), "what is left out stays");
    assert_eq!(now.mount_options.map(|it| it.fs_type), Some("ext4".to_owned()));

    // It was there before, and its data stays.
    refused(&nomad.delete("volume/csi/known[0]/delete").await, 400, &["it was registered", "deregister it"]);
    assert_eq!(nomad.delete("volume/csi/known[0]").await.code, 200);
    assert_eq!(nomad.get("volume/csi/known[0]").await.code, 404, "it is gone when that is answered");
    assert!(data(cluster, "vol-known").exists());
    assert_eq!(register("known[0]", &known).await.code, 200, "and can be registered at once");
    assert_eq!(nomad.delete("volume/csi/known[0]?force=true").await.code, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn v_065_volumes_are_made_copied_and_deleted_with_their_data_as_nomads_clients_do() {
    let stage = stage_with_driver("nomad-creates").await;
    let cluster = &stage.cluster;
    let nomad = Nomad::of(&stage, User::Admin).await;
    let create =
        async |id: &str, changes: &Value| nomad.put(&format!("volume/csi/{id}/create"), &submitted(id, changes)).await;
    refused(&create("v1", &json!({ "ExternalID": "vol-1" })).await, 400, &["Volumes[0].ExternalID", "register it"]);
    let size = json!({ "RequestedCapacityMin": 1 << 20 });
    let made = create("v1", &size).await.json()["Volumes"][0].clone();
    let id = made["ExternalID"].as_str().expect("an id").to_owned();
    assert!(!id.is_empty() && data(cluster, &id).exists(), "{made}");
    assert_eq!((&made["RequestedCapacityMin"], &made["Secrets"]), (&json!(1 << 20), &json!({})));
    let again = create("v1", &size).await.json()["Volumes"][0].clone();
    assert_eq!(again["ExternalID"], made["ExternalID"], "it is made once");

    std::fs::write(data(cluster, &id).join("kept"), "as it was").expect("a file");
    let snapshot = json!({ "Snapshots": [{ "SourceVolumeID": "v1", "Name": "nightly" }] });
    let taken = nomad.put("volumes/snapshot", &snapshot).await.json()["Snapshots"][0].clone();
    let expected =
        json!({ "ID": taken["ID"], "Name": "nightly", "SourceVolumeID": "v1", "ExternalSourceVolumeID": id });
    for (field, value) in expected.as_object().expect("fields") {
        assert_eq!(taken[field], *value, "{taken}");
    }
    let listed = async || nomad.get("volumes/snapshot?plugin_id=hostdir").await.json()["Snapshots"].clone();
    assert_eq!(listed().await, json!([taken]));
    let copy = create("v2", &json!({ "SnapshotID": taken["ID"] })).await.json()["Volumes"][0].clone();
    let copied = data(cluster, copy["ExternalID"].as_str().expect("an id"));
    assert_eq!(std::fs::read_to_string(copied.join("kept")).expect("a file"), "as it was");
    let of_snapshot =
        format!("volumes/snapshot?plugin_id=hostdir&snapshot_id={}", taken["ID"].as_str().expect("an id"));
    assert_eq!(nomad.delete(&of_snapshot).await.code, 200);
    assert_eq!(listed().await, json!([]));
    refused(&nomad.delete(&of_snapshot).await, 404, &["drover volume snapshot list"]);

    // What the provider refuses is shown; a volume is tried again, because it is wanted.
    std::fs::write(cluster.path("faults"), "CreateSnapshot Internal 1\n").expect("faults");
    refused(&nomad.put("volumes/snapshot", &snapshot).await, 500, &["Internal"]);
    std::fs::write(cluster.path("faults"), "CreateVolume Internal 1\n").expect("faults");
    refused(&create("v3", &json!({})).await, 500, &["v3", "is not made", "Internal"]);
    cluster.eventually("it is made then", async || create("v3", &json!({})).await.code == 200).await;
    for volume in ["v1", "v2", "v3"] {
        let told = nomad.delete(&format!("volume/csi/{volume}/delete")).await;
        assert_eq!(told.code, 200, "{}", told.text);
    }
    assert_eq!(nomad.get("volumes?type=csi").await.json(), json!([]));
    assert!(!copied.exists() && !data(cluster, &id).exists(), "their data went with them");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn must_survive_g_043_nobody_writes_a_volume_through_the_gateway_that_it_may_not_write_itself() {
    let stage = stage_with_driver("nomad-volume-rights").await;
    let cluster = &stage.cluster;
    let admin = Nomad::of(&stage, User::Admin).await;
    let ann = Nomad::of(&stage, User::Developer).await;
    make_at_driver(cluster, "own");
    let of = |id: &str, namespace: &str| submitted(id, &json!({ "Namespace": namespace, "ExternalID": "vol-own" }));
    let denied = |told: &Told, verb: &str, namespace: &str| {
        let right = format!("cannot {verb} resource \"csivolumes\"");
        refused(told, 403, &[&right, "developer", &format!("in the namespace \"{namespace}\"")]);
    };
    assert_eq!(admin.put("volume/csi/theirs", &of("theirs", "")).await.code, 200);
    let made = admin.put("volume/csi/made/create", &submitted("made", &json!({}))).await.json();
    // Who may edit jobs may write no volumes.
    stage.bind("edit", "drover-edit");
    let own = "volume/csi/own?namespace=shop";
    denied(&ann.put(own, &of("own", "")).await, "create", "shop");
    denied(&ann.put("volume/csi/own/create?namespace=shop", &submitted("own", &json!({}))).await, "create", "shop");
    stage.bind("volumes", "drover-volume-admin");
    cluster.eventually("the role is in force", async || ann.put(own, &of("own", "")).await.code == 200).await;
    // In another namespace she is a stranger, whatever the parameter says, and whatever is there.
    denied(&ann.put(own, &of("own", "default")).await, "create", "default");
    denied(&ann.put("volume/csi/theirs?namespace=shop", &of("theirs", "default")).await, "create", "default");
    denied(
        &ann.put("volume/csi/made/create?namespace=shop", &submitted("made", &json!({ "Namespace": "default" }))).await,
        "create",
        "default",
    );
    denied(&ann.delete("volume/csi/theirs").await, "delete", "default");
    denied(&ann.delete("volume/csi/theirs?force=true").await, "delete", "default");
    denied(&ann.delete("volume/csi/made/delete").await, "delete", "default");
    let snapshot = json!({ "Snapshots": [{ "SourceVolumeID": "made" }] });
    denied(&ann.put("volumes/snapshot?namespace=default", &snapshot).await, "update", "default");
    denied(&ann.get("volumes/snapshot?plugin_id=hostdir").await, "list", "default");
    let volumes: Api<CSIVolume> = Api::all(cluster.client.clone());
    let all = volumes.list(&ListParams::default()).await.expect("volumes").items;
    let mut found: Vec<String> = Vec::new();
    for volume in all {
        let meta = volume.metadata;
        assert!(meta.annotations.is_none_or(|all| all.is_empty()) && meta.deletion_timestamp.is_none());
        found.push(format!("{}/{}", meta.namespace.unwrap_or_default(), meta.name.unwrap_or_default()));
    }
    assert_eq!(found, ["default/made", "default/theirs", "shop/own"], "{made}");
    assert_eq!(ann.delete(own).await.code, 200);
    assert_eq!(admin.delete("volume/csi/made/delete").await.code, 200);
}
