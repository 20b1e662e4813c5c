//! Where others can be evicted for a group, looked up once for each node and again only when something on it changed.

use std::collections::{BTreeMap, BTreeSet};

use super::field::Field;
use super::shelf::{Descending, Slot};
use crate::scheduler::plan::Scores;
use crate::scheduler::preempt::Candidate;

/// The victims on a node, and how well it suits without them.
pub(super) type EvictionOption = (Vec<Candidate>, Scores);

/// Options on the nodes that lack nothing but room.
#[derive(Debug, Default)]
pub(super) struct Evictions {
    options: BTreeMap<Slot, EvictionOption>,
    order: BTreeSet<(Descending, Slot)>,
    /// Nodes to look at again; before the first search that is every one.
    stale: Option<Vec<Slot>>,
}

impl Evictions {
    /// Something on a node changed.
    pub(super) fn changed(&mut self, slot: Slot) {
        if let Some((_, scores)) = self.options.remove(&slot) {
            self.order.remove(&(Descending::new(scores.normalised()), slot));
        }
        if let Some(stale) = &mut self.stale {
            stale.push(slot);
        }
    }

    /// The best option. O(nodes that changed since the last time).
    pub(super) fn best<'a>(
        &mut self,
        field: &mut Field<'a>,
        look: impl Fn(&mut Field<'a>, Slot) -> Option<EvictionOption>,
    ) -> Option<(Slot, &EvictionOption)> {
        // The spreads' part of every score moves with every placement.
        if field.has_spreads() {
            *self = Self::default();
        }
        let stale = self.stale.replace(Vec::new()).unwrap_or_else(|| field.exhausted().collect());
        for slot in stale {
            if let Some(option) = look(field, slot).filter(|_| field.is_exhausted(slot)) {
                self.order.insert((Descending::new(option.1.normalised()), slot));
                self.options.insert(slot, option);
            }
        }
        let (_, slot) = self.order.first()?;
        Some((*slot, self.options.get(slot)?))
    }
}
