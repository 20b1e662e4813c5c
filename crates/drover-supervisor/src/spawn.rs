//! Starts one process: its control group and FIFOs first, then fork and exec, then its pidfd. A sandboxed one is
//! watched before it begins.

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::PidfdFlags;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;

use super::cgroup::{Cgroup, Cgroups};
use super::logs::{self, Pipe, Stream, Writers};
use super::processes;
use super::protocol::{self, Credentials, Handle, LogSpec, Refusal, RefusalCode, StartSpec};
use super::sandbox::{self, Plan, Word};
use super::sys::{self, ChildSetup};

/// How long a sandbox may take to be ready, and to begin.
const SANDBOX_TIMEOUT: Duration = Duration::from_secs(15);

/// A process that lives, with everything that is needed to see it end.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) handle: Handle,
    pub(super) pidfd: OwnedFd,
    pub(super) pipes: Vec<Pipe>,
    pub(super) cgroup: Option<Cgroup>,
}

/// What every start needs of the supervisor.
#[derive(Debug)]
pub(super) struct Ground {
    /// The soft limit of open files that tasks get.
    pub(super) open_files: u64,
    /// Where control groups are made; why not, where they cannot be.
    pub(super) cgroups: Result<Cgroups, String>,
}

/// A sandboxed process that waits for the word to go.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) started: Started,
    wire: UnixStream,
}

/// Starts the task. When this fails, neither a process nor a FIFO nor a control group is left.
pub(super) async fn start(spec: &StartSpec, ground: &Ground) -> Result<Started, Refusal> {
    check_paths(spec)?;
    let cgroup = make_cgroup(spec, ground)?;
    let started = start_process(spec, ground, cgroup.as_ref()).await;
    match started {
        Ok(started) => Ok(Started { cgroup, ..started }),
        Err(refusal) => {
            clean_up(spec, cgroup.as_ref());
            Err(refusal)
        }
    }
}

/// Starts the task in a sandbox, up to the point where it could begin.
pub(super) async fn start_sandboxed(spec: &StartSpec, ground: &Ground) -> Result<Waiting, Refusal> {
    check_paths(spec)?;
    let cgroup = make_cgroup(spec, ground)?;
    let waiting = tokio::time::timeout(SANDBOX_TIMEOUT, prepare_sandbox(spec, ground, cgroup.as_ref()))
        .await
        .unwrap_or_else(|_| Err(Refusal::new(RefusalCode::StartFailed, "its sandbox was not ready in time")));
    match waiting {
        Ok(Waiting { started, wire }) => Ok(Waiting { started: Started { cgroup, ..started }, wire }),
        Err(refusal) => {
            clean_up(spec, cgroup.as_ref());
            Err(refusal)
        }
    }
}

/// Lets a sandboxed task begin, which may still fail.
pub(super) async fn go(wire: UnixStream) -> Result<(), Refusal> {
    let mut wire = wire;
    let talk = async {
        wire.write_all(&[sandbox::GO]).await?;
        protocol::read_frame::<Word, _>(&mut wire).await
    };
    match tokio::time::timeout(SANDBOX_TIMEOUT, talk).await {
        // The socket closes when the task begins.
        Ok(Ok(None)) => Ok(()),
        Ok(Ok(Some(word))) => Err(refusal_of(word)),
        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionReset => Ok(()),
        Ok(Err(error)) => Err(failed("its sandbox", &error)),
        Err(_) => Err(Refusal::new(RefusalCode::StartFailed, "its sandbox did not begin in time")),
    }
}

impl Waiting {
    /// The process, and the wire by which it is told to go.
    pub(super) fn into_parts(self) -> (Started, UnixStream) {
        (self.started, self.wire)
    }
}

fn check_paths(spec: &StartSpec) -> Result<(), Refusal> {
    if Path::new(&spec.command).is_absolute() && Path::new(&spec.work_dir).is_absolute() {
        return Ok(());
    }
    let message = format!("command {} and work directory {} must be absolute paths", spec.command, spec.work_dir);
    Err(Refusal::new(RefusalCode::Invalid, message))
}

fn make_cgroup(spec: &StartSpec, ground: &Ground) -> Result<Option<Cgroup>, Refusal> {
    let Some(wanted) = &spec.cgroup else { return Ok(None) };
    match &ground.cgroups {
        Ok(cgroups) => {
            cgroups.create(wanted).map(Some).map_err(|error| failed("its control group cannot be made", &error))
        }
        // Without isolation there are no limits to keep.
        Err(_) if spec.sandbox.is_none() => Ok(None),
        Err(reason) => Err(Refusal::new(RefusalCode::StartFailed, format!("it cannot be limited: {reason}"))),
    }
}

/// Takes away what a start that failed has left.
pub(super) fn clean_up(spec: &StartSpec, cgroup: Option<&Cgroup>) {
    if let Some(logs) = &spec.logs
        && let Err(error) = logs::remove_fifos(logs)
    {
        tracing::warn!(error = %error, task = spec.id, "fifos of a task that did not start are left");
    }
    if let Some(cgroup) = cgroup
        && let Err(error) = cgroup.kill().and_then(|_| cgroup.remove())
    {
        tracing::warn!(error = %error, task = spec.id, "the control group of a task that did not start is left");
    }
}

async fn start_process(spec: &StartSpec, ground: &Ground, cgroup: Option<&Cgroup>) -> Result<Started, Refusal> {
    let (pipes, [stdout, stderr]) =
        open_streams(spec).map_err(|error| failed("its output cannot be collected", &error))?;
    let mut command = Command::new(&spec.command);
    command.args(&spec.args).env_clear().envs(spec.env.iter().map(|(name, value)| (name, value)));
    command.current_dir(&spec.work_dir).stdin(Stdio::null()).stdout(stdout).stderr(stderr);
    sys::prepare_child(&mut command, setup(spec, ground, cgroup, spec.user.clone()));
    let pid = spawn(command).await.map_err(|error| spawn_refusal(spec, &error))?;
    // Nobody else reaps children, so the pid is still that of this child, be it a zombie already.
    let found = find_process(pid);
    let (pidfd, start_ticks, boot_id) = found.map_err(|error| failed("it started and cannot be watched", &error))?;
    let handle = handle(spec, pid, start_ticks, boot_id, cgroup);
    Ok(Started { handle, pidfd, pipes, cgroup: None })
}

/// Forks and executes, and returns the child's pid. A process that forks waits until the child executes, and on a busy
/// machine that waits for its turn on a core: on threads of their own several do so at the same time, and the other
/// tasks are served meanwhile.
async fn spawn(mut command: Command) -> io::Result<i32> {
    let spawned = tokio::task::spawn_blocking(move || command.spawn());
    let child = spawned.await.map_err(io::Error::other)??;
    i32::try_from(child.id()).map_err(io::Error::other)
}

async fn prepare_sandbox(spec: &StartSpec, ground: &Ground, cgroup: Option<&Cgroup>) -> Result<Waiting, Refusal> {
    let (Some(sandbox), Some(user)) = (&spec.sandbox, &spec.user) else {
        return Err(Refusal::new(RefusalCode::Invalid, "a sandbox needs a user"));
    };
    let plan = Plan {
        command: spec.command.clone(),
        args: spec.args.clone(),
        env: spec.env.clone(),
        work_dir: spec.work_dir.clone(),
        user: user.clone(),
        sandbox: sandbox.clone(),
    };
    let (pipes, [stdout, stderr]) =
        open_streams(spec).map_err(|error| failed("its output cannot be collected", &error))?;
    let wired = UnixStream::pair().and_then(|(wire, theirs)| {
        let theirs = theirs.into_std()?;
        theirs.set_nonblocking(false)?;
        Ok((wire, OwnedFd::from(theirs)))
    });
    let (mut wire, theirs) = wired.map_err(|error| failed("its sandbox", &error))?;
    let mut command = Command::new("/proc/self/exe");
    command.arg("sandbox").env_clear().current_dir("/").stdin(theirs).stdout(stdout).stderr(stderr);
    sys::prepare_child(&mut command, setup(spec, ground, cgroup, None));
    // It ends at once and is reaped with the orphans; the task is its child and becomes ours.
    spawn(command).await.map_err(|error| failed("its sandbox cannot be started", &error))?;
    let io = |error: io::Error| failed("its sandbox", &error);
    protocol::write_frame(&mut wire, &plan).await.map_err(io)?;
    let mut pid = None;
    let mut is_ready = false;
    while pid.is_none() || !is_ready {
        match protocol::read_frame::<Word, _>(&mut wire).await.map_err(io)? {
            Some(Word::Pid(found)) => pid = Some(found),
            Some(Word::Ready) => is_ready = true,
            Some(word @ Word::Failed { .. }) => return Err(refusal_of(word)),
            None => return Err(Refusal::new(RefusalCode::StartFailed, "its sandbox ended without a word")),
        }
    }
    let pid = pid.unwrap_or_default();
    let (pidfd, start_ticks, boot_id) =
        find_process(pid).map_err(|error| failed("it started and cannot be watched", &error))?;
    let handle = handle(spec, pid, start_ticks, boot_id, cgroup);
    Ok(Waiting { started: Started { handle, pidfd, pipes, cgroup: None }, wire })
}

fn refusal_of(word: Word) -> Refusal {
    match word {
        Word::Failed { reason, is_invalid } => {
            Refusal::new(if is_invalid { RefusalCode::Invalid } else { RefusalCode::StartFailed }, reason)
        }
        Word::Pid(_) | Word::Ready => Refusal::new(RefusalCode::StartFailed, "its sandbox spoke out of turn"),
    }
}

fn setup(spec: &StartSpec, ground: &Ground, cgroup: Option<&Cgroup>, user: Option<Credentials>) -> ChildSetup {
    let entrances = cgroup.map(Cgroup::entrances).unwrap_or_default();
    ChildSetup {
        has_small_pages: user.is_none() && spec.sandbox.is_some(),
        user,
        oom_score_adj: spec.oom_score_adj,
        open_files: ground.open_files,
        entrances: entrances
            .into_iter()
            .filter_map(|path| CString::new(path.into_os_string().into_encoded_bytes()).ok())
            .collect(),
    }
}

fn handle(spec: &StartSpec, pid: i32, start_ticks: u64, boot_id: String, cgroup: Option<&Cgroup>) -> Handle {
    Handle {
        id: spec.id.clone(),
        pid,
        start_ticks,
        boot_id,
        logs: spec.logs.clone(),
        kill_timeout_ms: spec.kill_timeout_ms,
        cgroup: cgroup.map(Cgroup::handle),
        is_sandboxed: spec.sandbox.is_some(),
        is_container: false,
    }
}

fn find_process(pid: i32) -> io::Result<(OwnedFd, u64, String)> {
    let pidfd = rustix::process::pidfd_open(processes::pid(pid)?, PidfdFlags::empty())?;
    Ok((pidfd, processes::stat(pid)?.start_ticks, processes::boot_id()?))
}

/// Finds a task that an earlier supervisor started.
pub(super) fn adopt(handle: &Handle) -> Result<Started, Refusal> {
    let gone = || Refusal::new(RefusalCode::Gone, format!("process {} of task {} is gone", handle.pid, handle.id));
    let boot_id = processes::boot_id().map_err(|error| failed("the boot id is unreadable", &error))?;
    if boot_id != handle.boot_id {
        return Err(gone());
    }
    let pidfd = processes::open(handle.pid, handle.start_ticks).map_err(|_| gone())?;
    let pipes = match &handle.logs {
        Some(logs) => {
            adopt_pipes(logs, handle.writers()).map_err(|error| failed("its output cannot be collected", &error))?
        }
        None => Vec::new(),
    };
    let cgroup = handle.cgroup.as_ref().map(Cgroup::of);
    Ok(Started { handle: handle.clone(), pidfd, pipes, cgroup })
}

fn open_streams(spec: &StartSpec) -> io::Result<(Vec<Pipe>, [Stdio; 2])> {
    let Some(logs) = &spec.logs else { return Ok((Vec::new(), [Stdio::null(), Stdio::null()])) };
    let pipes = open_pipes(logs, spec.user.as_ref())?;
    let stdout = logs::open_task_end(logs, Stream::Stdout)?;
    let stderr = logs::open_task_end(logs, Stream::Stderr)?;
    Ok((pipes, [stdout.into(), stderr.into()]))
}

fn open_pipes(logs: &LogSpec, owner: Option<&super::protocol::Credentials>) -> io::Result<Vec<Pipe>> {
    [Stream::Stdout, Stream::Stderr].into_iter().map(|stream| logs::open_pipe(logs, stream, owner)).collect()
}

fn adopt_pipes(logs: &LogSpec, writers: Writers) -> io::Result<Vec<Pipe>> {
    match writers {
        Writers::Task => open_pipes(logs, None),
        Writers::Runtime => {
            [Stream::Stdout, Stream::Stderr].into_iter().map(|stream| logs::open_runtime_pipe(logs, stream)).collect()
        }
    }
}

fn spawn_refusal(spec: &StartSpec, error: &io::Error) -> Refusal {
    if !Path::new(&spec.work_dir).is_dir() {
        return Refusal::new(RefusalCode::Invalid, format!("work directory {} does not exist", spec.work_dir));
    }
    let code = match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput => RefusalCode::Invalid,
        _ => RefusalCode::StartFailed,
    };
    Refusal::new(code, format!("command {} cannot be started: {error}", spec.command))
}

fn failed(what: &str, error: &io::Error) -> Refusal {
    Refusal::new(RefusalCode::StartFailed, format!("{what}: {error}"))
}
