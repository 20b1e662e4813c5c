//! How a claim is released, step after step (`spec/volumes.md` 5).
//!
//! Input: the volume as it is stored, the view, the plugin, and what the calls of this round were answered. Output: the
//! next step. Nothing is kept between steps but the claim's state, so that another leader, or a second release of the
//! same claim, goes on where this one stands. Must never know how an agent is called, nor how a checkpoint is written.

use drover_api::allocation::ClientStatus;
use drover_api::client_node::NodePhase;
use drover_api::csi_volume::{
    AccessMode, AttachmentMode, CSIVolumeSpec, CSIVolumeStatus, Claim, ClaimMode, ClaimState, SecretRef,
};

use super::claim;
use super::plugin::{Capability, Plugin, Skipped};
use crate::ids::{NodeName, ObjectKey};
use crate::snapshot::ClusterView;

/// Whether the volume is still mounted for the claim's allocation, as far as its agent reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmount {
    /// The agent has not reported that it is unmounted.
    Unknown,
    /// The agent has unmounted it.
    Reported,
}

/// Whether an operator confirms that a node which is down does not write any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// No one does.
    No,
    /// An operator does.
    ByOperator,
}

/// What the next step depends on.
#[derive(Clone, Copy, Debug)]
pub struct ReleaseFacts<'a> {
    /// The volume, by its namespace and its id.
    pub volume: &'a ObjectKey,
    /// Its spec.
    pub spec: &'a CSIVolumeSpec,
    /// Its status, as it is stored.
    pub status: &'a CSIVolumeStatus,
    /// The id of the allocation whose claim is released.
    pub alloc_id: &'a str,
    /// Nodes and allocations.
    pub view: &'a ClusterView,
    /// Its plugin, where it is known.
    pub plugin: Option<&'a Plugin>,
    /// What the claim's agent reported.
    pub unmount: Unmount,
    /// What an operator vouched for.
    pub force: Force,
    /// The controllers that were asked in this round and let others try.
    pub tried: &'a [Skipped],
    /// Who attached the volume to the claim's node.
    pub attached: AttachedBy,
}

/// Who attached a volume to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachedBy {
    /// The cluster: there is an object that says so.
    Cluster,
    /// The plugin's controller, or none.
    Plugin,
}

/// What a release needs next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReleaseStep {
    /// Store that the claim has come this far, and ask again.
    Checkpoint(ClaimState),
    /// Have the claim's node unmount the volume.
    Node(NodeCall),
    /// Have a controller detach the volume.
    Controller(ControllerCall),
    /// Have the cluster detach the volume from the claim's node.
    Cluster,
    /// Nothing, until what is waited for has happened.
    Wait(Fence),
    /// Nothing: it was released before.
    Freed,
    /// Nothing: its allocation uses the volume.
    InUse,
}

/// The node half's part: unpublish, and unstage where nothing else on the node uses the volume in the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeCall {
    /// The volume, by its namespace and its id.
    pub volume: ObjectKey,
    /// The node.
    pub node: NodeName,
    /// The plugin.
    pub plugin: String,
    /// The provider's id of the volume.
    pub external_id: String,
    /// The allocation's id.
    pub alloc_id: String,
    /// Whether it was mounted for reading only.
    pub is_read_only: bool,
    /// How it was used.
    pub access_mode: Option<AccessMode>,
    /// What the allocation saw of it.
    pub attachment_mode: Option<AttachmentMode>,
}

/// The controller's part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerCall {
    /// The volume, by its namespace and its id.
    pub volume: ObjectKey,
    /// The node whose controller is asked.
    pub controller: NodeName,
    /// The plugin; of one plugin one such call is under way at a time.
    pub plugin: String,
    /// The provider's id of the volume.
    pub external_id: String,
    /// The node from which the volume is detached.
    pub node: NodeName,
    /// The provider's id of that node.
    pub external_node_id: String,
    /// The allocation's id.
    pub alloc_id: String,
    /// Where the credentials are.
    pub secrets: Option<SecretRef>,
}

/// What the node half answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeAnswer {
    /// It is unmounted.
    Done,
    /// There is no such node any more.
    UnknownNode,
    /// It did not work.
    Failed(String),
}

/// What a controller answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControllerAnswer {
    /// It is detached.
    Done,
    /// It was not attached.
    NotFound,
    /// Another controller may be able to.
    Retryable(String),
    /// The controller's node is gone.
    UnknownNode,
    /// It did not work.
    Failed(String),
}

/// What follows on a controller's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answered {
    /// Store that the claim has come this far.
    Checkpoint(ClaimState),
    /// Ask again, with this one among those that were tried.
    Next(Skipped),
}

/// A volume for one writer is not freed while a node that is disconnected may still write to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the node may still write: volume {volume} of allocation {alloc} stays claimed, because node {node} is disconnected and has not reported the allocation's end; bring the node back, delete it (kubectl delete cnode {node}), or force the release"
)]
pub struct Fence {
    /// The volume.
    pub volume: ObjectKey,
    /// The allocation's name.
    pub alloc: String,
    /// The node.
    pub node: NodeName,
}

/// Why a release goes no further. The claim's state stays, and a later release goes on from it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReleaseError {
    /// The node half could not.
    #[error(
        "could not detach from node {node}: {reason}; volume {volume} stays claimed by allocation {alloc_id} and is tried again; look at the plugin's allocation on {node}"
    )]
    Node {
        /// The volume.
        volume: ObjectKey,
        /// The node.
        node: NodeName,
        /// The allocation's id.
        alloc_id: String,
        /// What it answered.
        reason: String,
    },
    /// A controller could not.
    #[error(
        "could not detach from controller: the controller on {controller} answered for volume {volume} on node {node}: {reason}; it is tried again; look at the plugin's allocation on {controller}"
    )]
    Controller {
        /// The volume.
        volume: ObjectKey,
        /// The controller's node.
        controller: NodeName,
        /// The node from which it is detached.
        node: NodeName,
        /// What it answered.
        reason: String,
    },
    /// The plugin does not run.
    #[error(
        "could not detach from controller: plugin {plugin} of volume {volume} on node {node} is unknown, and the volume needs its controller; run the plugin's job again, or deregister the volume by force"
    )]
    PluginUnknown {
        /// The volume.
        volume: ObjectKey,
        /// The plugin.
        plugin: String,
        /// The node from which it is detached.
        node: NodeName,
    },
    /// It is not known how the provider calls the node.
    #[error(
        "could not detach from controller: missing external node id of node {node} for volume {volume}; run plugin {plugin} on {node} again, or delete the node"
    )]
    NoExternalNodeId {
        /// The volume.
        volume: ObjectKey,
        /// The plugin.
        plugin: String,
        /// The node.
        node: NodeName,
    },
    /// The cluster's attacher could not, or does not answer.
    #[error(
        "could not detach from node {node}: VolumeAttachment {attachment} of volume {volume}: {reason}; it is tried again; look at the external-attacher of driver {driver}"
    )]
    Attacher {
        /// The volume.
        volume: ObjectKey,
        /// The object.
        attachment: String,
        /// The driver.
        driver: String,
        /// The node from which it is detached.
        node: NodeName,
        /// What it answered.
        reason: String,
    },
    /// No controller can be asked.
    #[error(
        "could not detach from controller: no controller of plugin {plugin} can be asked for volume {volume} on node {node} ({}); make one healthy on a ready node",
        shown(skipped)
    )]
    NoController {
        /// The volume.
        volume: ObjectKey,
        /// The plugin.
        plugin: String,
        /// The node from which it is detached.
        node: NodeName,
        /// Why each one is skipped.
        skipped: Vec<Skipped>,
    },
}

fn shown(skipped: &[Skipped]) -> String {
    if skipped.is_empty() {
        return "none is known".to_owned();
    }
    skipped.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Decides what the release of a claim needs next. Each step that is asked for may be carried out twice. O(claims).
///
/// # Errors
/// Why it goes no further; the state that was reached stays.
pub fn step(facts: &ReleaseFacts<'_>) -> Result<ReleaseStep, ReleaseError> {
    let Some(claim) = facts.status.claims.iter().find(|claim| claim.alloc_id == facts.alloc_id) else {
        return Ok(ReleaseStep::Freed);
    };
    match claim.state {
        ClaimState::Taken if is_wanted(facts, claim) => Ok(ReleaseStep::Checkpoint(ClaimState::Unpublishing)),
        ClaimState::Taken => Ok(ReleaseStep::InUse),
        ClaimState::Unpublishing => Ok(node_step(facts, claim)),
        ClaimState::NodeDetached => controller_step(facts, claim),
        ClaimState::ControllerDetached | ClaimState::ReadyToFree => {
            Ok(ReleaseStep::Checkpoint(ClaimState::ReadyToFree))
        }
    }
}

/// Whether the claim's release is wanted although that is not stored yet.
fn is_wanted(facts: &ReleaseFacts<'_>, claim: &Claim) -> bool {
    facts.unmount == Unmount::Reported || claim::is_over(facts.view, facts.volume, claim)
}

/// The table of the node step.
fn node_step(facts: &ReleaseFacts<'_>, claim: &Claim) -> ReleaseStep {
    let node = NodeName::from(claim.node_name.as_str());
    if !is_reachable(facts, claim) || facts.unmount == Unmount::Reported {
        return ReleaseStep::Checkpoint(ClaimState::NodeDetached);
    }
    ReleaseStep::Node(NodeCall {
        volume: facts.volume.clone(),
        node,
        plugin: facts.spec.plugin_id.clone(),
        external_id: external_id(facts.volume, facts.spec, facts.status).to_owned(),
        alloc_id: claim.alloc_id.clone(),
        is_read_only: claim.mode == ClaimMode::Read,
        access_mode: claim.access_mode.or(facts.status.access_mode),
        attachment_mode: claim.attachment_mode.or(facts.status.attachment_mode),
    })
}

/// Whether the claim's node can be asked to unmount.
fn is_reachable(facts: &ReleaseFacts<'_>, claim: &Claim) -> bool {
    let node = facts.view.node(&NodeName::from(claim.node_name.as_str()));
    node.is_some_and(|known| known.phase != NodePhase::Down)
}

/// The table of the controller step.
fn controller_step(facts: &ReleaseFacts<'_>, claim: &Claim) -> Result<ReleaseStep, ReleaseError> {
    let (volume, id) = (facts.volume.clone(), facts.spec.plugin_id.clone());
    let node = NodeName::from(claim.node_name.as_str());
    // Whoever runs the plugin by now: what the cluster has attached it detaches.
    if facts.attached == AttachedBy::Cluster {
        return Ok(if is_shared_on_node(facts, claim) { free(facts, claim) } else { ReleaseStep::Cluster });
    }
    if !facts.plugin.map_or(facts.status.controller_required, Plugin::is_controller_required) {
        return Ok(free(facts, claim));
    }
    let Some(plugin) = facts.plugin else {
        return Err(ReleaseError::PluginUnknown { volume, plugin: id, node });
    };
    // While no controller is known nobody can say that it need not be asked.
    if plugin.can(Capability::AttachDetach) == Some(false) || is_shared_on_node(facts, claim) {
        return Ok(free(facts, claim));
    }
    // Nothing is attached: this says so to whoever asks a second time.
    if plugin.is_of_cluster() {
        return Ok(ReleaseStep::Cluster);
    }
    let external_node_id = match external_node_id(facts.view, facts.spec, facts.status, claim) {
        External::Known(known) => known.to_owned(),
        External::NodeGone => return Ok(free(facts, claim)),
        External::Missing => return Err(ReleaseError::NoExternalNodeId { volume, plugin: id, node }),
    };
    match plugin.controller(facts.view, facts.tried) {
        Ok(controller) => Ok(ReleaseStep::Controller(ControllerCall {
            volume,
            controller,
            plugin: id,
            external_id: external_id(facts.volume, facts.spec, facts.status).to_owned(),
            node,
            external_node_id,
            alloc_id: claim.alloc_id.clone(),
            secrets: facts.spec.secrets_ref.clone(),
        })),
        Err(skipped) => Err(ReleaseError::NoController { volume, plugin: id, node, skipped }),
    }
}

/// Frees a claim that no controller has to detach, unless its node may still write.
fn free(facts: &ReleaseFacts<'_>, claim: &Claim) -> ReleaseStep {
    if may_still_write(facts, claim) {
        let node = NodeName::from(claim.node_name.as_str());
        return ReleaseStep::Wait(Fence { volume: facts.volume.clone(), alloc: claim.allocation.clone(), node });
    }
    ReleaseStep::Checkpoint(ClaimState::ReadyToFree)
}

/// Whether a volume for one writer may be written to by a node that was disconnected: it is down, or it is back and has
/// not reported yet that the allocation which it lost has ended.
fn may_still_write(facts: &ReleaseFacts<'_>, claim: &Claim) -> bool {
    let is_fenced = match facts.status.access_mode.or(claim.access_mode) {
        Some(AccessMode::SingleNodeWriter) => true,
        Some(
            AccessMode::SingleNodeReaderOnly
            | AccessMode::MultiNodeReaderOnly
            | AccessMode::MultiNodeSingleWriter
            | AccessMode::MultiNodeMultiWriter,
        )
        | None => false,
    };
    if !is_fenced || facts.force == Force::ByOperator || facts.unmount == Unmount::Reported {
        return false;
    }
    let Some(node) = facts.view.node(&NodeName::from(claim.node_name.as_str())) else { return false };
    let holder = claim::holder(facts.view, facts.volume, claim);
    if holder.is_some_and(|alloc| alloc.has_ended) {
        return false;
    }
    match holder {
        Some(alloc) => {
            node.phase == NodePhase::Down || matches!(alloc.client, ClientStatus::Lost | ClientStatus::Unknown)
        }
        // A node that is back is ready once its agent has reported; by then it has ended what nobody knows any more.
        None => node.phase != NodePhase::Ready,
    }
}

/// Whether another allocation keeps the volume attached to the same node: the last one is detached for all. One that is
/// only to stop does, because its tasks may write until they end; so does one that has ended for as long as the node
/// has yet to unmount what it has left, because nothing may be detached from under a mount.
fn is_shared_on_node(facts: &ReleaseFacts<'_>, claim: &Claim) -> bool {
    let is_mounted = |other: &Claim| {
        other.state <= ClaimState::Unpublishing
            && is_reachable(facts, other)
            && !claim::is_unmounted(facts.view, facts.volume, other)
    };
    let others = facts.status.claims.iter().filter(|other| other.alloc_id != claim.alloc_id);
    others
        .filter(|other| other.node_name == claim.node_name)
        .any(|other| !claim::is_over(facts.view, facts.volume, other) || is_mounted(other))
}

/// How the provider calls a claim's node.
pub(super) enum External<'a> {
    Known(&'a str),
    /// It is unknown and so is the node.
    NodeGone,
    /// It is unknown, and the node is there.
    Missing,
}

pub(super) fn external_node_id<'a>(
    view: &'a ClusterView,
    spec: &CSIVolumeSpec,
    status: &'a CSIVolumeStatus,
    claim: &'a Claim,
) -> External<'a> {
    let on_node = status.claims.iter().filter(|other| other.node_name == claim.node_name);
    let noted =
        std::iter::once(claim).chain(on_node).map(|one| one.external_node_id.as_str()).find(|id| !id.is_empty());
    if let Some(noted) = noted {
        return External::Known(noted);
    }
    let Some(node) = view.node(&NodeName::from(claim.node_name.as_str())) else { return External::NodeGone };
    let told = node.csi.get(&spec.plugin_id).map(|info| info.node_id.as_str()).filter(|id| !id.is_empty());
    told.map_or(External::Missing, External::Known)
}

/// The provider's id of the volume: of one that was made, else the spec's, else drover's own.
pub fn external_id<'a>(volume: &'a ObjectKey, spec: &'a CSIVolumeSpec, status: &'a CSIVolumeStatus) -> &'a str {
    let known = [&status.external_id, &spec.external_id].into_iter().find(|id| !id.is_empty());
    known.map_or(&volume.name, String::as_str)
}

impl NodeCall {
    /// What follows on the answer: the state that the claim has reached.
    ///
    /// # Errors
    /// The node half could not.
    pub fn answered(&self, answer: NodeAnswer) -> Result<ClaimState, ReleaseError> {
        match answer {
            NodeAnswer::Done | NodeAnswer::UnknownNode => Ok(ClaimState::NodeDetached),
            NodeAnswer::Failed(reason) => Err(ReleaseError::Node {
                volume: self.volume.clone(),
                node: self.node.clone(),
                alloc_id: self.alloc_id.clone(),
                reason,
            }),
        }
    }
}

impl ControllerCall {
    /// What follows on the answer.
    ///
    /// # Errors
    /// The controller could not, and no other one is asked.
    pub fn answered(&self, answer: ControllerAnswer) -> Result<Answered, ReleaseError> {
        let next = |reason: String| Ok(Answered::Next(Skipped { node: self.controller.clone(), reason }));
        match answer {
            // It may have been detached before, and the checkpoint lost.
            ControllerAnswer::Done | ControllerAnswer::NotFound => Ok(Answered::Checkpoint(ClaimState::ReadyToFree)),
            ControllerAnswer::Retryable(reason) => next(reason),
            ControllerAnswer::UnknownNode => next("the node is gone".to_owned()),
            ControllerAnswer::Failed(reason) => Err(ReleaseError::Controller {
                volume: self.volume.clone(),
                controller: self.controller.clone(),
                node: self.node.clone(),
                reason,
            }),
        }
    }
}
