//! The verbs of `drover volume`.

use super::{args, deregister, detach, register, snapshot, status};
use crate::cluster::connect::block_on;

/// What to do with volumes.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum VolumeCommand {
    /// Lists volumes, or shows who holds one and what it waits for.
    Status(args::VolumeStatusArgs),
    /// Releases what allocations that are over still hold of a volume on a node.
    Detach(detach::DetachArgs),
    /// Takes a volume out of the cluster; its data stays at the provider.
    Deregister(deregister::DeregisterArgs),
    /// Makes a volume known that exists at its provider or on its node, or changes it.
    Register(args::RegisterArgs),
    /// Has its provider or its node make a volume.
    Create(args::RegisterArgs),
    /// Has its provider or its node delete a volume with all its data.
    Delete(args::DeleteVolumeArgs),
    /// Takes, lists and deletes snapshots of a volume.
    #[command(subcommand)]
    Snapshot(snapshot::SnapshotCommand),
}

/// Does it.
pub(crate) fn run(command: &VolumeCommand) -> anyhow::Result<u8> {
    block_on(async {
        match command {
            VolumeCommand::Status(args) => status::status(args).await,
            VolumeCommand::Detach(args) => detach::detach(args).await,
            VolumeCommand::Deregister(args) => deregister::deregister(args).await,
            VolumeCommand::Register(args) => register::register(args).await,
            VolumeCommand::Create(args) => register::create(args).await,
            VolumeCommand::Delete(args) => register::delete(args).await,
            VolumeCommand::Snapshot(command) => snapshot::run(command).await,
        }
    })
}
