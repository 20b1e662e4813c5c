//! Where volumes are: by their plugin, by the nodes of their claims, and by what they name at their provider.

use std::collections::{BTreeSet, HashMap};

use drover_api::CSIVolume;
use drover_core::ids::{NodeName, ObjectKey};
use drover_core::volume::handle::{Handles, Identity};
use drover_store::convert;

/// Volumes by plugin and by node.
#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) by_plugin: HashMap<String, BTreeSet<ObjectKey>>,
    /// Volumes with claims of allocations on a node.
    by_node: HashMap<NodeName, BTreeSet<ObjectKey>>,
    pub(super) handles: Handles,
}

impl Index {
    /// Notes what a volume names at its provider. Returns the others that have to be looked at.
    pub(super) fn put_handle(&mut self, id: &ObjectKey, volume: &CSIVolume) -> Vec<ObjectKey> {
        let meta = &volume.metadata;
        let uid = meta.uid.as_deref().unwrap_or_default();
        let identity = Identity { volume: id, created_at: convert::created_at(meta), uid };
        self.handles.put(identity, &volume.spec, volume.status.as_ref())
    }

    /// Notes where a volume's claims and its plugin are.
    pub(super) fn put(&mut self, id: &ObjectKey, volume: &CSIVolume, before: Option<&CSIVolume>) {
        if let Some(before) = before {
            // Most changes leave a volume where it is.
            if before.spec.plugin_id == volume.spec.plugin_id && node_names(before).eq(node_names(volume)) {
                return;
            }
            unindex(&mut self.by_plugin, &before.spec.plugin_id, id);
            nodes_of(before).for_each(|node| unindex(&mut self.by_node, &node, id));
        }
        self.by_plugin.entry(volume.spec.plugin_id.clone()).or_default().insert(id.clone());
        for node in nodes_of(volume) {
            self.by_node.entry(node).or_default().insert(id.clone());
        }
    }

    /// A volume is gone.
    pub(super) fn remove(&mut self, id: &ObjectKey, volume: &CSIVolume) {
        unindex(&mut self.by_plugin, &volume.spec.plugin_id, id);
        nodes_of(volume).for_each(|node| unindex(&mut self.by_node, &node, id));
    }

    /// The volumes of a plugin.
    pub(super) fn of_plugin(&self, id: &str) -> BTreeSet<ObjectKey> {
        self.by_plugin.get(id).cloned().unwrap_or_default()
    }

    /// The volumes with claims on a node.
    pub(super) fn on_node(&self, node: &NodeName) -> BTreeSet<ObjectKey> {
        self.by_node.get(node).cloned().unwrap_or_default()
    }
}

/// Where its claims are, by claim.
pub(super) fn node_names(volume: &CSIVolume) -> impl Iterator<Item = &str> {
    let claims = volume.status.iter().flat_map(|status| &status.claims);
    claims.map(|claim| claim.node_name.as_str())
}

fn nodes_of(volume: &CSIVolume) -> impl Iterator<Item = NodeName> {
    node_names(volume).map(NodeName::from)
}

fn unindex<K: std::hash::Hash + Eq + Clone>(index: &mut HashMap<K, BTreeSet<ObjectKey>>, at: &K, id: &ObjectKey) {
    if let Some(set) = index.get_mut(at) {
        set.remove(id);
        if set.is_empty() {
            index.remove(at);
        }
    }
}
