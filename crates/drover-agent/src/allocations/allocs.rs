//! The allocations of this node: one watch by `spec.nodeName`, one runner for each, and what follows from a difference.
//!
//! Input: the watch, the state file's contents. Output: runners made, told and joined. An allocation that the API
//! server no longer has is destroyed, one that cannot be added is reported failed, and both leave the others alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use drover_api::allocation::{ClientStatus, TaskRunState, TaskState};
use drover_api::group::Group;
use drover_api::job::JobType;
use drover_api::task::Task;
use drover_api::{Allocation, GoDuration, JobSpec, JobVersion, names};
use drover_core::lifecycle::{CutOff, GarbageLimits, GarbageReason, cut_off, garbage_reason, oldest};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::allocations::admission::Admission;
use crate::allocations::directory::{Directory, Listed};
use crate::allocations::plan::{AllocPlan, PreviousEnd, Runners, Wanted};
use crate::allocations::volume_sources::VolumeSources;
use crate::node::alloc_dir::AllocDir;
use crate::reporting::report::{self, Report};
use crate::reporting::reports::Reports;
use crate::state::{AllocRecord, Pending, Saved, StateError};
use crate::tasks::plan::Recovering;
use crate::tasks::record::TaskRecord;
use crate::tasks::runner_env::RunnerEnv;
use crate::watch;
use drover_store::{Change, Key, Object, Selection, Store, StoreError};

/// The pause before a job version is asked for again, doubled at random.
const JOB_RETRY: Duration = Duration::from_secs(2);
/// How often a job version that is not there is asked for: a leader writes it before the allocation, so it comes or
/// never will.
const JOB_TRIES: usize = 5;
/// The pause after an error about a previous allocation.
const PREVIOUS_RETRY: Duration = Duration::from_secs(5);
/// How often the node looks whether it has to give up something, when nothing makes it look.
const COLLECT_EVERY: Duration = Duration::from_mins(1);
/// How long an agent that has just started waits for its first heartbeat before it counts as cut off.
const START_GRACE: Duration = Duration::from_secs(50);
/// Requests per allocation that wait; more are refused.
const COMMAND_QUEUE: usize = 8;

/// The job version of an allocation: namespace, job uid, version.
type JobKey = String;

/// The ends of the allocations that run here, by namespace and name.
type Ends = Arc<Mutex<BTreeMap<Key, watch::Receiver<bool>>>>;

#[derive(Debug)]
struct Runner {
    wanted: watch::Sender<Wanted>,
    key: Key,
    job: JobKey,
    /// The version that is being read for it.
    awaits: Option<JobKey>,
    /// How long it may run without a controller.
    stop_after: Option<Duration>,
}

/// What an earlier life of the agent left of an allocation.
#[derive(Debug, Default)]
struct Past {
    tasks: BTreeMap<String, TaskRecord>,
    recovering: Option<Recovering>,
    /// The last heartbeat of that life.
    silent_since: Option<Timestamp>,
    /// Its record under way to the disk, before which nothing of it is done.
    kept: Option<Pending>,
}

/// Something whose job version is being read.
#[derive(Debug)]
struct Waiting {
    allocation: Arc<Allocation>,
    job: JobKey,
}

/// A runner that has ended.
struct RunnerEnd {
    uid: String,
    /// Why it never began.
    refused: Option<String>,
}

type Fetched = (JobKey, Result<JobSpec, String>);

/// Runs this node's allocations.
pub(crate) struct Allocs<S, R> {
    store: S,
    make: R,
    env: Arc<RunnerEnv>,
    reports: Reports,
    admission: Admission,
    node_name: String,
    contacted: watch::Sender<bool>,
    shutdown: CancellationToken,
    directory: Directory,
    limits: GarbageLimits,
    /// The last heartbeat that was accepted.
    last_ok: watch::Receiver<Option<Instant>>,
    started: Instant,
    jobs: BTreeMap<JobKey, Arc<JobSpec>>,
    runners: BTreeMap<String, Runner>,
    /// Allocations that could not be added; they stay reported as failed.
    invalid: BTreeSet<String>,
    waiting: BTreeMap<String, Waiting>,
    /// Held while the state of an earlier life is lost and what runs is learnt from the API server and the drivers.
    rebuilding: Option<Recovering>,
    ends: Ends,
    running: JoinSet<RunnerEnd>,
    /// Changed records under way to the disk.
    keeping: JoinSet<()>,
    fetches: JoinSet<Fetched>,
}

/// What the agent's start hands over.
pub(crate) struct AllocsPlan<S, R> {
    pub(crate) store: S,
    /// Makes the runners.
    pub(crate) runners: R,
    pub(crate) env: Arc<RunnerEnv>,
    pub(crate) reports: Reports,
    pub(crate) admission: Admission,
    pub(crate) node_name: String,
    pub(crate) contacted: watch::Sender<bool>,
    pub(crate) shutdown: CancellationToken,
    /// Who runs here, for requests of people.
    pub(crate) directory: Directory,
    /// Above these ended allocations are given up.
    pub(crate) limits: GarbageLimits,
    /// The last heartbeat that was accepted.
    pub(crate) last_ok: watch::Receiver<Option<Instant>>,
}

impl<S: Store, R: Runners> Allocs<S, R> {
    /// Without allocations yet.
    pub(crate) fn new(plan: AllocsPlan<S, R>) -> Self {
        Self {
            store: plan.store,
            make: plan.runners,
            env: plan.env,
            reports: plan.reports,
            admission: plan.admission,
            node_name: plan.node_name,
            contacted: plan.contacted,
            shutdown: plan.shutdown,
            directory: plan.directory,
            limits: plan.limits,
            last_ok: plan.last_ok,
            started: Instant::now(),
            jobs: BTreeMap::new(),
            runners: BTreeMap::new(),
            invalid: BTreeSet::new(),
            waiting: BTreeMap::new(),
            rebuilding: None,
            ends: Ends::default(),
            running: JoinSet::new(),
            keeping: JoinSet::new(),
            fetches: JoinSet::new(),
        }
    }

    /// Takes up what an earlier life of the agent left. Whoever finds a task again holds `recovering` until then. When
    /// state was lost, the first list of allocations brings what is missing.
    pub(crate) async fn restore(&mut self, mut saved: Saved, recovering: Recovering, is_lost: bool) {
        self.rebuilding = is_lost.then(|| recovering.clone());
        // The watcher of this life has heard nothing yet; what the last one heard decides what is resumed.
        self.jobs = std::mem::take(&mut saved.jobs).into_iter().map(|(key, job)| (key, Arc::new(job))).collect();
        for (uid, record) in saved.allocs {
            let tasks = saved.tasks.remove(&uid).unwrap_or_default();
            if tasks.is_empty() {
                // Nothing was begun: the watch brings it again if it is still wanted.
                self.forget_record(&uid).await;
                continue;
            }
            self.reports.restore(&uid, &record);
            let silent_since = saved.last_heartbeat;
            let past = Past { tasks, recovering: Some(recovering.clone()), silent_since, kept: None };
            self.restore_one(&uid, record, past);
        }
        let used: BTreeSet<JobKey> = self.runners.values().map(|runner| runner.job.clone()).collect();
        let unused: Vec<JobKey> = self.jobs.keys().filter(|key| !used.contains(*key)).cloned().collect();
        for key in unused {
            self.jobs.remove(&key);
            if let Err(error) = self.env.state.delete_job(&key).await {
                tracing::warn!(error = %error, "an unused job version stays in the state file");
            }
        }
        tracing::info!(allocations = self.runners.len(), "allocations are restored");
    }

    fn restore_one(&mut self, uid: &str, record: AllocRecord, past: Past) {
        let allocation = Arc::new(record.allocation);
        match self.jobs.get(&job_key(&allocation)).cloned() {
            Some(job) => self.start_runner(uid, &allocation, &job, past),
            None => self.refuse(uid, &allocation, "its job version is missing in the state file"),
        }
    }

    /// Follows the watch until the agent ends, and then joins all runners.
    pub(crate) async fn run(mut self) {
        let fields = Some(format!("spec.nodeName={}", self.node_name));
        let mut changes = self.store.watch::<Allocation>(Selection { fields, ..Selection::default() });
        let mut listed = BTreeSet::new();
        let (shutdown, garbage) = (self.shutdown.clone(), Arc::clone(&self.env.garbage));
        let mut last_ok = self.last_ok.clone();
        let mut collect_at = Instant::now() + COLLECT_EVERY;
        loop {
            let silence_over = self.stop_cut_off();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                Some(ended) = self.running.join_next() => self.note_runner_end(ended),
                Some(kept) = self.keeping.join_next() => {
                    if let Err(error) = kept {
                        tracing::error!(error = %error, "keeping an allocation broke off");
                    }
                }
                Ok(()) = last_ok.changed() => {
                    last_ok.mark_unchanged();
                    self.keep_heartbeat().await;
                }
                () = sleep_for(silence_over) => {}
                () = garbage.notified() => self.collect(),
                () = tokio::time::sleep_until(collect_at) => {
                    collect_at = Instant::now() + COLLECT_EVERY;
                    self.collect();
                }
                Some(fetched) = self.fetches.join_next() => self.take_job(fetched).await,
                Some(change) = changes.next() => self.take_change(change, &mut listed).await,
            }
        }
        self.fetches.shutdown().await;
        while let Some(ended) = self.running.join_next().await {
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
                self.contacted.send_if_modified(|open| !std::mem::replace(open, true));
                self.env.csi.release_all_but(|uid| listed.contains(uid) || self.runners.contains_key(uid));
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
        self.runners.keys().chain(&self.invalid).chain(self.waiting.keys())
    }

    /// Updates a known allocation, or begins to add a new one.
    async fn take(&mut self, uid: &str, mut allocation: Allocation) {
        allocation.metadata.managed_fields = None;
        let allocation = Arc::new(allocation);
        self.reports.observe(uid, Arc::clone(&allocation));
        if let Some(runner) = self.runners.get(uid) {
            let is_changed = update(runner, &allocation);
            // Only what the controller changed is worth a write: a status of our own is kept when it is accepted.
            if is_changed {
                self.keep_change(uid).await;
                self.follow_version(uid, &allocation);
            }
        } else if let Some(waiting) = self.waiting.get_mut(uid) {
            waiting.allocation = allocation;
        } else if !self.invalid.contains(uid) {
            self.add(uid, allocation).await;
        }
    }

    async fn add(&mut self, uid: &str, allocation: Arc<Allocation>) {
        let status = allocation.status.as_ref();
        let has_ended = status.is_some_and(|status| status.client_status.is_terminal() && status.ended_at.is_some());
        if has_ended {
            // Of an earlier life whose files are gone; there is nothing to run and nothing to tell.
            return;
        }
        let job = job_key(&allocation);
        if let Some(found) = self.jobs.get(&job).cloned() {
            self.begin(uid, allocation, &found).await;
            return;
        }
        self.read_job(&allocation, &job);
        self.waiting.insert(uid.to_owned(), Waiting { allocation, job });
    }

    fn read_job(&mut self, allocation: &Arc<Allocation>, job: &JobKey) {
        let is_being_read = self.waiting.values().any(|waiting| waiting.job == *job)
            || self.runners.values().any(|runner| runner.awaits.as_ref() == Some(job));
        if !is_being_read {
            let fetch = fetch_job(self.store.clone(), self.env.clone(), Arc::clone(allocation), job.clone());
            self.fetches.spawn(fetch);
        }
    }

    /// An allocation may be moved to another version of its job that changes nothing its node acts on but policies.
    fn follow_version(&mut self, uid: &str, allocation: &Arc<Allocation>) {
        let job = job_key(allocation);
        if self.runners.get(uid).is_none_or(|runner| runner.job == job || runner.awaits.as_ref() == Some(&job)) {
            return;
        }
        if let Some(found) = self.jobs.get(&job).cloned() {
            self.give_version(uid, &job, &found);
            return;
        }
        self.read_job(allocation, &job);
        if let Some(runner) = self.runners.get_mut(uid) {
            runner.awaits = Some(job);
        }
    }

    fn give_version(&mut self, uid: &str, key: &JobKey, job: &Arc<JobSpec>) {
        let Some(runner) = self.runners.get_mut(uid) else { return };
        (runner.job, runner.awaits) = (key.clone(), None);
        runner.wanted.send_modify(|wanted| {
            let found = job.groups.iter().find(|group| group.name == wanted.allocation.spec.group);
            // A version without the group has none of its tasks either.
            wanted.group = Arc::new(found.cloned().unwrap_or_default());
            wanted.job = Arc::clone(job);
        });
    }

    async fn take_job(&mut self, fetched: Result<Fetched, tokio::task::JoinError>) {
        let (key, result) = match fetched {
            Ok(fetched) => fetched,
            Err(error) => {
                tracing::error!(error = %error, "reading a job version broke off");
                return;
            }
        };
        let ready: Vec<String> =
            self.waiting.iter().filter(|(_, waiting)| waiting.job == key).map(|(uid, _)| uid.clone()).collect();
        let job = match result {
            Ok(job) => {
                if let Err(error) = self.env.state.put_job(&key, &job).await {
                    tracing::error!(error = %error, "a job version is not kept");
                }
                Ok(Arc::new(job))
            }
            Err(reason) => Err(reason),
        };
        let followers: Vec<String> = self
            .runners
            .iter()
            .filter(|(_, runner)| runner.awaits.as_ref() == Some(&key))
            .map(|(uid, _)| uid.clone())
            .collect();
        match &job {
            Ok(job) => {
                self.jobs.insert(key.clone(), Arc::clone(job));
                for uid in followers {
                    self.give_version(&uid, &key, job);
                }
            }
            Err(reason) => {
                for uid in followers {
                    tracing::warn!(
                        allocation = uid,
                        reason,
                        "its new version cannot be read: it stays with the old one"
                    );
                    if let Some(runner) = self.runners.get_mut(&uid) {
                        runner.awaits = None;
                    }
                }
            }
        }
        for uid in ready {
            let Some(Waiting { allocation, .. }) = self.waiting.remove(&uid) else { continue };
            match &job {
                Ok(job) => self.begin(&uid, allocation, job).await,
                Err(reason) => self.refuse(&uid, &allocation, reason),
            }
        }
        self.end_rebuilding();
    }

    /// Everything that an earlier life may have started has a runner, once all of the first list was taken up.
    fn end_rebuilding(&mut self) {
        if *self.contacted.borrow() && self.waiting.is_empty() && self.rebuilding.take().is_some() {
            tracing::info!(allocations = self.runners.len(), "allocations are known again");
        }
    }

    /// What is to be run is on disk before anything of it is done.
    async fn begin(&mut self, uid: &str, allocation: Arc<Allocation>, job: &Arc<JobSpec>) {
        let past = self.lost_past(uid, &allocation, job);
        match self.keep(uid).await {
            Ok(kept) => self.start_runner(uid, &allocation, job, Past { kept, ..past }),
            // What runs already is better off with a runner.
            Err(_) if !past.tasks.is_empty() => self.start_runner(uid, &allocation, job, past),
            Err(error) => self.refuse(uid, &allocation, &error.to_string()),
        }
    }

    /// What the status says of a life whose records are lost. Its processes are looked for by the names of its tasks.
    fn lost_past(&self, uid: &str, allocation: &Arc<Allocation>, job: &Arc<JobSpec>) -> Past {
        let (Some(recovering), Some(status)) = (&self.rebuilding, &allocation.status) else { return Past::default() };
        let has_begun = !status.task_states.is_empty() || self.env.disk.has(&AllocDir::new(&self.env.alloc_dir, uid));
        let group = job.groups.iter().find(|group| group.name == allocation.spec.group);
        let Some(group) = group.filter(|_| has_begun) else { return Past::default() };
        let record = |task: &Task| {
            let state = status.task_states.get(&task.name).cloned().unwrap_or_default();
            let starting = (state.state != TaskRunState::Dead).then(|| format!("{uid}/{}/", task.name));
            (task.name.clone(), TaskRecord { state, starting, ..TaskRecord::default() })
        };
        let acknowledged = report::of_status(allocation.metadata.generation.unwrap_or_default(), status, job.r#type);
        let known = AllocRecord { allocation: (**allocation).clone(), acknowledged: Some(acknowledged) };
        self.reports.restore(uid, &known);
        tracing::warn!(allocation = uid, "its records are lost: its status and its processes say how it fares");
        Past {
            tasks: group.tasks.iter().map(record).collect(),
            recovering: Some(recovering.clone()),
            ..Past::default()
        }
    }

    fn start_runner(&mut self, uid: &str, allocation: &Arc<Allocation>, job: &Arc<JobSpec>, past: Past) {
        let Some(group) = job.groups.iter().find(|group| group.name == allocation.spec.group) else {
            let reason =
                format!("version {} of its job has no group {}", allocation.spec.job_version, allocation.spec.group);
            self.refuse(uid, allocation, &reason);
            return;
        };
        // Names become directories. The API server has checked them in the job, and nobody has in the version.
        if let Some(task) = group.tasks.iter().find(|task| !is_plain_name(&task.name)) {
            let reason = format!("task name {:?} is no DNS label: it cannot have a directory", task.name);
            self.refuse(uid, allocation, &reason);
            return;
        }
        let key = allocation.key();
        let group = Arc::new(group.clone());
        let stop_after = stop_after(&group);
        let is_cut_off = past.silent_since.zip(stop_after).is_some_and(|(since, after)| {
            Duration::try_from(self.env.clock.now().duration_since(since)).is_ok_and(|silent| silent > after)
        });
        let (wanted_sender, wanted) = watch::channel(Wanted {
            allocation: Arc::clone(allocation),
            job: Arc::clone(job),
            group: Arc::clone(&group),
            is_destroyed: false,
            is_cut_off,
            reconnects: 0,
        });
        let (to_runner, commands) = mpsc::channel(COMMAND_QUEUE);
        self.directory.enter(
            uid,
            Listed {
                key: key.clone(),
                commands: to_runner,
                dir: AllocDir::new(&self.env.alloc_dir, uid),
                tasks: group.tasks.iter().map(|task| task.name.clone()).collect(),
            },
        );
        let ended = watch::Sender::new(false);
        self.ends.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), ended.subscribe());
        let runner = self.make.run(AllocPlan {
            uid: uid.to_owned(),
            env: Arc::clone(&self.env),
            reports: self.reports.clone(),
            admission: self.admission.clone(),
            previous_dir: self.previous_dir(allocation),
            previous_end: previous_end(self.store.clone(), Arc::clone(&self.ends), Arc::clone(&self.env)),
            job: Arc::clone(job),
            group,
            wanted,
            commands,
            ended,
            shutdown: self.shutdown.clone(),
            restored: past.tasks,
            recovering: past.recovering,
            volumes: VolumeSources::default(),
        });
        let (uid_of_runner, kept) = (uid.to_owned(), past.kept);
        self.running.spawn(async move {
            let kept = match kept {
                Some(pending) => pending.wait().await,
                None => Ok(()),
            };
            let refused = match kept {
                Ok(()) => {
                    runner.await;
                    None
                }
                Err(error) => Some(error.to_string()),
            };
            RunnerEnd { uid: uid_of_runner, refused }
        });
        let runner = Runner { wanted: wanted_sender, key, job: job_key(allocation), awaits: None, stop_after };
        self.runners.insert(uid.to_owned(), runner);
    }

    /// Where the files of the replaced allocation are, if it ran here and was not given up yet.
    fn previous_dir(&self, allocation: &Allocation) -> Option<AllocDir> {
        let name = &allocation.spec.previous_allocation;
        let key = Key { namespace: allocation.metadata.namespace.clone(), name: name.clone() };
        (!name.is_empty()).then(|| self.directory.find(&key.to_string())).flatten().map(|(_, listed)| listed.dir)
    }

    /// Reports an allocation as failed that cannot be run here at all.
    fn refuse(&mut self, uid: &str, allocation: &Arc<Allocation>, reason: &str) {
        tracing::warn!(allocation = uid, reason, "allocation cannot be added");
        let now = self.env.clock.now();
        let job = self.jobs.get(&job_key(allocation));
        let group = job.and_then(|job| job.groups.iter().find(|group| group.name == allocation.spec.group));
        let names = group.map(|group| group.tasks.iter().map(|task| task.name.clone()).collect::<Vec<_>>());
        let names = names.unwrap_or_else(|| allocation.spec.resources.tasks.keys().cloned().collect());
        let dead =
            TaskState { state: TaskRunState::Dead, failed: true, finished_at: Some(now), ..TaskState::default() };
        let already_failed =
            allocation.status.as_ref().is_some_and(|status| status.client_status == ClientStatus::Failed);
        self.invalid.insert(uid.to_owned());
        self.reports.observe(uid, Arc::clone(allocation));
        if already_failed {
            return;
        }
        let health_matters = job.is_none_or(|job| matches!(job.r#type, JobType::Service | JobType::System));
        self.reports.put(
            uid,
            Report {
                generation: allocation.metadata.generation.unwrap_or_default(),
                client_status: ClientStatus::Failed,
                description: format!("the allocation could not be added: {reason}"),
                task_states: names.into_iter().map(|name| (name, dead.clone())).collect(),
                health: health_matters.then(|| drover_api::allocation::Health {
                    healthy: false,
                    timestamp: now,
                    deployment_name: allocation.spec.deployment_name.clone(),
                }),
                ended_at: Some(now),
                health_matters,
                stopping: false,
                volumes: BTreeMap::new(),
            },
        );
    }

    /// The API server no longer has it: nothing of it may stay here.
    async fn remove(&mut self, uid: &str) {
        if let Some(runner) = self.runners.get(uid) {
            runner.wanted.send_modify(|wanted| wanted.is_destroyed = true);
            return;
        }
        let was_known = self.invalid.remove(uid) | self.waiting.remove(uid).is_some();
        if was_known {
            self.reports.forget(uid);
            self.forget_record(uid).await;
        }
    }

    fn note_runner_end(&mut self, ended: Result<RunnerEnd, tokio::task::JoinError>) {
        match ended {
            Ok(RunnerEnd { uid, refused }) => {
                self.directory.leave(&uid);
                let runner = self.runners.remove(&uid);
                if let Some(runner) = &runner {
                    self.ends.lock().unwrap_or_else(PoisonError::into_inner).remove(&runner.key);
                }
                if let (Some(reason), Some(runner)) = (refused, runner) {
                    let allocation = Arc::clone(&runner.wanted.borrow().allocation);
                    self.refuse(&uid, &allocation, &reason);
                }
            }
            Err(error) => tracing::error!(error = %error, "an allocation's runner broke off"),
        }
    }

    /// Ends what may not run this long without a controller; returns when the next one may have to end.
    fn stop_cut_off(&self) -> Option<Duration> {
        let tracked: BTreeMap<String, Duration> = self
            .runners
            .iter()
            .filter_map(|(uid, runner)| Some((uid, runner, runner.stop_after?)))
            .filter(|(_, runner, _)| runner.wanted.borrow().is_to_run())
            .map(|(uid, _, after)| (uid.clone(), after))
            .collect();
        let last_ok = *self.last_ok.borrow();
        let grace = if last_ok.is_some() { Duration::ZERO } else { START_GRACE.saturating_sub(self.started.elapsed()) };
        let silent_for = last_ok.unwrap_or(self.started).elapsed();
        let CutOff { stop, wake_after } = cut_off(&tracked, silent_for, grace);
        for uid in stop {
            tracing::warn!(
                allocation = uid,
                ?silent_for,
                "allocation ends: its node is without a controller for too long"
            );
            if let Some(runner) = self.runners.get(uid) {
                runner.wanted.send_modify(|wanted| wanted.is_cut_off = true);
            }
        }
        wake_after
    }

    /// Only where somebody may ask after a restart how long the silence was.
    async fn keep_heartbeat(&self) {
        let is_asked = self.runners.values().any(|runner| runner.stop_after.is_some());
        if is_asked && let Err(error) = self.env.state.put_heartbeat(self.env.clock.now()).await {
            tracing::warn!(error = %error, "the time of the heartbeat is not kept");
        }
    }

    /// Gives up the oldest ended allocations while the node is above its limits.
    fn collect(&self) {
        let mut usage = self.env.disk.usage(&self.env.alloc_dir);
        usage.live = self.runners.values().filter(|runner| !runner.wanted.borrow().is_destroyed).count();
        let ended = self.reports.ended();
        let mut candidates: BTreeSet<(Timestamp, &str)> = ended
            .iter()
            .filter(|(_, uid)| self.runners.get(uid).is_some_and(|runner| !runner.wanted.borrow().is_destroyed))
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
                runner.wanted.send_modify(|wanted| wanted.is_destroyed = true);
            }
            if reason != GarbageReason::Count {
                // What this one frees shows when it is gone; then the next look follows.
                return;
            }
        }
    }

    /// Hands the record over to the state file; many share a write to the disk.
    async fn keep(&self, uid: &str) -> Result<Option<Pending>, StateError> {
        match self.reports.record(uid) {
            Some(record) => self.env.state.put_alloc_soon(uid, &record).await.map(Some),
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
        if let Err(error) = self.env.state.forget(uid).await {
            tracing::error!(error = %error, allocation = uid, "a gone allocation is still in the state file");
        }
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

/// Tells a runner what the controller has changed; false when the change was the agent's own or none.
fn update(runner: &Runner, allocation: &Arc<Allocation>) -> bool {
    runner.wanted.send_if_modified(|wanted| {
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
        if was_marked && controllers_mark(allocation) == Some(ClientStatus::Unknown) && report::is_wanted(allocation) {
            wanted.reconnects += 1;
        }
        wanted.allocation = Arc::clone(allocation);
        true
    })
}

/// The status that only the controller sets.
fn controllers_mark(allocation: &Allocation) -> Option<ClientStatus> {
    let status = allocation.status.as_ref().map(|status| status.client_status)?;
    matches!(status, ClientStatus::Unknown | ClientStatus::Lost).then_some(status)
}

fn job_key(allocation: &Allocation) -> JobKey {
    let namespace = allocation.metadata.namespace.as_deref().unwrap_or_default();
    format!("{namespace}/{}/{}", allocation.spec.job_uid, allocation.spec.job_version)
}

/// Reads a job version, again and again while the API server cannot be asked.
async fn fetch_job<S: Store>(store: S, env: Arc<RunnerEnv>, allocation: Arc<Allocation>, job: JobKey) -> Fetched {
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
        let pause = env.random.jitter(JOB_RETRY);
        tracing::warn!(reason, retry_in = ?pause, "a job version is not read yet");
        tokio::time::sleep(pause).await;
    }
}

fn reason_is_unreachable(reason: &str) -> bool {
    reason.starts_with("unavailable") || reason.starts_with("no answer")
}

/// Makes the function by which runners wait for the end of other allocations: here by their runners, elsewhere by the
/// API server.
fn previous_end<S: Store>(store: S, ends: Ends, env: Arc<RunnerEnv>) -> PreviousEnd {
    Arc::new(move |allocation: &Allocation, name: &str| -> BoxFuture<'static, ()> {
        let key = Key { namespace: allocation.metadata.namespace.clone(), name: name.to_owned() };
        let here = ends.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        match here {
            Some(mut ended) => async move {
                // A runner that is gone has ended.
                drop(ended.wait_for(|ended| *ended).await);
            }
            .boxed(),
            None => elsewhere_end(store.clone(), key, Arc::clone(&env)).boxed(),
        }
    })
}

/// Watches one allocation of another node until it has ended, is unknown or gone, or may not be seen.
async fn elsewhere_end<S: Store>(store: S, key: Key, env: Arc<RunnerEnv>) {
    loop {
        match store.get::<Allocation>(&key).await {
            Ok(Some(other)) if !is_ended(&other) => break,
            Ok(_) | Err(StoreError::Forbidden(_) | StoreError::NotFound(_)) => return,
            Err(error) => {
                tracing::warn!(error = %error, allocation = %key, "a previous allocation is not read yet");
                tokio::time::sleep(env.random.jitter(PREVIOUS_RETRY)).await;
            }
        }
    }
    let fields = Some(format!("metadata.name={}", key.name));
    let mut changes = store.watch::<Allocation>(Selection { namespace: key.namespace, fields, labels: None });
    let mut is_there = false;
    while let Some(change) = changes.next().await {
        match change {
            Change::Restarted => is_there = false,
            Change::Present(other) if is_ended(&other) => return,
            Change::Present(_) | Change::Malformed(..) => is_there = true,
            Change::InSync if !is_there => return,
            Change::Gone(_) => return,
            Change::InSync | Change::Interrupted(_) => {}
        }
    }
}

fn is_ended(allocation: &Allocation) -> bool {
    allocation
        .status
        .as_ref()
        .is_some_and(|status| status.client_status.is_terminal() || status.client_status == ClientStatus::Unknown)
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
            is_cut_off: false,
            reconnects: 0,
        };
        Runner {
            wanted: watch::Sender::new(wanted),
            key: Key::namespaced("n", "a"),
            job: String::new(),
            awaits: None,
            stop_after: None,
        }
    }

    #[test]
    fn a_040_an_unknown_allocation_that_is_to_stop_is_stopped_and_not_reconnected() {
        let runner = runner(seen(1, ClientStatus::Running, DesiredStatus::Run));
        assert!(update(&runner, &seen(2, ClientStatus::Unknown, DesiredStatus::Stop)));
        let wanted = runner.wanted.borrow();
        assert_eq!((wanted.reconnects, wanted.is_to_run()), (0, false));
    }

    #[test]
    fn a_041_the_same_mark_again_is_no_news() {
        let runner = runner(seen(1, ClientStatus::Running, DesiredStatus::Run));
        assert!(update(&runner, &seen(1, ClientStatus::Unknown, DesiredStatus::Run)));
        assert!(!update(&runner, &seen(1, ClientStatus::Unknown, DesiredStatus::Run)));
        assert_eq!(runner.wanted.borrow().reconnects, 1);
    }

    #[test]
    fn a_054_an_older_state_does_not_follow_a_newer_one() {
        let runner = runner(seen(1, ClientStatus::Running, DesiredStatus::Run));
        assert!(update(&runner, &seen(3, ClientStatus::Running, DesiredStatus::Stop)));
        assert!(!update(&runner, &seen(2, ClientStatus::Running, DesiredStatus::Run)));
        assert_eq!(runner.wanted.borrow().allocation.metadata.generation, Some(3));
    }

    #[test]
    fn only_labels_become_directories() {
        for name in ["", "..", "a/b", "a.b", "UP", "alloc"] {
            assert!(!is_plain_name(name), "{name}");
        }
        assert!(is_plain_name("web-1"));
    }
}
