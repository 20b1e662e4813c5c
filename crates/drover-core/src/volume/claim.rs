//! Who holds a volume: how a claim is taken, found to be past, carried forward and freed (`spec/volumes.md` 3).
//!
//! Input: the view, what is wanted, the time. Output: the volume's status as it is to be written, or why not. A claim
//! leaves the list only by [`ClaimState::ReadyToFree`], its state only moves forward, and no update has a field for its
//! modes. Must never know how a status is written, nor how a volume is detached.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_api::csi_volume::{
    AccessMode, AttachState, AttachmentMode, CSIVolumeSpec, CSIVolumeStatus, Claim, ClaimMode, ClaimState,
};
use jiff::Timestamp;

use super::access::{self, Held};
use crate::ids::{AllocKey, ObjectKey, Uid};
use crate::model::Alloc;
use crate::snapshot::ClusterView;

/// Most claims of a volume: what the list in its status holds.
pub const MOST_CLAIMS: usize = 1000;

/// What an allocation wants of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRequest {
    /// The volume, by its namespace and its id.
    pub volume: ObjectKey,
    /// The allocation.
    pub alloc: AllocKey,
    /// The allocation's id.
    pub alloc_id: Uid,
    /// Whether it writes.
    pub mode: ClaimMode,
    /// How it uses the volume.
    pub access_mode: AccessMode,
    /// What it sees of the volume.
    pub attachment_mode: AttachmentMode,
}

/// Why a claim is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// There is no such volume.
    #[error("volume {volume} does not exist; create a CSIVolume with this id")]
    NoVolume {
        /// The volume.
        volume: ObjectKey,
    },
    /// Others see the volume in another way.
    #[error(
        "attachment mode cannot change while claimed: volume {volume} is used as {current}, and {wanted} is asked for; stop its users first, or ask for {current}"
    )]
    AttachmentMode {
        /// The volume.
        volume: ObjectKey,
        /// How it is used.
        current: AttachmentMode,
        /// How the allocation wants to use it.
        wanted: AttachmentMode,
    },
    /// There is no such allocation.
    #[error("allocation {alloc} does not exist, so that it cannot hold volume {volume}")]
    NoAlloc {
        /// The volume.
        volume: ObjectKey,
        /// The allocation.
        alloc: AllocKey,
    },
    /// The volume cannot be used so now.
    #[error("volume {volume} is unschedulable for {mode} claims; its conditions say why (kubectl describe csivol)")]
    Unschedulable {
        /// The volume.
        volume: ObjectKey,
        /// What was wanted.
        mode: ClaimMode,
    },
    /// Others hold what is wanted: it is free later.
    #[error("max-claims: volume {volume} has no free {mode} claim; it is tried again when one is released")]
    MaxClaims {
        /// The volume.
        volume: ObjectKey,
        /// What was wanted.
        mode: ClaimMode,
    },
}

impl ClaimError {
    /// Whether the same request may succeed later without anybody's doing.
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::MaxClaims { .. } => true,
            Self::NoVolume { .. } | Self::AttachmentMode { .. } | Self::NoAlloc { .. } | Self::Unschedulable { .. } => {
                false
            }
        }
    }
}

/// A change of a volume's claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// Changes no claim; it only makes everybody look again.
    Touch,
    /// How far the release of an allocation's claim has come.
    Release {
        /// The allocation's id.
        alloc_id: String,
        /// The state that was reached.
        state: ClaimState,
        /// Why it goes no further; empty when it does.
        error: String,
    },
}

/// How far the attaching of a claim's volume has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The allocation's id.
    pub alloc_id: String,
    /// Whether the allocation may mount it.
    pub state: AttachState,
    /// What the controller answered.
    pub context: BTreeMap<String, String>,
    /// Why it is not attached; empty when it is.
    pub error: String,
}

/// The volumes that an allocation wants, in the order of its group. Empty where its definition is unknown.
pub fn wanted(view: &ClusterView, alloc: &Alloc) -> Vec<ClaimRequest> {
    let Some(group) = view.definition_of(alloc).and_then(|definition| definition.group(&alloc.group)) else {
        return Vec::new();
    };
    let requests = group.volumes.iter().filter(|request| access::is_csi(request));
    requests
        .filter_map(|request| {
            Some(ClaimRequest {
                volume: ObjectKey::new(Arc::clone(&alloc.key.namespace), access::source(request, alloc.index)),
                alloc: alloc.key.clone(),
                alloc_id: alloc.uid.clone(),
                mode: if request.read_only { ClaimMode::Read } else { ClaimMode::Write },
                // Validation refuses requests without modes.
                access_mode: request.access_mode.and_then(access::of_csi)?,
                attachment_mode: request.attachment_mode?,
            })
        })
        .collect()
}

/// Takes a claim: the status to write, or none where the allocation has it already. O(claims).
///
/// # Errors
/// Why it cannot be taken; only [`ClaimError::MaxClaims`] passes by itself.
pub fn take(view: &ClusterView, request: &ClaimRequest, now: Timestamp) -> Result<Option<CSIVolumeStatus>, ClaimError> {
    let no_volume = || ClaimError::NoVolume { volume: request.volume.clone() };
    let (volume, status) = view.volume(&request.volume).zip(read(view, &request.volume)).ok_or_else(no_volume)?;
    add(view, &volume.spec, status, request, now)
}

/// Adds a claim to a status that was [`read`]; none where the allocation has it already. O(claims).
pub(super) fn add(
    view: &ClusterView,
    spec: &CSIVolumeSpec,
    mut status: CSIVolumeStatus,
    request: &ClaimRequest,
    now: Timestamp,
) -> Result<Option<CSIVolumeStatus>, ClaimError> {
    let ClaimRequest { volume: key, alloc, mode, .. } = request;
    let (current, wanted) = (status.attachment_mode.unwrap_or(request.attachment_mode), request.attachment_mode);
    if current != wanted {
        return Err(ClaimError::AttachmentMode { volume: key.clone(), current, wanted });
    }
    let is_own = |claim: &Claim| claim.alloc_id == request.alloc_id.as_str();
    let has_it = |claim: &Claim| is_own(claim) && claim.mode == *mode && claim.state == ClaimState::Taken;
    if status.claims.iter().any(has_it) {
        return Ok(None);
    }
    let known = view.alloc(alloc).filter(|known| known.uid == request.alloc_id);
    let known = known.ok_or_else(|| ClaimError::NoAlloc { volume: key.clone(), alloc: alloc.clone() })?;
    let is_schedulable = match mode {
        ClaimMode::Read => access::is_read_schedulable(&status),
        ClaimMode::Write => access::is_write_schedulable(spec, &status),
    };
    if !is_schedulable {
        return Err(ClaimError::Unschedulable { volume: key.clone(), mode: *mode });
    }
    // What it holds already makes way for the new claim, and so does not stand in its way.
    status.claims.retain(|claim| !is_own(claim));
    if status.claims.len() >= MOST_CLAIMS || !Held::by(&status.claims).has_room(status.access_mode, *mode) {
        return Err(ClaimError::MaxClaims { volume: key.clone(), mode: *mode });
    }
    let plugin = view.node(&known.node).and_then(|node| node.csi.get(&spec.plugin_id));
    status.claims.push(Claim {
        alloc_id: request.alloc_id.as_str().to_owned(),
        allocation: alloc.name.to_string(),
        node_name: known.node.as_str().to_owned(),
        external_node_id: plugin.map(|plugin| plugin.node_id.clone()).unwrap_or_default(),
        mode: *mode,
        access_mode: Some(request.access_mode),
        attachment_mode: Some(request.attachment_mode),
        state: ClaimState::Taken,
        attach: AttachState::Pending,
        since: Some(now),
        publish_context: BTreeMap::new(),
        error: String::new(),
    });
    status.access_mode.get_or_insert(request.access_mode);
    status.attachment_mode.get_or_insert(request.attachment_mode);
    status.modified_at = Some(now);
    Ok(Some(status))
}

/// The allocation that holds a claim of a volume, while it exists.
pub fn holder<'a>(view: &'a ClusterView, volume: &ObjectKey, claim: &Claim) -> Option<&'a Arc<Alloc>> {
    let key = AllocKey::new(Arc::clone(&volume.namespace), claim.allocation.as_str());
    view.alloc(&key).filter(|alloc| alloc.uid.as_str() == claim.alloc_id)
}

/// Whether the allocation that holds a claim has ended or is gone. One that is only to stop holds it still.
pub fn is_over(view: &ClusterView, volume: &ObjectKey, claim: &Claim) -> bool {
    holder(view, volume, claim).is_none_or(|alloc| alloc.is_client_terminal())
}

/// Whether the agent of a claim's node has reported that its allocation uses the volume no longer.
pub fn is_unmounted(view: &ClusterView, volume: &ObjectKey, claim: &Claim) -> bool {
    holder(view, volume, claim).is_some_and(|alloc| alloc.has_ended || alloc.unmounted.contains(&*volume.name))
}

/// The status of a volume as it is now: claims are past whose allocation has ended or is gone, and their modes are
/// complete. Every reader and writer of claims begins with it, so that all see the same past claims. None where there
/// is no such volume. O(claims).
pub fn read(view: &ClusterView, volume: &ObjectKey) -> Option<CSIVolumeStatus> {
    let status = view.volume(volume)?.status.clone().unwrap_or_default();
    Some(seen(view, volume, status))
}

/// A status as it is now, by what is known of the allocations that hold the volume. O(claims).
pub(super) fn seen(view: &ClusterView, volume: &ObjectKey, mut status: CSIVolumeStatus) -> CSIVolumeStatus {
    for claim in &mut status.claims {
        claim.access_mode = claim.access_mode.or(status.access_mode);
        claim.attachment_mode = claim.attachment_mode.or(status.attachment_mode);
        if claim.state == ClaimState::Taken && is_over(view, volume, claim) {
            claim.state = ClaimState::Unpublishing;
        }
    }
    status
}

/// The claims that are being released, or are to be, in a status that was [`read`].
pub fn past(status: &CSIVolumeStatus) -> impl Iterator<Item = &Claim> {
    status.claims.iter().filter(|claim| claim.state != ClaimState::Taken)
}

/// The status after these answers. What is being released is not attached any more. O(answers × claims).
#[must_use]
pub fn attached(status: &CSIVolumeStatus, answers: &[Attachment], now: Timestamp) -> CSIVolumeStatus {
    let mut status = CSIVolumeStatus { modified_at: Some(now), ..status.clone() };
    for answer in answers {
        let is_meant = |claim: &&mut Claim| claim.alloc_id == answer.alloc_id && claim.state == ClaimState::Taken;
        if let Some(claim) = status.claims.iter_mut().find(is_meant) {
            claim.attach = answer.state;
            claim.publish_context.clone_from(&answer.context);
            claim.error.clone_from(&answer.error);
        }
    }
    status
}

/// The status after these updates. A claim that is not listed any more was freed before, and stays so. O(updates ×
/// claims).
#[must_use]
pub fn updated(status: &CSIVolumeStatus, updates: &[Update], now: Timestamp) -> CSIVolumeStatus {
    let mut status = CSIVolumeStatus { modified_at: Some(now), ..status.clone() };
    for update in updates {
        let Update::Release { alloc_id, state, error } = update else { continue };
        if let Some(claim) = status.claims.iter_mut().find(|claim| claim.alloc_id == *alloc_id) {
            // A completed claim keeps its modes when the volume's are cleared or change.
            claim.access_mode = claim.access_mode.or(status.access_mode);
            claim.attachment_mode = claim.attachment_mode.or(status.attachment_mode);
            claim.state = claim.state.max(*state);
            claim.error.clone_from(error);
        }
    }
    status.claims.retain(|claim| claim.state != ClaimState::ReadyToFree);
    if status.claims.is_empty() {
        status.access_mode = None;
        status.attachment_mode = None;
    }
    status
}
