//! The allocations of this node: one watch by `spec.nodeName`, one runner for each, and what follows from a difference.
//!
//! Input: the watch, the state file's contents. Output: runners made, told and joined. An allocation that the API
//! server no longer has is destroyed, one that cannot be added is reported failed, and both leave the others alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use drover_api::allocation::{ClientStatus, TaskRunState};
use drover_api::group::Group;
use drover_api::task::Task;
use drover_api::{Allocation, GoDuration, JobSpec};
use drover_core::lifecycle::{GarbageLimits, GarbageReason, garbage_reason, oldest};
use drover_store::{Change, Key, Object, Selection, Store};
use futures::StreamExt;
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::admission::Admission;
use super::directory::{Directory, Listed};
use super::job_versions::{JobVersions, VersionKey, version_key};
use super::plan::{AllocPlan, Runners, Wanted};
use super::runner_table::{Runner, RunnerEnd, RunnerTable};
use super::silence::{Disconnected, Silence};
use super::volume_sources::VolumeSources;
use crate::node::alloc_dir::AllocDir;
use crate::reporting::report;
use crate::reporting::reports::Reports;
use crate::state::{AllocRecord, Pending, Saved, StateError};
use crate::tasks::plan::Recovering;
use crate::tasks::record::TaskRecord;
use crate::tasks::runner_env::RunnerEnv;
use crate::watch;

/// How often the node looks whether it has to give up something, when nothing makes it look.
const COLLECT_EVERY: Duration = Duration::from_mins(1);
/// Requests per allocation that wait; more are refused.
const COMMAND_QUEUE: usize = 8;

/// What an earlier life of the agent left of an allocation.
#[derive(Debug, Default)]
struct Past {
    tasks: BTreeMap<String, TaskRecord>,
    recovering: Option<Recovering>,
    /// The last heartbeat of that life.
    silent_since: Option<Timestamp>,
    /// What is under way to the disk, before which nothing of it is done.
    kept: Vec<Pending>,
}

/// Something whose job version is being read.
#[derive(Debug)]
struct Waiting {
    allocation: Arc<Allocation>,
    version: VersionKey,
    past: Past,
}

/// What the parts of this node's allocations share.
#[derive(Clone, Debug)]
pub(crate) struct AllocsShared {
    pub(crate) env: Arc<RunnerEnv>,
    pub(crate) reports: Reports,
    pub(crate) admission: Admission,
    /// Who runs here, for requests of users.
    pub(crate) directory: Directory,
    pub(crate) contacted: watch::Sender<bool>,
    pub(crate) shutdown: CancellationToken,
}

/// Runs this node's allocations.
pub(crate) struct Allocs<S, R> {
    store: S,
    make: R,
    node_name: String,
    shared: AllocsShared,
    limits: GarbageLimits,
    silence: Silence,
    jobs: JobVersions<S>,
    runners: RunnerTable,
    /// Allocations that could not be added; they stay reported as failed.
    invalid: BTreeSet<String>,
    waiting: BTreeMap<String, Waiting>,
    /// Held while the state of an earlier life is lost and what runs is learnt from the API server and the drivers.
    rebuilding: Option<Recovering>,
    /// Changed records under way to the disk.
    keeping: JoinSet<()>,
}

/// What the agent's start hands over.
pub(crate) struct AllocsPlan<S, R> {
    pub(crate) store: S,
    /// Makes the runners.
    pub(crate) runners: R,
    pub(crate) node_name: String,
    pub(crate) shared: AllocsShared,
    /// Above these ended allocations are given up.
    pub(crate) limits: GarbageLimits,
    /// The last heartbeat that was accepted.
    pub(crate) last_ok: watch::Receiver<Option<Instant>>,
}

impl<S: Store, R: Runners> Allocs<S, R> {
    /// Without allocations yet.
    pub(crate) fn new(plan: AllocsPlan<S, R>) -> Self {
        let env = &plan.shared.env;
        Self {
            jobs: JobVersions::new(plan.store.clone(), env.state.clone(), env.random.clone()),
            store: plan.store,
            make: plan.runners,
            node_name: plan.node_name,
            shared: plan.shared,
            limits: plan.limits,
            silence: Silence::new(plan.last_ok),
            runners: RunnerTable::default(),
            invalid: BTreeSet::new(),
            waiting: BTreeMap::new(),
            rebuilding: None,
            keeping: JoinSet::new(),
        }
    }

    /// Takes up what an earlier life of the agent left. Each runner that has to find a task again holds `recovering`
    /// until then. When state was lost, the first list of allocations brings what is missing.
    pub(crate) async fn restore(&mut self, mut saved: Saved, recovering: Recovering, is_lost: bool) {
        self.rebuilding = is_lost.then(|| recovering.clone());
        // The watcher of this life has heard nothing yet; what the last one heard decides what is resumed.
        self.jobs.restore(std::mem::take(&mut saved.jobs));
        for (uid, record) in saved.allocs {
            let tasks = saved.tasks.remove(&uid).unwrap_or_default();
            if tasks.is_empty() {
                // Nothing was begun: the watch brings it again if it is still wanted.
                self.forget_record(&uid).await;
                continue;
            }
            self.shared.reports.restore(&uid, &record);
            let silent_since = saved.last_heartbeat;
            let past = Past { tasks, recovering: Some(recovering.clone()), silent_since, kept: Vec::new() };
            self.restore_one(&uid, record, past).await;
        }
        self.jobs.keep_only(&self.runners.iter().map(|(_, runner)| runner.version.clone()).collect()).await;
        tracing::info!(allocations = self.runners.len(), "allocations are restored");
    }

    async fn restore_one(&mut self, uid: &str, record: AllocRecord, past: Past) {
        let allocation = Arc::new(record.allocation);
        let version = version_key(&allocation);
        if let Some(job) = self.jobs.find(&version) {
            return self.start_runner(uid, &allocation, (&version, &job), past);
        }
        // It was moved to a version that could not be read or kept before that life ended.
        tracing::warn!(allocation = uid, version, "the version of its job is not in the state file: it is read again");
        if let Some((before, job)) = self.jobs.find_before(&version) {
            self.start_runner(uid, &allocation, (&before, &job), past);
            self.follow_version(uid, &allocation).await;
        } else {
            self.await_version(uid, allocation, version, past);
        }
    }

    /// Has the version read, after which the allocation begins.
    fn await_version(&mut self, uid: &str, allocation: Arc<Allocation>, version: VersionKey, past: Past) {
        self.jobs.read(&allocation, &version);
        self.waiting.insert(uid.to_owned(), Waiting { allocation, version, past });
    }

    /// Follows the watch until the agent ends, and then joins all runners.
    pub(crate) async fn run(mut self) {
        let fields = Some(format!("spec.nodeName={}", self.node_name));
        let mut changes = self.store.watch::<Allocation>(Selection { fields, ..Selection::default() });
        let mut listed = BTreeSet::new();
        let (shutdown, garbage) = (self.shared.shutdown.clone(), Arc::clone(&self.shared.env.garbage));
        let mut collect_at = Instant::now() + COLLECT_EVERY;
        let directory = self.shared.directory.clone();
        loop {
            let silence_over = self.stop_disconnected();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                Some(ended) = self.runners.ended() => self.note_runner_end(ended),
                Some(kept) = self.keeping.join_next() => {
                    if let Err(error) = kept {
                        tracing::error!(error = %error, "keeping an allocation broke off");
                    }
                }
                Ok(()) = self.silence.heartbeat() => self.keep_heartbeat().await,
                () = sleep_for(silence_over) => {}
                () = garbage.notified() => self.collect(),
                unwanted = directory.unwanted() => self.give_up(&unwanted),
                () = tokio::time::sleep_until(collect_at) => {
                    collect_at = Instant::now() + COLLECT_EVERY;
                    self.collect();
                }
                Some(fetched) = self.jobs.next() => self.take_job(fetched).await,
                Some(change) = changes.next() => self.take_change(change, &mut listed).await,
            }
        }
        self.jobs.end().await;
        while let Some(ended) = self.runners.ended().await {
            self.note_runner_end(ended);
        }
        while self.keeping.join_next().await.is_some() {}
    }

    async fn take_change(&mut self, change: Change<Allocation>, listed: &mut BTreeSet<String>) {
        match change {
            Change::Restarted => listed.clear(),
            Change::Present(allocation) => {
                let Some(uid) = allocation.metadata.uid.clone() else { return };
                listed.insert(uid.clone());
                self.take(&uid, *allocation).await;
            }
            Change::InSync => {
                let gone: Vec<String> = self.known().filter(|uid| !listed.contains(*uid)).cloned().collect();
                for uid in gone {
                    self.remove(&uid).await;
                }
                self.shared.contacted.send_if_modified(|open| !std::mem::replace(open, true));
                self.shared.env.csi.release_all_but(|uid| listed.contains(uid) || self.runners.get(uid).is_some());
                self.end_rebuilding();
                self.collect();
            }
            Change::Gone(allocation) => {
                if let Some(uid) = &allocation.metadata.uid {
                    listed.remove(uid);
                    self.remove(uid).await;
                }
            }
            Change::Malformed(key, reason) => {
                tracing::error!(allocation = %key, reason, "an allocation cannot be read and stays as it is");
                let same = self.runners.iter().find(|(_, runner)| runner.key == key).map(|(uid, _)| uid.clone());
                listed.extend(same);
            }
            Change::Interrupted(reason) => tracing::debug!(reason, "watch of the allocations is interrupted"),
        }
    }

    fn known(&self) -> impl Iterator<Item = &String> {
        self.runners.iter().map(|(uid, _)| uid).chain(&self.invalid).chain(self.waiting.keys())
    }

    /// Updates a known allocation, or begins to add a new one.
    async fn take(&mut self, uid: &str, mut allocation: Allocation) {
        allocation.metadata.managed_fields = None;
        let allocation = Arc::new(allocation);
        self.shared.reports.observe(uid, Arc::clone(&allocation));
        if let Some(runner) = self.runners.get(uid) {
            let is_changed = runner.update(&allocation);
            // Only what the controller changed is worth a write: a status of our own is kept when it is accepted.
            if is_changed {
                self.keep_change(uid).await;
                self.follow_version(uid, &allocation).await;
            }
        } else if let Some(Waiting { past, .. }) = self.waiting.remove(uid) {
            self.add(uid, allocation, past).await;
        } else if !self.invalid.contains(uid) {
            self.add(uid, allocation, Past::default()).await;
        }
    }

    async fn add(&mut self, uid: &str, allocation: Arc<Allocation>, past: Past) {
        let status = allocation.status.as_ref();
        let has_ended = status.is_some_and(|status| status.client_status.is_terminal() && status.ended_at.is_some());
        if has_ended && past.tasks.is_empty() {
            // Of an earlier life whose files are gone; there is nothing to run and nothing to tell.
            return;
        }
        let version = version_key(&allocation);
        if let Some(found) = self.jobs.find(&version) {
            self.begin(uid, allocation, &found, past).await;
        } else {
            self.await_version(uid, allocation, version, past);
        }
    }

    /// An allocation may be moved to another version of its job that changes nothing its node acts on but policies.
    async fn follow_version(&mut self, uid: &str, allocation: &Arc<Allocation>) {
        let version = version_key(allocation);
        let Some(runner) = self.runners.get_mut(uid) else { return };
        if runner.version == version || runner.awaits.as_ref() == Some(&version) {
            return;
        }
        if let Some(found) = self.jobs.find(&version) {
            runner.give_version(&version, &found);
            if let Err(error) = self.jobs.keep(&version).await {
                tracing::error!(error = %error, version, "a job version is not kept");
            }
            return;
        }
        self.jobs.read(allocation, &version);
        runner.awaits = Some(version);
    }

    async fn take_job(&mut self, fetched: Result<(VersionKey, Result<JobSpec, String>), JoinError>) {
        let Some((key, job)) = self.jobs.take(fetched).await else { return };
        for uid in self.runners.that_await(&key) {
            let Some(runner) = self.runners.get_mut(&uid) else { continue };
            match &job {
                Ok(job) => runner.give_version(&key, job),
                Err(reason) => {
                    tracing::warn!(
                        allocation = uid,
                        reason,
                        "its new version cannot be read: it stays with the old one"
                    );
                    runner.awaits = None;
                }
            }
        }
        let is_ready = |(_, waiting): &(&String, &Waiting)| waiting.version == key;
        let ready: Vec<String> = self.waiting.iter().filter(is_ready).map(|(uid, _)| uid.clone()).collect();
        for uid in ready {
            let Some(Waiting { allocation, past, .. }) = self.waiting.remove(&uid) else { continue };
            match &job {
                Ok(job) => self.begin(&uid, allocation, job, past).await,
                Err(reason) => self.refuse(&uid, &allocation, reason),
            }
        }
        self.end_rebuilding();
    }

    /// Everything that an earlier life may have started has a runner, once all of the first list was taken up.
    fn end_rebuilding(&mut self) {
        if *self.shared.contacted.borrow() && self.waiting.is_empty() && self.rebuilding.take().is_some() {
            tracing::info!(allocations = self.runners.len(), "allocations are known again");
        }
    }

    /// What is to be run is on disk before anything of it is done.
    async fn begin(&mut self, uid: &str, allocation: Arc<Allocation>, job: &Arc<JobSpec>, past: Past) {
        let past = if past.tasks.is_empty() { self.lost_past(uid, &allocation, job) } else { past };
        let version = version_key(&allocation);
        match self.keep_both(uid, &version).await {
            // What runs already is better off with a runner, whatever becomes of its record.
            _ if !past.tasks.is_empty() => self.start_runner(uid, &allocation, (&version, job), past),
            Ok(kept) => self.start_runner(uid, &allocation, (&version, job), Past { kept, ..past }),
            Err(error) => self.refuse(uid, &allocation, &error.to_string()),
        }
    }

    /// Hands a version over to the state file, unless it is there, and then the record of an allocation that runs it.
    async fn keep_both(&mut self, uid: &str, version: &VersionKey) -> Result<Vec<Pending>, StateError> {
        let version = self.jobs.keep(version).await?;
        let record = self.keep(uid).await?;
        Ok(version.into_iter().chain(record).collect())
    }

    /// What the status says of a life whose records are lost. Its processes are looked for by the names of its tasks.
    fn lost_past(&self, uid: &str, allocation: &Arc<Allocation>, job: &Arc<JobSpec>) -> Past {
        let (Some(recovering), Some(status)) = (&self.rebuilding, &allocation.status) else { return Past::default() };
        let has_begun = !status.task_states.is_empty()
            || self.shared.env.machine.disk.has(&AllocDir::new(&self.shared.env.alloc_dir, uid));
        let group = job.group(&allocation.spec.group);
        let Some(group) = group.filter(|_| has_begun) else { return Past::default() };
        let record = |task: &Task| {
            let state = status.task_states.get(&task.name).cloned().unwrap_or_default();
            let starting = (state.state != TaskRunState::Dead).then(|| format!("{uid}/{}/", task.name));
            (task.name.clone(), TaskRecord { state, starting, ..TaskRecord::default() })
        };
        let acknowledged = report::of_status(allocation.metadata.generation.unwrap_or_default(), status, job.r#type);
        let known = AllocRecord { allocation: (**allocation).clone(), acknowledged: Some(acknowledged), tried: None };
        self.shared.reports.restore(uid, &known);
        tracing::warn!(allocation = uid, "its records are lost: its status and its processes say how it fares");
        Past {
            tasks: group.tasks.iter().map(record).collect(),
            recovering: Some(recovering.clone()),
            ..Past::default()
        }
    }

    fn start_runner(
        &mut self,
        uid: &str,
        allocation: &Arc<Allocation>,
        (version, job): (&VersionKey, &Arc<JobSpec>),
        past: Past,
    ) {
        let group = match runnable_group(allocation, job) {
            Ok(group) => group,
            Err(reason) => {
                self.refuse(uid, allocation, &reason);
                return;
            }
        };
        let key = allocation.key();
        let group = Arc::new(group.clone());
        let stop_after = stop_after(&group);
        let is_disconnected = past.silent_since.zip(stop_after).is_some_and(|(since, after)| {
            Duration::try_from(self.shared.env.clock.now().duration_since(since)).is_ok_and(|silent| silent > after)
        });
        let (wanted_sender, wanted) = watch::channel(Wanted {
            allocation: Arc::clone(allocation),
            job: Arc::clone(job),
            group: Arc::clone(&group),
            is_destroyed: false,
            is_disconnected,
            reconnects: 0,
        });
        let (to_runner, commands) = mpsc::channel(COMMAND_QUEUE);
        self.shared.directory.enter(
            uid,
            Listed {
                key: key.clone(),
                commands: to_runner,
                dir: AllocDir::new(&self.shared.env.alloc_dir, uid),
                tasks: group.tasks.iter().map(|task| task.name.clone()).collect(),
            },
        );
        let ended = watch::Sender::new(false);
        self.runners.ends.insert(key.clone(), ended.subscribe());
        let life = self.make.run(AllocPlan {
            uid: uid.to_owned(),
            env: Arc::clone(&self.shared.env),
            reports: self.shared.reports.clone(),
            admission: self.shared.admission.clone(),
            previous_dir: self.previous_dir(allocation),
            previous_end: self.runners.ends.waiter(self.store.clone(), self.shared.env.random.clone()),
            job: Arc::clone(job),
            group,
            wanted,
            commands,
            ended,
            shutdown: self.shared.shutdown.clone(),
            restored: past.tasks,
            recovering: past.recovering,
            volumes: VolumeSources::default(),
        });
        let runner = Runner { wanted: wanted_sender, key, version: version.clone(), awaits: None, stop_after };
        self.runners.start(uid, runner, life, past.kept);
    }

    /// Where the files of the replaced allocation are, if it ran here and was not given up yet.
    fn previous_dir(&self, allocation: &Allocation) -> Option<AllocDir> {
        let name = &allocation.spec.previous_allocation;
        let key = Key { namespace: allocation.metadata.namespace.clone(), name: name.clone() };
        (!name.is_empty()).then(|| self.shared.directory.find(&key.to_string())).flatten().map(|(_, listed)| listed.dir)
    }

    /// Reports an allocation as failed that cannot be run here at all.
    fn refuse(&mut self, uid: &str, allocation: &Arc<Allocation>, reason: &str) {
        tracing::warn!(allocation = uid, reason, "allocation cannot be added");
        let now = self.shared.env.clock.now();
        let job = self.jobs.find(&version_key(allocation));
        let already_failed =
            allocation.status.as_ref().is_some_and(|status| status.client_status == ClientStatus::Failed);
        self.invalid.insert(uid.to_owned());
        self.shared.reports.observe(uid, Arc::clone(allocation));
        if !already_failed {
            self.shared.reports.put(uid, report::of_refused(allocation, job.as_deref(), reason, now));
        }
    }

    /// The API server no longer has it: nothing of it may stay here.
    async fn remove(&mut self, uid: &str) {
        if let Some(runner) = self.runners.get(uid) {
            runner.destroy();
            return;
        }
        let was_known = self.invalid.remove(uid) | self.waiting.remove(uid).is_some();
        if was_known {
            self.shared.reports.forget(uid);
            self.forget_record(uid).await;
        }
    }

    fn note_runner_end(&mut self, ended: Result<RunnerEnd, JoinError>) {
        match ended {
            Ok(RunnerEnd { uid, refused }) => {
                self.shared.directory.leave(&uid);
                let runner = self.runners.remove(&uid);
                if let (Some(reason), Some(runner)) = (refused, runner) {
                    let allocation = Arc::clone(&runner.wanted.borrow().allocation);
                    self.refuse(&uid, &allocation, &reason);
                }
            }
            Err(error) => tracing::error!(error = %error, "an allocation's runner broke off"),
        }
    }

    /// Ends what may not run this long without a controller; returns when the next one may have to end.
    fn stop_disconnected(&self) -> Option<Duration> {
        let tracked: BTreeMap<String, Duration> = self
            .runners
            .iter()
            .filter_map(|(uid, runner)| Some((uid, runner, runner.stop_after?)))
            .filter(|(_, runner, _)| runner.wanted.borrow().is_to_run())
            .map(|(uid, _, after)| (uid.clone(), after))
            .collect();
        let Disconnected { stop, silent_for, wake_after } = self.silence.disconnected(&tracked);
        for uid in stop {
            tracing::warn!(
                allocation = uid,
                ?silent_for,
                "allocation ends: its node is without a controller for too long"
            );
            if let Some(runner) = self.runners.get(&uid) {
                runner.wanted.send_modify(|wanted| wanted.is_disconnected = true);
            }
        }
        wake_after
    }

    /// Only where it matters after a restart how long the silence was.
    async fn keep_heartbeat(&self) {
        let is_asked = self.runners.iter().any(|(_, runner)| runner.stop_after.is_some());
        if is_asked && let Err(error) = self.shared.env.state.put_heartbeat(self.shared.env.clock.now()).await {
            tracing::warn!(error = %error, "the time of the heartbeat is not kept");
        }
    }

    /// Gives up ended allocations that users want to be gone; others stay as they are.
    fn give_up(&self, uids: &BTreeSet<String>) {
        let ended: BTreeSet<String> = self.shared.reports.ended().into_iter().map(|(_, uid)| uid).collect();
        for uid in uids.intersection(&ended) {
            tracing::info!(allocation = uid, "an ended allocation is given up, for a user wants it gone");
            if let Some(runner) = self.runners.get(uid) {
                runner.destroy();
            }
        }
    }

    /// Gives up the oldest ended allocations while the node is above its limits.
    fn collect(&self) {
        let mut usage = self.shared.env.machine.disk.usage(&self.shared.env.alloc_dir);
        usage.live = self.runners.iter().filter(|(_, runner)| runner.is_live()).count();
        let ended = self.shared.reports.ended();
        let mut candidates: BTreeSet<(Timestamp, &str)> = ended
            .iter()
            .filter(|(_, uid)| self.runners.get(uid).is_some_and(Runner::is_live))
            .map(|(at, uid)| (*at, uid.as_str()))
            .collect();
        while let Some(reason) = garbage_reason(&usage, &self.limits) {
            let Some(uid) = oldest(&candidates).map(str::to_owned) else {
                tracing::debug!(?reason, ?usage, "nothing is left to give up");
                return;
            };
            tracing::info!(allocation = uid, ?reason, "an ended allocation is given up");
            candidates.pop_first();
            usage.live -= 1;
            if let Some(runner) = self.runners.get(&uid) {
                runner.destroy();
            }
            if reason != GarbageReason::Count {
                // What this one frees shows when it is gone; then the next look follows.
                return;
            }
        }
    }

    /// Hands the record over to the state file; many share a write to the disk.
    async fn keep(&self, uid: &str) -> Result<Option<Pending>, StateError> {
        match self.shared.reports.record(uid) {
            Some(record) => self.shared.env.state.put_alloc_soon(uid, &record).await.map(Some),
            None => Ok(None),
        }
    }

    async fn keep_change(&mut self, uid: &str) {
        let uid = uid.to_owned();
        let kept = self.keep(&uid).await;
        self.keeping.spawn(async move {
            let kept = match kept {
                Ok(Some(pending)) => pending.wait().await,
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            if let Err(error) = kept {
                tracing::error!(error = %error, allocation = uid, "allocation is not kept");
            }
        });
    }

    async fn forget_record(&self, uid: &str) {
        if let Err(error) = self.shared.env.state.forget(uid).await {
            tracing::error!(error = %error, allocation = uid, "a gone allocation is still in the state file");
        }
    }
}

/// The group of an allocation, unless the job version cannot be run here.
fn runnable_group<'a>(allocation: &Allocation, job: &'a JobSpec) -> Result<&'a Group, String> {
    let spec = &allocation.spec;
    let group = job.group(&spec.group);
    let group = group.ok_or_else(|| format!("version {} of its job has no group {}", spec.job_version, spec.group))?;
    // Names become directories. The API server has checked them in the job, and not in the version.
    match group.tasks.iter().find(|task| !is_plain_name(&task.name)) {
        Some(task) => Err(format!("task name {:?} is no DNS label: it cannot have a directory", task.name)),
        None => Ok(group),
    }
}

/// Whether a name is a DNS label, and none of the directories that an allocation has beside those of its tasks.
fn is_plain_name(name: &str) -> bool {
    let is_label_character = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=63).contains(&name.len()) && name.chars().all(is_label_character) && name != "alloc"
}

/// How long a group's allocations may run without a controller.
fn stop_after(group: &Group) -> Option<Duration> {
    let block = group.disconnect.as_ref().and_then(|disconnect| disconnect.stop_on_client_after);
    block.or(group.stop_after_client_disconnect).map(GoDuration::to_std)
}

async fn sleep_for(span: Option<Duration>) {
    match span {
        Some(span) => tokio::time::sleep(span).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use drover_api::AllocationSpec;
    use serde_json::json;

    use super::*;

    #[test]
    fn only_labels_become_directories() {
        for name in ["", "..", "a/b", "a.b", "UP", "alloc"] {
            assert!(!is_plain_name(name), "{name}");
        }
        assert!(is_plain_name("web-1"));
    }

    #[test]
    fn a_group_that_there_is_not_and_a_task_without_a_directory_are_named() {
        let of = |group: &str| {
            Allocation::new(
                "a",
                AllocationSpec { group: group.to_owned(), job_version: 3, ..AllocationSpec::default() },
            )
        };
        let job = |task: &str| -> JobSpec {
            let group = json!({ "name": "web", "tasks": [{ "name": task, "driver": "mock" }] });
            serde_json::from_value(json!({ "type": "service", "groups": [group] })).expect("a job")
        };
        assert_eq!(runnable_group(&of("web"), &job("t")).map(|group| &*group.name), Ok("web"));
        let refused = |allocation: &Allocation, job: &JobSpec| runnable_group(allocation, job).map(drop);
        assert_eq!(refused(&of("db"), &job("t")), Err("version 3 of its job has no group db".to_owned()));
        let reason = refused(&of("web"), &job("../t")).expect_err("refused");
        assert!(reason.contains("../t") && reason.contains("directory"), "{reason}");
    }

    #[test]
    fn the_disconnect_block_says_how_long_a_group_runs_alone_before_the_older_field() {
        let stop = |group: serde_json::Value| stop_after(&serde_json::from_value(group).expect("a group"));
        let seconds = |n| Some(Duration::from_secs(n));
        assert_eq!(stop(json!({ "name": "g", "tasks": [] })), None);
        assert_eq!(stop(json!({ "name": "g", "tasks": [], "stopAfterClientDisconnect": "5s" })), seconds(5));
        let both = json!({ "name": "g", "tasks": [], "stopAfterClientDisconnect": "5s", "disconnect": { "stopOnClientAfter": "9s" } });
        assert_eq!(stop(both), seconds(9));
    }
}
