//! The trait of drivers, what a start is told, and what a driver answers.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::PathBuf;
use std::time::Duration;

use drover_api::allocation::TaskResources;
use drover_api::client_node::DriverInfo;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::found_image::ImageSlot;
use crate::networks::TaskNetwork;
use drover_supervisor::Usage;
use drover_supervisor::protocol::{BindMount, Exit};

/// How far a driver separates a task's files from the host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FsIsolation {
    /// The task sees the host's files.
    None,
    /// Its own directory is its root.
    Chroot,
    /// It sees the files of an image, and its own directories among them. What the host's environment says is not for
    /// them.
    Image,
}

/// The network that a task is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NetworkPlace {
    /// That of the node.
    Host,
    /// One of its own, with a loopback device only.
    Own,
    /// That of its allocation, or one on the node's bridge that was made for it; it is joined.
    At(TaskNetwork),
}

/// Everything that starting a task needs.
#[derive(Clone, Debug)]
pub(crate) struct StartRequest {
    /// `<allocID>/<task>/<8 random>`.
    pub(crate) id: String,
    /// The task's name.
    pub(crate) task: String,
    /// The version of its job.
    pub(crate) job_version: i64,
    /// The driver's settings, interpolated.
    pub(crate) config: Map<String, Value>,
    /// The whole environment.
    pub(crate) env: BTreeMap<String, String>,
    /// The allocation's directory.
    pub(crate) alloc_dir: PathBuf,
    /// The task's directory.
    pub(crate) task_dir: PathBuf,
    /// A directory that only the agent can write, for the FIFOs of output.
    pub(crate) fifo_dir: PathBuf,
    /// The operating system's user; empty for the driver's default.
    pub(crate) user: String,
    /// The number of the allocation's own user and group, which alone get into its directory. None: it has none.
    pub(crate) own_user: Option<u32>,
    /// How output is kept; none: thrown away.
    pub(crate) logs: Option<LogLimits>,
    /// The grace when the node is powered off.
    pub(crate) kill_timeout: Duration,
    /// What it holds of the node.
    pub(crate) resources: TaskResources,
    /// Files of the host that it may open as devices.
    pub(crate) devices: Vec<PathBuf>,
    /// The network of its group.
    pub(crate) network: NetworkPlace,
    /// Its volumes.
    pub(crate) mounts: Vec<BindMount>,
    /// By what its image is pulled.
    pub(crate) pull_secrets: PullSecrets,
    /// Its image, once the driver's preparation has found it.
    pub(crate) image: ImageSlot,
}

/// Secrets by which an image is pulled, in the order in which they count: names and keys.
#[derive(Clone, Default)]
pub(crate) struct PullSecrets(pub(crate) Vec<(String, BTreeMap<String, Vec<u8>>)>);

impl Debug for PullSecrets {
    /// Not what they are.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} secrets", self.0.len())
    }
}

/// How much output is kept of each stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogLimits {
    /// Files.
    pub(crate) max_files: u32,
    /// Bytes per file.
    pub(crate) max_file_bytes: u64,
}

/// What finds a task again; the driver's own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TaskHandle {
    /// The task's id.
    pub(crate) id: String,
    /// The driver's part.
    pub(crate) driver: Value,
}

/// How a run ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExitResult {
    /// Code, signal and error.
    pub(crate) exit: Exit,
    /// Whether it used too much memory.
    pub(crate) oom_killed: bool,
}

/// From when on a driver reports a task healthy that it runs: a check beside those of the job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum HealthReport {
    /// As soon as it runs.
    #[default]
    AtOnce,
    /// This long after its start.
    After(Duration),
    /// Not at all.
    Never,
}

/// A task that runs.
pub(crate) struct Running {
    /// What finds it again.
    pub(crate) handle: TaskHandle,
    /// Its end.
    pub(crate) ended: BoxFuture<'static, ExitResult>,
    /// From when on it counts as well.
    pub(crate) health: HealthReport,
}

/// Why a task did not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// Its definition is wrong; another try does not help.
    #[error("{0}")]
    Invalid(String),
    /// It may start another time.
    #[error("{0}")]
    Recoverable(String),
}

/// Why a running task was not acted on.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct DriverError(pub(crate) String);

/// What a task uses, again and again.
pub(crate) type UsageStream = BoxStream<'static, Result<Usage, StatsError>>;

/// Why there is no sample.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StatsError {
    /// There never will be one.
    #[error("{0}")]
    Unsupported(String),
    /// There may be one another time.
    #[error("{0}")]
    Recoverable(String),
}

/// One way to run tasks.
pub(crate) trait Driver: Debug + Send + Sync {
    /// How far it separates files.
    fn fs_isolation(&self) -> FsIsolation;
    /// Whether volumes appear in its tasks where they ask for them.
    fn mounts_volumes(&self) -> bool;
    /// Whether the node has it and whether it works.
    fn fingerprint(&self) -> DriverInfo;
    /// Checks a task's settings.
    fn check(&self, config: &Map<String, Value>) -> Result<(), String>;
    /// Labels of the ports that lead into a network of the task's own on the node's bridge, which it gets in a group
    /// that is in the node's network; none: it is in the node's too.
    fn bridged_ports(&self, _: &Map<String, Value>) -> Option<Vec<String>> {
        None
    }
    /// Gets what the start of a task needs from elsewhere, and may take long. It may be broken off at any moment.
    fn prepare<'a>(&'a self, _: &'a StartRequest) -> BoxFuture<'a, Result<(), StartError>> {
        std::future::ready(Ok(())).boxed()
    }
    /// Starts a task. When this fails nothing is left of it.
    fn start(&self, request: StartRequest) -> BoxFuture<'_, Result<Running, StartError>>;
    /// Finds a task that an earlier agent started; none when it is gone.
    fn recover(&self, handle: TaskHandle) -> BoxFuture<'_, Option<Running>>;
    /// Finds a task that an earlier agent began to start, and of which it has no handle: by its id, or by the beginning
    /// of it that ends with a slash.
    fn find<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Option<Running>>;
    /// Asks a task to end, and ends it and its children after the grace. Returns at once.
    fn stop<'a>(&'a self, id: &'a str, signal: i32, grace: Duration) -> BoxFuture<'a, Result<(), DriverError>>;
    /// Sends a signal to a running task.
    fn signal<'a>(&'a self, id: &'a str, signal: i32) -> BoxFuture<'a, Result<(), DriverError>>;
    /// What a running task uses, one sample each `every`, the first at once; ends with the run.
    fn stats(&self, handle: &TaskHandle, every: Duration) -> Result<UsageStream, StatsError>;
    /// Forgets a task that has ended.
    fn forget<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), DriverError>>;
}
