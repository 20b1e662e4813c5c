//! Which volumes a group may use (`spec/scheduler.md` 4.5), over every combination of what a volume offers and a group
//! asks for.

use drover_api::csi_volume::{AccessMode, CSIVolumeStatus};

use super::feasible::{host_volume, put_host_volume, volume};
use super::*;
use crate::host_volume::known::KnownVolume;

/// A job of one that asks for a volume in this way.
fn asking(request: &Value) -> Value {
    with(spec(1), "volumes", json!([request]))
}

/// An object with further fields.
fn and(mut one: Value, more: &Value) -> Value {
    let fields = one.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    one
}

/// Why the only node is left out; nothing where the job is placed.
fn left_out(world: &World) -> Option<String> {
    let plan = world.plan();
    let failed = plan.failed.get("web")?;
    Some(failed.constraint_filtered.keys().cloned().collect::<Vec<_>>().join(" and "))
}

const MODES: [&str; 4] =
    ["single-node-reader", "single-node-writer", "single-node-single-writer", "single-node-multi-writer"];
const ATTACHMENTS: [&str; 2] = ["file-system", "block-device"];

#[test]
fn a_host_volume_is_used_in_a_way_that_it_offers() {
    for (offered, attachment) in MODES.into_iter().flat_map(|mode| ATTACHMENTS.map(|attachment| (mode, attachment))) {
        for read_only in [false, true] {
            for asked in MODES.map(Some).into_iter().chain([None]) {
                for how in [None, Some(ATTACHMENTS[0]), Some(ATTACHMENTS[1])] {
                    let mut request = json!({ "name": "v", "type": "host", "source": "data", "readOnly": read_only });
                    for (field, value) in [("accessMode", asked), ("attachmentMode", how)] {
                        if let Some(value) = value {
                            request[field] = json!(value);
                        }
                    }
                    let mut world = World::without_nodes(&asking(&request));
                    world.view.put_node(node("n-3"));
                    let mut one = host_volume("shop", "data", "n-3", offered);
                    one.spec.capabilities[0].attachment_mode = serde_json::from_value(json!(attachment)).unwrap();
                    put_host_volume(&mut world, one);
                    // Where it does not say: a reader reads, others write, on a file system.
                    let mode = asked.unwrap_or(if read_only { "single-node-reader" } else { "single-node-writer" });
                    let how = how.unwrap_or("file-system");
                    let why = format!("missingHostVolumes:data offers no {mode} with {how} on node n-3");
                    let wanted = (mode != offered || how != attachment).then_some(why);
                    assert_eq!(left_out(&world), wanted, "{request} of {offered} {attachment}");
                }
            }
        }
    }
}

#[test]
fn what_a_node_offers_itself_is_read_or_written_as_it_says_and_never_sticky() {
    let exclusive = json!([{ "accessMode": "single-node-single-writer", "attachmentMode": "file-system" }]);
    let ready = json!({ "path": "/d", "readOnly": false, "id": "x", "ready": true, "capabilities": exclusive });
    let by_id = |more: &Value| and(ready.clone(), more);
    let fixed = |read_only: bool| json!({ "path": "/d", "readOnly": read_only });
    for (offered, request, suits) in [
        (fixed(false), json!({}), true),
        (fixed(false), json!({ "readOnly": true }), true),
        (fixed(true), json!({ "readOnly": true }), true),
        (fixed(true), json!({}), false),
        (fixed(false), json!({ "sticky": true }), false),
        (fixed(true), json!({ "readOnly": true, "sticky": true }), false),
        // How it may be used is asked of one with an id alone.
        (fixed(false), json!({ "accessMode": "single-node-multi-writer" }), true),
        (by_id(&json!({})), json!({ "accessMode": "single-node-single-writer" }), true),
        (by_id(&json!({})), json!({ "accessMode": "single-node-multi-writer" }), false),
        (by_id(&json!({})), json!({}), false),
        (by_id(&json!({ "ready": false })), json!({ "accessMode": "single-node-single-writer" }), false),
        (by_id(&json!({ "ready": null })), json!({ "accessMode": "single-node-single-writer" }), false),
        (by_id(&json!({ "readOnly": true })), json!({ "accessMode": "single-node-single-writer" }), false),
        // One of a HostVolume of some namespace is not had by its name.
        (json!({ "path": "/d", "readOnly": false, "namespace": "blog" }), json!({}), false),
    ] {
        let asked = and(json!({ "name": "v", "type": "host", "source": "data" }), &request);
        let mut world = World::without_nodes(&asking(&asked));
        let host_volumes = serde_json::from_value(json!({ "data": offered })).unwrap();
        world.view.put_node(Node { host_volumes, ..node("n-0") });
        let wanted = (!suits).then(|| "missingHostVolumes:data".to_owned());
        assert_eq!(left_out(&world), wanted, "{request} of {offered}");
    }
}

/// An allocation of another job on `n-3` that asks for a volume in this way.
fn beside(world: &mut World, namespace: &str, request: &Value) {
    let definition = Definition::new(&serde_json::from_value(asking(request)).unwrap(), "other");
    let (job, uid) = (JobKey::new(namespace, "other"), Uid::from("other-uid"));
    world.view.put_version(job.clone(), uid.clone(), 1, definition);
    world.allocs([1], |alloc| {
        (alloc.key, alloc.job) = (JobKey::new(namespace, "holder"), job.clone());
        (alloc.job_uid, alloc.node) = (uid.clone(), "n-3".into());
    });
}

#[test]
fn the_one_writer_of_a_host_volume_is_any_that_writes_to_it_in_its_namespace() {
    let exclusive = |more: &Value| {
        and(json!({ "name": "v", "type": "host", "source": "data", "accessMode": "single-node-single-writer" }), more)
    };
    let taken = Some("missingHostVolumes:data has the one writer that it may have on node n-3".to_owned());
    for (namespace, request, other, wanted) in [
        ("shop", json!({}), json!({}), &taken),
        // One that writes is in the way, however it asked.
        ("shop", json!({}), json!({ "accessMode": "single-node-writer" }), &taken),
        ("shop", json!({}), json!({ "readOnly": true }), &None),
        ("shop", json!({}), json!({ "source": "logs" }), &None),
        ("shop", json!({}), json!({ "type": "csi" }), &None),
        ("blog", json!({}), json!({}), &None),
        // One that only reads asks for no writer's place.
        ("shop", json!({ "readOnly": true }), json!({}), &None),
    ] {
        let mut world = World::without_nodes(&asking(&exclusive(&request)));
        world.view.put_node(node("n-3"));
        put_host_volume(&mut world, host_volume("shop", "data", "n-3", "single-node-single-writer"));
        beside(&mut world, namespace, &exclusive(&other));
        assert_eq!(&left_out(&world), wanted, "{request} beside {other} of {namespace}");
    }
}

#[test]
fn a_host_volume_that_is_elsewhere_is_told_with_the_state_of_its_nodes() {
    let mut world = World::without_nodes(&asking(&json!({ "name": "v", "type": "host", "source": "data" })));
    for name in ["n-0", "n-5", "n-6", "n-7", "n-8"] {
        world.view.put_node(node(name));
    }
    let unplaced = KnownVolume { node: None, ..host_volume("shop", "data", "n-1", "single-node-writer") };
    world.view.host_volumes_mut().put(unplaced);
    assert_eq!(left_out(&world).as_deref(), Some("missingHostVolumes:data has no node yet"));

    for (object, place) in [("data-a", "n-9"), ("data-b", "n-7")] {
        world.view.host_volumes_mut().put(host_volume("shop", object, place, "single-node-writer"));
    }
    world.set_phase(&["n-8"], NodePhase::Down);
    world.view.put_node(Node { is_draining: true, ..node("n-7") });
    let told = |world: &World| left_out(world).unwrap();
    assert_eq!(
        told(&world),
        "missingHostVolumes:data is on node n-7, which is being drained, n-9, which is gone",
        "nodes by name, whatever their volumes are called"
    );
}

/// Who has a write claim on a volume.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ClaimedBy {
    None,
    OwnJob,
    OtherJob,
    Vanished,
}

/// What 4.5 says of a volume that can be reached.
fn verdict(status: &CSIVolumeStatus, offers_writing: bool, read_only: bool, writer: ClaimedBy) -> Option<String> {
    let is_usable = status.schedulable && status.resource_exhausted.is_none();
    if read_only {
        return (!is_usable).then(|| "csiNoRead:v1".to_owned());
    }
    let may_write = match status.access_mode {
        None => offers_writing,
        Some(AccessMode::SingleNodeReaderOnly | AccessMode::MultiNodeReaderOnly) => false,
        Some(_) => true,
    };
    if !is_usable || !may_write {
        return Some("csiNoWrite:v1".to_owned());
    }
    let is_free = matches!(status.access_mode, None | Some(AccessMode::MultiNodeMultiWriter));
    match writer {
        ClaimedBy::Vanished if !is_free => Some("csiInUseGCd:v1:holder".to_owned()),
        ClaimedBy::OtherJob if !is_free => Some("csiInUse:v1".to_owned()),
        ClaimedBy::None | ClaimedBy::OwnJob | ClaimedBy::OtherJob | ClaimedBy::Vanished => None,
    }
}

/// The status of a volume that is used in this way, with the claim of a writer.
fn claimed(schedulable: bool, is_full: bool, mode: Option<AccessMode>, writer: ClaimedBy) -> CSIVolumeStatus {
    let claim = json!({ "allocID": "uid-1", "allocation": "holder", "nodeName": "n-9", "mode": "write",
        "state": "taken" });
    let claims = (writer != ClaimedBy::None).then(|| serde_json::from_value(claim).unwrap());
    CSIVolumeStatus {
        schedulable,
        resource_exhausted: is_full.then(now),
        access_mode: mode,
        claims: claims.into_iter().collect(),
        ..CSIVolumeStatus::default()
    }
}

#[test]
fn a_csi_volume_is_free_busy_or_waited_for_as_its_claims_and_modes_say() {
    let modes = [
        None,
        Some(AccessMode::SingleNodeReaderOnly),
        Some(AccessMode::SingleNodeWriter),
        Some(AccessMode::MultiNodeReaderOnly),
        Some(AccessMode::MultiNodeSingleWriter),
        Some(AccessMode::MultiNodeMultiWriter),
    ];
    let writers = [ClaimedBy::None, ClaimedBy::OwnJob, ClaimedBy::OtherJob, ClaimedBy::Vanished];
    for (mode, writer) in modes.into_iter().flat_map(|mode| writers.map(|writer| (mode, writer))) {
        for flags in 0..16 {
            let [schedulable, is_full, read_only, offers_writing] = [1, 2, 4, 8].map(|flag| flags & flag != 0);
            let status = claimed(schedulable, is_full, mode, writer);
            let request = json!({ "name": "data", "type": "csi", "source": "v1", "readOnly": read_only });
            let mut world = World::without_nodes(&asking(&request));
            let csi = json!({ "ebs": { "node": true, "healthy": true } });
            world.view.put_node(Node { csi: serde_json::from_value(csi).unwrap(), ..node("n-0") });
            let (id, object) = volume("v1", |one| {
                one.status = Some(status.clone());
                if !offers_writing {
                    one.spec.capabilities[0].access_mode = AccessMode::MultiNodeReaderOnly;
                }
            });
            world.view.put_volume(id, object);
            if matches!(writer, ClaimedBy::OwnJob | ClaimedBy::OtherJob) {
                world.allocs([1], |alloc| {
                    let job = if writer == ClaimedBy::OwnJob { "web" } else { "other" };
                    (alloc.key, alloc.job) = (JobKey::new("shop", "holder"), JobKey::new("shop", job));
                    (alloc.node, alloc.desired) = ("n-9".into(), DesiredStatus::Stop);
                });
            }
            let wanted = verdict(&status, offers_writing, read_only, writer);
            assert_eq!(left_out(&world), wanted, "read only: {read_only}, {writer:?}, {status:?}");
        }
    }
}

#[test]
fn a_csi_volume_without_a_status_cannot_be_used_yet() {
    for (read_only, wanted) in [(true, "csiNoRead:v1"), (false, "csiNoWrite:v1")] {
        let request = json!({ "name": "data", "type": "csi", "source": "v1", "readOnly": read_only });
        let mut world = World::without_nodes(&asking(&request));
        let csi = json!({ "ebs": { "node": true, "healthy": true } });
        world.view.put_node(Node { csi: serde_json::from_value(csi).unwrap(), ..node("n-0") });
        let (id, object) = volume("v1", |one| one.status = None);
        world.view.put_volume(id, object);
        assert_eq!(left_out(&world).as_deref(), Some(wanted));
    }
}
