//! Arguments of commands that take volumes of both kinds.

use std::path::PathBuf;

use drover_api::{CSIVolume, GoDuration};

use super::kind::VolumeType;
use crate::cluster::connect::ConnectArgs;
use crate::completion::names;
use crate::ui::output::Output;

/// Arguments of `drover volume status`.
#[derive(Debug, clap::Args)]
pub(crate) struct VolumeStatusArgs {
    /// The volume, or the start of its name; none for all.
    #[arg(add = names::<CSIVolume>())]
    pub(super) name: Option<String>,
    /// CSIVolumes or HostVolumes.
    #[arg(long, value_enum, default_value_t)]
    pub(super) r#type: VolumeType,
    /// Of all namespaces.
    #[arg(short = 'A', long, conflicts_with = "name")]
    pub(super) all_namespaces: bool,
    /// Those of one plugin.
    #[arg(long, conflicts_with = "name")]
    pub(super) plugin: Option<String>,
    /// CSIVolumes that allocations on one node hold, or HostVolumes that it has.
    #[arg(long, conflicts_with = "name")]
    pub(super) node: Option<String>,
    #[command(flatten)]
    pub(super) connect: ConnectArgs,
    /// How they are printed.
    #[arg(short, long, default_value = "table")]
    pub(super) output: Output,
}

/// Arguments of `drover volume register` and `create`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 it can be used, 1 error, 2 its plugin refuses it or is missing, 3 the time was over, 130 detached by Ctrl-C."
)]
pub(crate) struct RegisterArgs {
    /// A file with one CSIVolume or HostVolume; `-` is standard input.
    pub(super) file: PathBuf,
    #[command(flatten)]
    pub(super) connect: ConnectArgs,
    /// Return when the volume is written, instead of waiting for its provider or node.
    #[arg(long)]
    pub(super) detach: bool,
    /// How long to wait, as 10m; default until the provider or node has answered.
    #[arg(long)]
    pub(super) timeout: Option<GoDuration>,
    /// Take over fields that another field manager set, such as a pipeline or kubectl.
    #[arg(long)]
    pub(super) force_conflicts: bool,
}

/// Arguments of `drover volume delete`.
#[derive(Debug, clap::Args)]
pub(crate) struct DeleteVolumeArgs {
    /// The volume, by its whole name.
    #[arg(add = names::<CSIVolume>())]
    pub(super) name: String,
    /// A CSIVolume or a HostVolume.
    #[arg(long, value_enum, default_value_t)]
    pub(super) r#type: VolumeType,
    #[command(flatten)]
    pub(super) connect: ConnectArgs,
    /// How long to wait, as 10m; default until the provider or node has deleted it.
    #[arg(long)]
    pub(super) timeout: Option<GoDuration>,
}
