//! What can be searched, and by which right.

use crate::resource::Resource;

/// The most that is found of a context.
pub(super) const MOST: usize = 20;

/// What is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// Allocations.
    Allocations,
    /// Deployments.
    Deployments,
    /// Evaluations.
    Evaluations,
    /// Jobs.
    Jobs,
    /// Nodes.
    Nodes,
    /// Pools of nodes.
    Pools,
    /// Namespaces.
    Namespaces,
    /// CSI plugins.
    Plugins,
    /// CSI volumes.
    Volumes,
    /// Host volumes.
    HostVolumes,
    /// Scaling policies.
    ScalingPolicies,
    /// Variables: there are none.
    Variables,
    /// Each of the others.
    All,
}

/// Each context with its name, but for `all`.
pub(super) const NAMES: [(&str, Context); 12] = [
    ("allocs", Context::Allocations),
    ("deployment", Context::Deployments),
    ("evals", Context::Evaluations),
    ("jobs", Context::Jobs),
    ("nodes", Context::Nodes),
    ("node_pools", Context::Pools),
    ("namespaces", Context::Namespaces),
    ("plugins", Context::Plugins),
    ("volumes", Context::Volumes),
    ("host_volumes", Context::HostVolumes),
    ("scaling_policy", Context::ScalingPolicies),
    ("vars", Context::Variables),
];

impl Context {
    /// What a caller must be allowed to list.
    pub(crate) const fn resource(self) -> Option<Resource> {
        match self {
            Self::Allocations => Some(Resource::Allocations),
            Self::Deployments => Some(Resource::Deployments),
            Self::Evaluations | Self::Jobs | Self::ScalingPolicies => Some(Resource::Jobs),
            Self::Nodes | Self::Pools | Self::Plugins => Some(Resource::Nodes),
            Self::Namespaces => Some(Resource::Namespaces),
            Self::Volumes => Some(Resource::Volumes),
            Self::HostVolumes => Some(Resource::HostVolumes),
            Self::Variables | Self::All => None,
        }
    }

    /// Its name.
    pub(super) fn name(self) -> &'static str {
        NAMES.iter().find(|(_, known)| *known == self).map_or("all", |(name, _)| name)
    }
}
