//! `drover alloc gc`.

use crate::ui::stdio::complain;
use drover_socket::protocol::Request;

use super::agent::Agent;
use super::target::AllocTarget;

#[derive(Debug, clap::Args)]
pub(super) struct GcArgs {
    #[command(flatten)]
    pub(super) target: AllocTarget,
}

/// Does it.
pub(super) async fn run(agent: &Agent, args: &GcArgs) -> anyhow::Result<()> {
    let allocation = args.target.id();
    agent.ask(&Request::Gc { allocation: allocation.clone() }).await?;
    complain(&format!("{allocation}: its files are deleted"));
    Ok(())
}
