//! Slots of a group: which are taken, and which come next (`spec/scheduler.md` 3.6).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::Alloc;

/// The slots of a group that are taken, each as often as an allocation holds it.
#[derive(Debug)]
pub(super) struct Names {
    taken: BTreeMap<i64, usize>,
    count: i64,
    /// Where the search for a free slot goes on.
    next_free: i64,
    next_reused: i64,
}

impl Names {
    pub(super) fn new<'a>(allocs: impl Iterator<Item = &'a Arc<Alloc>>, count: i64) -> Self {
        let mut taken = BTreeMap::new();
        for alloc in allocs {
            *taken.entry(alloc.index).or_default() += 1;
        }
        Self { taken, count, next_free: 0, next_reused: 0 }
    }

    /// Gives up one holder of a slot.
    pub(super) fn release(&mut self, index: i64) {
        if let Some(holders) = self.taken.get_mut(&index) {
            *holders -= 1;
            if *holders == 0 {
                self.taken.remove(&index);
                self.next_free = self.next_free.min(index);
            }
        }
    }

    /// The lowest free slot below the count; when there is none, slots are used again from 0 on.
    pub(super) fn next(&mut self) -> i64 {
        let index = self.free().unwrap_or_else(|| {
            let again = self.next_reused % self.count.max(1);
            self.next_reused += 1;
            again
        });
        *self.taken.entry(index).or_default() += 1;
        index
    }

    /// The lowest slot below the count that no allocation holds.
    fn free(&mut self) -> Option<i64> {
        while self.next_free < self.count && self.taken.contains_key(&self.next_free) {
            self.next_free += 1;
        }
        (self.next_free < self.count).then_some(self.next_free)
    }

    /// The slot of the successor of an allocation: the same, unless another allocation holds it too and one is free.
    pub(super) fn inherit(&mut self, index: i64) -> i64 {
        let is_shared = self.taken.get(&index).is_some_and(|holders| *holders > 1);
        if !is_shared || self.free().is_none() {
            return index;
        }
        self.release(index);
        self.next()
    }

    /// Slots for canaries: those that will be updated first, then free ones, then those above the count.
    pub(super) fn canaries(
        &self,
        n: usize,
        existing: &BTreeSet<i64>,
        destructive: impl Iterator<Item = i64>,
    ) -> Vec<i64> {
        let updated: BTreeSet<i64> = destructive.filter(|index| !existing.contains(index)).collect();
        let free = (0..self.count)
            .filter(|index| !existing.contains(index) && !updated.contains(index) && !self.taken.contains_key(index));
        updated
            .iter()
            .copied()
            .chain(free)
            .chain((self.count..).filter(|index| !existing.contains(index)))
            .take(n)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_used_again_when_all_are_taken() {
        let mut names = Names::new(std::iter::empty(), 2);
        assert_eq!([names.next(), names.next(), names.next(), names.next(), names.next()], [0, 1, 0, 1, 0]);
        names.release(1);
        assert_eq!(names.taken[&1], 1);
    }

    #[test]
    fn canaries_take_the_slots_that_are_updated_first() {
        let names = Names::new(std::iter::empty(), 3);
        assert_eq!(names.canaries(4, &BTreeSet::from([0]), [0, 2].into_iter()), [2, 1, 3, 4]);
    }
}
