//! Where others can be evicted for a group, looked up once for each node and again only when something on it changed.

use std::collections::{BTreeMap, BTreeSet};

use super::candidates::{self, Candidates};
use super::score_index::{Descending, Row};
use crate::ids::NodeName;
use crate::scheduler::plan::Scores;
use crate::scheduler::preempt::Evictable;

/// The victims on a node, and how well it suits without them.
pub(super) type EvictionOption = (Vec<Evictable>, Scores);

/// Options on the nodes that lack nothing but room.
#[derive(Debug, Default)]
pub(super) struct Evictions {
    options: BTreeMap<Row, EvictionOption>,
    /// Equals by their ranks.
    order: BTreeSet<(Descending, u32, Row)>,
    /// Nodes to look at again; before the first search that is every one.
    stale: Option<BTreeSet<Row>>,
}

impl Evictions {
    /// Something on a node changed, or how many may be evicted there without a penalty.
    pub(super) fn changed(&mut self, row: Row, rank: u32) {
        if let Some((_, scores)) = self.options.remove(&row) {
            self.order.remove(&(Descending::new(scores.normalised()), rank, row));
        }
        if let Some(stale) = &mut self.stale {
            stale.insert(row);
        }
    }

    /// The best option, of which nodes where the allocation failed before are penalised. O(nodes that changed since the
    /// last time).
    pub(super) fn best<'a>(
        &mut self,
        candidates: &mut Candidates<'a>,
        penalty: &[NodeName],
        look: impl Fn(&mut Candidates<'a>, Row) -> Option<EvictionOption>,
    ) -> Option<(Row, Scores, &[Evictable])> {
        // The spreads' part of every score moves with every placement.
        if candidates.has_spreads() {
            *self = Self::default();
        }
        let stale = self.stale.replace(BTreeSet::new()).unwrap_or_else(|| candidates.exhausted().collect());
        for row in stale {
            if let Some(option) = look(candidates, row).filter(|_| candidates.is_exhausted(row)) {
                self.order.insert((Descending::new(option.1.normalised()), candidates.rank(row), row));
                self.options.insert(row, option);
            }
        }
        let penalised: Vec<Row> = penalty.iter().filter_map(|name| candidates.row_of(name)).collect();
        let scores_of = |row: &Row| {
            let penalty = penalised.contains(row).then_some(candidates::PENALTY);
            self.options.get(row).map(|(_, scores)| Scores { penalty, ..*scores })
        };
        let others = self.order.iter().find(|(.., row)| !penalised.contains(row)).copied();
        let last_choices = penalised
            .iter()
            .filter_map(|row| Some((Descending::new(scores_of(row)?.normalised()), candidates.rank(*row), *row)));
        let (.., row) = last_choices.chain(others).min()?;
        Some((row, scores_of(&row)?, &self.options.get(&row)?.0))
    }
}
