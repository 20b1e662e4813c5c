//! Out of the host's namespaces, into the task.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use nix::sched::CloneFlags;
use rustix::mount::{MountPropagationFlags, mount_change};

use super::wire::{Failure, Plan, Word, read_frame, say};
use super::{filter, rights, sys, view};

/// Becomes the task that standard input tells of. Returns only when that failed, or in the process that made way for
/// it.
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
        (sandbox.private_network && sandbox.network_namespace.is_none(), CloneFlags::CLONE_NEWNET),
        (!sandbox.hostname.is_empty(), CloneFlags::CLONE_NEWUTS),
    ] {
        if wanted {
            flags |= flag;
        }
    }
    nix::sched::unshare(flags).map_err(io::Error::from).map_err(Failure::because("namespaces cannot be made"))?;
    if let Some(path) = &sandbox.network_namespace {
        let joined = File::open(path).and_then(|file| Ok(nix::sched::setns(file, CloneFlags::CLONE_NEWNET)?));
        joined.map_err(Failure::because(format_args!("network namespace {path} cannot be joined")))?;
    }
    if !sandbox.hostname.is_empty() {
        rustix::system::sethostname(sandbox.hostname.as_bytes())
            .map_err(io::Error::from)
            .map_err(Failure::because("its host name"))?;
    }
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
    if plan.sandbox.private_network && plan.sandbox.network_namespace.is_none() {
        sys::raise_loopback().map_err(Failure::because("its loopback device"))?;
    }
    rights::limit(&plan.sandbox.limits).map_err(Failure::because("its limits"))?;
    std::env::set_current_dir(&plan.work_dir)
        .map_err(|error| Failure { reason: format!("work directory {}: {error}", plan.work_dir), is_invalid: true })?;
    say(wire, &Word::Ready).map_err(Failure::because("the supervisor is gone"))?;
    let mut word = [0_u8];
    wire.read_exact(&mut word).map_err(Failure::because("the supervisor is gone"))?;
    // Those of the task are its own affair.
    rustix::thread::disable_transparent_huge_pages(false)
        .map_err(io::Error::from)
        .map_err(Failure::because("its size of pages"))?;
    let bounding = rights::give_up(&plan.user, &plan.sandbox).map_err(Failure::because("its rights"))?;
    filter::install(bounding).map_err(Failure::because("its system call filter"))?;
    let error = Command::new(&plan.command)
        .args(&plan.args)
        .env_clear()
        .envs(plan.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .exec();
    let is_invalid = matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied);
    Err(Failure { reason: format!("command {} cannot be started: {error}", plan.command), is_invalid })
}
