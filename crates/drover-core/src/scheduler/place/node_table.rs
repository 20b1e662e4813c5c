//! The ready nodes of the cluster, in the order of their names, with the rank by which equals win.

use std::sync::Arc;

use super::score_index::Row;
use crate::ids::NodeName;
use crate::snapshot::{ClusterView, NodeEntry};

/// Ready nodes. They are gone through in the order in which they lie in memory; the shuffled order is a number of each.
#[derive(Debug)]
pub(super) struct NodeTable<'a> {
    entries: Vec<&'a Arc<NodeEntry>>,
    ranks: Vec<u32>,
}

impl<'a> NodeTable<'a> {
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

    pub(super) fn rows(&self) -> std::ops::Range<Row> {
        0..u32::try_from(self.entries.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn entry(&self, row: Row) -> &'a NodeEntry {
        self.entries[row as usize]
    }

    /// The place of a node in the shuffled order: of equal nodes the first wins.
    pub(super) fn rank(&self, row: Row) -> u32 {
        self.ranks[row as usize]
    }

    /// The place of a node. O(log nodes).
    pub(super) fn row_of(&self, node: &NodeName) -> Option<Row> {
        let found = self.entries.binary_search_by(|entry| entry.node.name.cmp(node)).ok()?;
        u32::try_from(found).ok()
    }
}
