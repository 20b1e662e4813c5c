//! The users of this node's allocations: each has a number of its own, which no other allocation gets as long as files
//! of it may exist.
//!
//! Input: allocations that begin, and whose directories have gone. Output: numbers of the configured range. The number
//! is kept in the state file before anything is done in its name. Where that file was lost, the directories tell: the
//! group of an allocation's directory is its user, and no task can change it. Must never know which tasks run as whom.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use crate::config::UidRange;
use crate::node::beneath::Owner;
use crate::state::StateStore;

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
    /// The allocation's number, or the next one that nobody has.
    fn take(&mut self, uid: &str, range: UidRange) -> Option<u32> {
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

    /// Forgets allocations without a directory, and learns of directories that it does not know.
    fn compare_with(&mut self, groups: &BTreeMap<String, u32>, range: UidRange) {
        self.given.retain(|uid, _| groups.contains_key(uid));
        for (uid, group) in groups {
            if (range.min..=range.max).contains(group) {
                self.given.entry(uid.clone()).or_insert(*group);
            }
        }
    }
}

/// Gives the numbers; clones share them.
#[derive(Clone, Debug)]
pub(crate) struct TaskUsers(Option<Given>);

#[derive(Clone, Debug)]
struct Given {
    range: UidRange,
    state: StateStore,
    table: Arc<Mutex<TaskUserTable>>,
}

impl TaskUsers {
    /// For an agent that cannot give files away: all tasks are its own user's.
    pub(crate) fn none() -> Self {
        Self(None)
    }

    /// Over what an earlier life has kept and left in the allocations' folder.
    pub(crate) fn new(range: UidRange, kept: TaskUserTable, state: StateStore, alloc_dir: &Path) -> Self {
        if !rustix::process::geteuid().is_root() {
            return Self::none();
        }
        let mut table = kept;
        table.compare_with(&groups_of(alloc_dir), range);
        Self(Some(Given { range, state, table: Arc::new(Mutex::new(table)) }))
    }

    /// Gives the allocation its user, unless it has one. None: the agent has only its own.
    ///
    /// # Errors
    /// When every number is held, or it cannot be kept.
    pub(crate) async fn take(&self, uid: &str) -> Result<Option<Owner>, String> {
        let Some(given) = &self.0 else { return Ok(None) };
        let mut table = given.table.lock().await;
        let mut wanted = table.clone();
        let number = wanted.take(uid, given.range).ok_or_else(|| {
            format!(
                "all numbers of users from {} to {} are held by allocations whose files are still here: wait until ended \
                 ones are removed, or have the administrator of the node widen drivers.exec.uidRange of its agent",
                given.range.min, given.range.max
            )
        })?;
        if wanted != *table {
            given.state.put_task_users(&wanted).await.map_err(|error| error.to_string())?;
            *table = wanted;
        }
        Ok(Some(owner(number)))
    }

    /// The user of an allocation that has begun. None: it began under an agent that gave none, or the agent has only
    /// its own.
    pub(crate) async fn of(&self, uid: &str) -> Option<Owner> {
        self.0.as_ref()?.table.lock().await.given.get(uid).copied().map(owner)
    }

    /// No file of the allocation exists any more.
    pub(crate) async fn release(&self, uid: &str) {
        let Some(given) = &self.0 else { return };
        let mut table = given.table.lock().await;
        if table.given.remove(uid).is_some()
            && let Err(error) = given.state.put_task_users(&table).await
        {
            // The next life sees that its directory is gone.
            tracing::debug!(error = %error, allocation = uid, "the file of the state still knows its user");
        }
    }
}

fn owner(number: u32) -> Owner {
    Owner { uid: number, gid: number }
}

/// The groups of the directories of allocations, by their names. One that cannot be read has none.
fn groups_of(alloc_dir: &Path) -> BTreeMap<String, u32> {
    let entries = std::fs::read_dir(alloc_dir).into_iter().flatten().filter_map(Result::ok);
    let group = |entry: &std::fs::DirEntry| Some(entry.metadata().ok()?.gid());
    entries.filter_map(|entry| Some((entry.file_name().into_string().ok()?, group(&entry)?))).collect()
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
        users.given.remove("a");
        assert_eq!(users.take("c", RANGE), Some(2_000_002), "what was never given comes first");
        assert_eq!(users.take("d", RANGE), Some(2_000_000));
        assert_eq!(users.take("e", RANGE), None, "all are held");
        users.given.remove("b");
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
