//! The ready nodes of the cluster, in the order of their names, with the rank by which equals win.

use std::sync::Arc;

use super::shelf::Slot;
use crate::ids::NodeName;
use crate::snapshot::{ClusterView, NodeEntry};

/// Ready nodes. They are gone through in the order in which they lie in memory; the shuffled order is a number of each.
#[derive(Debug)]
pub(super) struct Table<'a> {
    entries: Vec<&'a Arc<NodeEntry>>,
    ranks: Vec<u32>,
}

impl<'a> Table<'a> {
    /// Shuffles the ready nodes. O(nodes).
    pub(super) fn new(view: &'a ClusterView, rng: &mut fastrand::Rng) -> Self {
        let entries: Vec<&Arc<NodeEntry>> = view.node_entries().filter(|entry| entry.is_ready).collect();
        let mut ranks: Vec<u32> = (0..u32::try_from(entries.len()).unwrap_or(u32::MAX)).collect();
        rng.shuffle(&mut ranks);
        Self { entries, ranks }
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

    /// The place of a node in the shuffled order: of equal nodes the first wins.
    pub(super) fn rank(&self, slot: Slot) -> u32 {
        self.ranks[slot as usize]
    }

    /// The place of a node. O(log nodes).
    pub(super) fn slot_of(&self, node: &NodeName) -> Option<Slot> {
        let found = self.entries.binary_search_by(|entry| entry.node.name.cmp(node)).ok()?;
        u32::try_from(found).ok()
    }
}
