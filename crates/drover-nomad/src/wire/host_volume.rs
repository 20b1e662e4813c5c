//! Host volumes: the stubs of lists, and the whole object. Their id is the object's `metadata.uid`, which names their
//! folder on the node too.

use drover_api::HostVolume;
use serde_json::{Map, Value, json};

use super::allocation::{StubParts, stub as allocation_stub};
use super::times::{created, created_nanos};
use super::volume::bytes;
use crate::world::{World, namespace, uid, version};

/// A stub, as lists have it.
pub(crate) fn stub(volume: &HostVolume, world: &World) -> Value {
    Value::Object(common(volume, world))
}

/// The whole object.
pub(crate) fn full(volume: &HostVolume, world: &World) -> Value {
    let (spec, meta) = (&volume.spec, &volume.metadata);
    let mut full = common(volume, world);
    let capabilities: Vec<Value> = spec
        .capabilities
        .iter()
        .map(|it| json!({ "AccessMode": it.access_mode, "AttachmentMode": it.attachment_mode }))
        .collect();
    let constraints: Vec<Value> = spec
        .constraints
        .iter()
        .map(|it| json!({ "LTarget": it.l_target, "RTarget": it.r_target, "Operand": it.operand }))
        .collect();
    let id = uid(Some(meta));
    let users = world.allocations.of_namespace(namespace(meta)).filter(|it| !it.has_ended());
    let users = users.filter(|it| it.spec.host_volumes.values().any(|used| used == id));
    let parts = StubParts { resources: false, task_states: true };
    let allocations: Vec<Value> = users.map(|it| json!(allocation_stub(it, world, parts))).collect();
    let least = spec.capacity.as_ref().map_or("", |capacity| capacity.min.as_str());
    let more = [
        ("HostPath", json!(spec.host_path)),
        ("Parameters", json!(spec.parameters)),
        ("Constraints", json!(constraints)),
        ("RequestedCapabilities", json!(capabilities)),
        ("RequestedCapacityMinBytes", json!(bytes(least))),
        ("RequestedCapacityMaxBytes", json!(0)),
        ("Allocations", json!(allocations)),
    ];
    full.extend(more.map(|(key, value)| (key.to_owned(), value)));
    Value::Object(full)
}

/// The node that has it, or is to have it; empty where none is chosen.
pub(crate) fn node_name(volume: &HostVolume) -> &str {
    let chosen = volume.status.as_ref().map(|status| status.node_name.as_str()).filter(|name| !name.is_empty());
    chosen.unwrap_or(&volume.spec.node_name)
}

/// Who makes it; empty where its folder was there.
pub(crate) fn plugin_id(volume: &HostVolume) -> &'static str {
    volume.spec.plugin.map_or("", |plugin| plugin.as_str())
}

fn common(volume: &HostVolume, world: &World) -> Map<String, Value> {
    let (spec, meta) = (&volume.spec, &volume.metadata);
    let node = world.nodes.named("", node_name(volume));
    let name = if spec.name.is_empty() { meta.name.as_deref().unwrap_or_default() } else { &spec.name };
    let phase = volume.status.as_ref().map(|status| status.phase).unwrap_or_default();
    let fields = [
        ("ID", json!(uid(Some(meta)))),
        ("Namespace", json!(namespace(meta))),
        ("Name", json!(name)),
        ("PluginID", json!(plugin_id(volume))),
        ("NodeID", json!(uid(node.map(|node| &node.metadata)))),
        ("NodePool", json!(node.map_or(&spec.node_pool, |node| &node.spec.node_pool))),
        ("State", json!(phase)),
        // Nothing limits what tasks write.
        ("CapacityBytes", json!(0)),
        ("CreateIndex", json!(created(meta))),
        ("CreateTime", json!(created_nanos(meta))),
        ("ModifyIndex", json!(version(meta))),
        ("ModifyTime", json!(created_nanos(meta))),
    ];
    fields.map(|(key, value)| (key.to_owned(), value)).into_iter().collect()
}
