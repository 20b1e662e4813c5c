//! What the claims of a volume wait for, and that one in use is not to go.

use anyhow::bail;
use drover_api::CSIVolume;
use drover_api::csi_volume::{AttachState, Claim, ClaimMode, ClaimState};
use kube::ResourceExt as _;

/// What a claim waits for, in words.
pub(super) fn waits_for(claim: &Claim) -> String {
    if !claim.error.is_empty() {
        return claim.error.clone();
    }
    let node = &claim.node_name;
    match (claim.state, claim.attach) {
        (ClaimState::Taken, AttachState::Attached) => match claim.mode {
            ClaimMode::Read => "nothing: it is read".to_owned(),
            ClaimMode::Write => "nothing: it is written to".to_owned(),
        },
        (ClaimState::Taken, AttachState::Pending) => format!("the plugin's controller attaches it to {node}"),
        (ClaimState::Taken, AttachState::Failed) => "its allocation fails".to_owned(),
        (ClaimState::Unpublishing, _) => format!("node {node} unmounts it"),
        (ClaimState::NodeDetached, _) => format!("the plugin's controller detaches it from {node}"),
        (ClaimState::ControllerDetached | ClaimState::ReadyToFree, _) => "nothing: it is about to be free".to_owned(),
    }
}

/// A volume that is in use must not go; `or` says what else there is to do.
pub(super) fn refuse_in_use(volume: &CSIVolume, or: &str) -> anyhow::Result<()> {
    let Some(claim) = volume.status.as_ref().and_then(|status| status.claims.first()) else { return Ok(()) };
    bail!(
        "csivol/{} is in use by allocation {} on node {}; stop its job and wait for the release{or}",
        volume.name_any(),
        claim.allocation,
        claim.node_name
    )
}
