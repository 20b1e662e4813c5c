//! The versions of jobs that this node's allocations run: kept, read once each, forgotten when no allocation has them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use drover_api::{Allocation, JobSpec, JobVersion, names};
use drover_store::{Key, Store};
use tokio::task::{JoinError, JoinSet};

use crate::random::Random;
use crate::state::{Pending, StateError, StateStore};

/// The pause before a job version is asked for again, doubled at random.
const JOB_RETRY: Duration = Duration::from_secs(2);
/// How often a job version that is not there is asked for: a leader writes it before the allocation, so it comes or
/// never will.
const JOB_TRIES: usize = 5;

/// The job version of an allocation: namespace, job uid, version.
pub(super) type VersionKey = String;

type Fetched = (VersionKey, Result<JobSpec, String>);

/// A version that is known.
#[derive(Debug)]
struct KnownVersion {
    job: Arc<JobSpec>,
    kept: Kept,
}

/// Whether a version is on the disk.
#[derive(Debug)]
enum Kept {
    Yes,
    UnderWay(Pending),
    /// It could not be written.
    No,
}

/// The versions that are known, and those that are being read.
#[derive(Debug)]
pub(super) struct JobVersions<S> {
    store: S,
    state: StateStore,
    random: Random,
    known: BTreeMap<VersionKey, KnownVersion>,
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
        self.known =
            saved.into_iter().map(|(key, job)| (key, KnownVersion { job: Arc::new(job), kept: Kept::Yes })).collect();
    }

    /// A version that is known.
    pub(super) fn find(&self, key: &VersionKey) -> Option<Arc<JobSpec>> {
        self.known.get(key).map(|known| Arc::clone(&known.job))
    }

    /// The version before this one, of those that are known of the same job.
    pub(super) fn find_before(&self, key: &VersionKey) -> Option<(VersionKey, Arc<JobSpec>)> {
        let (job, number) = parts(key)?;
        let of_job = self.known.iter().filter_map(|(key, known)| Some((parts(key)?, key, known)));
        let earlier = of_job.filter(|((of, it), ..)| *of == job && *it < number);
        let (_, key, known) = earlier.max_by_key(|((_, number), ..)| *number)?;
        Some((key.clone(), Arc::clone(&known.job)))
    }

    /// Sees to it that a version is on the disk: what could not be written when it was read is written now. What it
    /// returns waits for the disk.
    pub(super) async fn keep(&mut self, key: &VersionKey) -> Result<Option<Pending>, StateError> {
        let Some(known) = self.known.get_mut(key) else { return Ok(None) };
        if let Kept::UnderWay(pending) = &known.kept {
            match pending.so_far() {
                None => return Ok(Some(pending.clone())),
                Some(Ok(())) => known.kept = Kept::Yes,
                Some(Err(_)) => known.kept = Kept::No,
            }
        }
        if matches!(known.kept, Kept::Yes) {
            return Ok(None);
        }
        let pending = self.state.put_job(key, &known.job).await?;
        known.kept = Kept::UnderWay(pending.clone());
        Ok(Some(pending))
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
        self.known.insert(key.clone(), KnownVersion { job: Arc::clone(&job), kept: Kept::No });
        // The record of its allocation follows it to the disk, mostly in one write with it. That the file cannot be
        // written is a condition of the node.
        if let Err(error) = self.keep(&key).await {
            tracing::error!(error = %error, "a job version is not kept");
        }
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

/// The job of a version, and its number.
fn parts(key: &VersionKey) -> Option<(&str, i64)> {
    let (job, number) = key.rsplit_once('/')?;
    Some((job, number.parse().ok()?))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::unasked_store;
    use crate::state::{SmallDisk, big_job};

    fn versions(state: StateStore) -> JobVersions<impl Store> {
        JobVersions::new(unasked_store(), state, Random::seeded(1))
    }

    #[tokio::test]
    async fn what_a_full_disk_refused_is_written_for_the_next_allocation_that_runs_it() {
        let disk = SmallDisk::new();
        let opened = disk.open();
        let mut versions = versions(opened.store.clone());
        disk.fill();
        let key = "ns/uid/1".to_owned();
        assert!(versions.take(Ok((key.clone(), Ok(big_job())))).await.is_some(), "it runs all the same");
        let kept = versions.keep(&key).await.expect("handed over").expect("it is under way");
        kept.wait().await.expect_err("no room");
        disk.make_room();
        // Others may write in between.
        opened.store.put_job("ns/uid/2", &JobSpec::default()).await.expect("encoded").wait().await.expect("written");
        let kept = versions.keep(&key).await.expect("handed over").expect("it is under way again");
        kept.wait().await.expect("written");
        assert!(versions.keep(&key).await.expect("an answer").is_none(), "once is enough");
        drop((versions, opened.store));
        opened.thread.join().expect("joined");
        let again = disk.open();
        assert_eq!(again.saved.jobs.keys().collect::<Vec<_>>(), ["ns/uid/1", "ns/uid/2"]);
        drop(again.store);
        again.thread.join().expect("joined");
    }

    #[tokio::test]
    async fn the_version_before_is_the_newest_of_the_same_job_that_is_older() {
        let mut versions = versions(StateStore::refusing());
        let keys = ["ns/uid/2", "ns/uid/9", "ns/uid/10", "ns/uid/12", "ns/other/11", "away/uid/11"];
        versions.restore(keys.map(|key| (key.to_owned(), JobSpec::default())).into());
        let before = |key: &str| versions.find_before(&key.to_owned()).map(|(key, _)| key);
        assert_eq!(before("ns/uid/11").as_deref(), Some("ns/uid/10"));
        assert_eq!(before("ns/uid/10").as_deref(), Some("ns/uid/9"));
        assert_eq!((before("ns/uid/2"), before("ns/none/1")), (None, None));
    }
}
