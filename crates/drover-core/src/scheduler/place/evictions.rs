//! Where others can be evicted for a group, looked up once for each node and again only when something on it changed.

use std::collections::{BTreeMap, BTreeSet};

use super::candidates::Candidates;
use super::score_index::{Descending, Row};
use crate::scheduler::plan::Scores;
use crate::scheduler::preempt::Evictable;

/// The victims on a node, and how well it suits without them.
pub(super) type EvictionOption = (Vec<Evictable>, Scores);

/// Options on the nodes that lack nothing but room.
#[derive(Debug, Default)]
pub(super) struct Evictions {
    options: BTreeMap<Row, EvictionOption>,
    order: BTreeSet<(Descending, Row)>,
    /// Nodes to look at again; before the first search that is every one.
    stale: Option<Vec<Row>>,
}

impl Evictions {
    /// Something on a node changed.
    pub(super) fn changed(&mut self, row: Row) {
        if let Some((_, scores)) = self.options.remove(&row) {
            self.order.remove(&(Descending::new(scores.normalised()), row));
        }
        if let Some(stale) = &mut self.stale {
            stale.push(row);
        }
    }

    /// The best option. O(nodes that changed since the last time).
    pub(super) fn best<'a>(
        &mut self,
        candidates: &mut Candidates<'a>,
        look: impl Fn(&mut Candidates<'a>, Row) -> Option<EvictionOption>,
    ) -> Option<(Row, &EvictionOption)> {
        // The spreads' part of every score moves with every placement.
        if candidates.has_spreads() {
            *self = Self::default();
        }
        let stale = self.stale.replace(Vec::new()).unwrap_or_else(|| candidates.exhausted().collect());
        for row in stale {
            if let Some(option) = look(candidates, row).filter(|_| candidates.is_exhausted(row)) {
                self.order.insert((Descending::new(option.1.normalised()), row));
                self.options.insert(row, option);
            }
        }
        let (_, row) = self.order.first()?;
        Some((*row, self.options.get(row)?))
    }
}
