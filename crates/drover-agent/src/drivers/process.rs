//! What the drivers of plain processes share: talking to the supervisor, users, commands, output.

use std::fmt::Debug;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use drover_api::client_node::DriverInfo;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use serde_json::{Map, Value};
use tokio::sync::{Semaphore, oneshot};

use super::driver::{
    Driver, DriverError, ExitResult, FsIsolation, HealthReport, Running, StartError, StartRequest, StatsError,
    TaskHandle, UsageStream,
};
use super::users::Account;
use crate::folder;
use drover_supervisor::client::{CallError, Client, Recovery};
use drover_supervisor::protocol::{BindMount, CgroupSpec, Exit, Handle, LogSpec, RefusalCode, StartSpec};

/// What tells one driver of plain processes from another.
pub(crate) trait ProcessKind: Debug + Send + Sync {
    /// How far it separates files.
    const ISOLATION: FsIsolation;
    /// Whether volumes appear in its tasks.
    const MOUNTS_VOLUMES: bool;
    /// Whether the node has it and whether it works.
    fn fingerprint(&self) -> DriverInfo;
    /// Checks a task's settings.
    fn check(&self, config: &Map<String, Value>) -> Result<(), String>;
    /// The process that a task is.
    fn spec(&self, request: StartRequest) -> Result<StartSpec, StartError>;
    /// Starts that may be under way at the same time; none: all.
    fn turns(&self) -> Option<&Semaphore>;
}

/// A driver of processes under the supervisor.
#[derive(Debug)]
pub(crate) struct ProcessDriver<K> {
    kind: K,
    supervisor: Client,
}

impl<K> ProcessDriver<K> {
    /// Over this supervisor.
    pub(super) fn over(kind: K, supervisor: Client) -> Self {
        Self { kind, supervisor }
    }
}

impl<K: ProcessKind> ProcessDriver<K> {
    async fn start_task(&self, request: StartRequest) -> Result<Running, StartError> {
        let spec = self.kind.spec(request)?;
        let _turn = match self.kind.turns() {
            // The semaphore is never closed.
            Some(turns) => Some(turns.acquire().await),
            None => None,
        };
        start(&self.supervisor, spec).await
    }
}

impl<K: ProcessKind> Driver for ProcessDriver<K> {
    fn mounts_volumes(&self) -> bool {
        K::MOUNTS_VOLUMES
    }

    fn fs_isolation(&self) -> FsIsolation {
        K::ISOLATION
    }

    fn fingerprint(&self) -> DriverInfo {
        self.kind.fingerprint()
    }

    fn check(&self, config: &Map<String, Value>) -> Result<(), String> {
        self.kind.check(config)
    }

    fn start(&self, request: StartRequest) -> BoxFuture<'_, Result<Running, StartError>> {
        self.start_task(request).boxed()
    }

    fn recover(&self, handle: TaskHandle) -> BoxFuture<'_, Option<Running>> {
        recover(&self.supervisor, handle).boxed()
    }

    fn find<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Option<Running>> {
        find(&self.supervisor, id).boxed()
    }

    fn stop<'a>(&'a self, id: &'a str, signal: i32, grace: Duration) -> BoxFuture<'a, Result<(), DriverError>> {
        self.supervisor.stop(id, signal, grace).map(carried).boxed()
    }

    fn signal<'a>(&'a self, id: &'a str, signal: i32) -> BoxFuture<'a, Result<(), DriverError>> {
        self.supervisor.signal(id, signal).map(carried).boxed()
    }

    fn stats(&self, handle: &TaskHandle, every: Duration) -> Result<UsageStream, StatsError> {
        usage(handle, every)
    }

    fn forget<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), DriverError>> {
        self.supervisor.acknowledge(id).map(carried).boxed()
    }
}

/// Starts a process. When this fails nothing is left of it.
async fn start(supervisor: &Client, spec: StartSpec) -> Result<Running, StartError> {
    let id = spec.id.clone();
    match supervisor.start(spec).await {
        Ok((handle, ended)) => running(handle, ended),
        Err(CallError::Refused(refusal)) if refusal.code == RefusalCode::Invalid => {
            Err(StartError::Invalid(refusal.message))
        }
        Err(CallError::Refused(refusal)) => Err(StartError::Recoverable(refusal.message)),
        Err(error @ (CallError::Disconnected | CallError::TimedOut | CallError::Closed)) => {
            // It may have started all the same: nothing may be left of a start that failed.
            if let Err(error) = supervisor.stop(&id, libc::SIGKILL, Duration::ZERO).await {
                tracing::warn!(error = %error, task = id, "a start without answer could not be undone");
            }
            Err(StartError::Recoverable(error.to_string()))
        }
    }
}

/// Finds a process that an earlier agent started.
pub(super) async fn recover(supervisor: &Client, handle: TaskHandle) -> Option<Running> {
    let handle: Handle = match serde_json::from_value(handle.driver) {
        Ok(handle) => handle,
        Err(error) => {
            tracing::error!(error = %error, task = handle.id, "a task handle cannot be read");
            return None;
        }
    };
    match supervisor.recover(handle.clone()).await {
        Ok(Recovery::Running(ended)) => running(handle, ended).ok(),
        Ok(Recovery::Gone) => None,
        Err(error) => {
            tracing::warn!(error = %error, task = handle.id, "a task was not found again");
            None
        }
    }
}

/// Finds a process of which an earlier agent has no handle.
pub(super) async fn find(supervisor: &Client, id: &str) -> Option<Running> {
    match supervisor.find(id).await {
        Ok(found) => found.and_then(|(handle, ended)| running(handle, ended).ok()),
        Err(error) => {
            tracing::warn!(error = %error, task = id, "a task was not looked for");
            None
        }
    }
}

/// What the control group of a process uses, until it is gone with the run.
pub(super) fn usage(handle: &TaskHandle, every: Duration) -> Result<UsageStream, StatsError> {
    let handle: Handle = serde_json::from_value(handle.driver.clone())
        .map_err(|error| StatsError::Unsupported(format!("its handle cannot be read: {error}")))?;
    let Some(cgroup) = handle.cgroup else {
        return Err(StatsError::Unsupported("it has no control group that would count".to_owned()));
    };
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let samples = futures::stream::unfold((ticks, cgroup), async |(mut ticks, cgroup)| {
        ticks.tick().await;
        let used = drover_supervisor::usage(&cgroup)?;
        Some((Ok(used), (ticks, cgroup)))
    });
    Ok(samples.boxed())
}

/// The answer of the supervisor, as a driver's error.
pub(super) fn carried(result: Result<(), CallError>) -> Result<(), DriverError> {
    result.map_err(|error| DriverError(error.to_string()))
}

/// Where the output goes.
pub(super) fn log_spec(request: &StartRequest) -> Result<Option<LogSpec>, StartError> {
    let Some(limits) = request.logs else { return Ok(None) };
    folder::make(&request.fifo_dir, 0o700).map_err(|error| {
        StartError::Recoverable(format!("directory {} cannot be made: {error}", request.fifo_dir.display()))
    })?;
    Ok(Some(LogSpec {
        alloc_dir: request.alloc_dir.to_string_lossy().into_owned(),
        fifo_dir: request.fifo_dir.to_string_lossy().into_owned(),
        task: request.task.clone(),
        max_files: limits.max_files,
        max_file_bytes: limits.max_file_bytes,
    }))
}

/// A device of the host, at the same place in the task's view.
pub(super) fn device_mount(path: &Path) -> BindMount {
    let path = path.to_string_lossy().into_owned();
    BindMount { source: path.clone(), target: path, read_only: false }
}

/// The rule by which a control group permits a device; none for a plain file, which needs none.
pub(super) fn device_rule(path: &Path) -> Option<String> {
    let metadata = std::fs::metadata(path).ok()?;
    let kind = match metadata.file_type() {
        kind if kind.is_char_device() => 'c',
        kind if kind.is_block_device() => 'b',
        _ => return None,
    };
    let device = metadata.rdev();
    Some(format!("{kind} {}:{} rwm", rustix::fs::major(device), rustix::fs::minor(device)))
}

/// The control group of a task that is only counted and, at its end, emptied.
pub(super) fn counting_cgroup(request: &StartRequest) -> CgroupSpec {
    CgroupSpec { name: request.id.replace('/', "."), ..CgroupSpec::default() }
}

/// Tells a task who it is.
pub(super) fn tell_user(account: &Account, env: &mut std::collections::BTreeMap<String, String>) {
    env.insert("USER".to_owned(), account.name.clone());
    env.insert("LOGNAME".to_owned(), account.name.clone());
    env.insert("HOME".to_owned(), account.home.to_string_lossy().into_owned());
}

pub(super) fn running(handle: Handle, ended: oneshot::Receiver<Exit>) -> Result<Running, StartError> {
    let id = handle.id.clone();
    let driver = serde_json::to_value(handle).map_err(|error| StartError::Recoverable(error.to_string()))?;
    let ended = async move {
        match ended.await {
            Ok(exit) => ExitResult { oom_killed: exit.oom.is_some(), exit },
            // The connection's task is gone, so the agent is ending: this run's end is the next agent's to see.
            Err(_) => std::future::pending().await,
        }
    };
    Ok(Running { handle: TaskHandle { id, driver }, ended: ended.boxed(), health: HealthReport::AtOnce })
}
