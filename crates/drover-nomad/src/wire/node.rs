//! Nodes: the stubs of lists, and the whole object.

use std::collections::BTreeMap;

use drover_api::client_node::{ClientNodeStatus, Fingerprint, NodePhase};
use drover_api::{ClientNode, GoDuration};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::times::{UNSET, created, date};
use super::{legacy, plugin};
use crate::world::{uid, version};

/// First and last dynamic port where a node says nothing.
const DYNAMIC_PORTS: (i64, i64) = (20_000, 29_999);

/// What of a stub is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeParts {
    /// What it has and what it keeps back.
    pub(crate) resources: bool,
    /// Its operating system.
    pub(crate) os: bool,
}

/// A stub, as lists have it.
pub(crate) fn stub(node: &ClientNode, parts: NodeParts) -> Value {
    let found = found(node);
    let mut stub = common(node, &found);
    let attribute = |name: &str| found.attributes.get(name).cloned().unwrap_or_default();
    stub.insert("Address".to_owned(), json!(attribute("unique.network.ip-address")));
    stub.insert("Version".to_owned(), json!(attribute("nomad.version")));
    if parts.os {
        let os: BTreeMap<&str, String> = [("os.name", attribute("os.name"))].into_iter().collect();
        stub.insert("Attributes".to_owned(), json!(os));
    }
    if parts.resources {
        stub.extend(resources(&found));
    }
    Value::Object(stub)
}

/// The whole object.
pub(crate) fn full(node: &ClientNode) -> Value {
    let (found, status) = (found(node), node.status.clone().unwrap_or_default());
    let mut full = common(node, &found);
    full.extend(resources(&found));
    let events: Vec<Value> = status
        .events
        .iter()
        .map(|event| {
            json!({
                "Timestamp": date(Some(event.time)), "Subsystem": event.subsystem, "Message": event.message,
                "Details": {}, "CreateIndex": 0,
            })
        })
        .collect();
    let networks: Map<String, Value> = found
        .host_networks
        .iter()
        .map(|network| {
            let value = json!({
                "Name": network.name, "CIDR": network.cidr, "Interface": network.interface,
                "ReservedPorts": network.reserved_ports,
            });
            (network.name.clone(), value)
        })
        .collect();
    let (all, kept) = (found.resources, &found.reserved);
    let changed = status.phase_changed_at.map_or(0, Timestamp::as_second);
    let more = [
        // Empty: clients then ask here, and never the node, which nothing can dial.
        ("HTTPAddr", json!("")),
        ("TLSEnabled", json!(false)),
        ("Attributes", json!(found.attributes)),
        ("Meta", json!(meta(node, &found))),
        ("Links", json!({})),
        ("Resources", legacy::resources(all.cpu, all.memory_mb, all.disk_mb)),
        ("Reserved", legacy::resources(kept.cpu, kept.memory_mb, kept.disk_mb)),
        ("CgroupParent", json!("")),
        ("NodeMaxAllocs", json!(0)),
        ("GCVolumesOnNodeGC", json!(false)),
        ("DrainStrategy", strategy(node, &status)),
        ("StatusUpdatedAt", json!(changed)),
        ("Events", json!(events)),
        ("HostNetworks", json!(networks)),
        ("CSIControllerPlugins", plugin::of_node(&found, plugin::Half::Controller)),
        ("CSINodePlugins", plugin::of_node(&found, plugin::Half::Node)),
    ];
    full.extend(more.map(|(key, value)| (key.to_owned(), value)));
    Value::Object(full)
}

fn found(node: &ClientNode) -> Fingerprint {
    node.status.as_ref().and_then(|status| status.fingerprint.clone()).unwrap_or_default()
}

/// What its agent says, and what an operator says instead.
fn meta(node: &ClientNode, found: &Fingerprint) -> BTreeMap<String, String> {
    let mut meta = found.meta.static_meta.clone();
    for (key, value) in &found.meta.dynamic {
        // Without a value it hides the configured one.
        if value.is_empty() {
            meta.remove(key);
        } else {
            meta.insert(key.clone(), value.clone());
        }
    }
    meta.extend(node.spec.meta.clone());
    meta
}

fn common(node: &ClientNode, found: &Fingerprint) -> Map<String, Value> {
    let (spec, metadata) = (&node.spec, &node.metadata);
    let status = node.status.clone().unwrap_or_default();
    let drivers: Map<String, Value> = found
        .drivers
        .iter()
        .map(|(name, driver)| {
            let value = json!({
                "Attributes": driver.attributes, "Detected": driver.detected, "Healthy": driver.healthy,
                "HealthDescription": driver.description, "UpdateTime": UNSET,
            });
            (name.clone(), value)
        })
        .collect();
    let volumes: Map<String, Value> = found
        .host_volumes
        .iter()
        .map(|(name, volume)| {
            (name.clone(), json!({ "Path": volume.path, "ReadOnly": volume.read_only, "ID": volume.id }))
        })
        .collect();
    let fields = [
        ("ID", json!(uid(Some(metadata)))),
        ("Datacenter", json!(spec.datacenter)),
        ("Name", json!(metadata.name)),
        ("NodePool", json!(spec.node_pool)),
        ("NodeClass", json!(spec.node_class)),
        ("Drain", json!(spec.drain.is_some())),
        ("SchedulingEligibility", json!(spec.eligibility)),
        ("Status", json!(phase(status.phase))),
        ("StatusDescription", json!("")),
        ("Drivers", json!(drivers)),
        ("HostVolumes", json!(volumes)),
        ("LastDrain", last_drain(&status)),
        ("CreateIndex", json!(created(metadata))),
        ("ModifyIndex", json!(version(metadata))),
    ];
    fields.map(|(key, value)| (key.to_owned(), value)).into_iter().collect()
}

const fn phase(phase: NodePhase) -> &'static str {
    match phase {
        NodePhase::Initializing => "initializing",
        NodePhase::Ready => "ready",
        NodePhase::Down => "down",
        NodePhase::Disconnected => "disconnected",
    }
}

fn last_drain(status: &ClientNodeStatus) -> Value {
    let Some(drain) = &status.drain else { return Value::Null };
    json!({
        "StartedAt": date(Some(drain.started_at)), "UpdatedAt": date(Some(drain.started_at)), "Status": drain.status,
        "AccessorID": "", "Meta": {},
    })
}

fn strategy(node: &ClientNode, status: &ClientNodeStatus) -> Value {
    let Some(drain) = &node.spec.drain else { return Value::Null };
    // Below 0: now.
    let deadline = if drain.force { -1 } else { drain.deadline.map_or(0, GoDuration::as_nanos) };
    let state = status.drain.as_ref();
    json!({
        "Deadline": deadline,
        "IgnoreSystemJobs": drain.ignore_system_jobs,
        "ForceDeadline": date(state.and_then(|state| state.force_deadline)),
        "StartedAt": date(state.map(|state| state.started_at)),
    })
}

fn resources(found: &Fingerprint) -> [(String, Value); 2] {
    let (all, kept) = (found.resources, &found.reserved);
    let devices: Vec<Value> = found
        .devices
        .iter()
        .map(|group| {
            let instances: Vec<Value> = group
                .instances
                .iter()
                .map(|it| json!({ "ID": it.id, "Healthy": it.healthy, "HealthDescription": "", "Locality": null }))
                .collect();
            json!({
                "Vendor": group.vendor, "Type": group.r#type, "Name": group.name, "Instances": instances,
                "Attributes": group.attributes.iter().map(|(key, value)| (key.clone(), json!({ "String": value }))).collect::<Map<_, _>>(),
            })
        })
        .collect();
    let cores: Vec<i64> = (0..all.cores).collect();
    let ports = found.dynamic_ports.map_or(DYNAMIC_PORTS, |range| (range.min, range.max));
    let node = json!({
        "Cpu": { "CpuShares": all.cpu, "TotalCpuCores": all.cores, "ReservableCpuCores": cores },
        "Memory": { "MemoryMB": all.memory_mb },
        "Disk": { "DiskMB": all.disk_mb },
        "Networks": [],
        "Devices": devices,
        "MinDynamicPort": ports.0,
        "MaxDynamicPort": ports.1,
    });
    let reserved = json!({
        "Cpu": { "CpuShares": kept.cpu },
        "Memory": { "MemoryMB": kept.memory_mb },
        "Disk": { "DiskMB": kept.disk_mb },
        "Networks": { "ReservedHostPorts": kept.ports },
    });
    [("NodeResources".to_owned(), node), ("ReservedResources".to_owned(), reserved)]
}
