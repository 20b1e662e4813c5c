//! The messages between agent and supervisor, and how they are framed.
//!
//! A frame is a big-endian `u32` length and that many bytes of JSON. The first request on a connection is
//! [`Request::Hello`] with the range of versions that the client speaks; the server answers with the newest common one.
//! Both sides read the version before theirs, so that an agent can work with the supervisor that an older agent
//! started.

use std::io;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The oldest protocol version that this build speaks.
pub const MIN_VERSION: u32 = 1;
/// The newest protocol version that this build speaks.
///
/// 2: control groups, sandboxes and upgrades. 3: a cap on all tasks together.
pub const MAX_VERSION: u32 = 3;
/// The largest frame: an environment may fill what the kernel lets `execve` take.
pub const MAX_FRAME_BYTES: usize = 4 * 1024 * 1024;

/// A request with the number that its reply repeats.
#[derive(Debug, Serialize, Deserialize)]
pub struct RequestFrame {
    /// Chosen by the client.
    pub seq: u64,
    /// What to do.
    pub request: Request,
}

/// What an agent may ask.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Request {
    /// Opens a connection.
    Hello {
        /// Oldest version of the client.
        min_version: u32,
        /// Newest version of the client.
        max_version: u32,
        /// The client's build.
        build: String,
    },
    /// Caps what all tasks together may use, from now on.
    Cap(Slice),
    /// Lists all tasks and subscribes this connection to exits.
    Subscribe,
    /// Starts a task. A task of this id that exists is an error.
    Start(Box<StartSpec>),
    /// Takes over a task that an earlier supervisor started.
    Adopt(Box<Handle>),
    /// Sends a signal, and SIGKILL to what is left after the timeout. Returns at once; the exit is an event.
    Stop {
        /// The task.
        id: String,
        /// The signal's number.
        signal: i32,
        /// The grace in milliseconds.
        timeout_ms: u64,
    },
    /// Sends a signal to the task's process.
    Signal {
        /// The task.
        id: String,
        /// The signal's number.
        signal: i32,
    },
    /// Forgets an ended task.
    Acknowledge {
        /// The task.
        id: String,
    },
    /// Replaces the supervisor's program in place: same process, same tasks. There is no answer when it succeeds, for
    /// the connection ends with the old program.
    Upgrade {
        /// Absolute path of the new program.
        binary: String,
    },
}

/// What the server sends.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ServerFrame {
    /// The answer to a request.
    Reply {
        /// The request's number.
        seq: u64,
        /// The answer.
        result: Result<Reply, Refusal>,
    },
    /// A task ended.
    Exited {
        /// The task.
        id: String,
        /// How.
        exit: Exit,
    },
}

/// The answers to the requests.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Reply {
    /// To [`Request::Hello`].
    Hello {
        /// The version of this connection.
        version: u32,
        /// The supervisor's build.
        build: String,
        /// Its process id.
        pid: i32,
    },
    /// To [`Request::Subscribe`].
    Tasks(Vec<TaskReport>),
    /// To [`Request::Start`] and [`Request::Adopt`].
    Started(Box<Handle>),
    /// To all others.
    Done,
}

/// A request that was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// What kind of refusal.
    pub code: RefusalCode,
    /// The reason, for people.
    pub message: String,
}

/// The kinds of refusals that a client acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RefusalCode {
    /// No version in common.
    Version,
    /// The request is unknown or malformed.
    Unsupported,
    /// No task of this id.
    UnknownTask,
    /// A task of this id exists.
    TaskExists,
    /// The process of an adopted task is gone, and with it its exit code.
    Gone,
    /// The task cannot be started; another try may help.
    StartFailed,
    /// The task cannot be started as it is defined.
    Invalid,
    /// The operating system refused.
    System,
}

impl Refusal {
    /// A refusal of this kind.
    pub fn new(code: RefusalCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// Everything that starting a task needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StartSpec {
    /// `<allocID>/<task>/<8 random>`.
    pub id: String,
    /// Absolute path of the executable.
    pub command: String,
    /// Arguments after the command.
    pub args: Vec<String>,
    /// The whole environment, sorted by name.
    pub env: Vec<(String, String)>,
    /// Absolute path of the working directory.
    pub work_dir: String,
    /// Another user than the supervisor's.
    pub user: Option<Credentials>,
    /// The value for `/proc/<pid>/oom_score_adj`.
    pub oom_score_adj: i32,
    /// Where output goes; absent: nowhere.
    pub logs: Option<LogSpec>,
    /// The grace when the whole node is powered off.
    pub kill_timeout_ms: u64,
    /// Its control group; absent: that of the supervisor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<CgroupSpec>,
    /// Its own view of the machine; absent: that of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxSpec>,
}

/// The limits of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CgroupSpec {
    /// The name of its group.
    pub name: String,
    /// Weight against other tasks when the CPU is short, in shares.
    pub cpu_shares: Option<u64>,
    /// Microseconds of CPU time in each 100 ms.
    pub cpu_quota_us: Option<u64>,
    /// More memory than this ends it.
    pub memory_hard_bytes: Option<u64>,
    /// Down to this much it is left in peace when memory is short.
    pub memory_soft_bytes: Option<u64>,
    /// Its own cores, as `0,5-7`; empty for those that all share.
    pub cores: String,
    /// The most processes and threads.
    pub pids_max: Option<u64>,
    /// Only the usual character devices.
    pub restrict_devices: bool,
    /// And these, as `c 1:5 rwm`.
    #[serde(default)]
    pub devices: Vec<String>,
}

/// What all tasks together may use; absent: what there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Slice {
    /// Memory.
    pub memory_bytes: Option<u64>,
    /// Microseconds of CPU time in each 100 ms.
    pub cpu_quota_us: Option<u64>,
}

/// How far a task is separated from the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxSpec {
    /// The directory that becomes its root.
    pub root: String,
    /// The directory that it shares with the other tasks of its allocation, seen as `/alloc`.
    pub shared: String,
    /// Paths of the host that it sees read-only, at the same place.
    pub host_paths: Vec<String>,
    /// The directory of the host beneath which these paths are looked up; absent: the host's root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rootfs: Option<String>,
    /// Files of its `/etc`, which is its own and read-only then; none: what `host_paths` shows there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<ViewFile>,
    /// More of the host's directories.
    pub mounts: Vec<BindMount>,
    /// Whether it sees no process but its own.
    pub private_pids: bool,
    /// Whether it shares no memory segments and queues with others.
    pub private_ipc: bool,
    /// Whether it has a network of its own, with a loopback device only. A supervisor that does not know
    /// `network_namespace` yet keeps a task so from the node's.
    pub private_network: bool,
    /// The file of the network namespace that it joins instead; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_namespace: Option<String>,
    /// The host name that it sees; empty: the node's.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hostname: String,
    /// Capabilities that it can ever have.
    pub bounding: Vec<String>,
    /// Capabilities that it has although it is not root.
    pub ambient: Vec<String>,
    /// Limits of its processes: name, soft and hard value.
    pub limits: Vec<(String, u64, u64)>,
}

/// A file that is made for a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ViewFile {
    /// Its name in `/etc`, without a folder.
    pub name: String,
    /// What it says.
    pub text: String,
}

/// A directory of the host in a task's view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BindMount {
    /// On the host.
    pub source: String,
    /// In the task's root, absolute.
    pub target: String,
    /// Whether it is mounted read-only.
    pub read_only: bool,
}

/// The version of the host's control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CgroupVersion {
    /// A hierarchy per controller.
    V1,
    /// One tree.
    V2,
}

/// What finds a task's control group again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CgroupHandle {
    /// How its files are named.
    pub version: CgroupVersion,
    /// Its folders.
    pub dirs: Vec<String>,
    /// A folder that it shares with other tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<String>,
}

/// Memory that ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OomKill {
    /// The limit.
    pub limit_bytes: u64,
    /// The most that was in use.
    pub peak_bytes: u64,
}

/// The user that a task runs as.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Credentials {
    /// User id.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

/// Where the output of a task goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogSpec {
    /// The allocation's directory; files go to `alloc/logs` beneath it.
    pub alloc_dir: String,
    /// A directory that only the agent can write, for the FIFOs.
    pub fifo_dir: String,
    /// The task's name, the first part of the file names.
    pub task: String,
    /// How many files are kept per stream.
    pub max_files: u32,
    /// The largest size of a file.
    pub max_file_bytes: u64,
}

/// What finds a task again: by its supervisor, or after that one's death by pid and start time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Handle {
    /// The task's id.
    pub id: String,
    /// Process id, also of its session and group.
    pub pid: i32,
    /// Start time in clock ticks since boot.
    pub start_ticks: u64,
    /// The boot that pid and start time belong to.
    pub boot_id: String,
    /// Where output goes.
    pub logs: Option<LogSpec>,
    /// The grace when the whole node is powered off.
    pub kill_timeout_ms: u64,
    /// Its control group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<CgroupHandle>,
    /// Whether it has namespaces of its own.
    #[serde(default)]
    pub is_sandboxed: bool,
    /// Whether a container runtime has started it, and writes its output into the FIFOs in its stead.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_container: bool,
}

/// A task as [`Request::Subscribe`] lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskReport {
    /// What finds it again.
    pub handle: Handle,
    /// How it ended; absent while it lives.
    pub exit: Option<Exit>,
}

/// How a process ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Exit {
    /// The exit code; 128 + n for signal n; -1 when it is not known.
    pub code: i32,
    /// The signal that ended it, or 0.
    pub signal: i32,
    /// Why the code is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Memory that ran out in its control group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oom: Option<OomKill>,
}

impl Exit {
    /// An end by exit code.
    pub fn code(code: i32) -> Self {
        Self { code, ..Self::default() }
    }

    /// An end by signal.
    pub fn signal(signal: i32) -> Self {
        Self { code: 128 + signal, signal, ..Self::default() }
    }

    /// An end of which only the fact is known.
    pub fn unknown(error: impl Into<String>) -> Self {
        Self { code: -1, error: Some(error.into()), ..Self::default() }
    }

    /// Whether the process ended by itself with code 0.
    pub fn is_success(&self) -> bool {
        self.code == 0 && self.signal == 0 && self.error.is_none()
    }
}

/// Reads one frame; `None` at a clean end of the stream.
pub(crate) async fn read_frame<T, R>(from: &mut R) -> io::Result<Option<T>>
where
    T: for<'a> Deserialize<'a>,
    R: AsyncRead + Unpin,
{
    match read_bytes(from).await? {
        Some(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(invalid),
        None => Ok(None),
    }
}

/// Reads the bytes of one frame; `None` at a clean end of the stream.
pub(crate) async fn read_bytes<R: AsyncRead + Unpin>(from: &mut R) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0_u8; 4];
    match from.read_exact(&mut length).await {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let length = usize::try_from(u32::from_be_bytes(length)).map_err(invalid)?;
    if length > MAX_FRAME_BYTES {
        return Err(invalid(format!("a frame of {length} bytes is larger than {MAX_FRAME_BYTES}")));
    }
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes).await?;
    Ok(Some(bytes))
}

/// Writes one frame.
pub(crate) async fn write_frame<T, W>(to: &mut W, message: &T) -> io::Result<()>
where
    T: Serialize,
    W: AsyncWrite + Unpin,
{
    let body = serde_json::to_vec(message).map_err(invalid)?;
    if body.len() > MAX_FRAME_BYTES {
        return Err(invalid(format!("a frame of {} bytes is larger than {MAX_FRAME_BYTES}", body.len())));
    }
    let length = u32::try_from(body.len()).map_err(invalid)?;
    let mut frame = Vec::with_capacity(body.len() + 4);
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(&body);
    to.write_all(&frame).await?;
    to.flush().await
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
