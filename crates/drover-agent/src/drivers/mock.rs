//! Driver `mock`: runs nothing and behaves as its settings say. For tests and for nodes that only measure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drover_api::client_node::DriverInfo;
use drover_core::task::driver_config::MockConfig;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::{
    Driver, DriverError, ExitResult, FsIsolation, HealthReport, Running, StartError, StartRequest, StatsError,
    TaskHandle, UsageStream,
};
use crate::watch;
use drover_supervisor::protocol::Exit;

/// What a running mock task was told.
#[derive(Clone, Debug)]
enum MockCommand {
    /// It is to stop.
    Stop { signal: i32, grace: Duration, at: Instant },
    /// It ends by itself, so.
    #[cfg_attr(
        not(any(test, feature = "simulated")),
        expect(dead_code, reason = "simulations alone end a task from outside")
    )]
    End(ExitResult),
}

/// A task that pretends to run.
#[derive(Clone, Debug)]
struct MockTask {
    config: MockConfig,
    started: Instant,
    health: HealthReport,
    told: watch::Sender<Option<MockCommand>>,
}

/// A run of a mock task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MockRun {
    /// `<allocID>/<task>/<8 random>`.
    pub(crate) id: String,
}

/// What became of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MockChange {
    Started,
    /// The agent asked it to stop.
    StopAsked,
    /// It has ended, and the agent has taken that in.
    Forgotten,
}

/// Sees what becomes of runs.
type Observer = Arc<dyn Fn(MockRun, MockChange) + Send + Sync>;

/// The driver. Clones share their tasks, so that another agent may follow the one that started them.
#[derive(Clone, Default)]
pub(crate) struct Mock {
    node: String,
    tasks: Arc<Mutex<BTreeMap<String, MockTask>>>,
    /// How often the tasks that fail at first have failed, by allocation and task.
    failures: Arc<Mutex<BTreeMap<String, u32>>>,
    observer: Option<Observer>,
    /// The runs that this life of the agent has started or found again.
    known: Arc<Mutex<BTreeSet<String>>>,
}

impl Debug for Mock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mock").field("node", &self.node).finish_non_exhaustive()
    }
}

/// How long a task of a version that fails runs.
const FAILS_AFTER: Duration = Duration::from_secs(1);

impl Mock {
    /// The driver of this node.
    pub(crate) fn on_node(node: impl Into<String>) -> Self {
        Self { node: node.into(), ..Self::default() }
    }

    async fn start_task(&self, request: StartRequest) -> Result<Running, StartError> {
        let mut config = MockConfig::read(&request.config).map_err(StartError::Invalid)?;
        if let Some(pause) = config.start_block_for {
            tokio::time::sleep(pause.to_std()).await;
        }
        if !config.start_error.is_empty() {
            let error = config.start_error;
            return Err(if config.start_error_recoverable {
                StartError::Recoverable(error)
            } else {
                StartError::Invalid(error)
            });
        }
        self.fail_first(&config, &request.id)?;
        if config.fail_on_versions.contains(&request.job_version) {
            config = MockConfig { run_for: Some(FAILS_AFTER.into()), exit_code: 1, ..config };
        }
        let health = match config.healthy_after {
            _ if config.unhealthy_on_nodes.contains(&self.node) => HealthReport::Never,
            Some(span) => HealthReport::After(span.to_std()),
            None => HealthReport::AtOnce,
        };
        let task = MockTask { config, started: Instant::now(), health, told: watch::Sender::new(None) };
        self.lock().insert(request.id.clone(), task.clone());
        self.note_known(&request.id);
        self.observe(&request.id, MockChange::Started);
        let handle = TaskHandle { id: request.id, driver: Value::Null };
        Ok(Running { handle, health, ended: run(task).boxed() })
    }

    fn fail_first(&self, config: &MockConfig, id: &str) -> Result<(), StartError> {
        if config.fail_first == 0 {
            return Ok(());
        }
        let task = id.rsplit_once('/').map_or(id, |(task, _)| task);
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = failures.entry(task.to_owned()).or_default();
        if *failed >= config.fail_first {
            return Ok(());
        }
        *failed += 1;
        Err(StartError::Recoverable(format!("start {failed} of {} that fail", config.fail_first)))
    }

    fn observe(&self, id: &str, change: MockChange) {
        if let Some(observer) = &self.observer {
            observer(MockRun { id: id.to_owned() }, change);
        }
    }

    fn note_known(&self, id: &str) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned());
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, MockTask>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(any(test, feature = "simulated"))]
impl Mock {
    /// Tells an observer what becomes of runs.
    pub(crate) fn observed(mut self, observer: impl Fn(MockRun, MockChange) + Send + Sync + 'static) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Ends the run of a task as it may end by itself; false when there is none.
    pub(crate) fn end(&self, allocation: &str, task: &str, exit: &ExitResult) -> bool {
        let prefix = format!("{allocation}/{task}/");
        let tasks = self.lock();
        let mut runs = tasks.range(prefix.clone()..).take_while(|(id, _)| id.starts_with(&prefix));
        runs.any(|(_, run)| {
            run.told.send_if_modified(|told| {
                let is_news = told.is_none();
                told.get_or_insert_with(|| MockCommand::End(exit.clone()));
                is_news
            })
        })
    }

    /// The same for another life of the agent, which has found nothing again yet.
    pub(crate) fn of_next_life(&self) -> Self {
        Self { known: Arc::default(), ..self.clone() }
    }

    /// As a supervisor does once all that is known was found again: ends the runs that this life knows nothing of, and
    /// forgets those that have ended.
    pub(crate) fn end_strangers(&self) {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let strangers: Vec<_> = self
            .lock()
            .iter()
            .filter(|(id, _)| !known.contains(*id))
            .map(|(id, run)| (id.clone(), run.clone()))
            .collect();
        for (id, stranger) in strangers {
            if run(stranger).now_or_never().is_none() {
                self.observe(&id, MockChange::StopAsked);
            }
            self.lock().remove(&id);
            self.observe(&id, MockChange::Forgotten);
        }
    }

    /// The ids of the runs that have not ended, whether an agent knows them or not.
    #[cfg(test)]
    pub(crate) fn alive(&self) -> Vec<String> {
        let is_alive = |(_, task): &(&String, &MockTask)| run((*task).clone()).now_or_never().is_none();
        self.lock().iter().filter(is_alive).map(|(id, _)| id.clone()).collect()
    }

    /// As a reboot of the machine: nothing that ran is there any more.
    pub(crate) fn lose_all(&self) {
        self.lock().clear();
    }
}

/// Its end follows from its start and from what it was told, so that a later agent sees the same one.
async fn run(task: MockTask) -> ExitResult {
    let MockTask { config, started, told, .. } = task;
    let own_end = async {
        tokio::time::sleep_until(started + config.run_for.unwrap_or_default().to_std()).await;
        match (config.exit_signal, config.exit_err_msg.as_str()) {
            (0, "") => Exit::code(config.exit_code),
            (0, error) => Exit::unknown(error),
            (signal, _) => Exit::signal(signal),
        }
    };
    let mut heard = told.subscribe();
    let heard = async {
        match heard.wait_for(Option::is_some).await.ok().and_then(|told| told.clone()) {
            Some(told) => told,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        told = heard => match told {
            MockCommand::End(exit) => exit,
            MockCommand::Stop { signal, grace, at } => {
                let ignored_for = config.kill_after.unwrap_or_default().to_std();
                tokio::time::sleep_until(at + ignored_for.min(grace)).await;
                let exit = Exit::signal(if ignored_for > grace { libc::SIGKILL } else { signal });
                ExitResult { exit, ..ExitResult::default() }
            }
        },
        exit = own_end => ExitResult { exit, ..ExitResult::default() },
    }
}

impl Driver for Mock {
    fn mounts_volumes(&self) -> bool {
        true
    }

    fn fs_isolation(&self) -> FsIsolation {
        FsIsolation::None
    }

    fn fingerprint(&self) -> DriverInfo {
        DriverInfo { detected: true, healthy: true, ..DriverInfo::default() }
    }

    fn check(&self, config: &Map<String, Value>) -> Result<(), String> {
        MockConfig::read(config).map(drop)
    }

    fn start(&self, request: StartRequest) -> BoxFuture<'_, Result<Running, StartError>> {
        self.start_task(request).boxed()
    }

    /// A mock task lives in its agent and ends with it, but for agents that share the driver.
    fn recover(&self, handle: TaskHandle) -> BoxFuture<'_, Option<Running>> {
        let found = self.lock().get(&handle.id).cloned();
        if found.is_some() {
            self.note_known(&handle.id);
        }
        std::future::ready(found.map(|task| Running { handle, health: task.health, ended: run(task).boxed() })).boxed()
    }

    fn find<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Option<Running>> {
        let found = if id.ends_with('/') {
            let tasks = self.lock();
            tasks.range(id.to_owned()..).map(|(known, _)| known.clone()).find(|known| known.starts_with(id))
        } else {
            Some(id.to_owned())
        };
        match found {
            Some(id) => self.recover(TaskHandle { id, driver: Value::Null }),
            None => std::future::ready(None).boxed(),
        }
    }

    fn stop<'a>(&'a self, id: &'a str, signal: i32, grace: Duration) -> BoxFuture<'a, Result<(), DriverError>> {
        if let Some(task) = self.lock().get(id) {
            let stop = MockCommand::Stop { signal, grace, at: Instant::now() };
            // A task that ends by itself does not hear of it any more.
            task.told.send_if_modified(|told| {
                let hears = !matches!(told, Some(MockCommand::End(_)));
                if hears {
                    *told = Some(stop);
                }
                hears
            });
        }
        self.observe(id, MockChange::StopAsked);
        std::future::ready(Ok(())).boxed()
    }

    fn signal<'a>(&'a self, id: &'a str, _: i32) -> BoxFuture<'a, Result<(), DriverError>> {
        let error = self.lock().get(id).map(|task| task.config.signal_error.clone()).unwrap_or_default();
        let result = if error.is_empty() { Ok(()) } else { Err(DriverError(error)) };
        std::future::ready(result).boxed()
    }

    fn stats(&self, _: &TaskHandle, _: Duration) -> Result<UsageStream, StatsError> {
        Err(StatsError::Unsupported("driver mock runs nothing that could use anything".to_owned()))
    }

    fn forget<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), DriverError>> {
        self.lock().remove(id);
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        self.observe(id, MockChange::Forgotten);
        std::future::ready(Ok(())).boxed()
    }
}
