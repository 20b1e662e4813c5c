//! `drover alloc logs`.

use drover_socket::protocol::{LogStream, Request};

use super::agent::{Agent, place};
use super::target::LocalAlloc;

#[derive(Debug, clap::Args)]
pub(super) struct LogsArgs {
    #[command(flatten)]
    target: LocalAlloc,
    /// The task; not needed where there is one only.
    task: Option<String>,
    /// Show standard error instead of standard output.
    #[arg(long)]
    stderr: bool,
    /// Go on until the task is dead.
    #[arg(short, long)]
    follow: bool,
    /// Only the last bytes.
    #[arg(long, value_name = "BYTES")]
    tail: Option<u64>,
}

/// Does it.
pub(super) async fn run(agent: &Agent, args: &LogsArgs) -> anyhow::Result<()> {
    let allocation = args.target.id();
    let task = agent.task(&allocation, args.task.as_ref()).await?;
    let (origin, offset) = place(args.tail);
    let request = Request::Logs {
        allocation,
        task,
        stream: if args.stderr { LogStream::Stderr } else { LogStream::Stdout },
        origin,
        offset,
        follow: args.follow,
    };
    agent.ask(&request).await.map(drop)
}
