//! What users do with volumes besides registering them, and what the controller does for them from time to time:
//! taking a volume out, detaching it from a node, and waking volumes whose release got stuck (`spec/volumes.md` 4 and
//! 7).

use drover_api::csi_volume::{CSIVolumeStatus, Claim};
use jiff::{SignedDuration, Timestamp};

use super::claim;
use crate::ids::{NodeName, ObjectKey};
use crate::snapshot::ClusterView;

/// Whether a volume may be taken out although claims are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claims {
    /// There must be none.
    MustBeFree,
    /// Those of allocations that have ended, are to stop or are gone vanish with the volume; no plugin is called.
    MayBeOver,
}

/// Why a user's request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ActionRefusal {
    /// There is no volume with exactly this id.
    #[error("volume {volume} does not exist; give its whole id")]
    NotFound {
        /// The id that was given.
        volume: ObjectKey,
    },
    /// It has claims.
    #[error("volume {volume} is in use by allocation {alloc} on node {node}; stop its job and wait for the release")]
    InUse {
        /// The volume.
        volume: ObjectKey,
        /// One of those that hold it.
        alloc: String,
        /// Its node.
        node: String,
    },
}

/// Whether a volume can be taken out. Nothing else happens to it: what is attached stays so.
///
/// # Errors
/// It does not exist or is in use.
pub fn deregister(view: &ClusterView, volume: &ObjectKey, claims: Claims) -> Result<(), ActionRefusal> {
    let status = known(view, volume)?;
    let keeps_it = |claim: &&Claim| match claims {
        Claims::MustBeFree => true,
        Claims::MayBeOver => claim::holder(view, volume, claim).is_some_and(|alloc| !alloc.is_terminal()),
    };
    status.claims.iter().find(keeps_it).map_or(Ok(()), |claim| {
        let (alloc, node) = (claim.allocation.clone(), claim.node_name.clone());
        Err(ActionRefusal::InUse { volume: volume.clone(), alloc, node })
    })
}

/// The ids of the allocations whose claims are released when a volume is detached from a node: all past ones there.
///
/// # Errors
/// The volume does not exist.
pub fn detach(view: &ClusterView, volume: &ObjectKey, node: &NodeName) -> Result<Vec<String>, ActionRefusal> {
    let status = known(view, volume)?;
    let there = claim::past(&status).filter(|claim| claim.node_name == node.as_str());
    Ok(there.map(|claim| claim.alloc_id.clone()).collect())
}

fn known(view: &ClusterView, volume: &ObjectKey) -> Result<CSIVolumeStatus, ActionRefusal> {
    claim::read(view, volume).ok_or_else(|| ActionRefusal::NotFound { volume: volume.clone() })
}

/// Which volumes have past claims and were not changed for `age`: each is to be touched, which makes the watcher look
/// at it. An age of zero takes all. O(claims of all volumes).
pub fn stuck(view: &ClusterView, age: SignedDuration, now: Timestamp) -> Vec<ObjectKey> {
    let is_old = |status: &CSIVolumeStatus| status.modified_at.is_none_or(|at| now.duration_since(at) >= age);
    let old = view.volumes().filter(|(_, volume)| volume.status.as_ref().is_some_and(is_old));
    old.map(|(key, _)| key).filter(|key| has_past_claims(view, key)).cloned().collect()
}

/// Whether a volume is to be touched when a user asks for just this one, however long ago it changed.
pub fn has_past_claims(view: &ClusterView, volume: &ObjectKey) -> bool {
    claim::read(view, volume).is_some_and(|status| claim::past(&status).next().is_some())
}
