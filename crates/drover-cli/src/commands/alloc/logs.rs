//! `drover alloc logs`.

use drover_socket::protocol::{LogStream, Request};

use super::agent::{Agent, place};

#[derive(Debug, clap::Args)]
pub(super) struct LogsArgs {
    /// The allocation: its uid or the beginning of it, or `namespace/name`.
    allocation: String,
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
    let task = agent.task(&args.allocation, args.task.as_ref()).await?;
    let (origin, offset) = place(args.tail);
    let request = Request::Logs {
        allocation: args.allocation.clone(),
        task,
        stream: if args.stderr { LogStream::Stderr } else { LogStream::Stdout },
        origin,
        offset,
        follow: args.follow,
    };
    agent.ask(&request).await.map(drop)
}
