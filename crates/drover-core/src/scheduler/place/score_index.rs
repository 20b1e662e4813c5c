//! Nodes in the order of their scores, kept up to date one node at a time.
//!
//! A final score is the mean of what contributed: a part that depends on the node alone, and the spreads' part, which
//! all nodes with the same values share and which moves with every placement. Nodes are in one group if they share the
//! spreads' part and the number of scores: in a group the order by the own part is the order by the final score,
//! whatever the spreads say. So one placement touches one node and looks at the first node of each group, and no node
//! is scored again because of another.

use std::collections::BTreeSet;

/// A node, as its row of the table.
pub(super) type Row = u32;

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

/// What the nodes of a group share: the values of the spreads, and how many scores the node's own part has.
pub(super) type ScoreGroup = (u32, u8);

/// A node of a group: its own score, its rank among equals, and which one it is.
type Entry = (Descending, u32, Row);

#[derive(Debug, Default)]
pub(super) struct ScoreIndex {
    all: Vec<(ScoreGroup, BTreeSet<Entry>)>,
    /// The number of each group, by combination and number of scores.
    numbers: Vec<Option<u32>>,
    at: Vec<Option<(u32, Entry)>>,
}

impl ScoreIndex {
    /// Puts all nodes into their groups. O(n log n).
    pub(super) fn fill(n_rows: usize, nodes: impl Iterator<Item = (Row, u32, ScoreGroup, f64)>) -> Self {
        let mut filled = Self { at: vec![None; n_rows], ..Self::default() };
        let mut lists: Vec<Vec<Entry>> = Vec::new();
        for (row, rank, key, sum) in nodes {
            let number = filled.number(key);
            lists.resize_with(filled.all.len(), Vec::new);
            let entry = (Descending::new(sum), rank, row);
            lists[number as usize].push(entry);
            filled.at[row as usize] = Some((number, entry));
        }
        for ((_, group), list) in filled.all.iter_mut().zip(lists) {
            *group = list.into_iter().collect();
        }
        filled
    }

    fn number(&mut self, key: ScoreGroup) -> u32 {
        let at = key.0 as usize * MOST_SCORES + usize::from(key.1);
        if at >= self.numbers.len() {
            self.numbers.resize(at + 1, None);
        }
        let (groups, number) = (&mut self.all, &mut self.numbers[at]);
        *number.get_or_insert_with(|| {
            groups.push((key, BTreeSet::new()));
            u32::try_from(groups.len() - 1).unwrap_or(u32::MAX)
        })
    }

    /// Takes a node away, or puts it where it belongs now. O(log n).
    pub(super) fn set(&mut self, row: Row, rank: u32, place: Option<(ScoreGroup, f64)>) {
        if let Some((number, entry)) = self.at[row as usize].take() {
            self.all[number as usize].1.remove(&entry);
        }
        if let Some((key, sum)) = place {
            let (number, entry) = (self.number(key), (Descending::new(sum), rank, row));
            self.all[number as usize].1.insert(entry);
            self.at[row as usize] = Some((number, entry));
        }
    }

    /// The best `n` nodes with their ranks by `total`, which makes the final score of a node from its group and own
    /// sum, best first; equals by their ranks. Nodes of `without` do not count. O(groups + n²).
    pub(super) fn best(
        &self,
        n: usize,
        without: &[Row],
        total: impl Fn(ScoreGroup, f64) -> f64,
    ) -> Vec<(f64, u32, Row)> {
        let by_score = |a: &(f64, u32, Row), b: &(f64, u32, Row)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        let from = |number: usize| {
            let (key, nodes) = &self.all[number];
            let nodes = nodes.iter().filter(|(_, _, row)| !without.contains(row));
            nodes.map(|(sum, rank, row)| (total(*key, sum.score()), *rank, *row))
        };
        // The best n nodes are in the n groups whose first nodes are best.
        let mut firsts: Vec<((f64, u32, Row), usize)> = Vec::with_capacity(n + 1);
        for number in 0..self.all.len() {
            let Some(first) = from(number).next() else { continue };
            if firsts.len() == n && firsts.last().is_some_and(|(last, _)| by_score(last, &first).is_le()) {
                continue;
            }
            let at = firsts.partition_point(|(known, _)| by_score(known, &first).is_le());
            firsts.insert(at, (first, number));
            firsts.truncate(n);
        }
        let mut best: Vec<(f64, u32, Row)> = firsts.iter().flat_map(|(_, number)| from(*number).take(n)).collect();
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
    fn the_best_come_from_all_groups() {
        let nodes = [(0, (0, 1), 0.5), (1, (0, 1), 0.9), (2, (1, 1), 0.6), (3, (1, 2), 0.6), (4, (0, 1), 0.9)];
        let ranked = nodes.into_iter().map(|(row, key, sum)| (row, row, key, sum));
        let mut index = ScoreIndex::fill(5, ranked);
        let total = |(tuple, n): ScoreGroup, sum: f64| (sum + f64::from(tuple)) / f64::from(n);
        let rows = |best: Vec<(f64, u32, Row)>| best.into_iter().map(|(_, _, row)| row).collect::<Vec<_>>();
        assert_eq!(rows(index.best(4, &[], total)), [2, 1, 4, 3]);
        assert_eq!(rows(index.best(2, &[2], total)), [1, 4]);
        index.set(1, 1, None);
        index.set(0, 0, Some(((1, 1), 0.7)));
        assert_eq!(rows(index.best(3, &[], total)), [0, 2, 4]);
    }
}
