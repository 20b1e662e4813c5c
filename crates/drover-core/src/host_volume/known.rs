//! A HostVolume as decisions see it.

use std::collections::BTreeSet;
use std::sync::Arc;

use drover_api::client_node::OfferedVolume;
use drover_api::host_volume::{HostVolumeClaim, HostVolumeSpec};

use crate::ids::{NodeName, ObjectKey, Uid};
use crate::model::Node;

/// A HostVolume.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownVolume {
    /// Its object.
    pub key: ObjectKey,
    /// Its id.
    pub id: Uid,
    /// By what name groups of its namespace ask for it.
    pub name: Arc<str>,
    /// What is wanted.
    pub spec: HostVolumeSpec,
    /// The node that has it, or is asked for it.
    pub node: Option<NodeName>,
    /// The slots that have it as their own.
    pub claims: BTreeSet<HostVolumeClaim>,
    /// Whether its object is being deleted.
    pub is_deleting: bool,
    /// Whether the object waits for drover before it goes.
    pub is_held: bool,
}

impl KnownVolume {
    /// By what it is found: its namespace, and the name by which groups ask for it.
    pub fn asked_as(&self) -> ObjectKey {
        ObjectKey::new(Arc::clone(&self.key.namespace), Arc::clone(&self.name))
    }

    /// What its node says of it. Only the node that the controller chose has a say, and only for the volume's own
    /// namespace.
    pub fn offer<'a>(&self, node: &'a Node) -> Option<&'a OfferedVolume> {
        let offered = node.host_volumes.get(self.id.as_str()).filter(|_| self.node.as_ref() == Some(&node.name))?;
        (offered.id == self.id.as_str() && *offered.namespace == *self.key.namespace).then_some(offered)
    }

    /// Whether its node has it.
    pub fn is_offered(&self, node: &Node) -> bool {
        self.offer(node).is_some_and(|offered| offered.ready == Some(true))
    }
}
