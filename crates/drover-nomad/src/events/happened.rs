//! What has become of an object.

use drover_api::{Allocation, CSIVolume, ClientNode, Deployment, Job};

use crate::world::Turn;

/// What has become of an object of which events tell.
#[derive(Clone, Debug)]
pub enum Happened {
    /// A job, with its evaluations.
    Job(Turn<Job>),
    /// An allocation.
    Allocation(Turn<Allocation>),
    /// A deployment.
    Deployment(Turn<Deployment>),
    /// A node.
    Node(Turn<ClientNode>),
    /// A CSI volume.
    Volume(Turn<CSIVolume>),
}

impl Happened {
    /// The version with which it came.
    pub const fn version(&self) -> u64 {
        match self {
            Self::Job(turn) => turn.version,
            Self::Allocation(turn) => turn.version,
            Self::Deployment(turn) => turn.version,
            Self::Node(turn) => turn.version,
            Self::Volume(turn) => turn.version,
        }
    }
}
