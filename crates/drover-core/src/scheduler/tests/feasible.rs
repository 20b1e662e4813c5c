//! Cases of `spec/scheduler.md` 4: which nodes may take a group, and why others may not.

use std::collections::BTreeSet;

use drover_api::CSIVolume;
use drover_api::client_node::{CsiInfo, DeviceGroup, DeviceInstance};
use drover_api::csi_volume::ClaimState;
use drover_api::placement::{Constraint, Operand};

use super::*;
use crate::broker::blocked::{BlockedJobs, BlockedVerdict, Freed};
use crate::host_volume::claims::claim;
use crate::host_volume::known::KnownVolume;
use crate::ids::ObjectKey;
use crate::scheduler::class::NodeClass;
use crate::scheduler::feasible;
use crate::volume::claim::{Update, updated};

/// Why a job of one finds no place on the only node.
fn reason(spec: &Value, only: Node) -> Option<String> {
    let mut world = World::without_nodes(spec);
    world.view.put_node(only);
    let plan = world.plan();
    let failed = plan.failed.get("web")?;
    let keys: Vec<&String> = failed.constraint_filtered.keys().chain(failed.dimension_exhausted.keys()).collect();
    Some(keys.into_iter().cloned().collect::<Vec<_>>().join(", "))
}

#[test]
fn s_113_a_driver_is_judged_by_its_state_or_else_by_its_attribute() {
    let with_driver = |state: Option<DriverState>, attribute: Option<&str>| {
        let mut one = node("n-0");
        one.drivers = state.map(|state| ("mock".to_owned(), state)).into_iter().collect();
        one.attributes.extend(attribute.map(|value| ("driver.mock".to_owned(), value.to_owned())));
        reason(&spec(1), one)
    };
    let missing = Some("missingDrivers:mock".to_owned());
    assert_eq!(with_driver(Some(DriverState::Unhealthy), Some("1")), missing);
    assert_eq!(with_driver(None, Some("1")), None);
    assert_eq!(with_driver(None, Some("0")), missing);
    assert_eq!(with_driver(None, None), missing);
}

/// A volume of plugin `ebs` in the job's namespace that can be used.
pub(super) fn volume(id: &str, change: impl Fn(&mut CSIVolume)) -> (ObjectKey, Arc<CSIVolume>) {
    let mut object: CSIVolume = serde_json::from_value(json!({
        "apiVersion": "drover.dev/v1alpha1", "kind": "CSIVolume", "metadata": { "name": id, "namespace": "shop" },
        "spec": { "pluginID": "ebs", "capabilities": [{ "accessMode": "single-node-writer", "attachmentMode": "file-system" }] },
        "status": { "schedulable": true, "phase": "available" },
    }))
    .unwrap();
    change(&mut object);
    (ObjectKey::new("shop", id), Arc::new(object))
}

fn csi_node(change: impl Fn(&mut CsiInfo)) -> Node {
    let mut info = CsiInfo { node: true, healthy: true, ..CsiInfo::default() };
    change(&mut info);
    Node { csi: BTreeMap::from([("ebs".to_owned(), info)]), ..node("n-0") }
}

fn csi_spec() -> Value {
    with(
        spec(1),
        "volumes",
        json!([{ "name": "data", "type": "csi", "source": "v1", "accessMode": "single-node-writer" }]),
    )
}

/// Why a job with volume v1 finds no place on a node.
fn csi_reason(only: Node, volumes: Vec<(ObjectKey, Arc<CSIVolume>)>, prepare: impl Fn(&mut World)) -> Option<String> {
    let mut world = World::without_nodes(&csi_spec());
    world.view.put_node(only);
    for (id, volume) in volumes {
        world.view.put_volume(id, volume);
    }
    prepare(&mut world);
    let plan = world.plan();
    plan.failed.get("web").map(|failed| failed.constraint_filtered.keys().cloned().collect::<Vec<_>>().join(", "))
}

#[test]
fn s_114_each_csi_failure_has_its_own_reason() {
    let v1 = || vec![volume("v1", |_| {})];
    let healthy = || csi_node(|_| {});
    let reason = |only: Node, volumes| csi_reason(only, volumes, |_| {});
    assert_eq!(reason(healthy(), v1()), None);
    assert_eq!(reason(node("n-0"), v1()).as_deref(), Some("csiPluginMissing:ebs:n-0"));
    assert_eq!(reason(csi_node(|info| info.healthy = false), v1()).as_deref(), Some("csiPluginUnhealthy:ebs:n-0"));
    let in_rack =
        |rack: &str| drover_api::csi_volume::Topology { segments: [("rack".to_owned(), rack.to_owned())].into() };
    let bound = volume("v1", |one| one.status.as_mut().unwrap().topologies = vec![in_rack("R1"), in_rack("R2")]);
    let elsewhere = csi_node(|info| info.topology = [("rack".to_owned(), "R4".to_owned())].into());
    assert_eq!(reason(elsewhere, vec![bound]).as_deref(), Some("csiTopology"));
    assert_eq!(reason(healthy(), Vec::new()).as_deref(), Some("csiVolumeNotFound:v1"));
    // Another job's allocation mounts v2 there, and one volume is all that the plugin takes.
    let full =
        csi_reason(csi_node(|info| info.max_volumes = 1), vec![volume("v1", |_| {}), volume("v2", |_| {})], |world| {
            let mut other = csi_spec();
            other["groups"][0]["volumes"][0]["source"] = json!("v2");
            let definition = Definition::new(&serde_json::from_value(other).unwrap(), "other");
            let (other, uid) = (JobKey::new("shop", "other"), Uid::from("other-uid"));
            world.view.put_version(other.clone(), uid.clone(), 1, definition);
            world.allocs(0..1, |alloc| (alloc.job, alloc.job_uid) = (other.clone(), uid.clone()));
        });
    assert_eq!(full.as_deref(), Some("csiPluginMaxVolumes:ebs:n-0"));
}

#[test]
fn a_missing_volume_is_what_the_evaluation_waits_for() {
    let mut world = World::new(&csi_spec());
    world.view.put_node(csi_node(|_| {}));
    let plan = world.plan();
    assert_eq!(plan.waits_for.missing.iter().map(String::as_str).collect::<Vec<_>>(), ["csi-volume:shop:v1"]);
    assert!(plan.waits_for.is_escaped);
}

/// A volume to which an allocation of this name writes.
fn written(id: &str, by: &str) -> (ObjectKey, Arc<CSIVolume>) {
    let claim = json!({ "allocID": "uid-0", "allocation": by, "nodeName": "n-9", "mode": "write", "state": "taken" });
    volume(id, move |one| {
        let status = one.status.as_mut().unwrap();
        status.access_mode = Some(drover_api::csi_volume::AccessMode::SingleNodeWriter);
        status.claims = vec![serde_json::from_value(claim.clone()).unwrap()];
    })
}

/// Adds allocation `holder` of a version of a job, which is about to stop.
fn hold(world: &mut World, job: &'static str, version: i64) {
    world.allocs(0..1, |alloc| {
        alloc.key = JobKey::new("shop", "holder");
        alloc.job = JobKey::new("shop", job);
        alloc.job_version = version;
        alloc.node = "n-9".into();
        alloc.desired = DesiredStatus::Stop;
    });
}

#[test]
fn s_115_a_volume_in_use_is_free_for_its_own_job_alone() {
    let holder = |job: &'static str| move |world: &mut World| hold(world, job, 1);
    let reason = |prepare: &dyn Fn(&mut World)| csi_reason(csi_node(|_| {}), vec![written("v1", "holder")], prepare);
    assert_eq!(reason(&holder("web")), None, "the job replaces itself");
    assert_eq!(reason(&holder("other")).as_deref(), Some("csiInUse:v1"));
    assert_eq!(reason(&|_| {}).as_deref(), Some("csiInUseGCd:v1:holder"));
}

/// V-070
#[test]
fn a_claim_of_a_vanished_allocation_is_waited_for() {
    let mut world = World::new(&csi_spec());
    world.view.put_node(csi_node(|_| {}));
    let (id, claimed) = written("v1", "holder");
    world.view.put_volume(id.clone(), Arc::clone(&claimed));
    let plan = world.plan();
    assert!(plan.failed["web"].constraint_filtered.contains_key("csiInUseGCd:v1:holder"), "{:?}", plan.failed);
    let mut blocked = BlockedJobs::default();
    assert_eq!(blocked.block(&key(), plan.waits_for, 1), BlockedVerdict::Waits);
    let free = Update::Release { alloc_id: "uid-0".into(), state: ClaimState::ReadyToFree, error: String::new() };
    let mut freed = (*claimed).clone();
    freed.status = Some(updated(&claimed.status.clone().unwrap(), &[free], now()));
    world.view.put_volume(id, Arc::new(freed));
    let woken = blocked.free(Freed::Volume("csi-volume:shop:v1".into()), 2, now());
    assert_eq!(woken, [key()]);
    assert_eq!(world.plan().placements.len(), 1);
}

/// V-071
#[test]
fn a_writer_of_another_job_is_in_the_way_and_an_older_version_is_not() {
    let reason = |job: &'static str, version| {
        csi_reason(csi_node(|_| {}), vec![written("v1", "holder")], |world| hold(world, job, version))
    };
    assert_eq!(reason("other", 1).as_deref(), Some("csiInUse:v1"));
    assert_eq!(reason("web", 0), None);
}

/// V-072
#[test]
fn a_volume_is_used_where_it_can_be_reached() {
    let rack = |name: &str| BTreeMap::from([("rack".to_owned(), name.to_owned())]);
    let bound = || {
        volume("v1", |one| {
            let racks = ["R1", "R2"].map(|name| drover_api::csi_volume::Topology { segments: rack(name) });
            one.status.as_mut().unwrap().topologies = racks.to_vec();
        })
    };
    let in_rack = |topology: BTreeMap<String, String>| {
        csi_reason(csi_node(|info| info.topology.clone_from(&topology)), vec![bound()], |_| {})
    };
    assert_eq!((in_rack(rack("R1")), in_rack(rack("R2"))), (None, None));
    assert_eq!(in_rack(rack("R4")).as_deref(), Some("csiTopology"));
    assert_eq!(in_rack(BTreeMap::new()).as_deref(), Some("csiTopology"));
}

/// V-073
#[test]
fn a_node_takes_as_many_volumes_of_a_plugin_as_it_says() {
    let beside = |used: &'static str, max_volumes| {
        let volumes = vec![volume("v1", |_| {}), volume("v2", |_| {})];
        csi_reason(csi_node(|info| info.max_volumes = max_volumes), volumes, |world| {
            let mut other = csi_spec();
            other["groups"][0]["volumes"][0]["source"] = json!(used);
            let definition = Definition::new(&serde_json::from_value(other).unwrap(), "other");
            let (other, uid) = (JobKey::new("shop", "other"), Uid::from("other-uid"));
            world.view.put_version(other.clone(), uid.clone(), 1, definition);
            world.allocs(0..1, |alloc| (alloc.job, alloc.job_uid) = (other.clone(), uid.clone()));
        })
    };
    assert_eq!(beside("v2", 1).as_deref(), Some("csiPluginMaxVolumes:ebs:n-0"));
    assert_eq!(beside("v2", 2), None);
    assert_eq!(beside("v2", 0), None, "no limit");
    assert_eq!(beside("v1", 1), None, "the same volume again");
}

/// V-074
#[test]
fn a_missing_volume_is_waited_for() {
    let mut world = World::new(&csi_spec());
    for n in 0..10 {
        world.view.put_node(Node { name: NodeName::from(format!("n-{n}")), ..csi_node(|_| {}) });
    }
    let plan = world.plan();
    assert_eq!(plan.failed["web"].constraint_filtered, BTreeMap::from([("csiVolumeNotFound:v1".to_owned(), 10)]));
    let mut blocked = BlockedJobs::default();
    assert_eq!(blocked.block(&key(), plan.waits_for, 1), BlockedVerdict::Waits);
    let (id, created) = volume("v1", |_| {});
    world.view.put_volume(id, created);
    assert_eq!(blocked.free(Freed::Volume("csi-volume:shop:v1".into()), 2, now()), [key()]);
    assert_eq!(world.plan().placements.len(), 1);
}

#[test]
fn s_116_distinct_hosts_is_off_only_as_false() {
    for (value, wanted) in [("", true), ("true", true), ("false", false), ("not_a_bool", true)] {
        let constraint =
            Constraint { operand: Operand::DistinctHosts, r_target: value.to_owned(), ..Constraint::default() };
        let mut spec: drover_api::JobSpec = serde_json::from_value(spec(1)).unwrap();
        spec.constraints = vec![constraint];
        let definition = Definition::new(&spec, "web");
        let on = feasible::distinct_hosts(&definition, &definition.spec.groups[0]);
        assert_eq!(on, (wanted, false), "{value:?}");
    }
}

#[test]
fn s_117_a_unique_target_escapes_classes() {
    let on = |target: &str| {
        let mut one = spec(1);
        one["constraints"] = json!([{ "lTarget": target, "operand": "=", "rTarget": "x" }]);
        World::new(&one).plan().waits_for
    };
    assert!(on("${attr.unique.hostname}").is_escaped);
    let by_class = on("${attr.os.name}");
    assert!(!by_class.is_escaped);
    assert_eq!(by_class.classes.values().collect::<Vec<_>>(), [&false]);
}

#[test]
fn s_118_a_class_holds_what_nodes_share() {
    let one = node("n-0");
    let mut alike = node("n-1");
    alike.meta.insert("unique.serial".into(), "7".into());
    alike.attributes.insert("unique.hostname".into(), "b".into());
    assert_eq!(NodeClass::of(&one), NodeClass::of(&alike));
    let other_pool = Node { pool: "gpu".into(), ..node("n-2") };
    let mut other_kernel = node("n-3");
    other_kernel.attributes.insert("kernel.name".into(), "plan9".into());
    assert_ne!(NodeClass::of(&one), NodeClass::of(&other_pool));
    assert_ne!(NodeClass::of(&one), NodeClass::of(&other_kernel));
}

#[test]
fn host_volumes_must_be_there_and_usable() {
    let wants = |volume: Value| with(spec(1), "volumes", json!([volume]));
    let has = |volume: Value| Node {
        host_volumes: serde_json::from_value(json!({ "certs": volume })).unwrap(),
        ..node("n-0")
    };
    let missing = Some("missingHostVolumes:certs".to_owned());
    let readable = json!({ "name": "c", "type": "host", "source": "certs", "readOnly": true });
    let writable = json!({ "name": "c", "type": "host", "source": "certs" });
    assert_eq!(reason(&wants(readable.clone()), node("n-0")), missing);
    assert_eq!(reason(&wants(readable), has(json!({ "path": "/c", "readOnly": true }))), None);
    assert_eq!(reason(&wants(writable.clone()), has(json!({ "path": "/c", "readOnly": true }))), missing);
    let dynamic = |ready: bool| {
        has(json!({ "path": "/c", "readOnly": false, "id": "x", "ready": ready,
            "capabilities": [{ "accessMode": "single-node-writer", "attachmentMode": "file-system" }] }))
    };
    assert_eq!(reason(&wants(writable.clone()), dynamic(true)), None);
    assert_eq!(reason(&wants(writable), dynamic(false)), missing);
}

/// A HostVolume of a namespace, by the name `data`, on a node.
pub(super) fn host_volume(namespace: &str, object: &str, place: &str, access: &str) -> KnownVolume {
    KnownVolume {
        key: ObjectKey::new(namespace, object),
        id: Uid::from(format!("id-{namespace}-{object}")),
        name: "data".into(),
        spec: serde_json::from_value(json!({ "plugin": "mkdir",
            "capabilities": [{ "accessMode": access, "attachmentMode": "file-system" }] }))
        .unwrap(),
        node: Some(NodeName::from(place)),
        claims: BTreeSet::new(),
        is_deleting: false,
        is_held: true,
    }
}

/// Puts a HostVolume in, which its node has.
pub(super) fn put_host_volume(world: &mut World, volume: KnownVolume) {
    let place = volume.node.clone().unwrap();
    let mut on = (**world.view.node(&place).unwrap()).clone();
    let offered = json!({ "path": "/v", "id": volume.id.as_str(), "namespace": &*volume.key.namespace, "ready": true });
    on.host_volumes.insert(volume.id.to_string(), serde_json::from_value(offered).unwrap());
    world.view.put_node(on);
    world.view.host_volumes_mut().put(volume);
}

fn host_spec(count: i64, more: &Value) -> Value {
    let mut request = json!({ "name": "v", "type": "host", "source": "data" });
    for (field, value) in more.as_object().unwrap() {
        request[field] = value.clone();
    }
    with(spec(count), "volumes", json!([request]))
}

/// Why nodes are left out, in words.
fn left_out(plan: &Plan) -> Vec<String> {
    let failed = plan.failed.get("web").map(|failed| failed.constraint_filtered.keys());
    failed.into_iter().flatten().map(|key| crate::scheduler::explain::cause(key)).collect()
}

#[test]
fn a_host_volume_of_the_jobs_namespace_brings_the_job_to_its_node_and_one_of_another_does_not() {
    let mut world = World::new(&host_spec(1, &json!({})));
    put_host_volume(&mut world, host_volume("blog", "data", "n-4", "single-node-writer"));
    assert_eq!(left_out(&world.plan()), ["host volume data is missing or cannot be used as asked"]);
    assert!(world.plan().waits_for.missing.contains("host-volume:shop:data"));
    put_host_volume(&mut world, host_volume("shop", "data", "n-3", "single-node-writer"));
    let plan = world.plan();
    assert_eq!(plan.placements[0].node.as_str(), "n-3");
    assert_eq!(plan.placements[0].host_volumes["v"], "id-shop-data");
}

#[test]
fn must_survive_a_source_that_is_the_id_of_another_namespaces_volume() {
    let mut world = World::new(&host_spec(1, &json!({ "source": "id-blog-data" })));
    put_host_volume(&mut world, host_volume("blog", "data", "n-4", "single-node-writer"));
    assert!(world.plan().placements.is_empty());
}

#[test]
fn a_host_volume_stands_before_what_nodes_offer_by_the_same_name() {
    let mut world = World::new(&host_spec(1, &json!({})));
    let fixed: BTreeMap<_, _> = serde_json::from_value(json!({ "data": { "path": "/d", "readOnly": false } })).unwrap();
    world.view.put_node(Node { host_volumes: fixed, ..node("n-1") });
    assert_eq!(world.plan().placements[0].node.as_str(), "n-1");
    assert!(world.plan().placements[0].host_volumes.is_empty());
    put_host_volume(&mut world, host_volume("shop", "data", "n-3", "single-node-writer"));
    assert_eq!(world.plan().placements[0].node.as_str(), "n-3");
}

#[test]
fn why_a_host_volume_does_not_do_is_told() {
    let told = |more: &Value, change: &dyn Fn(&mut World)| {
        let mut world = World::new(&host_spec(1, more));
        put_host_volume(&mut world, host_volume("shop", "data", "n-3", "single-node-writer"));
        change(&mut world);
        left_out(&world.plan())
    };
    let reader = told(&json!({ "readOnly": true }), &|_| {});
    assert_eq!(
        reader,
        [
            "host volume data is on node n-3",
            "host volume data offers no single-node-reader with file-system on node n-3",
        ]
    );
    let leaving = told(&json!({}), &|world| {
        let going = KnownVolume { is_deleting: true, ..host_volume("shop", "data", "n-3", "single-node-writer") };
        world.view.host_volumes_mut().put(going);
    });
    assert_eq!(leaving, ["host volume data is being deleted on node n-3", "host volume data is on node n-3"]);
    let unmade = told(&json!({}), &|world| world.view.put_node(node("n-3")));
    assert_eq!(unmade, ["host volume data is not ready on node n-3", "host volume data is on node n-3"]);
    let down = told(&json!({}), &|world| world.set_phase(&["n-3"], NodePhase::Down));
    assert_eq!(down, ["host volume data is on node n-3, which is down"]);
}

#[test]
fn a_host_volume_for_one_writer_has_one_and_readers_beside_it() {
    let modes = json!({ "accessMode": "single-node-single-writer" });
    let mut world = World::new(&host_spec(2, &modes));
    put_host_volume(&mut world, host_volume("shop", "data", "n-3", "single-node-single-writer"));
    let plan = world.plan();
    assert_eq!((plan.placements.len(), plan.queued["web"]), (1, 1));
    assert!(left_out(&plan).contains(&"host volume data has the one writer that it may have on node n-3".to_owned()));
}

#[test]
fn volumes_of_each_slots_own_are_told_apart() {
    let mut world = World::new(&host_spec(2, &json!({ "perAlloc": true })));
    for n in 0..2 {
        let volume = host_volume("shop", &format!("data-{n}"), &format!("n-{}", 3 + n), "single-node-writer");
        put_host_volume(&mut world, KnownVolume { name: format!("data[{n}]").into(), ..volume });
    }
    let plan = world.plan();
    let placed: BTreeMap<i64, &str> = plan.placements.iter().map(|one| (one.index, one.node.as_str())).collect();
    assert_eq!(placed, BTreeMap::from([(0, "n-3"), (1, "n-4")]));
}

/// Two volumes of one name, and a service whose allocation on `n-3` was stopped.
fn sticky(is_sticky: bool) -> World {
    let mut world = World::new(&host_spec(1, &json!({ "sticky": is_sticky })));
    for (object, place) in [("data-a", "n-3"), ("data-b", "n-4")] {
        put_host_volume(&mut world, host_volume("shop", object, place, "single-node-writer"));
    }
    world.allocs(0..1, |alloc| {
        (alloc.node, alloc.client) = (NodeName::from("n-3"), ClientStatus::Complete);
        alloc.host_volumes = [("v".to_owned(), "id-shop-data-a".to_owned())].into();
        (alloc.desired, alloc.has_ended) = (DesiredStatus::Stop, true);
    });
    world
}

#[test]
fn b_067_a_sticky_successor_goes_where_its_volume_is_or_waits_and_the_reason_is_told() {
    let ineligible = |world: &mut World| {
        let on = (**world.view.node(&NodeName::from("n-3")).unwrap()).clone();
        world.view.put_node(Node { is_eligible: false, ..on });
    };
    let world = sticky(true);
    assert_eq!(world.plan().placements[0].host_volumes["v"], "id-shop-data-a");
    let mut world = sticky(true);
    ineligible(&mut world);
    let plan = world.plan();
    assert!(plan.placements.is_empty() && plan.is_blocked);
    assert_eq!(
        left_out(&plan),
        ["host volume data is sticky, and the allocation's own is on node n-3, which is ineligible"]
    );
    let mut other = sticky(false);
    ineligible(&mut other);
    assert_eq!(
        other.plan().placements[0].host_volumes["v"],
        "id-shop-data-b",
        "without it any volume of the name does"
    );
    world.view.host_volumes_mut().remove(&ObjectKey::new("shop", "data-a"));
    assert_eq!(world.plan().placements[0].node.as_str(), "n-4", "what is gone binds to no place");
}

#[test]
fn b_067_a_claim_binds_a_slot_whose_allocations_are_gone_and_no_other() {
    let mut world = World::new(&host_spec(2, &json!({ "sticky": true })));
    let mut of_a_job_before = claim(&world.job, "web", 1);
    of_a_job_before.job_uid = "another".to_owned();
    let claims = [claim(&world.job, "web", 0), claim(&world.job, "db", 1), of_a_job_before];
    let own = KnownVolume { claims: claims.into(), ..host_volume("shop", "data-a", "n-3", "single-node-writer") };
    put_host_volume(&mut world, own);
    world.set_phase(&["n-3"], NodePhase::Down);
    put_host_volume(&mut world, host_volume("shop", "data-b", "n-4", "single-node-writer"));
    let plan = world.plan();
    let placed: Vec<(i64, &str)> = plan.placements.iter().map(|one| (one.index, one.node.as_str())).collect();
    assert_eq!((placed, plan.queued["web"]), (vec![(1, "n-4")], 1));
    let why = "host volume data is sticky, and the allocation's own is on node n-3, which is down";
    assert!(left_out(&plan).contains(&why.to_owned()), "{:?}", left_out(&plan));
}

fn gpus(healthy: usize, attributes: Value) -> DeviceGroup {
    DeviceGroup {
        vendor: "nvidia".into(),
        r#type: "gpu".into(),
        name: "a100".into(),
        attributes: serde_json::from_value(attributes).unwrap(),
        instances: (0..3)
            .map(|n| DeviceInstance { id: n.to_string(), healthy: n < healthy, ..DeviceInstance::default() })
            .collect(),
    }
}

#[test]
fn devices_are_healthy_free_and_of_the_kind_that_is_asked_for() {
    let wants = |request: Value| {
        let mut one = spec(1);
        one["groups"][0]["tasks"][0]["resources"]["devices"] = json!([request]);
        one
    };
    let has = |group: DeviceGroup| Node { devices: vec![group], ..node("n-0") };
    let missing = |name: &str| Some(format!("missingDevices:{name}"));
    for name in ["gpu", "nvidia/gpu", "nvidia/gpu/a100"] {
        assert_eq!(reason(&wants(json!({ "name": name, "count": 2 })), has(gpus(2, json!({})))), None, "{name}");
    }
    assert_eq!(reason(&wants(json!({ "name": "amd/gpu" })), has(gpus(3, json!({})))), missing("amd/gpu"));
    assert_eq!(reason(&wants(json!({ "name": "gpu", "count": 2 })), has(gpus(1, json!({})))), missing("gpu"));
    let big = json!({ "name": "gpu", "constraints": [{ "lTarget": "${device.attr.memory}", "operand": ">=", "rTarget": "8 GiB" }] });
    assert_eq!(reason(&wants(big.clone()), has(gpus(3, json!({ "memory": "16384 MiB" })))), None);
    assert_eq!(reason(&wants(big), has(gpus(3, json!({ "memory": "4096 MiB" })))), missing("gpu"));
}

#[test]
fn a_device_is_given_once() {
    let mut one = spec(3);
    one["groups"][0]["tasks"][0]["resources"]["devices"] = json!([{ "name": "gpu", "count": 1,
        "constraints": [{ "lTarget": "${device.ids}", "operand": "set_contains_any", "rTarget": "1,2" }] }]);
    let mut world = World::new(&one);
    world.view.put_node(Node { devices: vec![gpus(3, json!({}))], ..node("n-0") });
    let plan = world.plan();
    let given: Vec<&str> =
        plan.placements.iter().map(|placement| placement.resources.tasks["t"].devices[0].ids[0].as_str()).collect();
    assert_eq!(given, ["1", "2"]);
    assert_eq!(plan.failed["web"].dimension_exhausted["devices: no devices left"], 1);
}
