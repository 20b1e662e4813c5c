//! CSI plugins: what the nodes say of those that they run.

use std::collections::BTreeMap;

use drover_api::ClientNode;
use drover_api::client_node::{CsiInfo, Fingerprint};
use drover_api::csi_volume::PluginSource;
use drover_core::volume::plugin::Capability;
use serde_json::{Map, Value, json};

use super::allocation::{StubParts, stub as allocation_stub};
use super::times::{UNSET, created};
use crate::world::{World, uid, version};

/// One half of a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Half {
    /// The one that attaches.
    Controller,
    /// The one that mounts.
    Node,
}

impl Half {
    const fn is_of(self, info: &CsiInfo) -> bool {
        match self {
            Self::Controller => info.controller,
            Self::Node => info.node,
        }
    }
}

/// A plugin of the cluster, by what each node says of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plugin<'a> {
    on: BTreeMap<String, (&'a ClientNode, &'a CsiInfo)>,
}

/// Every plugin of the cluster, by id. O(nodes).
pub(crate) fn all(world: &World) -> BTreeMap<String, Plugin<'_>> {
    let mut all: BTreeMap<String, Plugin<'_>> = BTreeMap::new();
    for node in world.nodes.iter() {
        let fingerprint = node.status.as_ref().and_then(|status| status.fingerprint.as_ref());
        for (id, info) in fingerprint.into_iter().flat_map(|found| &found.csi) {
            let plugin = all.entry(id.clone()).or_default();
            plugin.on.insert(uid(Some(&node.metadata)).to_owned(), (node, info));
        }
    }
    all
}

impl Plugin<'_> {
    fn halves(&self, half: Half) -> impl Iterator<Item = (&String, &CsiInfo)> {
        self.on.iter().map(|(id, (_, info))| (id, *info)).filter(move |(_, info)| half.is_of(info))
    }

    fn n_healthy(&self, half: Half) -> usize {
        self.halves(half).filter(|(_, info)| info.healthy).count()
    }

    /// Whether drover asks a controller for what its volumes need, and none works.
    pub(crate) fn lacks_controller(&self) -> bool {
        let needs = |info: &CsiInfo| info.requires_controller_plugin && info.source == PluginSource::Job;
        self.on.values().any(|(_, info)| needs(info)) && self.n_healthy(Half::Controller) == 0
    }

    /// Whether a controller that drover asks works and can do this.
    pub(crate) fn can(&self, capability: Capability) -> bool {
        let is_able = |info: &CsiInfo| {
            info.source == PluginSource::Job
                && info.healthy
                && info.capabilities.iter().any(|known| known == capability.as_str())
        };
        self.halves(Half::Controller).any(|(_, info)| is_able(info))
    }
}

/// A stub, as lists have it.
pub(crate) fn stub(id: &str, plugin: &Plugin<'_>) -> Value {
    Value::Object(common(id, plugin))
}

/// The whole object.
pub(crate) fn full(id: &str, plugin: &Plugin<'_>, world: &World) -> Value {
    let mut full = common(id, plugin);
    let half = |half: Half| -> Map<String, Value> {
        plugin.halves(half).map(|(node, info)| (node.clone(), of_half(id, info, half))).collect()
    };
    let allocations: Vec<Value> = plugin
        .on
        .values()
        .filter_map(|(_, info)| world.allocations.with_uid(&info.alloc_id))
        .map(|allocation| json!(allocation_stub(allocation, world, StubParts { resources: false, task_states: true })))
        .collect();
    let version = plugin.on.values().map(|(_, info)| info.provider_version.as_str()).find(|it| !it.is_empty());
    let more = [
        ("Version", json!(version.unwrap_or_default())),
        ("Controllers", json!(half(Half::Controller))),
        ("Nodes", json!(half(Half::Node))),
        ("Allocations", json!(allocations)),
    ];
    full.extend(more.map(|(key, value)| (key.to_owned(), value)));
    Value::Object(full)
}

fn common(id: &str, plugin: &Plugin<'_>) -> Map<String, Value> {
    let infos = || plugin.on.values().map(|(_, info)| *info);
    let provider = infos().map(|info| info.provider.as_str()).find(|it| !it.is_empty());
    let made = plugin.on.values().map(|(node, _)| created(&node.metadata)).min();
    let changed = plugin.on.values().map(|(node, _)| version(&node.metadata)).max();
    let fields = [
        ("ID", json!(id)),
        ("Provider", json!(provider.unwrap_or_default())),
        ("ControllerRequired", json!(infos().any(|info| info.requires_controller_plugin))),
        ("ControllersHealthy", json!(plugin.n_healthy(Half::Controller))),
        ("ControllersExpected", json!(plugin.halves(Half::Controller).count())),
        ("NodesHealthy", json!(plugin.n_healthy(Half::Node))),
        ("NodesExpected", json!(plugin.halves(Half::Node).count())),
        ("CreateIndex", json!(made.unwrap_or(0))),
        ("ModifyIndex", json!(changed.unwrap_or(0))),
    ];
    fields.map(|(key, value)| (key.to_owned(), value)).into_iter().collect()
}

/// What a node says of one half of each plugin.
pub(super) fn of_node(found: &Fingerprint, half: Half) -> Value {
    let of = found.csi.iter().filter(|(_, info)| half.is_of(info));
    Value::Object(of.map(|(id, info)| (id.clone(), of_half(id, info, half))).collect())
}

fn of_half(id: &str, info: &CsiInfo, half: Half) -> Value {
    let node = json!({
        "ID": info.node_id, "MaxVolumes": info.max_volumes,
        "AccessibleTopology": { "Segments": info.topology },
        "RequiresNodeStageVolume": info.capabilities.iter().any(|it| it == "stage-unstage-volume"),
    });
    let (controller, node) = match half {
        Half::Controller => (json!({}), Value::Null),
        Half::Node => (Value::Null, node),
    };
    json!({
        "PluginID": id,
        "AllocID": info.alloc_id,
        "Healthy": info.healthy,
        "HealthDescription": info.description,
        "UpdateTime": UNSET,
        "RequiresControllerPlugin": info.requires_controller_plugin,
        "RequiresTopologies": !info.topology.is_empty(),
        "ControllerInfo": controller,
        "NodeInfo": node,
    })
}
