//! Whole lives of allocations with the mock driver, on a paused clock: what takes minutes is over at once, and times
//! are exact.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use drover_api::allocation::{ClientStatus, DesiredStatus, TaskEventType as E, TaskRunState, TaskState, VolumeState};
use drover_api::client_node::Fingerprint;
use drover_api::job::JobType;
use drover_api::{Allocation, AllocationSpec, JobSpec};
use drover_core::service::{CheckAnswer, Probe, ScriptProbe, script_answer};
use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::AllocRunner;
use crate::allocations::admission::Admission;
use crate::allocations::commands::{AllocCommand, RestartScope};
use crate::allocations::plan::{AllocPlan, Wanted};
use crate::checks::{Prober, TaskPlaces};
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
use crate::reporting::report::Report;
use crate::reporting::reports::Reports;
use crate::state::{AllocRecord, MemoryState};
use crate::tasks::commands::CommandError;
use crate::tasks::record::TaskRecord;
use crate::tasks::runner_env::RunnerEnv;
use crate::tasks::starts::Starts;
use crate::watch;
use drover_clock::{Clock, SharedClock};

mod services;

const UID: &str = "uid-1";

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

/// A node without agent: what outlives one.
struct Node {
    dir: tempfile::TempDir,
    mock: Mock,
    /// The names of the tasks that were started, in their order.
    started: Arc<Mutex<Vec<String>>>,
    clock: SharedClock,
    state: MemoryState,
    reports: Reports,
    contacted: watch::Sender<bool>,
    max_kill_timeout: Duration,
    /// Runs where a test lets it.
    csi: Csi,
    prober: Arc<Scripted>,
}

/// Answers the probes of a port as a test says: with a success, unless the port is among those that fail.
#[derive(Debug, Default)]
struct Scripted {
    failing: Mutex<BTreeSet<u16>>,
}

impl Scripted {
    fn fail(&self, port: u16) {
        self.failing.lock().expect("no panic while it was held").insert(port);
    }

    fn mend(&self, port: u16) {
        self.failing.lock().expect("no panic while it was held").remove(&port);
    }
}

impl Prober for Scripted {
    fn probe<'a>(&'a self, probe: &'a Probe, tasks: &'a dyn TaskPlaces) -> BoxFuture<'a, CheckAnswer> {
        let port = match probe {
            Probe::Tcp { port, .. } => *port,
            Probe::Http(http) => http.target.port,
            Probe::Grpc(grpc) => grpc.port,
            Probe::Script(script) => return scripted(script, tasks).boxed(),
        };
        let fails = self.failing.lock().expect("no panic while it was held").contains(&port);
        let answer = if fails { CheckAnswer::failure("refused") } else { CheckAnswer::connected() };
        std::future::ready(answer).boxed()
    }
}

/// A script whose command is the code with which it ends, after which it tells in which run it was.
async fn scripted(script: &ScriptProbe, tasks: &dyn TaskPlaces) -> CheckAnswer {
    match tasks.place(&script.task).await {
        Ok(place) => {
            let code = script.command[0].parse().expect("a code");
            script_answer(code, format!("{} in {}", place.handle.id, place.dir.display()).as_bytes())
        }
        Err(error) => CheckAnswer::failure(error),
    }
}

/// The directories for secrets are mounts, which would outlive the test and slow every namespace that is made after it.
impl Drop for Node {
    fn drop(&mut self) {
        let allocs = self.dir.path().join("allocs");
        let left = std::fs::read_dir(&allocs).into_iter().flatten().flatten();
        for left in left.filter(|left| left.path().is_dir()) {
            let destroyed = AllocDir::new(&allocs, &left.file_name().to_string_lossy()).destroy();
            assert!(destroyed.is_ok() || std::thread::panicking(), "{destroyed:?}");
        }
    }
}

impl Node {
    fn new() -> Self {
        let started = Arc::new(Mutex::new(Vec::new()));
        let starts = Arc::clone(&started);
        let mock = Mock::default().observed(move |run, change| {
            if change == MockChange::Started {
                let task = run.id.split('/').nth(1).expect("a task").to_owned();
                starts.lock().expect("no panic while it was held").push(task);
            }
        });
        let (dir, state) = (tempfile::tempdir().expect("a directory"), MemoryState::default());
        Self {
            csi: csi::without_volumes(state.store(), dir.path().join("csi")),
            dir,
            mock,
            prober: Arc::default(),
            started,
            clock: Arc::new(PausedClock { start: Instant::now() }),
            state,
            reports: Reports::default(),
            contacted: watch::Sender::new(true),
            max_kill_timeout: Duration::from_secs(30),
        }
    }

    fn starts(&self) -> Vec<String> {
        self.started.lock().expect("no panic while it was held").clone()
    }

    fn env(&self) -> Arc<RunnerEnv> {
        let mut drivers = Drivers::default();
        drivers.add("mock", Arc::new(self.mock.clone()));
        // Only with this one a task may be a CSI plugin.
        drivers.add("raw_exec", Arc::new(self.mock.clone()));
        Arc::new(RunnerEnv {
            state: self.state.store(),
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
                prober: Arc::clone(&self.prober) as Arc<dyn Prober>,
                fetcher: Arc::new(crate::artifacts::AlwaysFetched),
                renderer: Arc::new(crate::renderer::PromptRenderer),
                values: Arc::new(crate::values::NoValues),
                api: Arc::new(crate::task_api::NoTaskApis),
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
        })
    }

    /// Starts the runner of an allocation; with `restored` as after the death of an agent.
    fn start(&self, job: &JobSpec, allocation: &Allocation, restored: BTreeMap<String, TaskRecord>) -> Life {
        let env = self.env();
        std::fs::create_dir_all(&env.alloc_dir).expect("a directory");
        self.reports.observe(UID, Arc::new(allocation.clone()));
        let (job, group) = (Arc::new(job.clone()), Arc::new(job.groups[0].clone()));
        let (wanted, seen) = watch::channel(Wanted {
            allocation: Arc::new(allocation.clone()),
            job: Arc::clone(&job),
            group: Arc::clone(&group),
            is_destroyed: false,
            is_disconnected: false,
            reconnects: 0,
        });
        let (commands, queue) = mpsc::channel(8);
        let (shutdown, ended) = (CancellationToken::new(), watch::Sender::new(false));
        let runner = AllocRunner::new(AllocPlan {
            uid: UID.to_owned(),
            env,
            reports: self.reports.clone(),
            admission: Admission::new(1 << 20),
            previous_end: Arc::new(|_, _| std::future::ready(()).boxed()),
            previous_dir: None,
            job,
            group,
            wanted: seen,
            commands: queue,
            ended: ended.clone(),
            shutdown: shutdown.clone(),
            restored,
            recovering: None,
            volumes: crate::allocations::volume_sources::VolumeSources::default(),
        });
        let mut running = JoinSet::new();
        running.spawn(runner.run());
        Life { reports: self.reports.clone(), wanted, commands, shutdown, ended, running, began: Instant::now() }
    }

    fn run(&self, r#type: JobType, group: Value) -> Life {
        self.start(&job(r#type, group), &allocation(), BTreeMap::new())
    }

    /// What the state file has of the tasks.
    fn records(&self) -> BTreeMap<String, TaskRecord> {
        self.state.saved().tasks.remove(UID).unwrap_or_default()
    }
}

/// One life of a runner.
struct Life {
    reports: Reports,
    wanted: watch::Sender<Wanted>,
    commands: mpsc::Sender<AllocCommand>,
    shutdown: CancellationToken,
    ended: watch::Sender<bool>,
    running: JoinSet<()>,
    began: Instant,
}

impl Life {
    fn report(&self) -> Report {
        self.reports.latest(UID).unwrap_or_default()
    }

    fn task(&self, name: &str) -> TaskState {
        self.report().task_states.get(name).cloned().unwrap_or_default()
    }

    fn events(&self, task: &str) -> Vec<E> {
        self.task(task).events.iter().map(|event| event.r#type).collect()
    }

    fn restarts(&self) -> BTreeMap<String, i64> {
        self.report().task_states.iter().map(|(name, state)| (name.clone(), state.restarts)).collect()
    }

    /// Lets the paused clock run until this is seen; at most an hour of it.
    async fn until(&self, what: &str, seen: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_hours(1);
        while !seen(self) {
            assert!(Instant::now() < deadline, "never {what}: {:#?}", self.report());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn running(&self) {
        self.until("running", |it| it.report().client_status == ClientStatus::Running).await;
    }

    async fn ended(&self) -> Report {
        self.until("ended", |it| it.report().ended_at.is_some() && *it.ended.borrow()).await;
        self.report()
    }

    async fn pass(&self, span: Duration) {
        tokio::time::sleep(span).await;
    }

    fn change(&self, change: impl FnOnce(&mut Allocation)) {
        self.wanted.send_modify(|wanted| {
            let mut allocation = (*wanted.allocation).clone();
            change(&mut allocation);
            wanted.allocation = Arc::new(allocation);
        });
    }

    fn stop(&self) {
        self.change(|allocation| allocation.spec.desired_status = DesiredStatus::Stop);
    }

    fn destroy(&self) {
        self.wanted.send_modify(|wanted| wanted.is_destroyed = true);
    }

    async fn restart(&self, scope: RestartScope) -> Result<(), CommandError> {
        let (answer, result) = oneshot::channel();
        self.commands.send(AllocCommand::Restart { scope, answer }).await.expect("a runner");
        result.await.expect("an answer")
    }

    async fn signal(&self, task: Option<&str>, signal: &str) -> Result<(), CommandError> {
        let (answer, result) = oneshot::channel();
        let command = AllocCommand::Signal { task: task.map(str::to_owned), signal: signal.to_owned(), answer };
        self.commands.send(command).await.expect("a runner");
        result.await.expect("an answer")
    }

    /// As the end of the agent: the runner returns, the tasks go on.
    async fn shut_down(mut self) {
        self.shutdown.cancel();
        while self.running.join_next().await.is_some() {}
    }

    fn millis(&self) -> u128 {
        self.began.elapsed().as_millis()
    }
}

fn job(r#type: JobType, mut group: Value) -> JobSpec {
    group["name"] = json!("g");
    serde_json::from_value(json!({"type": r#type, "groups": [group]})).expect("a job")
}

fn allocation() -> Allocation {
    let mut allocation = Allocation::new("web-g-0", AllocationSpec { group: "g".into(), ..AllocationSpec::default() });
    allocation.metadata.uid = Some(UID.to_owned());
    allocation.metadata.generation = Some(1);
    allocation
}

fn in_deployment(name: &str) -> Allocation {
    let mut allocation = allocation();
    allocation.spec.deployment_name = name.to_owned();
    allocation
}

fn task(name: &str, config: &Value, more: &Value) -> Value {
    let mut task = json!({"name": name, "driver": "mock", "config": config, "killSignal": "SIGTERM"});
    for (field, value) in more.as_object().expect("an object") {
        task[field] = value.clone();
    }
    task
}

fn runs(name: &str, run_for: &str) -> Value {
    task(name, &json!({"runFor": run_for}), &json!({}))
}

fn hook(name: &str, run_for: &str, hook: &str, sidecar: bool) -> Value {
    task(name, &json!({"runFor": run_for}), &json!({"lifecycle": {"hook": hook, "sidecar": sidecar}}))
}

fn never() -> Value {
    json!({"attempts": 0, "interval": "1m", "delay": "1s", "mode": "fail"})
}

#[tokio::test(start_paused = true)]
async fn a_045_a_batch_task_ends_well() {
    let node = Node::new();
    let life = node.run(JobType::Batch, json!({"tasks": [runs("t", "10ms")]}));
    let report = life.ended().await;
    assert_eq!(report.client_status, ClientStatus::Complete);
    assert_eq!((report.task_states["t"].state, report.task_states["t"].failed), (TaskRunState::Dead, false));
}

#[tokio::test(start_paused = true)]
async fn a_047_a_failed_task_ends_its_siblings() {
    let node = Node::new();
    let fails = task("bad", &json!({"runFor": "10s", "exitCode": 1}), &json!({"restart": never()}));
    let life = node.run(JobType::Service, json!({"tasks": [fails, runs("good", "20s")]}));
    assert_eq!(life.ended().await.client_status, ClientStatus::Failed);
    assert!(life.events("good").contains(&E::SiblingTaskFailed), "{:?}", life.events("good"));
    assert!(life.task("bad").failed && !life.task("good").failed);
}

#[tokio::test(start_paused = true)]
async fn a_048_the_leaders_end_ends_its_followers() {
    let node = Node::new();
    let leader = task("lead", &json!({"runFor": "1s"}), &json!({"leader": true}));
    let life = node.run(JobType::Batch, json!({"tasks": [leader, runs("follow", "10s")]}));
    assert_eq!(life.ended().await.client_status, ClientStatus::Complete);
    assert!(life.events("follow").contains(&E::LeaderTaskDead), "{:?}", life.events("follow"));
    assert!(life.millis() < 1_500, "{}", life.millis());
}

#[tokio::test(start_paused = true)]
async fn a_049_sidecars_end_with_the_main_tasks() {
    let node = Node::new();
    let tasks = json!([runs("main", "1s"), hook("side", "100s", "prestart", true)]);
    let life = node.run(JobType::Batch, json!({"tasks": tasks}));
    assert_eq!(life.ended().await.client_status, ClientStatus::Complete);
    assert!(life.events("side").contains(&E::MainTasksDead), "{:?}", life.events("side"));
}

#[tokio::test(start_paused = true)]
async fn a_050_a_stop_ends_leader_main_sidecar_and_then_runs_poststop() {
    let node = Node::new();
    let slow = json!({"runFor": "100s", "killAfter": "1s"});
    let tasks = json!([
        task("lead", &slow, &json!({"leader": true})),
        task("main", &slow, &json!({})),
        task("side", &slow, &json!({"lifecycle": {"hook": "prestart", "sidecar": true}})),
        hook("post", "100s", "poststop", false),
    ]);
    let life = node.run(JobType::Service, json!({"tasks": tasks}));
    life.until("all running", |it| {
        ["lead", "main", "side"].iter().all(|name| it.task(name).state == TaskRunState::Running)
    })
    .await;
    life.stop();
    life.until("post running", |it| it.task("post").state == TaskRunState::Running).await;
    let finished = |name: &str| life.task(name).finished_at.expect("an end");
    assert!(finished("lead") < finished("main") && finished("main") < finished("side"));
    assert!(life.task("post").started_at.expect("a start") >= finished("side"));
    let report = life.ended().await;
    assert_eq!(report.client_status, ClientStatus::Complete);
    assert_eq!(report.ended_at, report.task_states["post"].finished_at);
}

#[tokio::test(start_paused = true)]
async fn a_groups_shutdown_delay_is_waited_for_once_and_a_052_can_be_left_out() {
    // ignored, the tasks are killed without the wait.
    let group = json!({"shutdownDelay": "1s", "tasks": [runs("a", "100s"), runs("b", "100s")]});
    for (at_once, least, most) in [(false, 1_000, 1_100), (true, 0, 100)] {
        let node = Node::new();
        let life = node.run(JobType::Service, group.clone());
        life.running().await;
        let before = life.millis();
        life.change(|it| {
            it.spec.desired_status = DesiredStatus::Stop;
            it.spec.desired_transition.no_shutdown_delay = at_once;
        });
        life.ended().await;
        let took = life.millis() - before;
        assert!((least..most).contains(&took), "left out: {at_once}, took {took} ms");
    }
    let node = Node::new();
    let life = node.run(JobType::Service, group);
    life.running().await;
    life.stop();
    life.pass(Duration::from_millis(300)).await;
    let before = life.millis();
    life.change(|it| it.spec.desired_transition.no_shutdown_delay = true);
    life.ended().await;
    assert!(life.millis() - before < 100, "a wait under way is cut short");
}

#[tokio::test(start_paused = true)]
async fn a_053_a_task_that_has_finished_is_not_killed() {
    let node = Node::new();
    let life = node.run(JobType::Batch, json!({"tasks": [runs("a", "100s"), runs("b", "10ms")]}));
    life.until("b done", |it| it.task("b").state == TaskRunState::Dead).await;
    life.change(|it| {
        it.spec.desired_status = DesiredStatus::Stop;
        it.spec.desired_transition.migrate = true;
    });
    assert_eq!(life.ended().await.client_status, ClientStatus::Complete);
    assert_eq!(life.events("a").last(), Some(&E::Killed));
    assert_eq!(life.events("b").last(), Some(&E::Terminated));
}

#[tokio::test(start_paused = true)]
async fn a_055_an_ended_runner_takes_updates_and_does_nothing() {
    let node = Node::new();
    let life = node.run(JobType::Batch, json!({"tasks": [runs("t", "10ms")]}));
    let before = life.ended().await;
    for _ in 0..100 {
        life.change(|it| it.metadata.generation = it.metadata.generation.map(|n| n + 1));
    }
    life.stop();
    life.pass(Duration::from_secs(1)).await;
    assert_eq!(life.report().task_states, before.task_states);
    assert_eq!(node.starts().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_056_and_a_057_a_destroyed_allocation_leaves_no_record_and_no_directory() {
    // stopped first, then removed.
    let node = Node::new();
    let mut life = node.run(JobType::Service, json!({"tasks": [runs("t", "100s")]}));
    life.running().await;
    let root = node.dir.path().join("allocs").join(UID);
    assert!(root.exists() && !node.records().is_empty());
    life.stop();
    life.ended().await;
    assert!(root.exists(), "an ended allocation keeps its files");
    life.destroy();
    life.destroy();
    life.running.join_next().await.expect("a runner").expect("its end");
    assert!(!root.exists() && node.records().is_empty());
    assert!(life.running.is_empty(), "the runner is gone");
}

#[tokio::test(start_paused = true)]
async fn a_058_a_failed_preparation_fails_every_task_and_starts_none() {
    let node = Node::new();
    let allocs = node.dir.path().join("allocs");
    std::fs::create_dir_all(&allocs).expect("a directory");
    std::fs::write(allocs.join(UID), "in the way").expect("a file");
    let life = node.run(JobType::Service, json!({"tasks": [runs("a", "1s"), runs("b", "1s")]}));
    let report = life.ended().await;
    assert_eq!(report.client_status, ClientStatus::Failed);
    for name in ["a", "b"] {
        assert_eq!(life.events(name), [E::SetupFailure]);
        assert!(life.task(name).failed);
    }
    assert!(node.starts().is_empty());
    assert!(*life.ended.borrow(), "what follows on the end was done");
}

/// A life whose agent has died, and the job and allocation that it was about.
async fn interrupted(node: &Node, r#type: JobType, group: Value) -> JobSpec {
    let job = job(r#type, group);
    let life = node.start(&job, &allocation(), BTreeMap::new());
    life.running().await;
    life.shut_down().await;
    job
}

#[tokio::test(start_paused = true)]
async fn a_059_and_a_113_a_restored_allocation_without_its_directory_ends_failed_and_its_process_too() {
    // the same directory, deleted while the agent was down.
    let node = Node::new();
    let job = interrupted(&node, JobType::Service, json!({"tasks": [runs("t", "100s")]})).await;
    let root = node.dir.path().join("allocs").join(UID);
    drover_supervisor::unmount_below(&root).expect("unmounted");
    std::fs::remove_dir_all(&root).expect("removed");
    let life = node.start(&job, &allocation(), node.records());
    assert_eq!(life.ended().await.client_status, ClientStatus::Failed);
    let events = life.events("t");
    assert_eq!(events[events.len() - 2..], [E::SetupFailure, E::Terminated], "{events:?}");
    assert_eq!(node.starts().len(), 1, "it is not started again");
}

#[tokio::test(start_paused = true)]
async fn a_060_a_task_that_the_new_version_lacks_is_killed_and_fails() {
    let node = Node::new();
    let life = node.run(JobType::Service, json!({"tasks": [runs("keep", "100s"), runs("gone", "100s")]}));
    life.until("both running", |it| ["keep", "gone"].iter().all(|name| it.task(name).state == TaskRunState::Running))
        .await;
    let next = job(JobType::Service, json!({"tasks": [runs("keep", "100s")]}));
    life.wanted.send_modify(|wanted| {
        wanted.group = Arc::new(next.groups[0].clone());
        wanted.job = Arc::new(next.clone());
    });
    life.until("gone dead", |it| it.task("gone").state == TaskRunState::Dead).await;
    assert!(life.task("gone").failed && life.events("gone").contains(&E::Killing));
}

/// The group of the restart cases, settled: both ephemeral tasks have ended and all others but poststop run.
async fn settled(node: &Node, r#type: JobType, main: Value) -> Life {
    let tasks = json!([
        main,
        hook("pe", "1s", "prestart", false),
        hook("ps", "100s", "prestart", true),
        hook("oe", "1s", "poststart", false),
        hook("os", "100s", "poststart", true),
        hook("x", "1s", "poststop", false),
    ]);
    let restart = json!({"attempts": 1, "interval": "10m", "delay": "1s", "mode": "fail"});
    let life = node.run(r#type, json!({"tasks": tasks, "restart": restart}));
    life.until("settled", is_settled).await;
    life
}

fn is_settled(it: &Life) -> bool {
    let is = |name: &str, state| it.task(name).state == state;
    ["main", "ps", "os"].iter().all(|name| is(name, TaskRunState::Running))
        && ["pe", "oe"].iter().all(|name| is(name, TaskRunState::Dead))
        && is("x", TaskRunState::Pending)
}

fn counts(of: [(&str, i64); 6]) -> BTreeMap<String, i64> {
    of.into_iter().map(|(name, n)| (name.to_owned(), n)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_061_restart_all_repeats_the_whole_lifecycle() {
    let node = Node::new();
    let life = settled(&node, JobType::Service, runs("main", "100s")).await;
    life.restart(RestartScope::All).await.expect("restarted");
    let all = counts([("main", 1), ("pe", 1), ("ps", 1), ("oe", 1), ("os", 1), ("x", 0)]);
    life.until("settled again", |it| it.restarts() == all && is_settled(it)).await;
    let started = |name: &str| life.task(name).started_at.expect("a start");
    assert!(life.task("pe").finished_at.expect("an end") <= started("main"), "the order holds again");
    assert!(started("main") <= started("os"));
    assert!(life.task("main").finished_at.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_062_restart_running_leaves_ended_tasks_alone() {
    let node = Node::new();
    let life = settled(&node, JobType::Service, runs("main", "100s")).await;
    life.restart(RestartScope::Running).await.expect("restarted");
    let wanted = counts([("main", 1), ("pe", 0), ("ps", 1), ("oe", 0), ("os", 1), ("x", 0)]);
    life.until("settled again", |it| it.restarts() == wanted && is_settled(it)).await;
}

#[tokio::test(start_paused = true)]
async fn a_063_and_a_087_restart_of_one_task_touches_no_other() {
    let node = Node::new();
    let life = settled(&node, JobType::Service, runs("main", "100s")).await;
    life.restart(RestartScope::Task("main".into())).await.expect("restarted");
    let wanted = counts([("main", 1), ("pe", 0), ("ps", 0), ("oe", 0), ("os", 0), ("x", 0)]);
    life.until("settled again", |it| it.restarts() == wanted && is_settled(it)).await;
    let events = life.events("main");
    assert_eq!(events[3..], [E::RestartSignaled, E::Terminated, E::Restarting, E::Started]);
    let unknown = life.restart(RestartScope::Task("mian".into())).await.expect_err("refused").to_string();
    assert!(unknown.contains("mian"), "{unknown}");
}

#[tokio::test(start_paused = true)]
async fn a_064_a_dead_allocation_is_not_restarted() {
    let node = Node::new();
    let main = task("main", &json!({"runFor": "5s", "exitCode": 1}), &json!({}));
    let life = settled(&node, JobType::Service, main).await;
    let report = life.ended().await;
    assert_eq!(report.client_status, ClientStatus::Failed);
    for scope in [RestartScope::Task("main".into()), RestartScope::All] {
        assert_eq!(life.restart(scope).await, Err(CommandError::NotRunning));
    }
    assert!(report.task_states.values().all(|state| state.state == TaskRunState::Dead));
    assert_eq!(life.restarts()["main"], 1);
    assert!(life.events("x").contains(&E::Started), "poststop ran");
}

#[tokio::test(start_paused = true)]
async fn a_066_restart_all_runs_ephemeral_tasks_of_a_batch_job_again() {
    let node = Node::new();
    let life = settled(&node, JobType::Batch, runs("main", "100s")).await;
    life.restart(RestartScope::All).await.expect("restarted");
    life.until("both ran again", |it| {
        ["pe", "oe"].iter().all(|name| it.restarts()[*name] == 1 && it.task(name).state == TaskRunState::Dead)
    })
    .await;
    assert!(!life.task("pe").failed && !life.task("oe").failed);
}

#[tokio::test(start_paused = true)]
async fn what_is_to_be_stopped_is_not_restarted() {
    let node = Node::new();
    let slow = task("t", &json!({"runFor": "100s", "killAfter": "3s"}), &json!({}));
    let life = node.run(JobType::Service, json!({"tasks": [slow]}));
    life.running().await;
    life.stop();
    life.pass(Duration::from_millis(10)).await;
    assert_eq!(life.restart(RestartScope::All).await, Err(CommandError::NotWanted));
    life.ended().await;
}

#[tokio::test(start_paused = true)]
async fn a_068_and_a_108_the_end_of_the_agent_leaves_tasks_running_and_the_next_one_finds_them() {
    // a task of two seconds recovers with exactly four events.
    let node = Node::new();
    let job = interrupted(&node, JobType::Batch, json!({"tasks": [runs("t", "2s")]})).await;
    assert!(node.dir.path().join("allocs").join(UID).exists());
    let life = node.start(&job, &allocation(), node.records());
    assert_eq!(life.ended().await.client_status, ClientStatus::Complete);
    assert_eq!(life.events("t"), [E::Received, E::TaskSetup, E::Started, E::Terminated]);
    assert_eq!((node.starts().len(), life.restarts()["t"]), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_109_a_lost_task_waits_for_the_controller_and_a_110_is_not_started_when_it_was_stopped() {
    // pulled as stopped before anything was started.
    let node = Node::new();
    let job = interrupted(&node, JobType::Service, json!({"tasks": [runs("t", "100s")]})).await;
    node.mock.lose_all();
    node.contacted.send_replace(false);
    let life = node.start(&job, &allocation(), node.records());
    life.until("pending", |it| it.report().client_status == ClientStatus::Pending).await;
    life.pass(Duration::from_mins(10)).await;
    assert_eq!(life.task("t").state, TaskRunState::Pending);
    assert_eq!(life.events("t").last(), Some(&E::FailedRestoringTask));
    assert_eq!(node.starts().len(), 1, "no process");
    life.stop();
    node.contacted.send_replace(true);
    assert_eq!(life.ended().await.client_status, ClientStatus::Complete);
    assert_eq!(node.starts().len(), 1, "killed without starting");
}

#[tokio::test(start_paused = true)]
async fn a_lost_task_runs_again_once_the_controller_has_confirmed_it() {
    let node = Node::new();
    let job = interrupted(&node, JobType::Service, json!({"tasks": [runs("t", "100s")]})).await;
    node.mock.lose_all();
    node.contacted.send_replace(false);
    let life = node.start(&job, &allocation(), node.records());
    life.until("pending", |it| it.report().client_status == ClientStatus::Pending).await;
    node.contacted.send_replace(true);
    life.running().await;
    assert_eq!((node.starts().len(), life.restarts()["t"]), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_111_a_lost_task_of_a_system_job_starts_at_once() {
    let node = Node::new();
    let job = interrupted(&node, JobType::System, json!({"tasks": [runs("t", "100s")]})).await;
    node.mock.lose_all();
    node.contacted.send_replace(false);
    let life = node.start(&job, &allocation(), node.records());
    life.until("started again", |_| node.starts().len() == 2).await;
    life.running().await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_was_persisted_but_not_carried_out_is_carried_out_quietly_as_in_a_112() {
    let node = Node::new();
    let job = interrupted(&node, JobType::Service, json!({"tasks": [runs("t", "100s")]})).await;
    let mut stopped = allocation();
    stopped.spec.desired_status = DesiredStatus::Stop;
    let life = node.start(&job, &stopped, node.records());
    assert_eq!(life.ended().await.client_status, ClientStatus::Complete);
    assert_eq!(life.events("t"), [E::Received, E::TaskSetup, E::Started, E::Terminated]);
    assert!(life.millis() < 100);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_had_begun_without_a_record_is_taken_over() {
    let node = Node::new();
    let job = interrupted(&node, JobType::Service, json!({"tasks": [runs("t", "100s")]})).await;
    let mut records = node.records();
    let record = records.get_mut("t").expect("a record");
    // As the agent left it that died between the start and its record.
    record.starting = record.handle.take().map(|handle| handle.id);
    record.state.state = TaskRunState::Pending;
    record.state.events.pop();
    let life = node.start(&job, &allocation(), records);
    life.running().await;
    assert_eq!(life.events("t"), [E::Received, E::TaskSetup, E::Started]);
    assert_eq!(node.starts().len(), 1, "not begun again");
    life.stop();
    assert_eq!(life.ended().await.client_status, ClientStatus::Complete);
}

#[tokio::test(start_paused = true)]
async fn restarts_are_counted_over_the_agents_death() {
    let node = Node::new();
    let restart = json!({"attempts": 1, "interval": "1h", "delay": "1s", "mode": "fail"});
    let fails = task("t", &json!({"runFor": "10s", "exitCode": 1}), &json!({"restart": restart}));
    let job = job(JobType::Batch, json!({"tasks": [fails]}));
    let life = node.start(&job, &allocation(), BTreeMap::new());
    life.until("restarted", |it| it.task("t").restarts == 1 && it.task("t").state == TaskRunState::Running).await;
    life.shut_down().await;
    let life = node.start(&job, &allocation(), node.records());
    assert_eq!(life.ended().await.client_status, ClientStatus::Failed);
    assert_eq!((life.restarts()["t"], node.starts().len()), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_completed_allocation_is_never_run_again_and_its_end_is_told_again() {
    let node = Node::new();
    let job = job(JobType::Batch, json!({"tasks": [runs("t", "1s")]}));
    let life = node.start(&job, &allocation(), BTreeMap::new());
    let before = life.ended().await;
    life.shut_down().await;
    let life = node.start(&job, &allocation(), node.records());
    assert_eq!(life.ended().await.task_states, before.task_states);
    assert_eq!(node.starts().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_107_a_dead_task_waits_and_a_forced_restart_runs_it_again() {
    let node = Node::new();
    let life = settled(&node, JobType::Service, runs("main", "100s")).await;
    assert_eq!(life.task("pe").state, TaskRunState::Dead);
    assert_eq!(life.restart(RestartScope::Task("pe".into())).await, Err(CommandError::NotRunning), "not forced");
    life.restart(RestartScope::All).await.expect("forced");
    life.until("pe runs again", |it| it.task("pe").state == TaskRunState::Running).await;
    assert!(life.task("pe").finished_at.is_none() && !node.records()["pe"].run_complete);
}

#[tokio::test(start_paused = true)]
async fn a_089_a_recoverable_start_error_is_tried_again() {
    let node = Node::new();
    let restart = json!({"attempts": 1, "interval": "1m", "delay": "0s", "mode": "fail"});
    let config = json!({"startError": "no room", "startErrorRecoverable": true});
    let life = node.run(JobType::Service, json!({"tasks": [task("t", &config, &json!({"restart": restart}))]}));
    assert_eq!(life.ended().await.client_status, ClientStatus::Failed);
    let wanted = [E::Received, E::TaskSetup, E::DriverFailure, E::Restarting, E::DriverFailure, E::NotRestarting];
    assert_eq!(life.events("t"), wanted);
}

#[tokio::test(start_paused = true)]
async fn a_090_an_unrecoverable_start_error_fails_at_once() {
    let node = Node::new();
    let restart = json!({"attempts": 3, "interval": "1m", "delay": "10s", "mode": "fail"});
    let config = json!({"startError": "wrong", "startErrorRecoverable": false});
    let life = node.run(JobType::Service, json!({"tasks": [task("t", &config, &json!({"restart": restart}))]}));
    assert_eq!(life.ended().await.client_status, ClientStatus::Failed);
    assert_eq!(life.events("t"), [E::Received, E::TaskSetup, E::DriverFailure, E::NotRestarting]);
    assert!(life.millis() < 100);
}

#[tokio::test(start_paused = true)]
async fn a_092_a_task_that_ends_at_once_has_four_events() {
    let node = Node::new();
    let life = node.run(JobType::Batch, json!({"tasks": [runs("t", "0s")]}));
    life.ended().await;
    assert_eq!(life.events("t"), [E::Received, E::TaskSetup, E::Started, E::Terminated]);
}

#[tokio::test(start_paused = true)]
async fn a_093_the_newest_ten_events_are_kept_and_restarts_are_counted_all_the_same() {
    let node = Node::new();
    let restart = json!({"attempts": 8, "interval": "1h", "delay": "1s", "mode": "fail"});
    let config = json!({"runFor": "1s", "exitCode": 1});
    let life = node.run(JobType::Service, json!({"tasks": [task("t", &config, &json!({"restart": restart}))]}));
    life.ended().await;
    // Received, Task Setup, nine runs of Started and Terminated, eight of Restarting, Not Restarting: 29 events.
    assert_eq!((life.events("t").len(), life.restarts()["t"]), (10, 8));
    assert_eq!(life.events("t").last(), Some(&E::NotRestarting));
}

#[tokio::test(start_paused = true)]
async fn a_tasks_shutdown_delay_keeps_it_running() {
    let node = Node::new();
    let delayed = task("t", &json!({"runFor": "100s"}), &json!({"shutdownDelay": "1s"}));
    let life = node.run(JobType::Service, json!({"tasks": [delayed]}));
    life.running().await;
    let before = life.millis();
    life.stop();
    life.pass(Duration::from_millis(500)).await;
    assert_eq!(life.task("t").state, TaskRunState::Running);
    life.ended().await;
    assert!(life.millis() - before >= 1_000);
    assert!(life.events("t").contains(&E::WaitingForShutdownDelay));
}

#[tokio::test(start_paused = true)]
async fn a_095_a_shutdown_delay_that_is_left_out_is_said_so() {
    let node = Node::new();
    let delayed = task("t", &json!({"runFor": "100s"}), &json!({"shutdownDelay": "10s"}));
    let life = node.run(JobType::Service, json!({"tasks": [delayed]}));
    life.running().await;
    let before = life.millis();
    life.change(|it| {
        it.spec.desired_status = DesiredStatus::Stop;
        it.spec.desired_transition.no_shutdown_delay = true;
    });
    life.ended().await;
    assert!(life.millis() - before < 1_000);
    let events = life.events("t");
    assert!(events.contains(&E::SkippingShutdownDelay) && !events.contains(&E::WaitingForShutdownDelay), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn a_096_the_nodes_limit_bounds_the_kill_timeout() {
    let node = Node::new();
    let stubborn = task("t", &json!({"runFor": "1000s", "killAfter": "500s"}), &json!({"killTimeout": "60s"}));
    let life = node.run(JobType::Service, json!({"tasks": [stubborn]}));
    life.running().await;
    let before = life.millis();
    life.stop();
    life.ended().await;
    let took = life.millis() - before;
    assert!((30_000..30_100).contains(&took), "SIGKILL at {took} ms");
    let state = life.task("t");
    let end = state.events.iter().find(|event| event.r#type == E::Terminated).expect("an end");
    assert_eq!(end.signal, Some(i64::from(libc::SIGKILL)));
}

#[tokio::test(start_paused = true)]
async fn a_098_a_drivers_error_about_a_signal_is_returned() {
    let node = Node::new();
    let refuses = task("t", &json!({"runFor": "100s", "signalError": "boom"}), &json!({}));
    let life = node.run(JobType::Service, json!({"tasks": [refuses]}));
    life.running().await;
    assert_eq!(life.signal(Some("t"), "SIGINT").await, Err(CommandError::Driver("boom".into())));
    assert!(life.events("t").contains(&E::Signaling));
    assert_eq!(life.signal(Some("u"), "SIGINT").await, Err(CommandError::UnknownTask("u".into())));
}

#[tokio::test(start_paused = true)]
async fn a_099_a_task_that_does_not_run_yet_is_neither_restarted_nor_signalled() {
    let node = Node::new();
    let tasks = json!([hook("first", "100s", "prestart", false), runs("t", "100s")]);
    let life = node.run(JobType::Service, json!({"tasks": tasks}));
    life.until("first runs", |it| it.task("first").state == TaskRunState::Running).await;
    assert_eq!(life.restart(RestartScope::Task("t".into())).await, Err(CommandError::NotRunning));
    assert_eq!(life.signal(Some("t"), "SIGHUP").await, Err(CommandError::NotRunning));
}

#[tokio::test(start_paused = true)]
async fn a_101_a_thousand_lives_leave_nothing_behind() {
    let node = Node::new();
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = alive();
    for _ in 0..1000 {
        let mut life = node.run(JobType::Batch, json!({"tasks": [runs("t", "0s")]}));
        life.ended().await;
        life.destroy();
        life.running.join_next().await.expect("a runner").expect("its end");
    }
    assert_eq!(alive(), before);
}

#[tokio::test(start_paused = true)]
async fn a_106_a_failed_prestart_task_ends_the_allocation_and_poststop_runs() {
    let node = Node::new();
    let mut fails = hook("init", "1s", "prestart", false);
    fails["config"]["exitCode"] = json!(1);
    fails["restart"] = never();
    let tasks = json!([fails, runs("main", "100s"), hook("post", "1s", "poststop", false)]);
    let life = node.run(JobType::Service, json!({"tasks": tasks}));
    assert_eq!(life.ended().await.client_status, ClientStatus::Failed);
    assert_eq!(node.starts(), ["init", "post"]);
}

#[tokio::test(start_paused = true)]
async fn a_070_health_in_a_deployment_takes_its_minimum_time_and_a_080_starts_anew_for_another() {
    // another deploymentName clears the verdict.
    let node = Node::new();
    let update = json!({"healthCheck": "task_states", "minHealthyTime": "100ms", "healthyDeadline": "1m"});
    let job = job(JobType::Service, json!({"update": update, "tasks": [runs("t", "1000s")]}));
    let life = node.start(&job, &in_deployment("web-1"), BTreeMap::new());
    life.running().await;
    assert_eq!(life.report().health, None);
    life.until("healthy", |it| it.report().health.is_some()).await;
    let health = life.report().health.expect("a verdict");
    assert!(health.healthy && health.deployment_name == "web-1");
    let started = life.task("t").started_at.expect("a start");
    let after = health.timestamp.duration_since(started);
    assert!(after >= SignedDuration::from_millis(100) && after < SignedDuration::from_millis(110), "{after}");
    life.change(|it| it.spec.deployment_name = "web-2".into());
    life.until("cleared", |it| it.report().health.is_none()).await;
    life.until("judged anew", |it| it.report().health.is_some_and(|it| it.deployment_name == "web-2")).await;
}

#[tokio::test(start_paused = true)]
async fn a_072_a_task_that_does_not_stay_up_is_unhealthy_and_says_so() {
    let node = Node::new();
    let update = json!({"healthCheck": "task_states", "minHealthyTime": "10s", "healthyDeadline": "20s"});
    let restart = json!({"attempts": 100, "interval": "1h", "delay": "1s", "mode": "fail"});
    let flaps = task("t", &json!({"runFor": "2s", "exitCode": 1}), &json!({"restart": restart}));
    let job = job(JobType::Service, json!({"update": update, "tasks": [flaps]}));
    let life = node.start(&job, &in_deployment("web-1"), BTreeMap::new());
    life.until("judged", |it| it.report().health.is_some()).await;
    assert!(!life.report().health.expect("a verdict").healthy);
    assert!((20_000..20_100).contains(&life.millis()), "{}", life.millis());
    assert!(life.events("t").contains(&E::AllocUnhealthy));
}

#[tokio::test(start_paused = true)]
async fn a_159_a_volume_that_does_not_exist_fails_the_allocation_at_once() {
    let wants = |volume: Value| json!({"volumes": [volume], "tasks": [runs("t", "1000s")]});
    let csi = json!({"name": "data", "type": "csi", "source": "vol", "accessMode": "single-node-writer",
        "attachmentMode": "file-system"});
    let host = json!({"name": "data", "type": "host", "source": "vol"});
    for (volume, reason) in [(csi, "volume vol does not exist"), (host, "this node has no host volume vol")] {
        let node = Node::new();
        let life = node.run(JobType::Service, wants(volume));
        let report = life.ended().await;
        assert_eq!(report.client_status, ClientStatus::Failed);
        let said = &report.task_states["t"].events[0].message;
        assert!(said.contains(reason), "{said}");
        assert!(life.millis() < 100 && node.starts().is_empty(), "{}", life.millis());
    }
}

#[tokio::test(start_paused = true)]
async fn a_160_a_volume_of_each_slots_own_is_named_after_the_slot() {
    let csi = json!({"name": "data", "type": "csi", "source": "vol", "perAlloc": true,
        "accessMode": "single-node-writer", "attachmentMode": "file-system"});
    let host = json!({"name": "data", "type": "host", "source": "vol", "perAlloc": true});
    for (volume, reason) in [(csi, "volume vol[3] does not exist"), (host, "this node has no host volume vol[3]")] {
        let node = Node::new();
        let job = job(JobType::Service, json!({"count": 4, "volumes": [volume], "tasks": [runs("t", "1000s")]}));
        let mut fourth = allocation();
        fourth.spec.index = 3;
        let report = node.start(&job, &fourth, BTreeMap::new()).ended().await;
        let said = &report.task_states["t"].events[0].message;
        assert!(said.contains(reason), "{said}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_162_a_volume_that_is_mounted_still_is_neither_claimed_nor_mounted_again() {
    let mut node = Node::new();
    let (csi, counts) = csi::with_a_mount(&node.state, UID, "data", 0).await;
    node.csi = csi;
    let life = node.run(JobType::Service, of_a_volume());
    // Nobody would ever grant a claim here.
    life.running().await;
    assert_eq!((counts(), life.millis() < 100), ([1, 1, 0, 0], true));
}

/// A group whose only volume is mounted still.
fn of_a_volume() -> Value {
    let volume = json!({"name": "data", "type": "csi", "source": "v1", "accessMode": "single-node-writer",
        "attachmentMode": "file-system"});
    json!({"volumes": [volume], "tasks": [runs("t", "1000s")]})
}

#[tokio::test(start_paused = true)]
async fn v_079_an_end_is_told_although_a_volume_is_not_unmounted_and_that_nothing_is_left_later() {
    let mut node = Node::new();
    // With pauses of 2, 4 and 8 seconds.
    (node.csi, _) = csi::with_a_mount(&node.state, UID, "data", 3).await;
    let mut unmounting = JoinSet::new();
    unmounting.spawn(node.csi.clone().run());
    let life = node.run(JobType::Service, of_a_volume());
    life.running().await;
    let before = life.millis();
    life.stop();
    // What has ended is told after five seconds at most, and that nothing of it is left when that is so.
    life.until("over", |it| *it.ended.borrow()).await;
    let told = life.report();
    let stuck = (ClientStatus::Complete, VolumeState::UnmountFailed, None);
    assert_eq!((told.client_status, told.volumes["data"].state, told.ended_at), stuck);
    let after = life.millis() - before;
    assert!((5000..6000).contains(&after), "{after}");
    assert_eq!(life.ended().await.volumes["data"].state, VolumeState::Unmounted);
    let after = life.millis() - before;
    assert!((14_000..15_000).contains(&after), "{after}");
}

#[tokio::test(start_paused = true)]
async fn v_079_an_agent_ends_although_a_volume_is_not_unmounted() {
    let mut node = Node::new();
    (node.csi, _) = csi::with_a_mount(&node.state, UID, "data", 100).await;
    let mut unmounting = JoinSet::new();
    unmounting.spawn(node.csi.clone().run());
    let life = node.run(JobType::Service, of_a_volume());
    life.running().await;
    life.stop();
    life.until("it is tried", |it| it.report().volumes["data"].state == VolumeState::UnmountFailed).await;
    let before = Instant::now();
    life.shut_down().await;
    assert_eq!(before.elapsed().as_secs(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_163_a_plugin_that_is_not_up_in_time_is_ended_and_counts_as_failed() {
    let default = json!({"id": "disks", "type": "node"});
    let sooner = json!({"id": "disks", "type": "node", "healthTimeout": "10s"});
    for (plugin, millis) in [(default, 61_000..63_000), (sooner, 21_000..23_000)] {
        a_silent_plugin_is_ended_twice_within(&plugin, millis).await;
    }
}

async fn a_silent_plugin_is_ended_twice_within(plugin: &serde_json::Value, millis: std::ops::Range<u128>) {
    let node = Node::new();
    let restart = json!({"attempts": 1, "interval": "1h", "delay": "1s", "mode": "fail"});
    let more = json!({"driver": "raw_exec", "restart": restart, "csiPlugin": plugin});
    let silent = task("t", &json!({"runFor": "1000s"}), &more);
    let mut probing = JoinSet::new();
    probing.spawn(node.csi.clone().run());
    let life = node.run(JobType::Service, json!({"tasks": [silent]}));
    assert_eq!(life.ended().await.client_status, ClientStatus::Failed);
    let run = [E::Started, E::PluginUnhealthy, E::Terminated];
    let all = [&[E::Received, E::TaskSetup][..], &run, &[E::Restarting], &run, &[E::NotRestarting]].concat();
    assert_eq!(life.events("t"), all);
    let said = &life.task("t").events[3].message;
    assert!(said.contains("CSI_ENDPOINT"), "{said}");
    assert!(millis.contains(&life.millis()), "{plugin}: {}", life.millis());
}

#[tokio::test(start_paused = true)]
async fn a_081_a_stopped_allocation_gets_no_verdict() {
    let node = Node::new();
    let update = json!({"healthCheck": "task_states", "minHealthyTime": "10s", "healthyDeadline": "1m"});
    let slow = task("t", &json!({"runFor": "1000s", "killAfter": "60s"}), &json!({"killTimeout": "30s"}));
    let job = job(JobType::Service, json!({"update": update, "tasks": [slow]}));
    let life = node.start(&job, &in_deployment("web-1"), BTreeMap::new());
    life.running().await;
    life.stop();
    assert_eq!(life.ended().await.health, None);
}

#[tokio::test(start_paused = true)]
async fn an_allocation_without_a_deployment_is_judged_by_its_migrate_block() {
    let node = Node::new();
    let group = json!({"migrate": {"minHealthyTime": "50ms"}, "tasks": [runs("t", "1000s")]});
    let life = node.run(JobType::Service, group);
    life.until("healthy", |it| it.report().health.as_ref().is_some_and(|health| health.healthy)).await;
    assert!((50..60).contains(&life.millis()), "{}", life.millis());
    let plain = Node::new();
    let life = plain.run(JobType::Service, json!({"tasks": [runs("t", "1000s")]}));
    life.until("healthy", |it| it.report().health.is_some()).await;
    assert!((10_000..10_010).contains(&life.millis()), "{}", life.millis());
}

#[tokio::test(start_paused = true)]
async fn the_longest_permitted_run_ends_in_complete() {
    let node = Node::new();
    let job = job(JobType::Batch, json!({"maxRunDuration": "10s", "tasks": [runs("t", "1000s")]}));
    let mut allocation = allocation();
    let created = node.clock.now() - SignedDuration::from_secs(4);
    allocation.metadata.creation_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(created));
    let life = node.start(&job, &allocation, BTreeMap::new());
    let report = life.ended().await;
    assert_eq!(
        (report.client_status, report.description.as_str()),
        (ClientStatus::Complete, "max run duration reached")
    );
    assert!((6_000..6_100).contains(&life.millis()), "counted from the creation: {}", life.millis());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_cut_off_ends_the_allocation_and_its_end_is_kept_for_later() {
    let node = Node::new();
    let life = node.run(JobType::Service, json!({"tasks": [runs("t", "1000s")]}));
    life.running().await;
    life.wanted.send_modify(|wanted| wanted.is_disconnected = true);
    let report = life.ended().await;
    assert_eq!(report.client_status, ClientStatus::Complete);
    assert!(report.task_states["t"].events.iter().any(|event| event.message.contains("no controller")));
}

/// What an agent leaves that has made this report: the API server has answered it, or the agent has died before.
pub(super) fn records(allocation: &Allocation, report: &Report) -> [AllocRecord; 2] {
    let before = Report { health: None, services: Vec::new(), checks: BTreeMap::new(), ..report.clone() };
    [(report.clone(), None), (before, Some(report.clone()))].map(|(acknowledged, tried)| AllocRecord {
        allocation: allocation.clone(),
        acknowledged: Some(acknowledged),
        tried,
    })
}

#[tokio::test(start_paused = true)]
async fn a_restored_verdict_is_not_given_again() {
    let node = Node::new();
    let group = json!({"migrate": {"minHealthyTime": "50ms"}, "tasks": [runs("t", "1000s")]});
    let job = job(JobType::Service, group);
    let life = node.start(&job, &allocation(), BTreeMap::new());
    life.until("healthy", |it| it.report().health.is_some()).await;
    let report = life.report();
    life.shut_down().await;
    for record in records(&allocation(), &report) {
        node.reports.restore(UID, &record);
        let life = node.start(&job, &allocation(), node.records());
        life.pass(Duration::from_secs(10)).await;
        assert_eq!(life.report().health, report.health, "{record:?}");
        life.shut_down().await;
    }
}
