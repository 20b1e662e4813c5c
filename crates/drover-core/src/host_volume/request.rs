//! What a node's agent is asked for. It follows from what is there and what the agent says: another leader asks for
//! the same.

use std::collections::BTreeMap;

use drover_api::host_volume::{HostVolumeCall, HostVolumeRequest};

use super::known::KnownVolume;
use crate::ids::NodeName;
use crate::model::{Alloc, Node};
use crate::snapshot::ClusterView;

/// What a node is asked for, by the volumes' ids: those that it is to have and does not say it has, and those that are
/// to go. What is not mentioned stays as it is. O(volumes and allocations on the node).
pub fn requests(view: &ClusterView, node: &NodeName) -> BTreeMap<String, HostVolumeRequest> {
    let Some(there) = view.node(node) else { return BTreeMap::new() };
    let volumes = view.host_volumes().on_node(node).filter(|volume| volume.is_held);
    let wanted =
        volumes.filter_map(|volume| Some((volume.id.to_string(), request(volume, call(view, volume, there)?))));
    wanted.collect()
}

fn call(view: &ClusterView, volume: &KnownVolume, node: &Node) -> Option<HostVolumeCall> {
    if volume.is_deleting {
        return users(view, volume).next().is_none().then_some(HostVolumeCall::Remove);
    }
    (!volume.is_offered(node)).then_some(HostVolumeCall::Keep)
}

fn request(volume: &KnownVolume, call: HostVolumeCall) -> HostVolumeRequest {
    let spec = &volume.spec;
    HostVolumeRequest {
        call,
        namespace: volume.key.namespace.to_string(),
        name: volume.name.to_string(),
        plugin: spec.plugin,
        parameters: spec.parameters.clone(),
        host_path: spec.host_path.clone(),
    }
}

/// The allocations of which something on the volume's node may still use it. O(allocations there).
pub fn users<'a>(view: &'a ClusterView, volume: &'a KnownVolume) -> impl Iterator<Item = &'a Alloc> {
    let there = volume.node.iter().flat_map(|node| view.allocs_on_node(node));
    let uses = |alloc: &&Alloc| !alloc.has_ended && alloc.host_volumes.values().any(|id| id == volume.id.as_str());
    there.map(|alloc| &**alloc).filter(uses)
}
