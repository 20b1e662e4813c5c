//! The verbs of `drover system`.

use super::{check_upgrade, release};
use crate::cluster::connect::block_on;

/// What to do with drover itself.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum SystemCommand {
    /// Lists jobs and volumes from which an upgrade to this version takes something away.
    CheckUpgrade(check_upgrade::CheckUpgradeArgs),
    /// Frees objects that are being deleted and wait for a controller that is gone.
    ReleaseFinalizers(release::ReleaseFinalizersArgs),
}

/// Does it.
pub(crate) fn run(command: &SystemCommand) -> anyhow::Result<u8> {
    match command {
        SystemCommand::CheckUpgrade(args) => block_on(check_upgrade::run(args)),
        SystemCommand::ReleaseFinalizers(args) => block_on(release::run(args)),
    }
}
