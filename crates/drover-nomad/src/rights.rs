//! Which rights an endpoint needs: those that the same read by kubectl needs.

use std::collections::BTreeSet;

use crate::endpoint::Endpoint;
use crate::query::{Asked, Query};
use crate::resource::{Reach, Resource, Right, Verb};
use crate::search::Context;
use crate::world::Kind;

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
    // Who uses a volume is there for those who may list allocations.
    let with_users = |volume: Vec<Right>| {
        let users = of_one(Resource::Allocations, Verb::List).into_iter();
        volume.into_iter().chain(users.map(|right| Right { is_optional: true, ..right })).collect()
    };
    let of_cluster =
        |resource: Resource, verb: Verb| Right { resource, verb, reach: Reach::Cluster, is_optional: false };
    match endpoint {
        Endpoint::Jobs
        | Endpoint::PoolJobs(_)
        | Endpoint::Evaluations
        | Endpoint::EvaluationCount
        | Endpoint::ScalingPolicies => list(Resource::Jobs),
        Endpoint::Job(_)
        | Endpoint::JobSummary(_)
        | Endpoint::JobScale(_)
        | Endpoint::JobSubmission(_)
        | Endpoint::ScalingPolicy(_)
        | Endpoint::JobEvaluations(_)
        | Endpoint::Evaluation(_) => of_one(Resource::Jobs, Verb::Get),
        Endpoint::JobVersions(_) => of_one(Resource::Versions, Verb::List),
        Endpoint::JobAllocations(_)
        | Endpoint::JobServices(_)
        | Endpoint::DeploymentAllocations(_)
        | Endpoint::EvaluationAllocations(_)
        | Endpoint::Service(_) => of_one(Resource::Allocations, Verb::List),
        Endpoint::JobDeployments(_) | Endpoint::JobDeployment(_) => of_one(Resource::Deployments, Verb::List),
        Endpoint::Deployments => list(Resource::Deployments),
        Endpoint::Deployment(_) => of_one(Resource::Deployments, Verb::Get),
        Endpoint::Allocations | Endpoint::Services => list(Resource::Allocations),
        Endpoint::Allocation(_) | Endpoint::AllocationChecks(_) | Endpoint::AllocationServices(_) => {
            of_one(Resource::Allocations, Verb::Get)
        }
        Endpoint::Nodes
        | Endpoint::Pools
        | Endpoint::Pool(_)
        | Endpoint::PoolNodes(_)
        | Endpoint::Plugins
        | Endpoint::SchedulerConfiguration => {
            vec![of_cluster(Resource::Nodes, Verb::List)]
        }
        Endpoint::Node(_) => vec![of_cluster(Resource::Nodes, Verb::Get)],
        // Those on a node are of any namespace, whichever the client is in.
        Endpoint::NodeAllocations(_) | Endpoint::Plugin(_) => vec![
            of_cluster(Resource::Nodes, Verb::Get),
            Right { resource: Resource::Allocations, verb: Verb::List, reach: Reach::Everywhere, is_optional: true },
        ],
        Endpoint::Volumes | Endpoint::Snapshots | Endpoint::ExternalVolumes => list(Resource::Volumes),
        Endpoint::HostVolumes => list(Resource::HostVolumes),
        Endpoint::HostVolume(_) => with_users(of_one(Resource::HostVolumes, Verb::Get)),
        Endpoint::Volume(_) => with_users(of_one(Resource::Volumes, Verb::Get)),
        Endpoint::Namespaces => vec![Right {
            resource: Resource::Namespaces,
            verb: Verb::Get,
            reach: Reach::Everywhere,
            is_optional: false,
        }],
        // As for the metrics of Kubernetes' own daemons: they tell how much is done by whom, of any namespace.
        Endpoint::Metrics => vec![of_cluster(Resource::Metrics, Verb::Get)],
        Endpoint::Regions
        | Endpoint::AgentSelf
        | Endpoint::AgentHealth
        | Endpoint::Members
        | Endpoint::Leader
        | Endpoint::Peers
        | Endpoint::Nothing => Vec::new(),
        Endpoint::Search(request) => request
            .contexts()
            .iter()
            .filter_map(|context| context.resource())
            .collect::<BTreeSet<_>>()
            .into_iter()
            .flat_map(|resource| match resource {
                Resource::Nodes | Resource::Metrics => vec![of_cluster(resource, Verb::List)],
                Resource::Namespaces => {
                    vec![Right { resource, verb: Verb::Get, reach: Reach::Everywhere, is_optional: false }]
                }
                Resource::Jobs
                | Resource::Versions
                | Resource::Allocations
                | Resource::Deployments
                | Resource::Volumes
                | Resource::HostVolumes => list(resource),
            })
            // Who searches everywhere gets what it may see.
            .map(|right| Right { is_optional: request.context == Context::All, ..right })
            .collect(),
    }
}

/// Whether an endpoint shows nothing but this job, by its namespace and its id: its own tasks may read that without a
/// right of theirs (`spec/gateway.md`, G-059).
pub fn is_of_job(endpoint: &Endpoint, query: &Query, (namespace, id): (&str, &str)) -> bool {
    let (Endpoint::Job(of)
    | Endpoint::JobSummary(of)
    | Endpoint::JobScale(of)
    | Endpoint::JobSubmission(of)
    | Endpoint::JobEvaluations(of)) = endpoint
    else {
        return false;
    };
    of == id && query.namespace() == namespace
}

/// The kind whose changes change an answer; none: nothing does.
pub fn kind(endpoint: &Endpoint) -> Option<Kind> {
    match endpoint {
        Endpoint::Jobs
        | Endpoint::Job(_)
        | Endpoint::JobSummary(_)
        | Endpoint::JobScale(_)
        | Endpoint::JobSubmission(_)
        | Endpoint::ScalingPolicies
        | Endpoint::ScalingPolicy(_)
        | Endpoint::JobEvaluations(_)
        | Endpoint::PoolJobs(_)
        | Endpoint::Evaluations
        | Endpoint::EvaluationCount
        | Endpoint::Evaluation(_)
        | Endpoint::Search(_) => Some(Kind::Job),
        Endpoint::JobVersions(_) => Some(Kind::Version),
        Endpoint::JobAllocations(_)
        | Endpoint::JobServices(_)
        | Endpoint::DeploymentAllocations(_)
        | Endpoint::EvaluationAllocations(_)
        | Endpoint::Allocations
        | Endpoint::Allocation(_)
        | Endpoint::AllocationChecks(_)
        | Endpoint::AllocationServices(_)
        | Endpoint::Services
        | Endpoint::Service(_)
        | Endpoint::NodeAllocations(_) => Some(Kind::Allocation),
        Endpoint::JobDeployments(_) | Endpoint::JobDeployment(_) | Endpoint::Deployments | Endpoint::Deployment(_) => {
            Some(Kind::Deployment)
        }
        Endpoint::Nodes
        | Endpoint::Node(_)
        | Endpoint::Pools
        | Endpoint::Pool(_)
        | Endpoint::PoolNodes(_)
        | Endpoint::Plugins
        | Endpoint::Plugin(_) => Some(Kind::Node),
        Endpoint::Volumes | Endpoint::Volume(_) | Endpoint::Snapshots | Endpoint::ExternalVolumes => Some(Kind::Volume),
        Endpoint::HostVolumes | Endpoint::HostVolume(_) => Some(Kind::HostVolume),
        Endpoint::Namespaces => Some(Kind::Namespace),
        Endpoint::Regions
        | Endpoint::AgentSelf
        | Endpoint::Metrics
        | Endpoint::AgentHealth
        | Endpoint::Members
        | Endpoint::Leader
        | Endpoint::Peers
        | Endpoint::SchedulerConfiguration
        | Endpoint::Nothing => None,
    }
}
