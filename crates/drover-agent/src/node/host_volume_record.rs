//! What the state file holds of a host volume.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What is kept of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VolumeRecord {
    pub(crate) id: String,
    pub(crate) path: PathBuf,
    /// The HostVolume's namespace; empty for one that people of the machine made or registered.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) namespace: String,
    /// Who made it, and how; none: it was there before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) made: Option<Made>,
}

/// How a volume is made again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Made {
    pub(super) plugin: String,
    pub(super) parameters: BTreeMap<String, String>,
}
