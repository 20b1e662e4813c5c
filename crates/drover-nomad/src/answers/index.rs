//! The index of an answer: what a client waits for to grow.

use crate::endpoint::Endpoint;
use crate::query::Query;
use crate::rights::kind;
use crate::wire::scaling::policy;
use crate::world::{World, version};

/// The index of an answer. Of a list it is the last one that changed a thing of its kind; of an object its own, and
/// that of the kind where there is none. None: the answer never changes.
pub fn index(endpoint: &Endpoint, query: &Query, world: &World) -> Option<u64> {
    let of_kind = world.index(kind(endpoint)?);
    let space = query.namespace();
    let own = match endpoint {
        Endpoint::Job(id) | Endpoint::JobSummary(id) | Endpoint::JobScale(id) | Endpoint::JobSubmission(id) => {
            world.job(&space, id).map(|it| version(&it.metadata))
        }
        Endpoint::Deployment(id) => world.deployment(&space, id).map(|it| version(&it.metadata)),
        Endpoint::Allocation(id) | Endpoint::AllocationChecks(id) | Endpoint::AllocationServices(id) => {
            world.allocation(&space, id).map(|it| version(&it.metadata))
        }
        Endpoint::ScalingPolicy(id) => policy(world, &space, id).map(|it| version(&it.job.metadata)),
        Endpoint::Node(id) => world.nodes.with_uid(id).map(|it| version(&it.metadata)),
        Endpoint::Volume(id) => world.volume(&space, id).map(|it| version(&it.metadata)),
        Endpoint::HostVolume(id) => world.host_volume(&space, id).map(|it| version(&it.metadata)),
        Endpoint::Jobs
        | Endpoint::JobAllocations(_)
        | Endpoint::JobServices(_)
        | Endpoint::JobEvaluations(_)
        | Endpoint::JobDeployments(_)
        | Endpoint::JobDeployment(_)
        | Endpoint::JobVersions(_)
        | Endpoint::Evaluations
        | Endpoint::EvaluationCount
        | Endpoint::Pools
        | Endpoint::Pool(_)
        | Endpoint::PoolNodes(_)
        | Endpoint::PoolJobs(_)
        | Endpoint::Evaluation(_)
        | Endpoint::EvaluationAllocations(_)
        | Endpoint::Deployments
        | Endpoint::DeploymentAllocations(_)
        | Endpoint::Allocations
        | Endpoint::Nodes
        | Endpoint::NodeAllocations(_)
        | Endpoint::Volumes
        | Endpoint::HostVolumes
        | Endpoint::Snapshots
        | Endpoint::ExternalVolumes
        | Endpoint::Plugins
        | Endpoint::Plugin(_)
        | Endpoint::Namespaces
        | Endpoint::Regions
        | Endpoint::AgentSelf
        | Endpoint::Metrics
        | Endpoint::AgentHealth
        | Endpoint::Members
        | Endpoint::Leader
        | Endpoint::Peers
        | Endpoint::SchedulerConfiguration
        | Endpoint::Nothing
        | Endpoint::ScalingPolicies
        | Endpoint::Services
        | Endpoint::Service(_)
        | Endpoint::Search(_) => None,
    };
    Some(own.unwrap_or(of_kind))
}
