//! The runners of this node's allocations: told what the controller has changed, joined when they end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use drover_api::allocation::ClientStatus;
use drover_api::{Allocation, JobSpec};
use drover_store::Key;
use futures::future::BoxFuture;
use tokio::task::{JoinError, JoinSet};

use super::job_versions::VersionKey;
use super::plan::Wanted;
use super::previous::Ends;
use crate::reporting::report;
use crate::state::Pending;
use crate::watch;

/// A runner, as its owner knows it.
#[derive(Debug)]
pub(super) struct Runner {
    pub(super) wanted: watch::Sender<Wanted>,
    pub(super) key: Key,
    pub(super) version: VersionKey,
    /// The version that is being read for it.
    pub(super) awaits: Option<VersionKey>,
    /// How long it may run without a controller.
    pub(super) stop_after: Option<Duration>,
}

impl Runner {
    /// Tells the runner what the controller has changed; false when the change was the agent's own or none.
    pub(super) fn update(&self, allocation: &Arc<Allocation>) -> bool {
        self.wanted.send_if_modified(|wanted| {
            let known = &wanted.allocation;
            if allocation.metadata.generation < known.metadata.generation {
                return false;
            }
            let is_same = known.spec == allocation.spec
                && known.metadata.deletion_timestamp == allocation.metadata.deletion_timestamp
                && controllers_mark(known) == controllers_mark(allocation);
            if is_same {
                return false;
            }
            let was_marked = controllers_mark(known) != controllers_mark(allocation);
            if was_marked
                && controllers_mark(allocation) == Some(ClientStatus::Unknown)
                && report::is_wanted(allocation)
            {
                wanted.reconnects += 1;
            }
            wanted.allocation = Arc::clone(allocation);
            true
        })
    }

    /// Gives the runner another version of its job.
    pub(super) fn give_version(&mut self, key: &VersionKey, job: &Arc<JobSpec>) {
        tracing::info!(allocation = %self.key, version = key, "it runs by another version of its job");
        (self.version, self.awaits) = (key.clone(), None);
        self.wanted.send_modify(|wanted| {
            let found = job.group(&wanted.allocation.spec.group);
            // A version without the group has none of its tasks either.
            wanted.group = Arc::new(found.cloned().unwrap_or_default());
            wanted.job = Arc::clone(job);
        });
    }

    /// Nothing of the allocation may stay here.
    pub(super) fn destroy(&self) {
        self.wanted.send_modify(|wanted| wanted.is_destroyed = true);
    }

    /// Whether something of it may stay here.
    pub(super) fn is_live(&self) -> bool {
        !self.wanted.borrow().is_destroyed
    }
}

/// A runner that has ended.
pub(super) struct RunnerEnd {
    pub(super) uid: String,
    /// Why it never began.
    pub(super) refused: Option<String>,
}

/// The runners by the uids of their allocations.
#[derive(Debug, Default)]
pub(super) struct RunnerTable {
    runners: BTreeMap<String, Runner>,
    pub(super) ends: Ends,
    running: JoinSet<RunnerEnd>,
}

impl RunnerTable {
    /// Starts a runner once what is under way of it is on the disk.
    pub(super) fn start(&mut self, uid: &str, runner: Runner, life: BoxFuture<'static, ()>, kept: Vec<Pending>) {
        let uid_of_runner = uid.to_owned();
        self.running.spawn(async move {
            for pending in kept {
                if let Err(error) = pending.wait().await {
                    return RunnerEnd { uid: uid_of_runner, refused: Some(error.to_string()) };
                }
            }
            life.await;
            RunnerEnd { uid: uid_of_runner, refused: None }
        });
        self.runners.insert(uid.to_owned(), runner);
    }

    /// A runner.
    pub(super) fn get(&self, uid: &str) -> Option<&Runner> {
        self.runners.get(uid)
    }

    /// A runner, to give it a version.
    pub(super) fn get_mut(&mut self, uid: &str) -> Option<&mut Runner> {
        self.runners.get_mut(uid)
    }

    /// All runners.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &Runner)> {
        self.runners.iter()
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.runners.len()
    }

    /// The allocations whose runners wait for this version.
    pub(super) fn that_await(&self, key: &VersionKey) -> Vec<String> {
        let awaits = |(_, runner): &(&String, &Runner)| runner.awaits.as_ref() == Some(key);
        self.runners.iter().filter(awaits).map(|(uid, _)| uid.clone()).collect()
    }

    /// The next end of a runner; none while none runs.
    pub(super) async fn ended(&mut self) -> Option<Result<RunnerEnd, JoinError>> {
        self.running.join_next().await
    }

    /// Forgets a runner that has ended.
    pub(super) fn remove(&mut self, uid: &str) -> Option<Runner> {
        let runner = self.runners.remove(uid)?;
        self.ends.remove(&runner.key);
        Some(runner)
    }
}

/// The status that only the controller sets.
fn controllers_mark(allocation: &Allocation) -> Option<ClientStatus> {
    let status = allocation.status.as_ref().map(|status| status.client_status)?;
    matches!(status, ClientStatus::Unknown | ClientStatus::Lost).then_some(status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_api::allocation::DesiredStatus;
    use drover_api::{AllocationSpec, AllocationStatus};

    fn seen(generation: i64, status: ClientStatus, desired: DesiredStatus) -> Arc<Allocation> {
        let mut allocation =
            Allocation::new("a", AllocationSpec { desired_status: desired, ..AllocationSpec::default() });
        allocation.metadata.generation = Some(generation);
        allocation.status = Some(AllocationStatus { client_status: status, ..AllocationStatus::default() });
        Arc::new(allocation)
    }

    fn runner(allocation: Arc<Allocation>) -> Runner {
        let wanted = Wanted {
            allocation,
            job: Arc::default(),
            group: Arc::default(),
            is_destroyed: false,
            is_disconnected: false,
            reconnects: 0,
        };
        Runner {
            wanted: watch::Sender::new(wanted),
            key: Key::namespaced("n", "a"),
            version: String::new(),
            awaits: None,
            stop_after: None,
        }
    }

    #[test]
    fn a_040_an_unknown_allocation_that_is_to_stop_is_stopped_and_not_reconnected() {
        let runner = runner(seen(1, ClientStatus::Running, DesiredStatus::Run));
        assert!(runner.update(&seen(2, ClientStatus::Unknown, DesiredStatus::Stop)));
        let wanted = runner.wanted.borrow();
        assert_eq!((wanted.reconnects, wanted.is_to_run()), (0, false));
    }

    #[test]
    fn a_041_the_same_mark_again_is_no_news() {
        let runner = runner(seen(1, ClientStatus::Running, DesiredStatus::Run));
        assert!(runner.update(&seen(1, ClientStatus::Unknown, DesiredStatus::Run)));
        assert!(!runner.update(&seen(1, ClientStatus::Unknown, DesiredStatus::Run)));
        assert_eq!(runner.wanted.borrow().reconnects, 1);
    }

    #[test]
    fn a_054_an_older_state_does_not_follow_a_newer_one() {
        let runner = runner(seen(1, ClientStatus::Running, DesiredStatus::Run));
        assert!(runner.update(&seen(3, ClientStatus::Running, DesiredStatus::Stop)));
        assert!(!runner.update(&seen(2, ClientStatus::Running, DesiredStatus::Run)));
        assert_eq!(runner.wanted.borrow().allocation.metadata.generation, Some(3));
    }
}
