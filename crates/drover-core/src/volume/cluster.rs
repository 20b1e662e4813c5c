//! Volumes of drivers that the cluster runs itself: attached to a node and detached from it by an object that drover
//! makes and deletes and the driver's own attacher carries out.
//!
//! Input: a volume with a claim, and how the object stands. Output: what the object is to say, and what is done next.
//! There is one object for a volume and a node, however many allocations use it there, and it has one name: any leader
//! that makes it a second time finds it. Must never know of which kind the object is, nor how it is written.

use std::collections::BTreeMap;

use drover_api::csi_volume::{AccessMode, CSIVolumeSpec, CSIVolumeStatus, Claim};

use super::release::external_id;
use crate::ids::{NodeName, ObjectKey};

/// What an object is to say. Mount flags are not among it: they may hold secrets, and many can read the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedAttachment {
    /// The driver whose attacher is meant.
    pub driver: String,
    /// The node.
    pub node: NodeName,
    /// The provider's id of the volume.
    pub external_id: String,
    /// What the provider wants back.
    pub context: BTreeMap<String, String>,
    /// File system type; empty for the driver's own choice.
    pub fs_type: String,
    /// How the volume is used.
    pub access: Access,
    /// The Secret with the credentials, in the volume's namespace.
    pub secret: Option<String>,
}

/// How a volume is used, in the cluster's words, which know no readers beside one writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read and write on one node.
    OneNode,
    /// Read on many nodes.
    ReadOnly,
    /// Read and write on many nodes.
    ManyNodes,
}

/// How an object stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The attacher has attached the volume.
    pub is_attached: bool,
    /// What the node needs to know then.
    pub context: BTreeMap<String, String>,
    /// Why it is not attached yet; empty where nothing was tried or nothing is wrong.
    pub attach_error: String,
    /// Why it is not detached yet.
    pub detach_error: String,
    /// The object was deleted and stays until the volume is detached.
    pub is_going: bool,
}

/// What attaching needs next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attaching {
    /// Make the object.
    Create,
    /// Nothing, until the attacher has answered, or has detached the volume for those before.
    Wait,
    /// Nothing: it is attached, and the node needs to know this.
    Attached(BTreeMap<String, String>),
    /// Nothing: the attacher could not, and tries again.
    Failing(String),
}

/// What detaching needs next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Detaching {
    /// Nothing: it is detached.
    Done,
    /// Delete the object.
    Delete,
    /// Nothing, until the attacher has detached the volume.
    Wait,
    /// Nothing: the attacher could not, and tries again.
    Failing(String),
}

/// Says what attaching needs next, by how the object stands, if there is one. What is going is waited for: its attacher
/// detaches the volume even if others want it.
pub fn attaching(seen: Option<&Seen>) -> Attaching {
    match seen {
        None => Attaching::Create,
        Some(seen) if seen.is_going => Attaching::Wait,
        Some(seen) if seen.is_attached => Attaching::Attached(seen.context.clone()),
        Some(seen) if !seen.attach_error.is_empty() => Attaching::Failing(seen.attach_error.clone()),
        Some(_) => Attaching::Wait,
    }
}

/// Says what detaching needs next. An object that is gone was detached: its attacher holds it until then.
pub fn detaching(seen: Option<&Seen>) -> Detaching {
    match seen {
        None => Detaching::Done,
        Some(seen) if !seen.is_going => Detaching::Delete,
        Some(seen) if !seen.detach_error.is_empty() => Detaching::Failing(seen.detach_error.clone()),
        Some(_) => Detaching::Wait,
    }
}

/// Whether a volume's object for a node is needed: a claim there that is not freed.
pub fn is_for_somebody(status: Option<&CSIVolumeStatus>, node: &str) -> bool {
    status.is_some_and(|status| status.claims.iter().any(|claim| claim.node_name == node))
}

/// What the object of a claim's volume and node is to say.
pub fn wanted(volume: &ObjectKey, spec: &CSIVolumeSpec, status: &CSIVolumeStatus, claim: &Claim) -> WantedAttachment {
    let mut context = spec.context.clone();
    context.extend(status.context.clone());
    let access = match claim.access_mode.or(status.access_mode) {
        Some(AccessMode::SingleNodeWriter) | None => Access::OneNode,
        Some(AccessMode::SingleNodeReaderOnly | AccessMode::MultiNodeReaderOnly) => Access::ReadOnly,
        Some(AccessMode::MultiNodeSingleWriter | AccessMode::MultiNodeMultiWriter) => Access::ManyNodes,
    };
    WantedAttachment {
        driver: spec.plugin_id.clone(),
        node: NodeName::from(claim.node_name.as_str()),
        external_id: external_id(volume, spec, status).to_owned(),
        context,
        fs_type: spec.mount_options.as_ref().map(|options| options.fs_type.clone()).unwrap_or_default(),
        access,
        secret: spec.secrets_ref.as_ref().map(|secret| secret.name.clone()),
    }
}
