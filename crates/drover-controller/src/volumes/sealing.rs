//! To whom publish contexts are sealed: everyone who may list volumes sees a claim, and only the agent that mounts may
//! read what its driver needs.

use std::collections::BTreeMap;

use drover_api::CSIVolume;
use drover_api::csi_volume::Claim;
use drover_seal::ClaimId;
use drover_store::Key;

use crate::shared::Shared;

/// The sealing key of a node; empty where its agent has none, as those of the version before.
pub(super) fn sealing_key(shared: &Shared, node: &str) -> String {
    let object = shared.caches.nodes.get(&Key::cluster(node));
    let print = object.and_then(|object| object.status.as_ref()?.fingerprint.as_ref());
    print.map(|print| print.sealing_key.clone()).unwrap_or_default()
}

/// What an attacher of the cluster has answered, for the node of the claim alone.
pub(super) fn sealed(
    shared: &Shared,
    volume: &CSIVolume,
    claim: &Claim,
    context: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, String> {
    let key = sealing_key(shared, &claim.node_name);
    let claim_id = ClaimId {
        namespace: volume.metadata.namespace.as_deref().unwrap_or_default(),
        volume: volume.metadata.name.as_deref().unwrap_or_default(),
        alloc_id: &claim.alloc_id,
    };
    drover_seal::seal(context, &key, claim_id).map_err(|error| {
        format!("the publish context cannot be sealed to node {}: {error}; restart its agent", claim.node_name)
    })
}
