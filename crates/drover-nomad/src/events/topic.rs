//! What events are about.

use crate::resource::Resource;

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    /// Jobs.
    Job,
    /// Evaluations, which stand in the status of jobs.
    Evaluation,
    /// Allocations.
    Allocation,
    /// Deployments.
    Deployment,
    /// Nodes, which are in no namespace.
    Node,
    /// CSI volumes.
    Volume,
}

/// Topics of Nomad's of which nothing happens here: who asks for them gets nothing, rather than an error.
const SILENT: &[&str] = &[
    "NodePool",
    "Service",
    "HostVolume",
    "CSIPlugin",
    "ACLToken",
    "ACLPolicy",
    "ACLRole",
    "ACLAuthMethod",
    "ACLBindingRule",
    "Operator",
];

impl Topic {
    /// Each of which something happens.
    pub const ALL: [Self; 6] =
        [Self::Job, Self::Evaluation, Self::Allocation, Self::Deployment, Self::Node, Self::Volume];

    /// Its name in requests and events.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Job => "Job",
            Self::Evaluation => "Evaluation",
            Self::Allocation => "Allocation",
            Self::Deployment => "Deployment",
            Self::Node => "Node",
            Self::Volume => "CSIVolume",
        }
    }

    /// What one must be allowed to list.
    pub const fn resource(self) -> Resource {
        match self {
            Self::Job | Self::Evaluation => Resource::Jobs,
            Self::Allocation => Resource::Allocations,
            Self::Deployment => Resource::Deployments,
            Self::Node => Resource::Nodes,
            Self::Volume => Resource::Volumes,
        }
    }

    /// The topic of this name; none: there is none, or nothing happens of it.
    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|topic| topic.name() == name)
    }

    /// Whether this is a topic of Nomad's of which nothing happens here.
    pub(super) fn is_silent(name: &str) -> bool {
        SILENT.contains(&name)
    }

    /// The names of all topics of which something happens, for people.
    pub(super) fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }
}
