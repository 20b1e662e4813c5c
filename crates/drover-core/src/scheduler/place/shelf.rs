//! Nodes in the order of their scores, kept up to date one node at a time.
//!
//! A final score is the mean of what contributed: a part that depends on the node alone, and the spreads' part, which all nodes
//! with the same values share and which moves with every placement. Nodes stand on one shelf if they share the spreads' part and
//! the number of scores: on a shelf the order by the own part is the order by the final score, whatever the spreads say. So one
//! placement touches one node and looks at the first of each shelf, and no node is scored anew because of another.

use std::collections::BTreeSet;

/// A node of a table.
pub(super) type Slot = u32;

/// Sorts higher scores first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Descending(u64);

impl Descending {
    /// IEEE 754 numbers order like integers once the sign is folded in.
    pub(super) fn new(score: f64) -> Self {
        let bits = score.to_bits();
        let ascending = if bits >> 63 == 0 { bits | (1 << 63) } else { !bits };
        Self(!ascending)
    }

    fn score(self) -> f64 {
        let ascending = !self.0;
        f64::from_bits(if ascending >> 63 == 1 { ascending & !(1 << 63) } else { !ascending })
    }
}

/// More scores than a node has.
const MOST_SCORES: usize = 8;

/// Which shelf: the values of the spreads, and how many scores the node's own part has.
pub(super) type ShelfKey = (u32, u8);

/// A node on a shelf: its own score, its rank among equals, and which one it is.
type Entry = (Descending, u32, Slot);

#[derive(Debug, Default)]
pub(super) struct Shelves {
    all: Vec<(ShelfKey, BTreeSet<Entry>)>,
    /// The number of each shelf, by combination and number of scores.
    numbers: Vec<Option<u32>>,
    at: Vec<Option<(u32, Entry)>>,
}

impl Shelves {
    /// Puts all nodes on their shelves. O(n log n).
    pub(super) fn fill(n_slots: usize, nodes: impl Iterator<Item = (Slot, u32, ShelfKey, f64)>) -> Self {
        let mut filled = Self { at: vec![None; n_slots], ..Self::default() };
        let mut lists: Vec<Vec<Entry>> = Vec::new();
        for (slot, rank, key, sum) in nodes {
            let number = filled.number(key);
            lists.resize_with(filled.all.len(), Vec::new);
            let entry = (Descending::new(sum), rank, slot);
            lists[number as usize].push(entry);
            filled.at[slot as usize] = Some((number, entry));
        }
        for ((_, shelf), list) in filled.all.iter_mut().zip(lists) {
            *shelf = list.into_iter().collect();
        }
        filled
    }

    fn number(&mut self, key: ShelfKey) -> u32 {
        let at = key.0 as usize * MOST_SCORES + usize::from(key.1);
        if at >= self.numbers.len() {
            self.numbers.resize(at + 1, None);
        }
        let (shelves, number) = (&mut self.all, &mut self.numbers[at]);
        *number.get_or_insert_with(|| {
            shelves.push((key, BTreeSet::new()));
            u32::try_from(shelves.len() - 1).unwrap_or(u32::MAX)
        })
    }

    /// Takes a node away, or puts it where it belongs now. O(log n).
    pub(super) fn set(&mut self, slot: Slot, rank: u32, place: Option<(ShelfKey, f64)>) {
        if let Some((number, entry)) = self.at[slot as usize].take() {
            self.all[number as usize].1.remove(&entry);
        }
        if let Some((key, sum)) = place {
            let (number, entry) = (self.number(key), (Descending::new(sum), rank, slot));
            self.all[number as usize].1.insert(entry);
            self.at[slot as usize] = Some((number, entry));
        }
    }

    /// The best `n` nodes with their ranks by `total`, which makes the final score of a node from its shelf and own sum, best
    /// first; equals by their ranks. Nodes of `without` do not count. O(shelves + n²).
    pub(super) fn best(
        &self,
        n: usize,
        without: &[Slot],
        total: impl Fn(ShelfKey, f64) -> f64,
    ) -> Vec<(f64, u32, Slot)> {
        let by_score = |a: &(f64, u32, Slot), b: &(f64, u32, Slot)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        let from = |number: usize| {
            let (key, nodes) = &self.all[number];
            let nodes = nodes.iter().filter(|(_, _, slot)| !without.contains(slot));
            nodes.map(|(sum, rank, slot)| (total(*key, sum.score()), *rank, *slot))
        };
        // The best n nodes are on the n shelves whose first nodes are best.
        let mut firsts: Vec<((f64, u32, Slot), usize)> = Vec::with_capacity(n + 1);
        for number in 0..self.all.len() {
            let Some(first) = from(number).next() else { continue };
            if firsts.len() == n && firsts.last().is_some_and(|(last, _)| by_score(last, &first).is_le()) {
                continue;
            }
            let at = firsts.partition_point(|(known, _)| by_score(known, &first).is_le());
            firsts.insert(at, (first, number));
            firsts.truncate(n);
        }
        let mut best: Vec<(f64, u32, Slot)> = firsts.iter().flat_map(|(_, number)| from(*number).take(n)).collect();
        best.sort_unstable_by(by_score);
        best.truncate(n);
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_keep_their_order_and_value() {
        let scores = [-1.5, -0.0, 0.0, 0.25, 1.0];
        for pair in scores.windows(2) {
            assert!(Descending::new(pair[0]) > Descending::new(pair[1]), "{pair:?}");
        }
        assert!(scores.iter().all(|score| Descending::new(*score).score().to_bits() == score.to_bits()));
    }

    #[test]
    fn the_best_come_from_all_shelves() {
        let nodes = [(0, (0, 1), 0.5), (1, (0, 1), 0.9), (2, (1, 1), 0.6), (3, (1, 2), 0.6), (4, (0, 1), 0.9)];
        let ranked = nodes.into_iter().map(|(slot, key, sum)| (slot, slot, key, sum));
        let mut shelves = Shelves::fill(5, ranked);
        let total = |(tuple, n): ShelfKey, sum: f64| (sum + f64::from(tuple)) / f64::from(n);
        let slots = |best: Vec<(f64, u32, Slot)>| best.into_iter().map(|(_, _, slot)| slot).collect::<Vec<_>>();
        assert_eq!(slots(shelves.best(4, &[], total)), [2, 1, 4, 3]);
        assert_eq!(slots(shelves.best(2, &[2], total)), [1, 4]);
        shelves.set(1, 1, None);
        shelves.set(0, 0, Some(((1, 1), 0.7)));
        assert_eq!(slots(shelves.best(3, &[], total)), [0, 2, 4]);
    }
}
