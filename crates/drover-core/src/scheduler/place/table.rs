//! The ready nodes of the cluster in the order in which equals win.

use std::sync::Arc;

use super::shelf::Slot;
use crate::ids::NodeName;
use crate::snapshot::{ClusterView, NodeEntry};

/// Ready nodes in a shuffled order.
#[derive(Debug)]
pub(super) struct Table<'a> {
    entries: Vec<&'a Arc<NodeEntry>>,
    /// For each node by name: its place in the shuffled order.
    places: Vec<Slot>,
    by_name: Vec<&'a NodeName>,
}

impl<'a> Table<'a> {
    /// Shuffles the ready nodes. O(nodes).
    pub(super) fn new(view: &'a ClusterView, rng: &mut fastrand::Rng) -> Self {
        let ready: Vec<&Arc<NodeEntry>> = view.node_entries().filter(|entry| entry.node.is_ready()).collect();
        let mut order: Vec<Slot> = (0..u32::try_from(ready.len()).unwrap_or(u32::MAX)).collect();
        rng.shuffle(&mut order);
        let mut places = vec![0; ready.len()];
        let mut entries = Vec::with_capacity(ready.len());
        for (place, by_name) in order.into_iter().enumerate() {
            places[by_name as usize] = u32::try_from(place).unwrap_or(u32::MAX);
            entries.push(ready[by_name as usize]);
        }
        let by_name = ready.into_iter().map(|entry| &entry.node.name).collect();
        Self { entries, places, by_name }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn slots(&self) -> std::ops::Range<Slot> {
        0..u32::try_from(self.entries.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn entry(&self, slot: Slot) -> &'a NodeEntry {
        self.entries[slot as usize]
    }

    /// The place of a node. O(log nodes).
    pub(super) fn slot_of(&self, node: &NodeName) -> Option<Slot> {
        self.by_name.binary_search(&node).ok().map(|at| self.places[at])
    }
}
