//! How a volume grows (`spec/volumes.md` 7.1): a controller makes it larger, then each node that has it mounted where
//! the driver asks.

use drover_api::csi_volume::{CSIVolumeStatus, ClaimState};
use jiff::Timestamp;

use super::quantity::bytes;
use crate::ids::NodeName;

/// How large a volume is to become, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expand {
    /// At least.
    pub required: i64,
    /// At most; none for no limit.
    pub limit: Option<i64>,
}

/// What a controller made of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expanded {
    /// Its size in bytes.
    pub capacity_bytes: i64,
    /// Whether nodes have to follow.
    pub needs_nodes: bool,
}

/// An allocation's mount that has to follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Its node.
    pub node: NodeName,
    /// The allocation's id.
    pub alloc_id: String,
}

/// The status after a controller's answer, and the mounts that have to follow. What is stored never shrinks.
pub fn expanded(status: &CSIVolumeStatus, answer: Expanded, now: Timestamp) -> (CSIVolumeStatus, Vec<Mount>) {
    let mut status = CSIVolumeStatus { modified_at: Some(now), ..status.clone() };
    if bytes(&status.capacity).unwrap_or(0) < answer.capacity_bytes {
        status.capacity = answer.capacity_bytes.to_string();
    }
    let mounted = status.claims.iter().filter(|claim| answer.needs_nodes && claim.state < ClaimState::NodeDetached);
    let mounts = mounted
        .map(|claim| Mount { node: NodeName::from(claim.node_name.as_str()), alloc_id: claim.alloc_id.clone() })
        .collect();
    (status, mounts)
}
