//! `drover system …`: what operators do to drover itself, from outside.

mod leader;
mod release;

use super::connect::block_on;

/// What to do with drover itself.
#[derive(Debug, clap::Subcommand)]
pub(super) enum SystemCommand {
    /// Frees objects that are being deleted and wait for a controller that is gone.
    ReleaseFinalizers(release::Args),
}

/// Does it.
pub(super) fn run(command: &SystemCommand) -> anyhow::Result<u8> {
    match command {
        SystemCommand::ReleaseFinalizers(args) => block_on(release::run(args)),
    }
}
