//! `cargo xtask cluster-node`: what a node of a cluster is started by.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};
use drover_testkit::cluster::init;

/// A node's own processes; started by `cluster up`.
#[derive(Debug, Clone, Args)]
pub struct NodeArgs {
    /// The file that says what the node is
    #[arg(long)]
    plan: PathBuf,
    /// What to become
    #[arg(long, value_enum)]
    stage: NodeStage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum NodeStage {
    /// Leave the machine's namespaces.
    Leave,
    /// Be the node's process 1.
    First,
}

/// Becomes a node's process.
///
/// # Errors
/// When the node cannot be made, or a program that it needs has ended.
pub fn node(args: &NodeArgs) -> Result<()> {
    match args.stage {
        NodeStage::Leave => init::leave(&args.plan),
        NodeStage::First => init::run(&args.plan),
    }
}
