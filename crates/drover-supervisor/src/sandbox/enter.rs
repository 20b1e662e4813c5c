//! Runs one more command in a task that runs already: in its namespaces, its control group, with its user and no more
//! rights.
//!
//! A process of the agent (`droverd enter`) does it. Its standard input is a socket: first comes the [`EnterPlan`],
//! then what the command reads; [`Word`]s go back. Standard output and error are the command's. With a terminal,
//! standard output is the terminal and becomes standard input too.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use nix::sched::CloneFlags;
use rustix::process::{Pid, Resource, Rlimit, Signal, WaitOptions};
use serde::{Deserialize, Serialize};

use super::wire::{Failure, Word, read_frame, say};
use super::{filter, rights, sys};
use crate::processes;
use crate::protocol::Credentials;

/// What the process is told.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EnterPlan {
    /// The task's process and when it started.
    pub pid: i32,
    /// When that process began, in clock ticks since the boot: tells it from a later one with the same id.
    pub start_ticks: u64,
    /// Whether the task has namespaces of its own.
    pub is_sandboxed: bool,
    /// The files by which its control group is entered.
    pub entrances: Vec<String>,
    /// The program.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its environment.
    pub env: Vec<(String, String)>,
    /// The folder in which it starts, as the task sees it.
    pub work_dir: String,
    /// As whom it runs.
    pub user: Credentials,
    /// The task's capabilities, as bits.
    pub bounding: u64,
    /// The capabilities that it keeps, as a bit mask.
    pub ambient: u64,
    /// The task's soft limit of open files; none: it has no limit.
    pub open_files: Option<u64>,
    /// Whether the command gets a terminal.
    pub tty: bool,
}

/// Becomes the command, or waits for it.
///
/// # Errors
/// When standard input is no agent's socket.
pub fn enter() -> anyhow::Result<ExitCode> {
    let mut wire = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let plan: EnterPlan = serde_json::from_slice(&read_frame(&mut wire)?)?;
    match join(&plan, &mut wire) {
        Ok(code) => Ok(code),
        Err(Failure { reason, is_invalid }) => {
            say(&mut wire, &Word::Failed { reason, is_invalid })?;
            Ok(ExitCode::FAILURE)
        }
    }
}

fn join(plan: &EnterPlan, wire: &mut File) -> Result<ExitCode, Failure> {
    for entrance in &plan.entrances {
        let entered = File::options().write(true).open(entrance).and_then(|mut file| file.write_all(b"0"));
        entered.map_err(Failure::because("the control group of the task"))?;
    }
    if !plan.is_sandboxed {
        let own = i32::try_from(std::process::id()).unwrap_or_default();
        say(wire, &Word::Pid(own)).map_err(Failure::because("the agent is gone"))?;
        return become_command(plan);
    }
    let gone = || Failure { reason: "the task does not run any more".to_owned(), is_invalid: true };
    let task = processes::open(plan.pid, plan.start_ticks).map_err(|_| gone())?;
    // A container has a host name of its own too; where the task has that of the host this one is in the same already.
    let spaces = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWUTS;
    nix::sched::setns(&task, spaces).map_err(io::Error::from).map_err(Failure::because("the task's namespaces"))?;
    match sys::fork().map_err(Failure::because("it cannot fork"))? {
        Some(child) => {
            say(wire, &Word::Pid(child)).map_err(Failure::because("the agent is gone"))?;
            Ok(wait_for(child))
        }
        None => become_command(plan),
    }
}

fn become_command(plan: &EnterPlan) -> Result<ExitCode, Failure> {
    rustix::process::setsid().map_err(io::Error::from).map_err(Failure::because("no session of its own"))?;
    if plan.tty {
        let terminal = io::stdout();
        rustix::process::ioctl_tiocsctty(&terminal)
            .map_err(io::Error::from)
            .map_err(Failure::because("its terminal"))?;
        rustix::stdio::dup2_stdin(&terminal).map_err(io::Error::from).map_err(Failure::because("its terminal"))?;
    }
    std::env::set_current_dir(&plan.work_dir)
        .map_err(|error| Failure { reason: format!("work directory {}: {error}", plan.work_dir), is_invalid: true })?;
    let limit = rustix::process::getrlimit(Resource::Nofile);
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: plan.open_files.or(limit.maximum), ..limit })
        .map_err(io::Error::from)
        .map_err(Failure::because("the task's limit of open files"))?;
    if plan.is_sandboxed {
        let bounding =
            rights::give_up_bits(&plan.user, plan.bounding, plan.ambient).map_err(Failure::because("its rights"))?;
        filter::install(bounding).map_err(Failure::because("its system call filter"))?;
    } else {
        rights::become_user(&plan.user).map_err(Failure::because("its user"))?;
    }
    // The command is not to outlive who waits for it. (A change of the user would have cleared this.)
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(io::Error::from)
        .map_err(Failure::because("its end with the agent"))?;
    let error = Command::new(&plan.command)
        .args(&plan.args)
        .env_clear()
        .envs(plan.env.iter().map(|(name, value)| (name, value)))
        .exec();
    Err(Failure { reason: format!("command {} cannot be started: {error}", plan.command), is_invalid: true })
}

fn wait_for(child: i32) -> ExitCode {
    let Some(pid) = Pid::from_raw(child) else { return ExitCode::FAILURE };
    loop {
        match rustix::process::waitpid(Some(pid), WaitOptions::empty()) {
            Ok(Some((_, status))) => {
                let code = status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal));
                return ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX));
            }
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return ExitCode::FAILURE,
        }
    }
}
