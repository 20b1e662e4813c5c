//! The two kinds of volumes.

use crate::cluster::manifest::Kind;

/// Which volumes a command is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum VolumeType {
    /// CSIVolumes.
    #[default]
    Csi,
    /// HostVolumes.
    Host,
}

/// Manifests that `register` and `create` take.
pub(super) const KINDS: [Kind; 2] = [("CSIVolume", "csivol"), HOST];
/// A HostVolume.
pub(super) const HOST: Kind = ("HostVolume", "hvol");
