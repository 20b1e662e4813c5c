//! Volumes that clients register, have made, take out and take snapshots of.

use drover_api::CSIVolume;
use drover_api::annotation::{DELETE_DATA, DELETE_SNAPSHOT, DEREGISTER, TAKE_SNAPSHOT};
use expect_test::expect;
use http::Method;
use serde_json::{Value, json};

use super::{NODE, demands, object, ordered_in, patch, world};
use crate::Fault;
use crate::world::{Kind, World};
use crate::writes::{Change, WholeObject, WriteOrder, Written};

const VOLUME: &str = "6f1d2c0a-0000-4000-8000-0000000000c1";

/// A node with a plugin that makes volumes, one that makes none, and one whose controller is down.
fn plugins() -> Value {
    let of = |healthy: bool, capabilities: &[&str]| {
        json!({ "controller": true, "node": true, "healthy": healthy, "requiresControllerPlugin": true,
                "capabilities": capabilities })
    };
    json!({ "ebs": of(true, &["CREATE_DELETE_VOLUME"]), "nfs": of(true, &[]), "down": of(false, &[]) })
}

/// A volume that is there.
fn known(name: &str, spec: &Value, status: &Value) -> CSIVolume {
    let mut whole = json!({
        "pluginID": "ebs",
        "capabilities": [{ "accessMode": "single-node-writer", "attachmentMode": "file-system" }],
    });
    if let (Some(whole), Some(more)) = (whole.as_object_mut(), spec.as_object()) {
        whole.extend(more.clone());
    }
    object("CSIVolume", (name, VOLUME), &whole, status)
}

fn with(volumes: impl IntoIterator<Item = CSIVolume>) -> World {
    let mut world = world("successful");
    let status = json!({ "phase": "ready", "fingerprint": { "csi": plugins() } });
    world.nodes.put(object("ClientNode", ("n-1", NODE), &json!({}), &status));
    for volume in volumes {
        world.volumes.put(volume);
    }
    world
}

/// What a client sends of a volume, with these fields changed.
fn submitted(changes: &Value) -> Value {
    let mut volume = json!({
        "ID": "data", "Name": "", "Namespace": "", "PluginID": "ebs", "ExternalID": "vol-1", "Secrets": null,
        "RequestedCapabilities": [{ "AccessMode": "single-node-writer", "AttachmentMode": "file-system" }],
        "MountOptions": null, "Parameters": null, "Context": null, "RequestedCapacityMin": 0,
        "RequestedCapacityMax": 0, "RequestedTopologies": null, "CloneID": "", "SnapshotID": "", "CreateIndex": 0,
    });
    if let (Some(volume), Some(changes)) = (volume.as_object_mut(), changes.as_object()) {
        volume.extend(changes.clone());
    }
    json!({ "Volumes": [volume] })
}

fn put(world: &World, path: &str, body: &Value) -> Result<WriteOrder, Fault> {
    ordered_in(world, &Method::PUT, path, body)
}

fn delete(world: &World, path: &str) -> Result<WriteOrder, Fault> {
    ordered_in(world, &Method::DELETE, path, &Value::Null)
}

fn told(result: Result<WriteOrder, Fault>) -> String {
    let fault = result.expect_err("it is refused");
    format!("{} {}", fault.code, fault.message)
}

/// The volume that an order makes, or puts in the place of another.
fn whole(order: &WriteOrder) -> &CSIVolume {
    match order.changes.as_slice() {
        [Change::Create(WholeObject::Volume(volume)) | Change::Replace(WholeObject::Volume(volume))] => volume,
        other => panic!("no volume: {other:?}"),
    }
}

/// What an order is answered in a world; `None` while it waits.
fn outcome(order: &WriteOrder, world: &World, version: u64) -> Option<Result<Value, Fault>> {
    let mut meta = known("data", &json!({}), &json!({})).metadata;
    meta.resource_version = Some(version.to_string());
    order.outcome.as_ref().expect("an outcome").seen(world, &[Written { kind: Kind::Volume, meta }])
}

fn refused(found: Option<Result<Value, Fault>>) -> String {
    let fault = found.expect("it is known").expect_err("it is refused");
    format!("{} {}", fault.code, fault.message)
}

#[test]
fn p_058_a_volume_is_made_known_in_its_namespace_under_the_name_that_a_file_would_give_it() {
    let body = submitted(&json!({ "ID": "data[2]", "RequestedCapacityMin": 1_u64 << 30 }));
    let order = put(&with([]), "volume/csi/data[2]", &body).expect("an order");
    let volume = whole(&order);
    assert!(matches!(order.changes[0], Change::Create(_)) && order.outcome.is_none());
    assert_eq!(volume.metadata.name.as_deref(), Some("data-2"));
    assert_eq!(volume.metadata.namespace.as_deref(), Some("default"));
    assert_eq!((volume.spec.id.as_str(), volume.spec.external_id.as_str()), ("data[2]", "vol-1"));
    assert_eq!(volume.spec.capacity.as_ref().map(|it| it.min.as_str()), Some("1073741824"));
    // A right to make one has no name.
    assert_eq!(demands(&order), ["create csivolumes"]);

    // The volume's own word counts, then the parameter; what stands beside it is not asked.
    for (of_volume, parameter, expected) in [("shop", "default", "shop"), ("", "shop", "shop")] {
        let mut body = submitted(&json!({ "Namespace": of_volume }));
        body["Namespace"] = json!("other");
        let order = put(&with([]), &format!("volume/csi/data?namespace={parameter}"), &body).expect("an order");
        assert_eq!(whole(&order).metadata.namespace.as_deref(), Some(expected));
        assert_eq!(order.demands[0].any_of[0].namespace, expected);
    }
}

#[test]
fn a_volume_that_is_no_volume_is_refused_with_what_is_wrong_and_what_to_do() {
    let of = |changes: &Value| told(put(&with([]), "volume/csi/data", &submitted(changes)));
    let body = |body: &Value| told(put(&with([]), "volume/csi/data", body));
    let all = [
        body(&json!({})),
        body(&json!({ "Volumes": [{ "ID": "a" }, { "ID": "b" }] })),
        of(&json!({ "ID": "other" })),
        of(&json!({ "PluginID": "" })),
        of(&json!({ "RequestedCapabilities": null })),
        of(&json!({ "RequestedCapabilities": [{ "AccessMode": "any", "AttachmentMode": "file-system" }] })),
        of(&json!({ "CloneID": "a", "SnapshotID": "b" })),
        of(&json!({ "Context": { "csi.storage.k8s.io/pod.name": "a" } })),
        of(&json!({ "RequestedTopologies": { "Required": [{ "Segments": {} }] } })),
        of(&json!({ "Secrets": { "key": "swordfish" } })),
        of(&json!({ "PluginID": "none" })),
        of(&json!({ "PluginID": "down" })),
    ];
    assert!(all.iter().all(|fault| !fault.contains("swordfish")));
    expect![[r#"
        400 request:1:1: Volumes holds no volume; give one, as {"Volumes": [{"ID": …}]}
        400 request:1:12: Volumes: holds 2 volumes; give one, and the others in requests of their own
        400 Volumes[0].ID is "other", and the path names "data": give that one
        400 spec.pluginID: is missing; add it (FieldMissing)
        400 spec.capabilities: is missing; add it (FieldMissing)
        400 spec.capabilities[0].accessMode: `any` is not allowed; take one of single-node-reader-only, single-node-writer, multi-node-reader-only, multi-node-single-writer, multi-node-multi-writer (FieldValue)
        400 spec.cloneID: and spec.snapshotID exclude each other; remove one of them (TwoSources)
        400 spec.context[csi.storage.k8s.io/pod.name]: tells a driver for whom it acts, and only drover and the cluster say that; remove it (ReservedKey)
        400 spec.topologyRequest.required[0].segments: is empty; name at least one, as zone: a (Topology)
        400 Volumes[0].Secrets: the gateway writes no Secrets: make one by `kubectl create secret generic`, name it in spec.secretsRef of the CSIVolume by `kubectl apply`, and leave Secrets out here
        404 Volumes[0].PluginID: plugin "none" not found: run the job that serves it (its task has csiPlugin.id none)
        400 Volumes[0].PluginID: no controller of plugin "down" is healthy: look at the allocations of its job"#]].assert_eq(&all.join("\n"));
}

#[test]
fn what_a_registration_leaves_out_of_a_volume_that_is_there_stays() {
    let spec = json!({
        "id": "data", "externalID": "vol-1", "name": "Data", "parameters": { "type": "gp3" }, "context": { "a": "b" },
        "secretsRef": { "name": "top" }, "capacity": { "min": "1Gi" }, "mountOptions": { "fsType": "ext4" },
    });
    // Its object has a name that no id gives it.
    let world = with([known("by-hand", &spec, &json!({}))]);
    let before = world.volumes.named("default", "by-hand").expect("a volume").clone();
    let register = |changes: &Value| put(&world, "volume/csi/data", &submitted(changes)).expect("an order");
    let order = register(&json!({ "ExternalID": "", "MountOptions": { "FSType": "ext4" } }));
    assert!(order.changes.is_empty(), "it is as it is wanted: {:?}", order.changes);
    assert_eq!(demands(&order), ["update csivolumes by-hand"]);

    let order = register(&json!({ "Context": { "c": "d" }, "RequestedCapacityMin": 2_u64 << 30 }));
    assert!(matches!(order.changes[0], Change::Replace(_)));
    let volume = whole(&order);
    assert_eq!(volume.metadata, before.metadata, "its resourceVersion is the precondition");
    assert_eq!((volume.spec.mount_options.is_none(), volume.spec.name.as_str()), (true, "Data"));
    assert_eq!(volume.spec.secrets_ref, before.spec.secrets_ref);
    assert_eq!(json!(volume.spec.context), json!({ "c": "d" }));
    assert_eq!(volume.spec.capacity.as_ref().map(|it| it.min.as_str()), Some("2147483648"));
    // What may not change is for the API server to refuse.
    assert_eq!(whole(&register(&json!({ "ExternalID": "vol-2" }))).spec.external_id, "vol-2");
}

#[test]
fn a_volume_is_registered_again_as_it_was_read() {
    let status = json!({ "externalID": "vol-made", "createdByDrover": true });
    let world = with([known("data", &json!({}), &status)]);
    let shown = crate::wire::volume::full(world.volume("default", "data").expect("a volume"), &world);
    assert_eq!((&shown["Name"], &shown["ExternalID"]), (&json!("data"), &json!("vol-made")));
    let order = put(&world, "volume/csi/data", &json!({ "Volumes": [shown] })).expect("an order");
    assert!(order.changes.is_empty(), "{:?}", order.changes);
}

#[test]
fn two_ids_of_one_object_and_a_volume_that_goes_are_refused() {
    let world = with([known("data-2", &json!({ "id": "data[2]" }), &json!({}))]);
    let fault = told(put(&world, "volume/csi/data-2", &submitted(&json!({ "ID": "data-2" }))));
    assert!(fault.starts_with("400") && fault.contains("csivol/data-2") && fault.contains("\"data[2]\""), "{fault}");
    let mut goes = known("data", &json!({}), &json!({}));
    goes.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).expect("a time");
    let fault = told(put(&with([goes]), "volume/csi/data", &submitted(&json!({}))));
    assert!(fault.contains("is being deleted: wait"), "{fault}");
}

#[test]
fn a_volume_that_is_to_be_made_is_answered_when_its_provider_has_made_it_or_cannot() {
    let body = submitted(&json!({ "ExternalID": "" }));
    let order = put(&with([]), "volume/csi/data/create", &body).expect("an order");
    assert_eq!((demands(&order), whole(&order).spec.external_id.as_str()), (vec!["create csivolumes".to_owned()], ""));
    let condition = |kind: &str, reason: &str| {
        json!({ "type": kind, "status": "True", "reason": reason, "message": "no room", "observedGeneration": 3,
                "lastTransitionTime": "2026-01-01T00:00:00Z" })
    };
    let seen = |status: &Value| outcome(&order, &with([known("data", &json!({}), status)]), 10);
    assert_eq!(seen(&json!({})), None, "the controller has not seen it");
    assert_eq!(seen(&json!({ "observedGeneration": 3, "conditions": [condition("Reconciling", "Creating")] })), None);
    assert_eq!(seen(&json!({ "observedGeneration": 2, "externalID": "vol-9" })), None, "of the spec before");
    let made = json!({ "observedGeneration": 3, "externalID": "vol-9" });
    let answer = seen(&made).expect("an answer").expect("it is made");
    assert_eq!((&answer["Volumes"][0]["ExternalID"], &answer["Volumes"][0]["ID"]), (&json!("vol-9"), &json!("data")));
    let known_later = with([known("data", &json!({}), &made)]);
    assert_eq!(outcome(&order, &known_later, 11), None, "the state that was written is not known yet");
    assert_eq!(seen(&json!({ "observedGeneration": 3, "conditions": [condition("Stalled", "PluginMissing")] })), None);
    let stalled = json!({ "observedGeneration": 3, "conditions": [condition("Stalled", "CreateFailed")] });
    let fault = refused(seen(&stalled));
    assert!(fault.starts_with("500") && fault.contains("CreateFailed: no room"), "{fault}");
    assert!(refused(outcome(&order, &with([known("x", &json!({}), &json!({}))]), 10)).contains("deleted meanwhile"));
    let late = |world: &World| order.outcome.as_ref().expect("an outcome").late(world);
    let unmade = late(&with([known("data", &json!({}), &json!({}))])).expect("it is there");
    assert_eq!(unmade["Volumes"][0]["ExternalID"], "");
    assert!(late(&with([])).is_err());
}

#[test]
fn only_what_a_provider_can_make_is_to_be_made_and_once() {
    let of = |world: &World, changes: &Value| put(world, "volume/csi/data/create", &submitted(changes));
    let named = told(of(&with([]), &json!({})));
    assert!(
        named.starts_with("400") && named.contains("Volumes[0].ExternalID") && named.contains("register"),
        "{named}"
    );
    let unable = told(of(&with([]), &json!({ "ExternalID": "", "PluginID": "nfs" })));
    assert!(
        unable.starts_with("400") && unable.contains("can make volumes") && unable.contains("register"),
        "{unable}"
    );
    let made = with([known("data", &json!({}), &json!({ "observedGeneration": 3, "externalID": "vol-9" }))]);
    for external in ["", "vol-9"] {
        let order = of(&made, &json!({ "ExternalID": external })).expect("an order");
        assert!(order.changes.is_empty(), "{:?}", order.changes);
        assert!(outcome(&order, &made, 10).is_some_and(|found| found.is_ok()));
    }
}

#[test]
fn v_053_a_volume_is_taken_out_where_nothing_holds_it_and_is_gone_when_that_is_answered() {
    let world = with([known("data", &json!({}), &json!({}))]);
    let order = delete(&world, "volume/csi/data").expect("an order");
    assert!(matches!(order.changes.as_slice(), [Change::Delete(_)]));
    assert_eq!(demands(&order), ["delete csivolumes data"]);
    assert_eq!((outcome(&order, &world, 10), outcome(&order, &with([]), 10)), (None, Some(Ok(json!({})))));
    assert_eq!(order.outcome.as_ref().map(|it| it.late(&world)), Some(Ok(json!({}))));
    let claim = json!({ "allocID": "a", "allocation": "web-1", "nodeName": "n-1", "mode": "write" });
    let held = with([known("data", &json!({}), &json!({ "claims": [claim] }))]);
    let fault = told(delete(&held, "volume/csi/data"));
    assert!(fault.starts_with("400") && fault.contains("web-1") && fault.contains("force=true"), "{fault}");
    let order = delete(&held, "volume/csi/data?force=true").expect("an order");
    assert_eq!(demands(&order), ["delete csivolumes data", "update csivolumes data"]);
    assert!(
        matches!(&order.changes[0], Change::Patch(_, body) if body["metadata"]["annotations"][DEREGISTER] == "force")
    );
}

#[test]
fn the_data_of_a_volume_goes_where_drover_has_made_it_and_nothing_holds_it() {
    let of = |status: &Value| delete(&with([known("data", &json!({}), status)]), "volume/csi/data/delete");
    let made = json!({ "createdByDrover": true, "externalID": "vol-9" });
    let order = of(&made).expect("an order");
    let [Change::Patch(_, body), Change::Delete(_)] = order.changes.as_slice() else { panic!("{:?}", order.changes) };
    assert_eq!(body["metadata"]["annotations"][DELETE_DATA], "true");
    assert_eq!(demands(&order), ["delete csivolumes data", "update csivolumes data"]);
    let condition = json!({ "type": "Schedulable", "status": "False", "reason": "Reaping", "message": "it is busy",
                            "observedGeneration": 3, "lastTransitionTime": "2026-01-01T00:00:00Z" });
    let mut going = made.clone();
    going["conditions"] = json!([condition]);
    let going = with([known("data", &json!({}), &going)]);
    assert_eq!((outcome(&order, &going, 10), outcome(&order, &with([]), 10)), (None, Some(Ok(json!({})))));
    let late = order.outcome.as_ref().expect("an outcome").late(&going).expect_err("it is late");
    assert!(late.code == 504 && late.message.contains("it is busy"), "{late}");

    let registered = told(of(&json!({ "externalID": "vol-1" })));
    assert!(registered.starts_with("400") && registered.contains("deregister it"), "{registered}");
    let claim = json!({ "allocID": "a", "allocation": "web-1", "nodeName": "n-1", "mode": "read" });
    let held = told(of(&json!({ "createdByDrover": true, "externalID": "vol-9", "claims": [claim] })));
    assert!(held.starts_with("400") && held.contains("web-1"), "{held}");
    assert!(told(delete(&with([]), "volume/csi/data/delete")).starts_with("404"));
}

#[test]
fn a_snapshot_is_asked_for_and_answered_from_the_status_when_the_request_is_gone() {
    let world = with([known("data", &json!({}), &json!({ "externalID": "vol-9" }))]);
    let take = |world: &World, name: &str| {
        put(world, "volumes/snapshot", &json!({ "Snapshots": [{ "SourceVolumeID": "data", "Name": name }] }))
    };
    let order = take(&world, "nightly").expect("an order");
    assert_eq!(patch(&order)["metadata"]["annotations"], json!({ TAKE_SNAPSHOT: "nightly" }));
    assert!(matches!(&order.changes[0], Change::Patch(target, _) if target.resource_version.is_some()));
    assert_eq!(demands(&order), ["update csivolumes data"]);
    let by_time = take(&world, "").expect("an order");
    assert_eq!(patch(&by_time)["metadata"]["annotations"][TAKE_SNAPSHOT], "snap-20260201T000000Z");

    let after = |asked: Option<&str>, status: &Value| {
        let mut volume = known("data", &json!({}), status);
        let annotations = asked.map(|asked| [(TAKE_SNAPSHOT.to_owned(), asked.to_owned())].into());
        volume.metadata.annotations = annotations;
        with([volume])
    };
    let taken = json!({ "externalID": "vol-9", "snapshots": [{ "id": "s-1", "name": "nightly", "readyToUse": true }] });
    assert_eq!(outcome(&order, &after(Some("nightly"), &taken), 10), None);
    let answer = outcome(&order, &after(None, &taken), 10).expect("an answer").expect("a snapshot");
    assert_eq!((&answer["Snapshots"][0]["ID"], &answer["Snapshots"][0]["IsReady"]), (&json!("s-1"), &json!(true)));
    let failed = refused(outcome(&order, &after(None, &json!({ "snapshotError": "no room" })), 10));
    assert!(failed.starts_with("500") && failed.contains("no room"), "{failed}");
    // The same that is under way is waited for; another one has to wait.
    let going = after(Some("nightly"), &json!({}));
    assert!(take(&going, "nightly").expect("an order").changes.is_empty());
    let busy = told(take(&going, "weekly"));
    assert!(busy.starts_with("400") && busy.contains("nightly is being carried out"), "{busy}");

    let of = |snapshot: &Value| told(put(&world, "volumes/snapshot", &json!({ "Snapshots": [snapshot] })));
    let all = [
        told(put(&world, "volumes/snapshot", &json!({}))),
        told(put(&world, "volumes/snapshot", &json!({ "Snapshots": [{}, {}] }))),
        of(&json!({ "Name": "nightly" })),
        of(&json!({ "SourceVolumeID": "none" })),
        of(&json!({ "SourceVolumeID": "data", "PluginID": "nfs" })),
        of(&json!({ "SourceVolumeID": "data", "Secrets": { "key": "swordfish" } })),
        of(&json!({ "SourceVolumeID": "data", "Parameters": { "a": "b" } })),
    ];
    assert!(all.iter().all(|fault| !fault.contains("swordfish")));
    expect![[r#"
        400 Snapshots holds 0 snapshots: give one, and others in requests of their own
        400 Snapshots holds 2 snapshots: give one, and others in requests of their own
        400 Snapshots[0].SourceVolumeID is missing: name the volume that it is of, by its id
        404 volume "none" not found
        400 Snapshots[0].PluginID is "nfs", and volume "data" is of "ebs": leave it out
        400 Snapshots[0].Secrets: its plugin gets the Secret of the volume's spec.secretsRef: put them there
        400 Snapshots[0].Parameters: drover hands over none: leave them out, or take the snapshot at the provider"#]]
    .assert_eq(&all.join("\n"));
}

#[test]
fn a_snapshot_is_deleted_by_the_volume_that_lists_it() {
    let status =
        json!({ "externalID": "vol-9", "snapshots": [{ "id": "s/1", "name": "nightly", "readyToUse": true }] });
    let world = with([known("data", &json!({}), &status)]);
    let order = delete(&world, "volumes/snapshot?plugin_id=ebs&snapshot_id=s%2F1").expect("an order");
    assert_eq!(patch(&order)["metadata"]["annotations"], json!({ DELETE_SNAPSHOT: "s/1" }));
    assert_eq!(demands(&order), ["update csivolumes data"]);
    assert_eq!(outcome(&order, &world, 10), Some(Ok(json!({}))));
    for (path, expected) in [
        ("volumes/snapshot?snapshot_id=s-1", "400 plugin_id is missing"),
        ("volumes/snapshot?plugin_id=ebs", "400 snapshot_id is missing"),
        ("volumes/snapshot?plugin_id=ebs&snapshot_id=s", "404 snapshot \"s\" not found"),
        ("volumes/snapshot?plugin_id=nfs&snapshot_id=s%2F1", "404"),
        ("volumes/snapshot?plugin_id=ebs&snapshot_id=s%2F1&namespace=shop", "404"),
    ] {
        let fault = told(delete(&world, path));
        assert!(fault.starts_with(expected), "{path}: {fault}");
    }
}
