//! The versions of jobs that this node's allocations run: kept, read once each, forgotten when no allocation has them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use drover_api::{Allocation, JobSpec, JobVersion, names};
use drover_store::{Key, Store};
use tokio::task::{JoinError, JoinSet};

use crate::random::Random;
use crate::state::StateStore;

/// The pause before a job version is asked for again, doubled at random.
const JOB_RETRY: Duration = Duration::from_secs(2);
/// How often a job version that is not there is asked for: a leader writes it before the allocation, so it comes or
/// never will.
const JOB_TRIES: usize = 5;

/// The job version of an allocation: namespace, job uid, version.
pub(super) type VersionKey = String;

type Fetched = (VersionKey, Result<JobSpec, String>);

/// The versions that are known, and those that are being read.
#[derive(Debug)]
pub(super) struct JobVersions<S> {
    store: S,
    state: StateStore,
    random: Random,
    known: BTreeMap<VersionKey, Arc<JobSpec>>,
    being_read: BTreeSet<VersionKey>,
    fetches: JoinSet<Fetched>,
}

impl<S: Store> JobVersions<S> {
    /// Knows none.
    pub(super) fn new(store: S, state: StateStore, random: Random) -> Self {
        let (known, being_read) = (BTreeMap::new(), BTreeSet::new());
        Self { store, state, random, known, being_read, fetches: JoinSet::new() }
    }

    /// Those that an earlier life of the agent has kept.
    pub(super) fn restore(&mut self, saved: BTreeMap<VersionKey, JobSpec>) {
        self.known = saved.into_iter().map(|(key, job)| (key, Arc::new(job))).collect();
    }

    /// A version that is known.
    pub(super) fn find(&self, key: &VersionKey) -> Option<Arc<JobSpec>> {
        self.known.get(key).cloned()
    }

    /// Begins to read the version of an allocation, unless that is under way.
    pub(super) fn read(&mut self, allocation: &Arc<Allocation>, key: &VersionKey) {
        if self.being_read.insert(key.clone()) {
            let fetch = fetch(self.store.clone(), self.random.clone(), Arc::clone(allocation), key.clone());
            self.fetches.spawn(fetch);
        }
    }

    /// The next version that was read; none while none is being read.
    pub(super) async fn next(&mut self) -> Option<Result<Fetched, JoinError>> {
        self.fetches.join_next().await
    }

    /// Takes in what was read, and keeps it.
    pub(super) async fn take(
        &mut self,
        fetched: Result<Fetched, JoinError>,
    ) -> Option<(VersionKey, Result<Arc<JobSpec>, String>)> {
        let (key, result) = match fetched {
            Ok(fetched) => fetched,
            Err(error) => {
                tracing::error!(error = %error, "reading a job version broke off");
                return None;
            }
        };
        self.being_read.remove(&key);
        let job = match result {
            Ok(job) => Arc::new(job),
            Err(reason) => return Some((key, Err(reason))),
        };
        match self.state.put_job(&key, &job).await {
            // The record of its allocation follows it to the disk, mostly in one write with it, and is waited for. That
            // the file cannot be written is a condition of the node.
            Ok(pending) => drop(pending),
            Err(error) => tracing::error!(error = %error, "a job version is not kept"),
        }
        self.known.insert(key.clone(), Arc::clone(&job));
        Some((key, Ok(job)))
    }

    /// Forgets all but these.
    pub(super) async fn keep_only(&mut self, used: &BTreeSet<VersionKey>) {
        let unused: Vec<VersionKey> = self.known.keys().filter(|key| !used.contains(*key)).cloned().collect();
        for key in unused {
            self.known.remove(&key);
            if let Err(error) = self.state.delete_job(&key).await {
                tracing::warn!(error = %error, "an unused job version stays in the state file");
            }
        }
    }

    /// Reads no more.
    pub(super) async fn end(&mut self) {
        self.fetches.shutdown().await;
    }
}

/// The version that an allocation runs.
pub(super) fn version_key(allocation: &Allocation) -> VersionKey {
    let namespace = allocation.metadata.namespace.as_deref().unwrap_or_default();
    format!("{namespace}/{}/{}", allocation.spec.job_uid, allocation.spec.job_version)
}

/// Reads a job version, again and again while the API server cannot be asked.
async fn fetch<S: Store>(store: S, random: Random, allocation: Arc<Allocation>, job: VersionKey) -> Fetched {
    let spec = &allocation.spec;
    let name = names::job_version_name(&spec.job_name, spec.job_version);
    let key = Key { namespace: allocation.metadata.namespace.clone(), name };
    let mut tries = 0;
    loop {
        let reason = match store.get::<JobVersion>(&key).await {
            Ok(Some(version)) if version.spec.job_uid == spec.job_uid => return (job, Ok(version.spec.job)),
            Ok(Some(_)) => format!("job version {key} belongs to an earlier job of that name"),
            Ok(None) => format!("job version {key} does not exist"),
            Err(error) => error.to_string(),
        };
        let is_unreachable = reason_is_unreachable(&reason);
        tries += usize::from(!is_unreachable);
        if tries >= JOB_TRIES {
            return (job, Err(reason));
        }
        let pause = random.jitter(JOB_RETRY);
        tracing::warn!(reason, retry_in = ?pause, "a job version is not read yet");
        tokio::time::sleep(pause).await;
    }
}

fn reason_is_unreachable(reason: &str) -> bool {
    reason.starts_with("unavailable") || reason.starts_with("no answer")
}
