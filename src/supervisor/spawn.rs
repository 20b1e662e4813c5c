//! Starts one process: its FIFOs first, then fork and exec, then its pidfd.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::PidfdFlags;

use super::logs::{self, Pipe, Stream};
use super::processes;
use super::protocol::{Handle, LogSpec, Refusal, RefusalCode, StartSpec};
use super::sys::{self, ChildSetup};

/// A process that lives, with everything that is needed to see it end.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) handle: Handle,
    pub(super) pidfd: OwnedFd,
    pub(super) pipes: Vec<Pipe>,
}

/// Starts the task. When this fails, neither a process nor a FIFO is left.
pub(super) fn start(spec: &StartSpec, open_files: u64) -> Result<Started, Refusal> {
    if !Path::new(&spec.command).is_absolute() || !Path::new(&spec.work_dir).is_absolute() {
        let message = format!("command {} and work directory {} must be absolute paths", spec.command, spec.work_dir);
        return Err(Refusal::new(RefusalCode::Invalid, message));
    }
    let started = start_process(spec, open_files);
    if started.is_err()
        && let Some(logs) = &spec.logs
        && let Err(error) = logs::remove_fifos(logs)
    {
        tracing::warn!(error = %error, task = spec.id, "fifos of a task that did not start are left");
    }
    started
}

fn start_process(spec: &StartSpec, open_files: u64) -> Result<Started, Refusal> {
    let (pipes, [stdout, stderr]) =
        open_streams(spec).map_err(|error| failed("its output cannot be collected", &error))?;
    let mut command = Command::new(&spec.command);
    command.args(&spec.args).env_clear().envs(spec.env.iter().map(|(name, value)| (name, value)));
    command.current_dir(&spec.work_dir).stdin(Stdio::null()).stdout(stdout).stderr(stderr);
    let setup = ChildSetup { user: spec.user.clone(), oom_score_adj: spec.oom_score_adj, open_files };
    sys::prepare_child(&mut command, setup);
    let child = command.spawn().map_err(|error| spawn_refusal(spec, &error))?;
    drop(command);
    let pid = i32::try_from(child.id()).map_err(|error| failed("its process id", &io::Error::other(error)))?;
    // Nobody else reaps children, so the pid is still that of this child, be it a zombie already.
    let found = find_process(pid);
    let (pidfd, start_ticks, boot_id) = found.map_err(|error| failed("it started and cannot be watched", &error))?;
    let handle = Handle {
        id: spec.id.clone(),
        pid,
        start_ticks,
        boot_id,
        logs: spec.logs.clone(),
        kill_timeout_ms: spec.kill_timeout_ms,
    };
    Ok(Started { handle, pidfd, pipes })
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
    let pid = processes::pid(handle.pid).map_err(|_| gone())?;
    let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).map_err(|_| gone())?;
    // The pid may belong to another process by now; the start time tells, and the pidfd pins the answer.
    let stat = processes::stat(handle.pid).map_err(|_| gone())?;
    if stat.start_ticks != handle.start_ticks {
        return Err(gone());
    }
    let pipes = match &handle.logs {
        Some(logs) => open_pipes(logs, None).map_err(|error| failed("its output cannot be collected", &error))?,
        None => Vec::new(),
    };
    Ok(Started { handle: handle.clone(), pidfd, pipes })
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
