//! Driver `mock`: runs nothing and behaves as its settings say. For tests and for nodes that only measure.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use drover_api::GoDuration;
use drover_api::client_node::DriverInfo;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::sync::watch;

use super::{Driver, DriverError, ExitResult, FsIsolation, Running, StartError, StartRequest, TaskHandle};
use crate::supervisor::protocol::Exit;

/// A stop that a running mock task was asked for.
#[derive(Clone, Copy, Debug)]
struct Stop {
    signal: i32,
    grace: Duration,
}

/// The driver. Clones share their tasks, so that a test can restart an agent around it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mock {
    tasks: Arc<Mutex<BTreeMap<String, watch::Sender<Option<Stop>>>>>,
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
        let (stop, stopped) = watch::channel(None);
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).insert(request.id.clone(), stop);
        let handle = TaskHandle { id: request.id, driver: Value::Null };
        Ok(Running { handle, ended: run(config, stopped).boxed() })
    }
}

async fn run(config: Config, mut stopped: watch::Receiver<Option<Stop>>) -> ExitResult {
    let own_end = async {
        tokio::time::sleep(config.run_for.unwrap_or_default().to_std()).await;
        match (config.exit_signal, config.exit_err_msg.as_str()) {
            (0, "") => Exit::code(config.exit_code),
            (0, error) => Exit::unknown(error),
            (signal, _) => Exit::signal(signal),
        }
    };
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
            tokio::time::sleep(ignored_for.min(stop.grace)).await;
            Exit::signal(if ignored_for > stop.grace { libc::SIGKILL } else { stop.signal })
        }
        exit = own_end => exit,
    };
    ExitResult { exit, oom_killed: false }
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

    /// A mock task lives in its agent and ends with it.
    fn recover(&self, _: TaskHandle) -> BoxFuture<'_, Option<Running>> {
        std::future::ready(None).boxed()
    }

    fn stop<'a>(&'a self, id: &'a str, signal: i32, grace: Duration) -> BoxFuture<'a, Result<(), DriverError>> {
        if let Some(task) = self.tasks.lock().unwrap_or_else(PoisonError::into_inner).get(id) {
            task.send_replace(Some(Stop { signal, grace }));
        }
        std::future::ready(Ok(())).boxed()
    }

    fn forget<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), DriverError>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        std::future::ready(Ok(())).boxed()
    }
}
