//! Which numbers of users the allocations of a node have.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::config::UidRange;

/// What is kept of the numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct TaskUserTable {
    /// The number that was given last: the next ones come first.
    last: u32,
    /// The numbers in use, by the allocation's uid.
    given: BTreeMap<String, u32>,
}

impl TaskUserTable {
    /// The allocation's number, or the next one that no allocation has.
    pub(super) fn take(&mut self, uid: &str, range: UidRange) -> Option<u32> {
        if let Some(given) = self.given.get(uid) {
            return Some(*given);
        }
        let held: BTreeSet<u32> = self.given.values().copied().collect();
        let after =
            (self.last.max(range.min.saturating_sub(1)).saturating_add(1)..=range.max).chain(range.min..=range.max);
        let free = after.into_iter().find(|number| !held.contains(number))?;
        self.last = free;
        self.given.insert(uid.to_owned(), free);
        Some(free)
    }

    /// The allocation has this number, as an earlier life has kept it.
    pub(crate) fn learn(&mut self, uid: &str, number: u32) {
        self.given.insert(uid.to_owned(), number);
    }

    /// This one was given last, as an earlier life has kept it; zero: that is not known.
    pub(crate) fn went_on_to(&mut self, last: u32) {
        if last != 0 {
            self.last = last;
        }
    }

    /// Forgets allocations without a directory, and learns of directories that it does not know.
    pub(super) fn compare_with(&mut self, groups: &BTreeMap<String, u32>, range: UidRange) {
        self.given.retain(|uid, _| groups.contains_key(uid));
        for (uid, group) in groups {
            if (range.min..=range.max).contains(group) {
                self.given.entry(uid.clone()).or_insert(*group);
            }
        }
    }

    /// The allocation's number, if it has one.
    pub(super) fn of(&self, uid: &str) -> Option<u32> {
        self.given.get(uid).copied()
    }

    /// The allocation has no number any more; says whether it had one.
    pub(crate) fn release(&mut self, uid: &str) -> bool {
        self.given.remove(uid).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: UidRange = UidRange { min: 2_000_000, max: 2_000_002 };

    fn table(last: u32, given: &[(&str, u32)]) -> TaskUserTable {
        let given = given.iter().map(|(uid, number)| ((*uid).to_owned(), *number)).collect();
        TaskUserTable { last, given }
    }

    #[test]
    fn must_survive_x_006_numbers_are_given_again_last_of_all_and_never_while_held() {
        let mut users = TaskUserTable::default();
        assert_eq!(["a", "b", "a"].map(|uid| users.take(uid, RANGE)), [2_000_000, 2_000_001, 2_000_000].map(Some));
        assert!(users.release("a"));
        assert_eq!(users.take("c", RANGE), Some(2_000_002), "what was never given comes first");
        assert_eq!(users.take("d", RANGE), Some(2_000_000));
        assert_eq!(users.take("e", RANGE), None, "all are held");
        assert!(users.release("b"));
        assert_eq!(users.take("e", RANGE), Some(2_000_001));
    }

    #[test]
    fn must_survive_x_006_a_lost_record_is_learnt_from_the_directories() {
        let groups = [("a", 2_000_001), ("old", 0), ("b", 2_000_000)].map(|(uid, group)| (uid.to_owned(), group));
        let mut users = table(2_000_002, &[("gone", 2_000_002), ("b", 2_000_000)]);
        users.compare_with(&groups.clone().into(), RANGE);
        assert_eq!(users, table(2_000_002, &[("a", 2_000_001), ("b", 2_000_000)]));
        let mut lost = TaskUserTable::default();
        lost.compare_with(&groups.into(), RANGE);
        assert_eq!(lost.take("new", RANGE), Some(2_000_002));
    }
}
