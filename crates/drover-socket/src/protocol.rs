//! The frames of the agent's socket, and of the exchanges that a gateway has with an agent through its tunnel.
//!
//! A frame is a big-endian `u32` length, one byte for its kind, and that many bytes less one. The client sends one
//! [`Request`]; the server answers with any number of [`Answer`]s and data frames, the last of which is
//! [`Answer::Done`], [`Answer::Exited`] or [`Answer::Error`]. While a command runs, the client sends data frames for
//! its input and [`Input`]s.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::disks::DiskEntry;

/// The largest frame.
pub const MAX_FRAME_BYTES: usize = 1024 * 1024;
/// The most data in one frame.
pub const MAX_DATA_BYTES: usize = 64 * 1024;

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// JSON.
    Message,
    /// Bytes: of a file, of a command's standard output, or for its standard input.
    Data,
    /// Bytes of a command's standard error.
    ErrorData,
}

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What it carries.
    pub kind: FrameKind,
    /// The bytes.
    pub payload: Vec<u8>,
}

/// A change of a node's host volumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum VolumeChange {
    /// Makes a host volume of this node.
    Create {
        /// Its name, by which jobs ask for it.
        name: String,
        /// Its id.
        id: String,
        /// Who makes it: `mkdir`.
        plugin: String,
        /// The plugin's settings.
        #[serde(default)]
        parameters: BTreeMap<String, String>,
    },
    /// Offers a folder that exists as a host volume.
    Register {
        /// Its name.
        name: String,
        /// Its id.
        id: String,
        /// The folder.
        path: PathBuf,
    },
    /// Takes a host volume away that was made or registered here, with its files when they were made here.
    Delete {
        /// Its name.
        name: String,
    },
}

/// What a client may ask. An allocation is named by its uid, the beginning of it, or `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Request {
    /// What runs here.
    Allocations,
    /// Restarts tasks.
    Restart {
        /// The allocation.
        allocation: String,
        /// One task that runs; none: all that run.
        #[serde(default)]
        task: Option<String>,
        /// All tasks but poststop ones, ended ones too, in the order of their lifecycle.
        #[serde(default)]
        all_tasks: bool,
    },
    /// Sends a signal.
    Signal {
        /// The allocation.
        allocation: String,
        /// The task; none: all. Those of all that do not run make an error that names them; the others got it.
        #[serde(default)]
        task: Option<String>,
        /// The signal's name.
        signal: String,
    },
    /// Ends its tasks in their order.
    Stop {
        /// The allocation.
        allocation: String,
    },
    /// Reads a task's output.
    Logs {
        /// The allocation.
        allocation: String,
        /// The task.
        task: String,
        /// Which output.
        #[serde(default)]
        stream: LogStream,
        /// Where the offset counts from.
        #[serde(default)]
        origin: Origin,
        /// Bytes from there.
        #[serde(default)]
        offset: u64,
        /// The number of the file in which the offset counts; none: it counts over all that are kept. What has seen a
        /// position goes on there, also when earlier files were rotated away meanwhile.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<u64>,
        /// Whether to wait for more until the task is dead.
        #[serde(default)]
        follow: bool,
    },
    /// Lists a directory.
    List {
        /// The allocation.
        allocation: String,
        /// Beneath its directory.
        path: String,
    },
    /// Describes a file.
    Stat {
        /// The allocation.
        allocation: String,
        /// Beneath its directory.
        path: String,
    },
    /// Reads a file.
    Read {
        /// The allocation.
        allocation: String,
        /// Beneath its directory.
        path: String,
        /// Where the offset counts from.
        #[serde(default)]
        origin: Origin,
        /// Bytes from there.
        #[serde(default)]
        offset: u64,
        /// The most bytes.
        #[serde(default)]
        limit: Option<u64>,
    },
    /// Reads a file and what is added to it, until another file has its name, or none: that is its end. Where the file
    /// is cut short, it is read from its beginning.
    Follow {
        /// The allocation.
        allocation: String,
        /// Beneath its directory.
        path: String,
        /// Where the offset counts from.
        #[serde(default)]
        origin: Origin,
        /// Bytes from there.
        #[serde(default)]
        offset: u64,
    },
    /// Reads what a sticky disk keeps of one that has ended: the directory `alloc/data`, and `local` of each task.
    Snapshot {
        /// The allocation.
        allocation: String,
    },
    /// What its tasks use.
    Stats {
        /// The allocation.
        allocation: String,
        /// Milliseconds between samples; none: one sample.
        #[serde(default)]
        every_ms: Option<u64>,
    },
    /// What its checks found last.
    Checks {
        /// The allocation.
        allocation: String,
    },
    /// Has the files and records of an ended one go.
    Gc {
        /// The allocation.
        allocation: String,
    },
    /// What the node itself uses, measured over a moment.
    HostStats,
    /// Shows the node's metadata.
    Meta,
    /// Changes the host volumes of this node.
    Volume(VolumeChange),
    /// Sets metadata of the node; null hides a configured key and removes another one.
    SetMeta {
        /// What is to change.
        changes: BTreeMap<String, Option<String>>,
    },
    /// Runs a command in a task.
    Exec {
        /// The allocation.
        allocation: String,
        /// The task.
        task: String,
        /// The command and its arguments.
        command: Vec<String>,
        /// Whether it gets a terminal.
        #[serde(default)]
        tty: bool,
        /// The size of the terminal.
        #[serde(default)]
        size: Option<TtySize>,
    },
}

impl Request {
    /// The allocation that it is about; none: it is about the node.
    pub fn allocation(&self) -> Option<&str> {
        match self {
            Self::Restart { allocation, .. }
            | Self::Signal { allocation, .. }
            | Self::Stop { allocation }
            | Self::Logs { allocation, .. }
            | Self::List { allocation, .. }
            | Self::Stat { allocation, .. }
            | Self::Read { allocation, .. }
            | Self::Follow { allocation, .. }
            | Self::Snapshot { allocation }
            | Self::Stats { allocation, .. }
            | Self::Checks { allocation }
            | Self::Gc { allocation }
            | Self::Exec { allocation, .. } => Some(allocation),
            Self::Allocations | Self::HostStats | Self::Meta | Self::Volume(_) | Self::SetMeta { .. } => None,
        }
    }

    /// Whether it may be answered so.
    pub const fn takes(&self, answer: &Answer) -> bool {
        match answer {
            Answer::Error { .. } | Answer::Done => true,
            Answer::Exited { .. } => matches!(self, Self::Exec { .. }),
            Answer::Allocations(_) => matches!(self, Self::Allocations),
            Answer::Files(_) => matches!(self, Self::List { .. }),
            Answer::File(_) => matches!(self, Self::Stat { .. }),
            Answer::At { .. } => matches!(self, Self::Logs { .. } | Self::Read { .. } | Self::Follow { .. }),
            Answer::Entry(_) => matches!(self, Self::Snapshot { .. }),
            Answer::Stats(_) => matches!(self, Self::Stats { .. }),
            Answer::Checks(_) => matches!(self, Self::Checks { .. }),
            Answer::HostStats(_) => matches!(self, Self::HostStats),
            Answer::Meta(_) => matches!(self, Self::Meta | Self::SetMeta { .. }),
        }
    }

    /// Whether bytes answer it: of a file, of an output.
    pub const fn takes_data(&self) -> bool {
        matches!(
            self,
            Self::Logs { .. } | Self::Read { .. } | Self::Follow { .. } | Self::Snapshot { .. } | Self::Exec { .. }
        )
    }
}

/// An output of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LogStream {
    /// Standard output.
    #[default]
    Stdout,
    /// Standard error.
    Stderr,
}

/// Where an offset counts from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Origin {
    /// The beginning.
    #[default]
    Start,
    /// The end, backwards.
    End,
}

/// The size of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TtySize {
    /// Rows.
    pub height: u16,
    /// Columns.
    pub width: u16,
}

/// What a client tells a running command, beside data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Input {
    /// There is no more input.
    Close,
    /// The terminal has another size.
    Resize(TtySize),
    /// A signal for the command, by its number.
    Signal {
        /// The number.
        number: i32,
    },
}

/// What the server answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Answer {
    /// What runs here.
    Allocations(Vec<AllocationInfo>),
    /// Files of a directory; a long one comes in several answers.
    Files(Vec<FileInfo>),
    /// One file.
    File(FileInfo),
    /// The data that follows is of this file, from this position.
    At {
        /// Beneath the allocation's directory.
        file: String,
        /// In bytes.
        offset: u64,
    },
    /// A part of a snapshot; of a file, what it holds follows as data.
    Entry(DiskEntry),
    /// What the tasks use.
    Stats(AllocStats),
    /// What the checks found last, by their ids, as the allocation's status has them.
    Checks(BTreeMap<String, Value>),
    /// What the node uses.
    HostStats(HostStats),
    /// The node's metadata.
    Meta(MetaInfo),
    /// The command has ended.
    Exited {
        /// Its exit code; 128 + n for signal n.
        exit_code: i32,
    },
    /// That is all.
    Done,
    /// It was not done.
    Error {
        /// As in HTTP: 400 for a wrong request, 403 for a forbidden path, 404 for what is not there, 500 for the rest.
        code: u16,
        /// Why.
        message: String,
    },
}

/// An allocation of the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AllocationInfo {
    /// Its uid.
    pub id: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its status.
    pub client_status: String,
    /// Its tasks and their states.
    pub tasks: BTreeMap<String, String>,
}

/// What a node uses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostStats {
    /// Its cores.
    pub cores: Vec<CoreStats>,
    /// All its memory, in bytes.
    pub memory_bytes: u64,
    /// What of it programs could have.
    pub memory_available_bytes: u64,
    /// What of it nothing uses.
    pub memory_free_bytes: u64,
    /// The folder of the allocations.
    pub disk_path: PathBuf,
    /// The size of the file system that holds it.
    pub disk_bytes: u64,
    /// What of it programs could have.
    pub disk_available_bytes: u64,
    /// What part of its inodes is used, from 0 to 1.
    pub disk_inodes_used: f64,
    /// Since it was started, in seconds.
    pub uptime_seconds: u64,
}

/// What a core did for a moment: parts of its time, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CoreStats {
    /// Programs.
    pub user: f64,
    /// The kernel.
    pub system: f64,
    /// Nothing, waits for disks among it.
    pub idle: f64,
}

/// The metadata of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MetaInfo {
    /// What holds, before what operators set on the node's object.
    pub meta: BTreeMap<String, String>,
    /// What was set at run time; null hides a configured key.
    pub dynamic: BTreeMap<String, Option<String>>,
    /// What the configuration says.
    #[serde(rename = "static")]
    pub fixed: BTreeMap<String, String>,
}

/// A file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileInfo {
    /// Its name.
    pub name: String,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// In bytes.
    pub size: u64,
    /// As `ls -l` shows it.
    pub mode: String,
    /// When it was changed.
    pub modified_at: Option<Timestamp>,
    /// What it seems to hold; only for single files.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub content_type: String,
}

/// What a task uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskStats {
    /// CPU time since its start, in nanoseconds.
    pub cpu_nanos: u64,
    /// Part of one core since the sample before.
    pub cpu_fraction: f64,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// The most memory that it had.
    pub memory_peak_bytes: u64,
    /// Processes and threads.
    pub pids: u64,
}

/// What an allocation uses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AllocStats {
    /// When it was looked at.
    pub time: Timestamp,
    /// All running tasks together.
    pub total: TaskStats,
    /// Each running task.
    pub tasks: BTreeMap<String, TaskStats>,
}

/// Reads a frame; `None` at a clean end.
///
/// # Errors
/// When the stream breaks, or the frame is too large or of an unknown kind.
pub async fn read_frame<R: AsyncRead + Unpin>(from: &mut R) -> io::Result<Option<Frame>> {
    let mut head = [0_u8; 5];
    match from.read_exact(&mut head).await {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let [a, b, c, d, kind] = head;
    let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).map_err(io::Error::other)?;
    if length == 0 || length > MAX_FRAME_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a frame of {length} bytes is none")));
    }
    let kind = match kind {
        0 => FrameKind::Message,
        1 => FrameKind::Data,
        2 => FrameKind::ErrorData,
        _ => return Err(io::Error::new(io::ErrorKind::InvalidData, format!("there is no frame of kind {kind}"))),
    };
    let mut payload = vec![0; length - 1];
    from.read_exact(&mut payload).await?;
    Ok(Some(Frame { kind, payload }))
}

/// Renders a frame.
///
/// # Errors
/// When the frame is too large.
pub fn encode(frame: &Frame) -> io::Result<Vec<u8>> {
    let length = frame.payload.len() + 1;
    if length > MAX_FRAME_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a frame of {length} bytes is too large")));
    }
    let kind = match frame.kind {
        FrameKind::Message => 0_u8,
        FrameKind::Data => 1,
        FrameKind::ErrorData => 2,
    };
    let length = u32::try_from(length).map_err(io::Error::other)?.to_be_bytes();
    Ok([&length[..], &[kind], &frame.payload].concat())
}

/// Writes a frame.
///
/// # Errors
/// When the stream breaks or the frame is too large.
pub async fn write_frame<W: AsyncWrite + Unpin>(to: &mut W, frame: &Frame) -> io::Result<()> {
    to.write_all(&encode(frame)?).await?;
    to.flush().await
}

/// Makes a message.
///
/// # Errors
/// When the value cannot be rendered.
pub fn message<T: Serialize>(value: &T) -> io::Result<Frame> {
    let payload = serde_json::to_vec(value).map_err(io::Error::other)?;
    Ok(Frame { kind: FrameKind::Message, payload })
}
