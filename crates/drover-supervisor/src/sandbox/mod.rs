//! Shuts a task of driver `exec` into its own view of the machine: namespaces, a root of its own, few rights, few system calls.
//!
//! A short-lived process of the supervisor (`droverd sandbox`) does it. It reads a [`Plan`] from its standard input, a socket;
//! leaves the host's namespaces; forks; tells the supervisor the pid of the fork and ends, so that the fork becomes the
//! supervisor's own child. The fork builds the view, waits for the word to go (by then the supervisor watches it), gives up its
//! rights and becomes the task. What goes wrong is told over the same socket, which closes by itself when the task begins.
//!
//! In a PID namespace of its own the task is process 1: signals that it has no handler for are ignored, and its end is the end of
//! everything in there.
//!
//! Must never know: allocations, control groups, logs.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use nix::sched::CloneFlags;
use rustix::mount::{MountPropagationFlags, mount_change};
use serde::{Deserialize, Serialize};

use super::protocol::{Credentials, SandboxSpec};

mod enter;
mod filter;
mod rights;
mod sys;
mod view;

pub use enter::EnterPlan;
pub use enter::enter;
pub use rights::{CAPABILITIES, held as held_capabilities};

/// Whether there is a limit of processes of this name.
pub fn is_limit(name: &str) -> bool {
    rights::resource(name).is_some()
}

/// What the sandbox is told.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Plan {
    pub(super) command: String,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    pub(super) work_dir: String,
    pub(super) user: Credentials,
    pub(super) sandbox: SandboxSpec,
}

/// What the sandbox tells.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Word {
    /// The task's process, as the supervisor sees it.
    Pid(i32),
    /// It is ready to begin.
    Ready,
    /// It cannot begin.
    Failed {
        /// Why.
        reason: String,
        /// The definition is wrong; another try does not help.
        is_invalid: bool,
    },
}

/// The answer to [`Word::Ready`].
pub(super) const GO: u8 = b'g';

#[derive(Debug)]
struct Failure {
    reason: String,
    is_invalid: bool,
}

impl Failure {
    fn because(what: impl std::fmt::Display) -> impl FnOnce(io::Error) -> Self {
        move |error| Self { reason: format!("{what}: {error}"), is_invalid: false }
    }
}

/// Becomes the task that standard input tells of. Returns only when that failed, or in the process that made way for it.
///
/// # Errors
/// When standard input is no supervisor's socket.
pub fn run() -> anyhow::Result<()> {
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    let mut wire = File::from(socket);
    let plan: Plan = serde_json::from_slice(&read_frame(&mut wire)?)?;
    if let Err(Failure { reason, is_invalid }) = leave_host(&plan, &mut wire) {
        say(&mut wire, &Word::Failed { reason, is_invalid })?;
    }
    Ok(())
}

fn leave_host(plan: &Plan, wire: &mut File) -> Result<(), Failure> {
    let sandbox = &plan.sandbox;
    let mut flags = CloneFlags::CLONE_NEWNS;
    for (wanted, flag) in [
        (sandbox.private_pids, CloneFlags::CLONE_NEWPID),
        (sandbox.private_ipc, CloneFlags::CLONE_NEWIPC),
        (sandbox.private_network, CloneFlags::CLONE_NEWNET),
    ] {
        if wanted {
            flags |= flag;
        }
    }
    nix::sched::unshare(flags).map_err(io::Error::from).map_err(Failure::because("namespaces cannot be made"))?;
    match sys::fork().map_err(Failure::because("the sandbox cannot fork"))? {
        Some(pid) => say(wire, &Word::Pid(pid)).map_err(Failure::because("the supervisor is gone")),
        None => become_task(plan, wire),
    }
}

/// The fork's part. Does not return when it succeeds.
fn become_task(plan: &Plan, wire: &mut File) -> Result<(), Failure> {
    rustix::process::setsid().map_err(io::Error::from).map_err(Failure::because("no session of its own"))?;
    // What is mounted in here stays in here.
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(io::Error::from)
        .map_err(Failure::because("mounts cannot be made private"))?;
    view::build(&plan.sandbox).map_err(Failure::because("its view of the machine"))?;
    if plan.sandbox.private_network {
        sys::raise_loopback().map_err(Failure::because("its loopback device"))?;
    }
    rights::limit(&plan.sandbox.limits).map_err(Failure::because("its limits"))?;
    std::env::set_current_dir(&plan.work_dir)
        .map_err(|error| Failure { reason: format!("work directory {}: {error}", plan.work_dir), is_invalid: true })?;
    say(wire, &Word::Ready).map_err(Failure::because("the supervisor is gone"))?;
    let mut word = [0_u8];
    wire.read_exact(&mut word).map_err(Failure::because("the supervisor is gone"))?;
    rights::give_up(&plan.user, &plan.sandbox).map_err(Failure::because("its rights"))?;
    filter::install().map_err(Failure::because("its system call filter"))?;
    let error = Command::new(&plan.command)
        .args(&plan.args)
        .env_clear()
        .envs(plan.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .exec();
    let is_invalid = matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied);
    Err(Failure { reason: format!("command {} cannot be started: {error}", plan.command), is_invalid })
}

fn read_frame(from: &mut File) -> io::Result<Vec<u8>> {
    let mut length = [0_u8; 4];
    from.read_exact(&mut length)?;
    let length = usize::try_from(u32::from_be_bytes(length)).map_err(io::Error::other)?;
    if length > super::protocol::MAX_FRAME_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame is too large"));
    }
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn say(to: &mut File, word: &Word) -> io::Result<()> {
    let body = serde_json::to_vec(word).map_err(io::Error::other)?;
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    to.write_all(&[&length.to_be_bytes()[..], &body].concat())
}

/// Keeps a descriptor of a directory for as long as its path in `/proc` is used.
#[derive(Debug)]
struct Held {
    fd: OwnedFd,
}

impl Held {
    /// A path that leads to exactly this descriptor's file.
    fn path(&self) -> String {
        use std::os::fd::AsRawFd;
        format!("/proc/self/fd/{}", self.fd.as_raw_fd())
    }
}
