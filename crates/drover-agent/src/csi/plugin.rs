//! What the agent needs of a CSI plugin, behind one small trait: a driver's socket, or, for agents on virtual time,
//! none at all.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use drover_api::csi_volume::{AccessMode, AttachmentMode, REDACTED, VolumeSnapshot};
use futures::future::BoxFuture;

/// What a plugin says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PluginFacts {
    /// The provider's name.
    pub(crate) provider: String,
    /// The provider's version.
    pub(crate) version: String,
    /// Whether its volumes need a controller.
    pub(crate) needs_controller: bool,
    /// What its controller half can do, as CSI names it.
    pub(crate) controller: Vec<String>,
    /// What its node half can do, as CSI names it.
    pub(crate) node: Vec<String>,
    /// The provider's id of the node.
    pub(crate) node_id: String,
    /// Most volumes on the node; 0 for no limit.
    pub(crate) max_volumes: i64,
    /// Where the node is.
    pub(crate) topology: BTreeMap<String, String>,
}

impl PluginFacts {
    /// Whether volumes are staged before they are published.
    pub(crate) fn stages(&self) -> bool {
        self.node.iter().any(|capability| capability == "STAGE_UNSTAGE_VOLUME")
    }

    /// Whether its mounts can follow a volume that was made larger.
    pub(crate) fn expands(&self) -> bool {
        self.node.iter().any(|capability| capability == "EXPAND_VOLUME")
    }
}

/// A volume as its user wants it. What is secret in it is never shown.
#[derive(Clone, Default)]
pub(crate) struct VolumeUse {
    /// The provider's id of the volume.
    pub(crate) external_id: String,
    /// What the provider wants back.
    pub(crate) context: BTreeMap<String, String>,
    /// What its controller answered when it attached the volume.
    pub(crate) publish_context: BTreeMap<String, String>,
    /// Where it is staged.
    pub(crate) staging: PathBuf,
    /// Where it is published.
    pub(crate) target: PathBuf,
    /// How it is used.
    pub(crate) how: How,
    /// The credentials.
    pub(crate) secrets: BTreeMap<String, String>,
}

impl fmt::Debug for VolumeUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VolumeUse")
            .field("external_id", &self.external_id)
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

/// How a volume is used.
#[derive(Clone, Default)]
pub(crate) struct How {
    pub(crate) is_read_only: bool,
    pub(crate) access_mode: Option<AccessMode>,
    pub(crate) attachment_mode: AttachmentMode,
    pub(crate) fs_type: String,
    /// They may hold secrets.
    pub(crate) mount_flags: Vec<String>,
}

impl fmt::Debug for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("How").field("access_mode", &self.access_mode).finish_non_exhaustive()
    }
}

/// An attachment that a controller makes or takes away.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attachment {
    /// The volume, as its user wants it; without paths.
    pub(crate) volume: VolumeUse,
    /// The provider's id of the node.
    pub(crate) node_id: String,
}

/// A volume that a provider is to make.
#[derive(Clone, Default)]
pub(crate) struct NewVolume {
    /// Its name; the same name again means the same volume.
    pub(crate) name: String,
    pub(crate) required_bytes: i64,
    pub(crate) limit_bytes: i64,
    /// How it may be used.
    pub(crate) capabilities: Vec<How>,
    pub(crate) parameters: BTreeMap<String, String>,
    pub(crate) secrets: BTreeMap<String, String>,
    /// The volume that it begins as a copy of.
    pub(crate) clone_of: Option<String>,
    /// The snapshot that it begins as a copy of.
    pub(crate) snapshot: Option<String>,
    /// Where it must be, and where it should be.
    pub(crate) required: Vec<BTreeMap<String, String>>,
    pub(crate) preferred: Vec<BTreeMap<String, String>>,
}

/// A volume that a provider has, with what it is to be used as.
#[derive(Clone, Default)]
pub(crate) struct KnownVolume {
    /// The provider's id of the volume.
    pub(crate) external_id: String,
    /// What the provider wants back.
    pub(crate) context: BTreeMap<String, String>,
    /// How it is to be used.
    pub(crate) capabilities: Vec<How>,
    pub(crate) parameters: BTreeMap<String, String>,
    pub(crate) secrets: BTreeMap<String, String>,
}

/// What a provider has made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MadeVolume {
    pub(crate) external_id: String,
    pub(crate) context: BTreeMap<String, String>,
    pub(crate) capacity_bytes: i64,
    pub(crate) topologies: Vec<BTreeMap<String, String>>,
}

/// What became of a volume that was to be larger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Grown {
    pub(crate) capacity_bytes: i64,
    /// The nodes that have it mounted have to follow.
    pub(crate) needs_nodes: bool,
}

/// Why a plugin did not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub(crate) struct PluginError {
    /// Its words.
    pub(crate) reason: String,
    /// What that means.
    pub(crate) kind: ErrorKind,
}

impl PluginError {
    /// Whether the same call may work later.
    pub(crate) fn is_retryable(&self) -> bool {
        matches!(self.kind, ErrorKind::Retryable | ErrorKind::Unreachable)
    }

    /// The error without these texts: a driver may repeat what it was given.
    pub(crate) fn without(mut self, confidential: &[String]) -> Self {
        for text in confidential {
            self.reason = self.reason.replace(text.as_str(), REDACTED);
        }
        self
    }
}

/// What no log may show of a call: the values of secrets, and of mount flags that have any. Longer ones come first, so
/// that none leaves a part of another.
fn confidential<'a>(secrets: &BTreeMap<String, String>, how: impl IntoIterator<Item = &'a How>) -> Vec<String> {
    let flags = how.into_iter().flat_map(|how| &how.mount_flags);
    let flags = flags.filter_map(|flag| flag.split_once('=')).map(|(_, value)| value.to_owned());
    let mut all: Vec<String> = secrets.values().cloned().chain(flags).filter(|text| !text.is_empty()).collect();
    all.sort_by_key(|text| std::cmp::Reverse(text.len()));
    all
}

impl VolumeUse {
    /// What no log may show of it.
    pub(crate) fn confidential(&self) -> Vec<String> {
        confidential(&self.secrets, [&self.how])
    }
}

impl NewVolume {
    /// What no log may show of it.
    pub(crate) fn confidential(&self) -> Vec<String> {
        confidential(&self.secrets, &self.capabilities)
    }
}

impl KnownVolume {
    /// What no log may show of it.
    pub(crate) fn confidential(&self) -> Vec<String> {
        confidential(&self.secrets, &self.capabilities)
    }
}

/// What a plugin's error means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    /// There is no such volume, or it is not there.
    NotFound,
    /// The same may work later, or elsewhere.
    Retryable,
    /// The driver has not answered: it is not there, or ended in the middle of the call. The same may work later.
    Unreachable,
    /// It will not work.
    Final,
}

/// What was to be undone is undone where there is nothing: it may have been before, and the answer lost.
pub(super) fn undone(answer: Result<(), PluginError>) -> Result<(), PluginError> {
    match answer {
        Err(error) if error.kind == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// A plugin that runs on this node. Every call may be made again.
pub(crate) trait Plugin: fmt::Debug + Send + Sync {
    /// What it says of itself now.
    fn probe(&self) -> BoxFuture<'_, Result<PluginFacts, PluginError>>;
    /// Mounts the volume once for all its users on this node.
    fn stage<'a>(&'a self, volume: &'a VolumeUse) -> BoxFuture<'a, Result<(), PluginError>>;
    /// Takes that away.
    fn unstage<'a>(&'a self, volume: &'a VolumeUse) -> BoxFuture<'a, Result<(), PluginError>>;
    /// Mounts the volume for one user.
    fn publish<'a>(&'a self, volume: &'a VolumeUse) -> BoxFuture<'a, Result<(), PluginError>>;
    /// Takes that away.
    fn unpublish<'a>(&'a self, volume: &'a VolumeUse) -> BoxFuture<'a, Result<(), PluginError>>;
    /// Attaches a volume to a node, and says what that node needs to know.
    fn attach<'a>(&'a self, to: &'a Attachment) -> BoxFuture<'a, Result<BTreeMap<String, String>, PluginError>>;
    /// Detaches a volume from a node.
    fn detach<'a>(&'a self, from: &'a Attachment) -> BoxFuture<'a, Result<(), PluginError>>;
    /// Makes a volume.
    fn create<'a>(&'a self, volume: &'a NewVolume) -> BoxFuture<'a, Result<MadeVolume, PluginError>>;
    /// Says whether a volume can be used so, all of it.
    fn validate<'a>(&'a self, volume: &'a KnownVolume) -> BoxFuture<'a, Result<(), PluginError>>;
    /// Deletes a volume with its data.
    fn delete<'a>(&'a self, volume: &'a VolumeUse) -> BoxFuture<'a, Result<(), PluginError>>;
    /// Makes a volume larger: to at least, and at most, so many bytes.
    fn expand<'a>(&'a self, volume: &'a VolumeUse, to: (i64, i64)) -> BoxFuture<'a, Result<Grown, PluginError>>;
    /// Takes a snapshot of a volume; the same name again means the same snapshot.
    fn take_snapshot<'a>(
        &'a self,
        volume: &'a VolumeUse,
        name: &'a str,
    ) -> BoxFuture<'a, Result<VolumeSnapshot, PluginError>>;
    /// Deletes a snapshot, with the credentials of the volume.
    fn delete_snapshot<'a>(&'a self, volume: &'a VolumeUse, id: &'a str) -> BoxFuture<'a, Result<(), PluginError>>;
    /// The snapshots of a volume, [`MOST_SNAPSHOTS`](drover_api::csi_volume::MOST_SNAPSHOTS) at most.
    fn list_snapshots<'a>(&'a self, volume: &'a VolumeUse) -> BoxFuture<'a, Result<Vec<VolumeSnapshot>, PluginError>>;
    /// Makes a mount of this node follow.
    fn expand_mount<'a>(&'a self, volume: &'a VolumeUse, to: (i64, i64)) -> BoxFuture<'a, Result<(), PluginError>>;
}
