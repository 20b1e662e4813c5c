//! The verbs of `drover system`.

use super::release;
use crate::cluster::connect::block_on;

/// What to do with drover itself.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum SystemCommand {
    /// Frees objects that are being deleted and wait for a controller that is gone.
    ReleaseFinalizers(release::ReleaseFinalizersArgs),
}

/// Does it.
pub(crate) fn run(command: &SystemCommand) -> anyhow::Result<u8> {
    match command {
        SystemCommand::ReleaseFinalizers(args) => block_on(release::run(args)),
    }
}
