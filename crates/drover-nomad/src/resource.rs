//! Rights in the words of RBAC, and in which namespaces a caller has them.

use std::collections::{BTreeMap, BTreeSet};

use crate::world::World;

/// A resource of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// `jobs`, with their evaluations.
    Jobs,
    /// `jobversions`.
    Versions,
    /// `allocations`.
    Allocations,
    /// `deployments`.
    Deployments,
    /// `clientnodes`, with the plugins that they run.
    Nodes,
    /// `csivolumes`.
    Volumes,
    /// `hostvolumes`.
    HostVolumes,
    /// `namespaces`.
    Namespaces,
    /// The path `/metrics`, which is no resource: what daemons of Kubernetes are scraped by.
    Metrics,
}

impl Resource {
    /// Its API group; empty for the core.
    pub const fn group(self) -> &'static str {
        match self {
            Self::Namespaces | Self::Metrics => "",
            Self::Jobs
            | Self::Versions
            | Self::Allocations
            | Self::Deployments
            | Self::Nodes
            | Self::Volumes
            | Self::HostVolumes => "drover.dev",
        }
    }

    /// Its name in roles; empty for a path.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Jobs => "jobs",
            Self::Versions => "jobversions",
            Self::Allocations => "allocations",
            Self::Deployments => "deployments",
            Self::Nodes => "clientnodes",
            Self::Volumes => "csivolumes",
            Self::HostVolumes => "hostvolumes",
            Self::Namespaces => "namespaces",
            Self::Metrics => "",
        }
    }

    /// The namespaces that hold one of it, or that are one.
    pub fn namespaces(self, world: &World) -> Vec<String> {
        match self {
            Self::Jobs => world.jobs.namespaces(),
            Self::Versions => world.versions.namespaces(),
            Self::Allocations => world.allocations.namespaces(),
            Self::Deployments => world.deployments.namespaces(),
            Self::Volumes => world.volumes.namespaces(),
            Self::HostVolumes => world.host_volumes.namespaces(),
            Self::Nodes | Self::Metrics => Vec::new(),
            Self::Namespaces => world.namespaces.iter().filter_map(|it| it.metadata.name.clone()).collect(),
        }
    }
}

/// What is done with a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// One is read.
    Get,
    /// All are read.
    List,
}

impl Verb {
    /// Its name in roles.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
        }
    }
}

/// Where a right is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// In the whole cluster.
    Cluster,
    /// In this namespace.
    Namespace(String),
    /// Wherever the caller has it: the answer holds no more.
    Everywhere,
}

/// A right that is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    /// Of what.
    pub resource: Resource,
    /// To do what.
    pub verb: Verb,
    /// Where.
    pub reach: Reach,
    /// Whether the answer does without, where it is denied.
    pub is_optional: bool,
}

/// In which namespaces a caller has a right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In all.
    All,
    /// In these.
    Some(BTreeSet<String>),
}

impl Scope {
    /// Whether this namespace is one of them.
    pub(crate) fn has(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Some(names) => names.contains(namespace),
        }
    }
}

/// The rights that a caller has, of those that were needed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scopes(pub BTreeMap<Resource, Scope>);

impl Scopes {
    /// Whether objects of a resource in this namespace are shown.
    pub(crate) fn has(&self, resource: Resource, namespace: &str) -> bool {
        self.0.get(&resource).is_some_and(|scope| scope.has(namespace))
    }

    /// Whether the resource is shown at all.
    pub(crate) fn knows(&self, resource: Resource) -> bool {
        self.0.contains_key(&resource)
    }
}
