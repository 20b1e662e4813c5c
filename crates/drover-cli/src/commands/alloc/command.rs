//! The verbs of `drover alloc`.

use std::path::PathBuf;

use anyhow::Context;

use crate::ui::output::Output;

use super::agent::Agent;
use super::{checks, exec, files, list, logs, restart, signal, stats, status, stop};

/// What to do with allocations.
#[derive(Debug, clap::Args)]
pub(crate) struct AllocArgs {
    /// The socket of this machine's agent, in its state folder.
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        env = "DROVER_AGENT_SOCKET",
        default_value = "/var/lib/drover/state/agent.sock"
    )]
    socket: PathBuf,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Shows an allocation as the cluster knows it: its tasks, their events, and why it runs where it runs.
    Status(status::AllocStatusArgs),
    /// Shows what the checks of an allocation found last.
    Checks(checks::AllocChecksArgs),
    /// Lists what runs on this node.
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
    /// Sends a signal to the tasks that run, or to one of them.
    Signal(signal::SignalArgs),
    /// Has the controller stop the allocation and place another one in its stead, and waits until the tasks have ended.
    Stop(stop::StopAllocArgs),
}

/// Carries out the command.
pub(crate) fn run(args: &AllocArgs) -> anyhow::Result<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
    let agent = Agent::new(args.socket.clone());
    let code = runtime.block_on(async {
        match &args.verb {
            Verb::Status(args) => status::run(args).await,
            Verb::Checks(args) => checks::run(args).await,
            Verb::List { output } => list::list(&agent, output).await,
            Verb::Logs(logs) => logs::run(&agent, logs).await.map(|()| 0),
            Verb::Exec(exec) => exec::run(&agent, exec).await,
            Verb::Fs(fs) => files::run(&agent, fs).await.map(|()| 0),
            Verb::Stats(stats) => stats::run(&agent, stats).await.map(|()| 0),
            Verb::Restart(restart) => restart::run(&agent, restart).await.map(|()| 0),
            Verb::Signal(signal) => signal::run(&agent, signal).await.map(|()| 0),
            Verb::Stop(stop) => stop::run(&agent, stop).await,
        }
    });
    // A read of standard input that nobody waits for any more must not hold the process.
    runtime.shutdown_background();
    code
}
