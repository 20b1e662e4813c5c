//! Which rights an endpoint needs: those that the same read by kubectl needs.

use std::collections::{BTreeMap, BTreeSet};

use crate::query::{Asked, Query};
use crate::route::Endpoint;
use crate::search::Context;
use crate::world::{Kind, World};

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
    /// `namespaces`.
    Namespaces,
}

impl Resource {
    /// Its API group; empty for the core.
    pub const fn group(self) -> &'static str {
        match self {
            Self::Namespaces => "",
            Self::Jobs | Self::Versions | Self::Allocations | Self::Deployments | Self::Nodes | Self::Volumes => {
                "drover.dev"
            }
        }
    }

    /// Its name in roles.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Jobs => "jobs",
            Self::Versions => "jobversions",
            Self::Allocations => "allocations",
            Self::Deployments => "deployments",
            Self::Nodes => "clientnodes",
            Self::Volumes => "csivolumes",
            Self::Namespaces => "namespaces",
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
            Self::Nodes => Vec::new(),
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

/// The rights that an answer needs.
pub fn needed(endpoint: &Endpoint, query: &Query) -> Vec<Right> {
    let list = |resource: Resource| {
        let reach = match query.namespaces() {
            Asked::All => Reach::Everywhere,
            Asked::One(name) => Reach::Namespace(name),
        };
        vec![Right { resource, verb: Verb::List, reach, is_optional: false }]
    };
    let of_one = |resource: Resource, verb: Verb| {
        vec![Right { resource, verb, reach: Reach::Namespace(query.namespace()), is_optional: false }]
    };
    let of_cluster =
        |resource: Resource, verb: Verb| Right { resource, verb, reach: Reach::Cluster, is_optional: false };
    match endpoint {
        Endpoint::Jobs | Endpoint::Evaluations => list(Resource::Jobs),
        Endpoint::Job(_) | Endpoint::JobSummary(_) | Endpoint::JobEvaluations(_) | Endpoint::Evaluation(_) => {
            of_one(Resource::Jobs, Verb::Get)
        }
        Endpoint::JobVersions(_) => of_one(Resource::Versions, Verb::List),
        Endpoint::JobAllocations(_) | Endpoint::DeploymentAllocations(_) => of_one(Resource::Allocations, Verb::List),
        Endpoint::JobDeployments(_) | Endpoint::JobDeployment(_) => of_one(Resource::Deployments, Verb::List),
        Endpoint::Deployments => list(Resource::Deployments),
        Endpoint::Deployment(_) => of_one(Resource::Deployments, Verb::Get),
        Endpoint::Allocations => list(Resource::Allocations),
        Endpoint::Allocation(_) => of_one(Resource::Allocations, Verb::Get),
        Endpoint::Nodes | Endpoint::Plugins => vec![of_cluster(Resource::Nodes, Verb::List)],
        Endpoint::Node(_) => vec![of_cluster(Resource::Nodes, Verb::Get)],
        // Those on a node are of any namespace, whichever the client is in.
        Endpoint::NodeAllocations(_) | Endpoint::Plugin(_) => vec![
            of_cluster(Resource::Nodes, Verb::Get),
            Right { resource: Resource::Allocations, verb: Verb::List, reach: Reach::Everywhere, is_optional: true },
        ],
        Endpoint::Volumes => list(Resource::Volumes),
        Endpoint::Volume(_) => {
            let claims = of_one(Resource::Allocations, Verb::List).into_iter();
            let claims = claims.map(|right| Right { is_optional: true, ..right });
            of_one(Resource::Volumes, Verb::Get).into_iter().chain(claims).collect()
        }
        Endpoint::Namespaces => vec![Right {
            resource: Resource::Namespaces,
            verb: Verb::Get,
            reach: Reach::Everywhere,
            is_optional: false,
        }],
        Endpoint::Regions | Endpoint::AgentSelf | Endpoint::AgentHealth => Vec::new(),
        Endpoint::Search(request) => request
            .contexts()
            .iter()
            .filter_map(|context| context.resource())
            .collect::<BTreeSet<_>>()
            .into_iter()
            .flat_map(|resource| match resource {
                Resource::Nodes => vec![of_cluster(Resource::Nodes, Verb::List)],
                Resource::Namespaces => {
                    vec![Right { resource, verb: Verb::Get, reach: Reach::Everywhere, is_optional: false }]
                }
                Resource::Jobs
                | Resource::Versions
                | Resource::Allocations
                | Resource::Deployments
                | Resource::Volumes => list(resource),
            })
            // Who searches everywhere gets what it may see.
            .map(|right| Right { is_optional: request.context == Context::All, ..right })
            .collect(),
    }
}

/// The kind whose changes change an answer; none: nothing does.
pub fn kind(endpoint: &Endpoint) -> Option<Kind> {
    match endpoint {
        Endpoint::Jobs
        | Endpoint::Job(_)
        | Endpoint::JobSummary(_)
        | Endpoint::JobEvaluations(_)
        | Endpoint::Evaluations
        | Endpoint::Evaluation(_)
        | Endpoint::Search(_) => Some(Kind::Job),
        Endpoint::JobVersions(_) => Some(Kind::Version),
        Endpoint::JobAllocations(_)
        | Endpoint::DeploymentAllocations(_)
        | Endpoint::Allocations
        | Endpoint::Allocation(_)
        | Endpoint::NodeAllocations(_) => Some(Kind::Allocation),
        Endpoint::JobDeployments(_) | Endpoint::JobDeployment(_) | Endpoint::Deployments | Endpoint::Deployment(_) => {
            Some(Kind::Deployment)
        }
        Endpoint::Nodes | Endpoint::Node(_) | Endpoint::Plugins | Endpoint::Plugin(_) => Some(Kind::Node),
        Endpoint::Volumes | Endpoint::Volume(_) => Some(Kind::Volume),
        Endpoint::Namespaces => Some(Kind::Namespace),
        Endpoint::Regions | Endpoint::AgentSelf | Endpoint::AgentHealth => None,
    }
}
