//! `drover alloc stats`.

use anyhow::{Context, bail};

use crate::ui::output::Output;
use drover_socket::client::Reply;
use drover_socket::protocol::{Answer, Request};

use super::agent::Agent;
use super::show;
use super::target::AllocTarget;

#[derive(Debug, clap::Args)]
pub(super) struct StatsArgs {
    #[command(flatten)]
    pub(super) target: AllocTarget,
    /// Go on, once per second.
    #[arg(short, long)]
    watch: bool,
    /// How it is printed.
    #[arg(short, long, default_value = "table")]
    output: Output,
}

/// Does it.
pub(super) async fn run(agent: &Agent, args: &StatsArgs) -> anyhow::Result<()> {
    // A share of the CPU needs two looks; the cluster ends its answer after them.
    let request = Request::Stats { allocation: args.target.id(), every_ms: Some(1000) };
    loop {
        let is_over = watch(agent, &request, args).await?;
        if is_over || !args.watch {
            return Ok(());
        }
    }
}

/// Shows samples until there are no more; returns whether enough were seen.
async fn watch(agent: &Agent, request: &Request, args: &StatsArgs) -> anyhow::Result<bool> {
    let mut exchange = agent.begin(request).await?;
    let mut seen = 0;
    while let Some(reply) = exchange.replies.next().await.context("reading the agent's answer")? {
        match reply {
            Reply::Answer(Answer::Error { message, .. }) => bail!(message),
            Reply::Answer(Answer::Stats(stats)) => {
                seen += 1;
                if seen > 1 {
                    show::stats(&stats, &args.output)?;
                }
                if seen == 2 && !args.watch {
                    return Ok(true);
                }
            }
            Reply::Answer(Answer::Done) if agent.may_resume() => return Ok(false),
            Reply::Answer(_) | Reply::Data(_) | Reply::ErrorData(_) => {}
        }
    }
    bail!("the agent has gone in the middle of its answer")
}
