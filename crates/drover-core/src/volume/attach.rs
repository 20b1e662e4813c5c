//! When an allocation may mount the volume that it holds: at once, or after the plugin's controller has attached it to
//! the node (`spec/volumes.md` 6.1).
//!
//! Input: the volume with the claim, the view, the plugin. Output: the next step. Must never know how a controller is
//! called.

use drover_api::csi_volume::{AttachState, CSIVolumeSpec, CSIVolumeStatus, Claim, ClaimState};

use super::plugin::{Capability, Plugin, Skipped};
use super::release::{ControllerCall, External, external_id, external_node_id};
use crate::ids::{NodeName, ObjectKey};
use crate::snapshot::ClusterView;

/// What the next step depends on.
#[derive(Clone, Copy, Debug)]
pub struct AttachFacts<'a> {
    /// The volume, by its namespace and its id.
    pub volume: &'a ObjectKey,
    /// Its spec.
    pub spec: &'a CSIVolumeSpec,
    /// Its status.
    pub status: &'a CSIVolumeStatus,
    /// Nodes and allocations.
    pub view: &'a ClusterView,
    /// Its plugin, where it is known.
    pub plugin: Option<&'a Plugin>,
    /// The controllers that were asked in this round and let others try.
    pub tried: &'a [Skipped],
}

/// What the attaching of a claim needs next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttachStep {
    /// Nothing: the allocation may mount it.
    Attached,
    /// Have a controller attach it to the claim's node.
    Controller(ControllerCall),
    /// Have the cluster attach it to the claim's node.
    Cluster,
    /// Nothing now; why.
    Wait(String),
    /// Nothing at all: it is attached, being released, or cannot be attached.
    Settled,
}

/// Decides what the attaching of a claim needs next. A controller may be asked twice for the same. O(claims).
pub fn step(facts: &AttachFacts<'_>, claim: &Claim) -> AttachStep {
    if claim.state != ClaimState::Taken || claim.attach != AttachState::Pending {
        return AttachStep::Settled;
    }
    let id = &facts.spec.plugin_id;
    if !facts.plugin.map_or(facts.status.controller_required, Plugin::is_controller_required) {
        return AttachStep::Attached;
    }
    let Some(plugin) = facts.plugin else {
        return AttachStep::Wait(format!(
            "plugin {id} is unknown, and the volume needs its controller; run the plugin's job"
        ));
    };
    if plugin.can(Capability::AttachDetach) == Some(false) {
        return AttachStep::Attached;
    }
    if plugin.is_of_cluster() {
        return AttachStep::Cluster;
    }
    let node = NodeName::from(claim.node_name.as_str());
    let External::Known(external_node_id) = external_node_id(facts.view, facts.spec, facts.status, claim) else {
        return AttachStep::Wait(format!(
            "plugin {id} has not reported how the provider calls node {node}; run it on {node}"
        ));
    };
    match plugin.controller(facts.view, facts.tried) {
        Ok(controller) => AttachStep::Controller(ControllerCall {
            volume: facts.volume.clone(),
            controller,
            plugin: id.clone(),
            external_id: external_id(facts.volume, facts.spec, facts.status).to_owned(),
            node,
            external_node_id: external_node_id.to_owned(),
            alloc_id: claim.alloc_id.clone(),
            secrets: facts.spec.secrets_ref.clone(),
        }),
        Err(skipped) => {
            let reasons: Vec<String> = skipped.iter().map(ToString::to_string).collect();
            let reasons = if reasons.is_empty() { "none is known".to_owned() } else { reasons.join(", ") };
            AttachStep::Wait(format!(
                "no controller of plugin {id} can be asked to attach it ({reasons}); make one healthy on a ready node"
            ))
        }
    }
}
