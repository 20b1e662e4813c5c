//! Starts the supervisor of a state folder when none serves it, and connects to the one that does.

use std::ffi::OsString;
use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::UnixStream;

use super::protocol::Slice;

/// The build that a supervisor and its client tell each other.
pub(crate) const BUILD: &str = env!("CARGO_PKG_VERSION");

/// How long a new supervisor may take until it listens.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// Why no supervisor could be reached.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The binary was not copied.
    #[error("the supervisor's binary cannot be put at {path}")]
    Copy {
        /// Where it should be.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It did not start.
    #[error("the supervisor {path} cannot be started")]
    Spawn {
        /// Its binary.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It ended before it listened.
    #[error("the supervisor did not become ready: see {log}")]
    NotReady {
        /// Its log file.
        log: PathBuf,
    },
    /// Its socket refuses.
    #[error("the supervisor's socket {path} cannot be used")]
    Connect {
        /// The socket.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// Knows how to start the supervisor of one state folder.
#[derive(Clone, Debug)]
pub struct Launcher {
    state_dir: PathBuf,
    alloc_dir: PathBuf,
    binary: PathBuf,
    slice: Slice,
    open_files: Option<u64>,
}

impl Launcher {
    /// A launcher that runs a copy of `binary` (`droverd`).
    pub fn new(state_dir: PathBuf, alloc_dir: PathBuf, binary: PathBuf) -> Self {
        Self { state_dir, alloc_dir, binary, slice: Slice::default(), open_files: None }
    }

    /// The same, with a cap on what all tasks together may use.
    #[must_use]
    pub fn with_slice(self, slice: Slice) -> Self {
        Self { slice, ..self }
    }

    /// The same, with the soft limit of open files that tasks get: the agent has raised its own.
    #[must_use]
    pub fn with_open_files(self, open_files: u64) -> Self {
        Self { open_files: Some(open_files), ..self }
    }

    /// What all tasks together may use.
    pub(super) fn slice(&self) -> Slice {
        self.slice
    }

    /// Connects to the supervisor and starts one when none listens.
    ///
    /// # Errors
    /// When none can be started or its socket cannot be used.
    pub(super) async fn connect(&self) -> Result<UnixStream, LaunchError> {
        match self.try_connect().await {
            Ok(stream) => return Ok(stream),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {}
            Err(source) => return Err(LaunchError::Connect { path: socket_path(&self.state_dir), source }),
        }
        self.start().await?;
        self.try_connect().await.map_err(|source| LaunchError::Connect { path: socket_path(&self.state_dir), source })
    }

    /// Writes the pid file by which a power-off finds the supervisor.
    pub(super) fn write_pid(&self, pid: i32) -> io::Result<()> {
        let path = self.state_dir.join("supervisor.pid");
        let new = self.state_dir.join("supervisor.pid.new");
        std::fs::write(&new, format!("{pid}\n"))?;
        std::fs::rename(new, path)
    }

    async fn try_connect(&self) -> io::Result<UnixStream> {
        let (path, _dir) = short_socket_path(&self.state_dir)?;
        UnixStream::connect(path).await
    }

    async fn start(&self) -> Result<(), LaunchError> {
        let path = self.copy_binary().await?;
        let log = self.state_dir.join("supervisor.log");
        let not_ready = || LaunchError::NotReady { log: log.clone() };
        let spawn_error = |source| LaunchError::Spawn { path: path.clone(), source };
        let stderr = OpenOptions::new().create(true).append(true).mode(0o600).open(&log).map_err(spawn_error)?;
        let mut child = tokio::process::Command::new(&path)
            .args(["supervisor", "--detach"])
            .args(arguments(&self.state_dir, &self.alloc_dir, self.open_files))
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .map_err(spawn_error)?;
        let out = child.stdout.take().ok_or_else(not_ready)?;
        let mut line = String::new();
        let mut out = BufReader::new(out);
        let read = tokio::time::timeout(START_TIMEOUT, out.read_line(&mut line)).await;
        // The child is only the detaching one; the supervisor itself is no child of ours.
        child.wait().await.map_err(spawn_error)?;
        match read {
            Ok(Ok(_)) if line.starts_with("ready ") => Ok(()),
            Ok(_) | Err(_) => Err(not_ready()),
        }
    }

    /// Copies our binary, so that an upgrade or the deletion of the agent's pod leaves the supervisor's file alone.
    pub(super) async fn copy_binary(&self) -> Result<PathBuf, LaunchError> {
        let dir = self.state_dir.join("bin");
        let path = dir.join("droverd-supervisor");
        let new = dir.join("droverd-supervisor.new");
        let (from, to) = (self.binary.clone(), path.clone());
        let copy = move || -> io::Result<()> {
            DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
            std::fs::copy(&from, &new)?;
            std::fs::rename(&new, &to)
        };
        let copied = tokio::task::spawn_blocking(copy).await.map_err(io::Error::other).flatten();
        copied.map(|()| path.clone()).map_err(|source| LaunchError::Copy { path, source })
    }
}

/// Runs the supervisor detached: in a session of its own, as a child of no process.
///
/// # Errors
/// When the second process cannot be started.
pub fn detach(state_dir: &Path, alloc_dir: &Path, open_files: Option<u64>) -> io::Result<()> {
    rustix::process::setsid()?;
    let binary = std::env::current_exe()?;
    std::process::Command::new(binary)
        .arg("supervisor")
        .args(arguments(state_dir, alloc_dir, open_files))
        .spawn()
        .map(drop)
}

/// What a supervisor is started with.
fn arguments(state_dir: &Path, alloc_dir: &Path, open_files: Option<u64>) -> Vec<OsString> {
    let mut arguments =
        vec!["--state-dir".into(), state_dir.into(), "--alloc-dir".into(), alloc_dir.as_os_str().to_owned()];
    arguments.extend(open_files.map(|open_files| format!("--open-files={open_files}").into()));
    arguments
}

/// The supervisor's socket.
pub(super) fn socket_path(state_dir: &Path) -> PathBuf {
    state_dir.join("supervisor.sock")
}

/// A name of the socket that fits into a socket address (108 bytes), however long the folder's is. Valid while the
/// descriptor lives.
pub(super) fn short_socket_path(state_dir: &Path) -> io::Result<(PathBuf, OwnedFd)> {
    short_path(state_dir, "supervisor.sock")
}

/// A name of a socket in this folder that fits into a socket address, however long the folder's is.
pub fn short_path(state_dir: &Path, name: &str) -> io::Result<(PathBuf, OwnedFd)> {
    let dir = rustix::fs::open(state_dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let path = PathBuf::from(format!("/proc/self/fd/{}/{name}", dir.as_raw_fd()));
    Ok((path, dir))
}
