//! The verbs of `drover node`.

use super::{drain, eligibility, status};
use crate::cluster::connect::block_on;

/// What to do with nodes.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum NodeCommand {
    /// Lists nodes, or shows one.
    Status(status::NodeStatusArgs),
    /// Moves all allocations away from a node, or takes that back.
    Drain(drain::DrainArgs),
    /// Says whether new allocations may be placed on a node.
    Eligibility(eligibility::EligibilityArgs),
}

/// Does it.
pub(crate) fn run(command: &NodeCommand) -> anyhow::Result<u8> {
    block_on(async {
        match command {
            NodeCommand::Status(args) => status::status(args).await,
            NodeCommand::Drain(args) => drain::drain(args).await,
            NodeCommand::Eligibility(args) => eligibility::eligibility(args).await,
        }
    })
}
