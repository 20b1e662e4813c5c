//! The verbs of `drover alloc`.

use std::path::PathBuf;

use anyhow::Context;

use crate::ui::output::Output;

use super::agent::Agent;
use super::{checks, exec, files, gc, list, logs, restart, signal, stats, status, stop};

/// What to do with allocations.
#[derive(Debug, clap::Args)]
pub(crate) struct AllocArgs {
    /// Ask the agent of this machine by its socket, which is in its state folder, instead of the cluster.
    #[arg(long, global = true, value_name = "PATH", env = "DROVER_AGENT_SOCKET")]
    socket: Option<PathBuf>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Shows an allocation as the cluster knows it: its tasks, their events, and why it runs where it runs.
    Status(status::AllocStatusArgs),
    /// Shows what the checks of an allocation found last.
    Checks(checks::AllocChecksArgs),
    /// Has the files and records of an ended allocation deleted on its node; the allocation itself stays.
    Gc(gc::GcArgs),
    /// Lists what runs on this node, by its agent's socket.
    List {
        /// How it is printed.
        #[arg(short, long, default_value = "table")]
        output: Output,
    },
    /// Shows a task's output.
    Logs(logs::LogsArgs),
    /// Runs a command in a task; the exit code is the command's.
    Exec(exec::ExecArgs),
    /// Lists a directory, shows a file, or describes one.
    Fs(files::FsArgs),
    /// Shows what the running tasks use.
    Stats(stats::StatsArgs),
    /// Restarts the tasks that run, one of them, or all in the order of their lifecycle.
    Restart(restart::RestartAllocArgs),
    /// Sends a signal to all tasks, or to one of them. Those of all that do not run are named by an error; the others
    /// got it.
    Signal(signal::SignalArgs),
    /// Has the controller stop the allocation and place another one in its stead, and waits until the tasks have ended.
    Stop(stop::StopAllocArgs),
}

/// Carries out the command.
pub(crate) fn run(args: &AllocArgs) -> anyhow::Result<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
    let socket = args.socket.as_deref();
    let code = runtime.block_on(async {
        match &args.verb {
            Verb::Status(args) => status::run(args).await,
            Verb::Checks(checks) => checks::run(&Agent::of(socket, &checks.target).await?, checks).await.map(|()| 0),
            Verb::Gc(gc) => gc::run(&Agent::of(socket, &gc.target).await?, gc).await.map(|()| 0),
            Verb::List { output } => list::list(&Agent::of_node(socket), output).await,
            Verb::Logs(logs) => logs::run(&Agent::of(socket, &logs.target).await?, logs).await.map(|()| 0),
            Verb::Exec(exec) => exec::run(&Agent::of(socket, &exec.target).await?, exec).await,
            Verb::Fs(fs) => files::run(&Agent::of(socket, &fs.target).await?, fs).await.map(|()| 0),
            Verb::Stats(stats) => stats::run(&Agent::of(socket, &stats.target).await?, stats).await.map(|()| 0),
            Verb::Restart(restart) => {
                restart::run(&Agent::of(socket, &restart.target).await?, restart).await.map(|()| 0)
            }
            Verb::Signal(signal) => signal::run(&Agent::of(socket, &signal.target).await?, signal).await.map(|()| 0),
            Verb::Stop(stop) => stop::run(&Agent::of(socket, &stop.target).await?, stop).await,
        }
    });
    // A read of standard input that nobody waits for any more must not hold the process.
    runtime.shutdown_background();
    code
}
