//! `drover alloc restart`.

use crate::ui::stdio::complain;
use drover_socket::protocol::Request;

use super::agent::Agent;
use super::target::AllocTarget;

#[derive(Debug, clap::Args)]
pub(super) struct RestartAllocArgs {
    #[command(flatten)]
    pub(super) target: AllocTarget,
    /// Only this task.
    task: Option<String>,
    /// Restart all tasks, ended ones too.
    #[arg(long, conflicts_with = "task")]
    all_tasks: bool,
}

/// Does it.
pub(super) async fn run(agent: &Agent, args: &RestartAllocArgs) -> anyhow::Result<()> {
    let RestartAllocArgs { target, task, all_tasks } = args;
    let allocation = target.id();
    let request = Request::Restart { allocation: allocation.clone(), task: task.clone(), all_tasks: *all_tasks };
    agent.ask(&request).await?;
    let what = match (task, all_tasks) {
        (Some(task), _) => format!("task {task} is"),
        (None, true) => "all tasks are".to_owned(),
        (None, false) => "running tasks are".to_owned(),
    };
    complain(&format!("{allocation}: {what} started again"));
    Ok(())
}
