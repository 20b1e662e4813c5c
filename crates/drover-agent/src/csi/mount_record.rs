//! What the state file holds of a mount.

use std::collections::BTreeMap;
use std::path::PathBuf;

use drover_api::csi_volume::{AccessMode, AttachmentMode};
use serde::{Deserialize, Serialize};

/// What is kept of a mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MountRecord {
    pub(super) namespace: String,
    /// The volume's id.
    pub(super) volume_id: String,
    pub(super) plugin: String,
    pub(super) external_id: String,
    pub(super) read_only: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) access_mode: Option<AccessMode>,
    pub(super) attachment_mode: AttachmentMode,
    /// Where stage and target lie, for a driver that does not see the agent's own folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) root: Option<PathBuf>,
    /// All of it was done.
    pub(super) is_mounted: bool,
}

/// The mounts of all allocations: by uid, then by the name of the volume in its group.
pub(crate) type Mounts = BTreeMap<String, BTreeMap<String, MountRecord>>;
