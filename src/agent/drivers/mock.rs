//! Driver `mock`: runs nothing and behaves as its settings say. For tests and for nodes that only measure.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drover_api::GoDuration;
use drover_api::client_node::DriverInfo;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Driver, DriverError, ExitResult, FsIsolation, Running, StartError, StartRequest, TaskHandle};
use crate::supervisor::protocol::Exit;

/// A stop that a running mock task was asked for.
#[derive(Clone, Copy, Debug)]
struct Stop {
    signal: i32,
    grace: Duration,
    at: Instant,
}

/// A task that pretends to run.
#[derive(Clone, Debug)]
struct MockTask {
    config: Config,
    started: Instant,
    stop: watch::Sender<Option<Stop>>,
}

/// The driver. Clones share their tasks, so that a test can restart an agent around it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mock {
    tasks: Arc<Mutex<BTreeMap<String, MockTask>>>,
    /// The names of the tasks that were started, in their order.
    #[cfg(test)]
    starts: Arc<Mutex<Vec<String>>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Config {
    start_error: String,
    start_error_recoverable: bool,
    start_block_for: Option<GoDuration>,
    run_for: Option<GoDuration>,
    exit_code: i32,
    exit_signal: i32,
    exit_err_msg: String,
    kill_after: Option<GoDuration>,
    signal_error: String,
}

impl Mock {
    fn config(config: &Map<String, Value>) -> Result<Config, String> {
        serde_json::from_value(Value::Object(config.clone())).map_err(|error| format!("config: {error}"))
    }

    async fn start_task(&self, request: StartRequest) -> Result<Running, StartError> {
        let config = Self::config(&request.config).map_err(StartError::Invalid)?;
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
        #[cfg(test)]
        self.starts.lock().unwrap_or_else(PoisonError::into_inner).push(request.task.clone());
        let task = MockTask { config, started: Instant::now(), stop: watch::Sender::new(None) };
        self.lock().insert(request.id.clone(), task.clone());
        let handle = TaskHandle { id: request.id, driver: Value::Null };
        Ok(Running { handle, ended: run(task).boxed() })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, MockTask>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tasks that were started, in their order.
    #[cfg(test)]
    pub(crate) fn starts(&self) -> Vec<String> {
        self.starts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// As a reboot of the machine: nothing that ran is there any more.
    #[cfg(test)]
    pub(crate) fn lose_all(&self) {
        self.lock().clear();
    }
}

/// Its end follows from its start alone, so that a later agent sees the same one.
async fn run(task: MockTask) -> ExitResult {
    let MockTask { config, started, stop } = task;
    let own_end = async {
        tokio::time::sleep_until(started + config.run_for.unwrap_or_default().to_std()).await;
        match (config.exit_signal, config.exit_err_msg.as_str()) {
            (0, "") => Exit::code(config.exit_code),
            (0, error) => Exit::unknown(error),
            (signal, _) => Exit::signal(signal),
        }
    };
    let mut stopped = stop.subscribe();
    let stop = async {
        match stopped.wait_for(Option::is_some).await.ok().and_then(|stop| *stop) {
            Some(stop) => stop,
            None => std::future::pending().await,
        }
    };
    let exit = tokio::select! {
        biased;
        stop = stop => {
            let ignored_for = config.kill_after.unwrap_or_default().to_std();
            tokio::time::sleep_until(stop.at + ignored_for.min(stop.grace)).await;
            Exit::signal(if ignored_for > stop.grace { libc::SIGKILL } else { stop.signal })
        }
        exit = own_end => exit,
    };
    ExitResult { exit, ..ExitResult::default() }
}

impl Driver for Mock {
    fn fs_isolation(&self) -> FsIsolation {
        FsIsolation::None
    }

    fn fingerprint(&self) -> DriverInfo {
        DriverInfo { detected: true, healthy: true, ..DriverInfo::default() }
    }

    fn check(&self, config: &Map<String, Value>) -> Result<(), String> {
        Self::config(config).map(drop)
    }

    fn start(&self, request: StartRequest) -> BoxFuture<'_, Result<Running, StartError>> {
        self.start_task(request).boxed()
    }

    /// A mock task lives in its agent and ends with it, but for agents that share the driver.
    fn recover(&self, handle: TaskHandle) -> BoxFuture<'_, Option<Running>> {
        let found = self.lock().get(&handle.id).cloned();
        std::future::ready(found.map(|task| Running { handle, ended: run(task).boxed() })).boxed()
    }

    fn find<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Option<Running>> {
        self.recover(TaskHandle { id: id.to_owned(), driver: Value::Null })
    }

    fn stop<'a>(&'a self, id: &'a str, signal: i32, grace: Duration) -> BoxFuture<'a, Result<(), DriverError>> {
        if let Some(task) = self.lock().get(id) {
            task.stop.send_replace(Some(Stop { signal, grace, at: Instant::now() }));
        }
        std::future::ready(Ok(())).boxed()
    }

    fn signal<'a>(&'a self, id: &'a str, _: i32) -> BoxFuture<'a, Result<(), DriverError>> {
        let error = self.lock().get(id).map(|task| task.config.signal_error.clone()).unwrap_or_default();
        let result = if error.is_empty() { Ok(()) } else { Err(DriverError(error)) };
        std::future::ready(result).boxed()
    }

    fn forget<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), DriverError>> {
        self.lock().remove(id);
        std::future::ready(Ok(())).boxed()
    }
}
