//! Where others can be evicted for a group, looked up once for each node and again only when something on it changed,
//! or when it is the best one and who is evicted there may have changed.

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
    /// With the round in which each was looked up.
    options: BTreeMap<Row, (u64, EvictionOption)>,
    /// Equals by their ranks.
    order: BTreeSet<(Descending, u32, Row)>,
    /// Nodes to look at again; before the first search that is every one.
    stale: Option<BTreeSet<Row>>,
    /// How often one was evicted whose group may lose only so many at once.
    round: u64,
}

impl Evictions {
    /// Something on a node changed.
    pub(super) fn changed(&mut self, row: Row, rank: u32) {
        self.forget(row, rank);
        if let Some(stale) = &mut self.stale {
            stale.insert(row);
        }
    }

    fn forget(&mut self, row: Row, rank: u32) {
        if let Some((_, (_, scores))) = self.options.remove(&row) {
            self.order.remove(&(Descending::new(scores.normalised()), rank, row));
        }
    }

    /// One more of a group that may lose only so many at once is evicted: those that are left are worse victims,
    /// wherever they are. Which node is the best hangs on victims' priorities alone, so that only the best one is
    /// looked at again.
    pub(super) const fn evicted(&mut self) {
        self.round += 1;
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
        for row in self.stale.replace(BTreeSet::new()).unwrap_or_else(|| candidates.exhausted().collect()) {
            self.look_up(row, candidates, &look);
        }
        let penalised: Vec<Row> = penalty.iter().filter_map(|name| candidates.row_of(name)).collect();
        loop {
            let (row, is_old) = self.first(candidates, &penalised)?;
            if !is_old {
                let (_, (victims, scores)) = self.options.get(&row)?;
                let penalty = penalised.contains(&row).then_some(candidates::PENALTY);
                return Some((row, Scores { penalty, ..*scores }, victims));
            }
            self.forget(row, candidates.rank(row));
            self.look_up(row, candidates, &look);
        }
    }

    fn look_up<'a>(
        &mut self,
        row: Row,
        candidates: &mut Candidates<'a>,
        look: &impl Fn(&mut Candidates<'a>, Row) -> Option<EvictionOption>,
    ) {
        if let Some(option) = look(candidates, row).filter(|_| candidates.is_exhausted(row)) {
            self.order.insert((Descending::new(option.1.normalised()), candidates.rank(row), row));
            self.options.insert(row, (self.round, option));
        }
    }

    /// The best node as far as options are known, and whether its own is of an earlier round.
    fn first(&self, candidates: &Candidates<'_>, penalised: &[Row]) -> Option<(Row, bool)> {
        let with_penalty = |row: &Row| {
            let (_, (_, scores)) = self.options.get(row)?;
            let scores = Scores { penalty: Some(candidates::PENALTY), ..*scores };
            Some((Descending::new(scores.normalised()), candidates.rank(*row), *row))
        };
        let others = self.order.iter().find(|(.., row)| !penalised.contains(row)).copied();
        let (.., row) = penalised.iter().filter_map(with_penalty).chain(others).min()?;
        let (round, _) = self.options.get(&row)?;
        Some((row, *round < self.round))
    }
}
