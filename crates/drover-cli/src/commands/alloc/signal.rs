//! `drover alloc signal`.

use crate::ui::stdio::complain;
use drover_socket::protocol::Request;

use super::agent::Agent;
use super::target::AllocTarget;

#[derive(Debug, clap::Args)]
pub(super) struct SignalArgs {
    #[command(flatten)]
    pub(super) target: AllocTarget,
    /// Only this task.
    task: Option<String>,
    /// The signal.
    #[arg(short, long, default_value = "SIGKILL")]
    signal: String,
}

/// Does it.
pub(super) async fn run(agent: &Agent, args: &SignalArgs) -> anyhow::Result<()> {
    let SignalArgs { target, task, signal } = args;
    let allocation = target.id();
    let request = Request::Signal { allocation: allocation.clone(), task: task.clone(), signal: signal.clone() };
    agent.ask(&request).await?;
    complain(&format!("{allocation}: {signal} was sent"));
    Ok(())
}
