//! A node for one task, and the side of the allocation's runner.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use drover_api::allocation::{TaskEventType, TaskRunState, TaskState};
use drover_api::client_node::Fingerprint;
use drover_api::{Allocation, AllocationSpec, JobSpec};
use drover_clock::{Clock, SharedClock};
use drover_core::lifecycle::{Coordinator, Gates, Stage, TaskPlace};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::allocations::volume_sources::VolumeSources;
use crate::artifacts::{Fetch, Fetcher};
use crate::csi::{self, Csi};
use crate::drivers::{Drivers, Mock, MockChange};
use crate::node::alloc_dir::AllocDir;
use crate::node::devices::Devices;
use crate::node::disk::HostDisk;
use crate::node::machine_parts::MachineParts;
use crate::node::view::NodeView;
use crate::random::Random;
use crate::reporting::events::EventSink;
use crate::reporting::metrics::NodeMetrics;
use crate::state::{MemoryState, StateStore};
use crate::task_api::{NoTaskApis, TaskApis};
use crate::tasks::commands::{CommandError, Force, TaskCommand};
use crate::tasks::orders::{KillOrder, Orders};
use crate::tasks::plan::{TaskEnd, TaskHandles, TaskPlan, TaskUpdate};
use crate::tasks::record::TaskRecord;
use crate::tasks::runner_env::RunnerEnv;
use crate::tasks::starts::Starts;
use crate::tasks::task_runner::TaskRunner;
use crate::watch;

pub(super) const UID: &str = "uid-1";

/// Follows tokio's clock, which tests pause.
#[derive(Debug)]
struct PausedClock {
    start: Instant,
}

impl Clock for PausedClock {
    fn now(&self) -> Timestamp {
        let since = SignedDuration::try_from(self.start.elapsed()).expect("a span");
        Timestamp::from_second(1_800_000_000).expect("a time") + since
    }
}

/// Answers downloads as a test says, and remembers which were asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct ScriptedFetcher {
    asked: Arc<Mutex<Vec<usize>>>,
    /// What is wrong with each of these, one answer after the other; then, and of all others, nothing.
    pub(super) wrong: Arc<Mutex<BTreeMap<usize, Vec<String>>>>,
    /// How long each takes.
    pub(super) takes: Arc<Mutex<Duration>>,
}

impl ScriptedFetcher {
    /// The places of the artifacts that were asked for, in this order.
    pub(super) fn asked(&self) -> Vec<usize> {
        self.asked.lock().expect("no panic").clone()
    }
}

impl Fetcher for ScriptedFetcher {
    fn fetch(&self, fetch: Fetch) -> futures::future::BoxFuture<'static, Result<(), String>> {
        let it = self.clone();
        Box::pin(async move {
            it.asked.lock().expect("no panic").push(fetch.number);
            let takes = *it.takes.lock().expect("no panic");
            tokio::time::sleep(takes).await;
            let mut wrong = it.wrong.lock().expect("no panic");
            match wrong.get_mut(&fetch.number).filter(|left| !left.is_empty()) {
                Some(left) => Err(left.remove(0)),
                None => Ok(()),
            }
        })
    }
}

/// What outlives an agent on a node: the driver with its runs, the state file, the directories.
pub(super) struct Node {
    dir: tempfile::TempDir,
    pub(super) mock: Mock,
    changes: Arc<Mutex<Vec<MockChange>>>,
    clock: SharedClock,
    state: MemoryState,
    /// Whether the first list of allocations was applied.
    pub(super) contacted: watch::Sender<bool>,
    pub(super) max_kill_timeout: Duration,
    csi: Csi,
    /// The servers of artifacts.
    pub(super) fetcher: ScriptedFetcher,
    /// What gives out values of Secrets.
    pub(super) values: Arc<dyn crate::values::Values>,
    /// What gives tasks the API.
    pub(super) api: Arc<dyn TaskApis>,
    /// How scripts in tasks end.
    pub(super) prober: Arc<dyn crate::checks::Prober>,
}

/// The directories for secrets are mounts, which would outlive the test.
impl Drop for Node {
    fn drop(&mut self) {
        let destroyed = AllocDir::new(&self.dir.path().join("allocs"), UID).destroy();
        assert!(destroyed.is_ok() || std::thread::panicking(), "{destroyed:?}");
    }
}

impl Node {
    pub(super) fn new() -> Self {
        let changes = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&changes);
        let mock = Mock::default().observed(move |_, change| seen.lock().expect("no panic").push(change));
        let (dir, state) = (tempfile::tempdir().expect("a directory"), MemoryState::default());
        Self {
            csi: csi::without_volumes(state.store(), dir.path().join("csi")),
            dir,
            mock,
            changes,
            clock: Arc::new(PausedClock { start: Instant::now() }),
            state,
            contacted: watch::Sender::new(true),
            max_kill_timeout: Duration::from_secs(30),
            fetcher: ScriptedFetcher::default(),
            values: Arc::new(crate::values::NoValues),
            api: Arc::new(NoTaskApis),
            prober: Arc::new(crate::checks::AlwaysWell),
        }
    }

    /// How many runs the driver has begun.
    pub(super) fn n_started(&self) -> usize {
        let changes = self.changes.lock().expect("no panic");
        changes.iter().filter(|change| **change == MockChange::Started).count()
    }

    /// Whether the driver was asked to stop a run.
    pub(super) fn was_asked_to_stop(&self) -> bool {
        self.changes.lock().expect("no panic").contains(&MockChange::StopAsked)
    }

    /// How many runs the driver has forgotten.
    pub(super) fn n_forgotten(&self) -> usize {
        let changes = self.changes.lock().expect("no panic");
        changes.iter().filter(|change| **change == MockChange::Forgotten).count()
    }

    /// What the state file has of the task.
    pub(super) fn record(&self) -> TaskRecord {
        let mut saved = self.state.saved();
        saved.tasks.remove(UID).and_then(|mut tasks| tasks.remove("t")).unwrap_or_default()
    }

    pub(super) fn dir(&self) -> AllocDir {
        AllocDir::new(&self.dir.path().join("allocs"), UID)
    }

    pub(super) fn env(&self) -> RunnerEnv {
        self.env_with(self.state.store())
    }

    fn env_with(&self, state: StateStore) -> RunnerEnv {
        let mut drivers = Drivers::default();
        drivers.add("mock", Arc::new(self.mock.clone()));
        RunnerEnv {
            state,
            machine: MachineParts {
                users: crate::node::task_users::TaskUsers::none(),
                host_volumes: crate::watch::Sender::new(std::collections::BTreeMap::new()),
                networks: crate::networks::AllocNetworks::pretended(),
                drivers,
                devices: Devices::default(),
                disk: Arc::new(HostDisk::default()),
                disks: Arc::new(crate::remote_disks::NoRemoteDisks),
                fingerprint: watch::Sender::new(Fingerprint::default()).subscribe(),
                host_env: BTreeMap::new(),
                prober: Arc::clone(&self.prober),
                fetcher: Arc::new(self.fetcher.clone()),
                renderer: Arc::new(crate::renderer::PromptRenderer),
                values: Arc::clone(&self.values),
                api: Arc::clone(&self.api),
            },
            clock: Arc::clone(&self.clock),
            random: Random::seeded(7),
            events: EventSink::silent(Arc::clone(&self.clock)),
            node: watch::Sender::new(NodeView::default()).subscribe(),
            max_kill_timeout: self.max_kill_timeout,
            alloc_dir: self.dir.path().join("allocs"),
            fifo_dir: self.dir.path().join("fifos"),
            contacted: self.contacted.subscribe(),
            garbage: Arc::new(Notify::new()),
            starts: Starts::default(),
            metrics: NodeMetrics::default(),
            csi: self.csi.clone(),
            secrets: Arc::new(crate::node::secrets::NoSecrets),
        }
    }

    /// Starts the runner of a service's task; its gate is open.
    pub(super) fn run(&self, task: &Value) -> Life {
        self.start(&Life::service(task), None)
    }

    /// The same after the death of an agent that left this record.
    pub(super) fn run_again(&self, task: &Value, record: TaskRecord) -> Life {
        self.start(&Life::service(task), Some(record))
    }

    pub(super) fn start(&self, job: &JobSpec, restored: Option<TaskRecord>) -> Life {
        self.start_in(self.env(), job, restored)
    }

    /// On a machine whose state file cannot be written.
    pub(super) fn run_without_state(&self, task: &Value) -> Life {
        self.start_in(self.env_with(StateStore::refusing()), &Life::service(task), None)
    }

    fn start_in(&self, env: RunnerEnv, job: &JobSpec, restored: Option<TaskRecord>) -> Life {
        std::fs::create_dir_all(&env.alloc_dir).expect("a directory");
        let (job, group) = (Arc::new(job.clone()), Arc::new(job.groups[0].clone()));
        let task = Arc::new(group.tasks[0].clone());
        let dir = self.dir();
        env.machine.disk.build(&dir, None).expect("the allocation's directory");
        let mut allocation = Allocation::new("web-g-0", AllocationSpec { group: "g".into(), ..Default::default() });
        allocation.metadata.uid = Some(UID.to_owned());
        let mut open = Orders::new(Arc::clone(&job), Arc::clone(&group));
        open.gates = gates();
        let (orders, ordered) = watch::channel(open);
        let (commands, queue) = mpsc::channel(8);
        let (updates, told) = mpsc::channel(64);
        let shutdown = CancellationToken::new();
        let handles = TaskHandles { orders: ordered, commands: queue, updates, shutdown: shutdown.clone() };
        let plan = TaskPlan {
            owner: None,
            uid: UID.to_owned(),
            allocation: Arc::new(allocation),
            job,
            group,
            task,
            dir,
            restored,
            recovering: None,
            volumes: VolumeSources::default(),
        };
        let mut running = JoinSet::new();
        running.spawn(TaskRunner::new(Arc::new(env), plan, handles).run());
        Life { orders, commands, told, shutdown, running, state: TaskState::default(), began: Instant::now() }
    }
}

/// A file of the task's directory; empty: it is not there.
pub(super) fn read(node: &Node, file: &str) -> String {
    std::fs::read_to_string(node.dir().task("t").join(file)).unwrap_or_default()
}

/// How many events of a kind the task has.
pub(super) fn count(life: &Life, r#type: TaskEventType) -> usize {
    life.events().iter().filter(|event| **event == r#type).count()
}

/// The gates of an allocation with this one task.
fn gates() -> Gates {
    Coordinator::new([("t", TaskPlace { stage: Stage::Main, leader: false })]).observe(&BTreeMap::new())
}

/// One life of a task's runner, as the allocation's runner sees it.
pub(super) struct Life {
    pub(super) orders: watch::Sender<Orders>,
    commands: mpsc::Sender<TaskCommand>,
    told: mpsc::Receiver<TaskUpdate>,
    pub(super) shutdown: CancellationToken,
    running: JoinSet<TaskEnd>,
    /// The newest state.
    pub(super) state: TaskState,
    began: Instant,
}

impl Life {
    fn service(task: &Value) -> JobSpec {
        job("service", task)
    }

    /// Takes in states until one is as wanted; at most an hour of the paused clock.
    pub(super) async fn until(&mut self, what: &str, wanted: impl Fn(&TaskState) -> bool) -> TaskState {
        let deadline = Instant::now() + Duration::from_hours(1);
        loop {
            let next = tokio::time::timeout_at(deadline, self.told.recv()).await;
            let Ok(Some(update)) = next else { panic!("never {what}: {:#?}", self.state) };
            self.state = update.state;
            if wanted(&self.state) {
                return self.state.clone();
            }
        }
    }

    pub(super) async fn running(&mut self) -> TaskState {
        self.until("running", |state| state.state == TaskRunState::Running).await
    }

    pub(super) async fn dead(&mut self) -> TaskState {
        self.until("dead", |state| state.state == TaskRunState::Dead).await
    }

    /// Lets the clock go on, and takes in what is told meanwhile.
    pub(super) async fn pass(&mut self, span: Duration) {
        let end = Instant::now() + span;
        while let Ok(Some(update)) = tokio::time::timeout_at(end, self.told.recv()).await {
            self.state = update.state;
        }
    }

    /// Lets the runner end, once nothing is wanted of the task any more.
    pub(super) async fn released(mut self) -> TaskEnd {
        self.orders.send_modify(|orders| orders.is_released = true);
        self.ended().await
    }

    /// As the end of the agent.
    pub(super) async fn shut_down(mut self) -> TaskEnd {
        self.shutdown.cancel();
        self.ended().await
    }

    /// Asks for a restart, and does not wait for it.
    pub(super) async fn ask_to_restart(&self) {
        let (answer, _) = oneshot::channel();
        self.commands.send(TaskCommand::Restart { force: Force::No, answer }).await.expect("a runner");
    }

    /// Its agent ends at once, as by SIGKILL.
    pub(super) fn dies(self) {
        drop(self);
    }

    /// Is killed, or left by its agent, before its task began.
    pub(super) async fn breaks_off(mut self, is_kill: bool) {
        if is_kill {
            self.kill(|_| {});
            let state = self.dead().await;
            assert_eq!((state.failed, self.released().await), (false, TaskEnd::Done));
        } else {
            assert_eq!(self.shut_down().await, TaskEnd::Detached);
        }
    }

    pub(super) async fn ended(&mut self) -> TaskEnd {
        loop {
            tokio::select! {
                biased;
                Some(ended) = self.running.join_next() => return ended.expect("no panic"),
                Some(update) = self.told.recv() => self.state = update.state,
            }
        }
    }

    pub(super) fn kill(&self, change: impl FnOnce(&mut KillOrder)) {
        let mut order = KillOrder { events: Vec::new(), skip_delay: false, fails: false, is_cleanup: false };
        change(&mut order);
        self.orders.send_modify(|orders| drop(orders.kills.insert("t".into(), order)));
    }

    pub(super) async fn restart(&self, force: Force) -> Result<(), CommandError> {
        let (answer, answered) = oneshot::channel();
        self.commands.send(TaskCommand::Restart { force, answer }).await.expect("a runner");
        answered.await.expect("an answer")
    }

    pub(super) async fn signal(&self, signal: &str) -> Result<(), CommandError> {
        let (answer, answered) = oneshot::channel();
        let command = TaskCommand::Signal { signal: signal.to_owned(), answer };
        self.commands.send(command).await.expect("a runner");
        answered.await.expect("an answer")
    }

    /// The id of the run, as the runner knows it.
    pub(super) async fn located(&self) -> Result<String, CommandError> {
        let (answer, answered) = oneshot::channel();
        self.commands.send(TaskCommand::Locate { answer }).await.expect("a runner");
        answered.await.expect("an answer").map(|located| located.handle.id)
    }

    pub(super) fn events(&self) -> Vec<TaskEventType> {
        self.state.events.iter().map(|event| event.r#type).collect()
    }

    pub(super) fn last_message(&self) -> &str {
        self.state.events.last().map_or("", |event| &event.message)
    }

    pub(super) fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }
}

/// A job of one task, which is called `t`.
pub(super) fn job(kind: &str, task: &Value) -> JobSpec {
    let mut named = json!({ "name": "t", "driver": "mock" });
    for (field, value) in task.as_object().expect("an object") {
        named[field] = value.clone();
    }
    serde_json::from_value(json!({ "type": kind, "groups": [{ "name": "g", "tasks": [named] }] })).expect("a job")
}

/// Settings under which a task that ends is not started again.
pub(super) fn once(config: &Value) -> Value {
    json!({ "config": config, "restart": { "attempts": 0, "interval": "1m", "delay": "1s", "mode": "fail" } })
}
