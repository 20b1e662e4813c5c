//! The users of this node's allocations: each has a number of its own, which no other allocation gets as long as files
//! of it may exist.
//!
//! Input: allocations that begin, and whose directories have gone. Output: numbers of the configured range. The number
//! is kept in the state file before anything is done in its name. Where that file was lost, the directories tell: the
//! group of an allocation's directory is its user, and no task can change it. Must never know which tasks run as whom.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use tokio::sync::Mutex;

use super::task_user_table::TaskUserTable;
use crate::config::UidRange;
use crate::node::beneath::Owner;
use crate::state::StateStore;

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
        let (number, kept) = {
            let mut table = given.table.lock().await;
            if let Some(number) = table.of(uid) {
                return Ok(Some(owner(number)));
            }
            let number = table.take(uid, given.range).ok_or_else(|| {
                format!(
                    "all numbers of users from {} to {} are held by allocations whose files are still here: wait until \
                     ended ones are removed, or have the administrator of the node widen drivers.exec.uidRange of its agent",
                    given.range.min, given.range.max
                )
            })?;
            // The writes stand in the order of the numbers. For the disk no other allocation waits here.
            (number, given.state.put_task_user(uid, number).await)
        };
        let kept = match kept {
            Ok(pending) => pending.wait().await,
            Err(error) => Err(error),
        };
        if let Err(error) = kept {
            given.table.lock().await.release(uid);
            return Err(error.to_string());
        }
        Ok(Some(owner(number)))
    }

    /// The user of an allocation that has begun. None: it began under an agent that gave none, or the agent has only
    /// its own.
    pub(crate) async fn of(&self, uid: &str) -> Option<Owner> {
        self.0.as_ref()?.table.lock().await.of(uid).map(owner)
    }

    /// No file of the allocation exists any more.
    pub(crate) async fn release(&self, uid: &str) {
        let Some(given) = &self.0 else { return };
        let had_one = given.table.lock().await.release(uid);
        if had_one && let Err(error) = given.state.delete_task_user(uid).await {
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
    use crate::state::MemoryState;

    const RANGE: UidRange = UidRange { min: 2_000_000, max: 2_000_099 };

    #[tokio::test]
    async fn must_survive_x_006_allocations_that_begin_together_have_a_user_each_and_one_that_is_not_kept_has_none() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let (dir, state) = (tempfile::tempdir().expect("a directory"), MemoryState::default());
        let users = TaskUsers::new(RANGE, TaskUserTable::default(), state.store(), dir.path());
        let all: Vec<String> = (0..100).map(|n| format!("uid-{n}")).collect();
        let taken = futures::future::join_all(all.iter().map(|uid| users.take(uid))).await;
        let numbers: std::collections::BTreeSet<u32> =
            taken.into_iter().map(|taken| taken.expect("kept").expect("a user").uid).collect();
        assert_eq!(numbers.len(), 100);
        assert!(users.take("one-more").await.is_err_and(|reason| reason.contains("drivers.exec.uidRange")));
        assert_eq!(users.take("uid-7").await, Ok(users.of("uid-7").await), "the same again");
        let kept = state.saved().task_users;
        assert_eq!(all.iter().filter_map(|uid| kept.of(uid)).collect::<std::collections::BTreeSet<u32>>(), numbers);
        users.release("uid-7").await;
        assert_eq!((state.saved().task_users.of("uid-7"), users.of("uid-7").await), (None, None));

        let refusing = TaskUsers::new(RANGE, TaskUserTable::default(), StateStore::refusing(), dir.path());
        assert!(refusing.take("a").await.is_err());
        assert_eq!(refusing.of("a").await, None, "nothing is done in a name that is not kept");
    }
}
