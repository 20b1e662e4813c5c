//! From an endpoint to its answer.

use serde_json::json;

use super::agent::{self, REGION};
use super::reply::Reply;
use super::view::View;
use super::{allocations, cluster, deployments, evaluations, jobs, metrics, pools, scaling, services, volumes};
use crate::endpoint::Endpoint;
use crate::fault::Fault;
use crate::search;

/// Answers a read.
///
/// # Errors
/// 400 for a filter, token or combination that cannot be answered, 404 where there is no such object.
pub fn answer(endpoint: &Endpoint, view: View<'_>) -> Result<Reply, Fault> {
    match endpoint {
        Endpoint::Jobs => jobs::list(|_| true, view),
        Endpoint::Job(id) => jobs::one(id, view),
        Endpoint::JobSummary(id) => jobs::summary(id, view),
        Endpoint::JobVersions(id) => jobs::versions(id, view),
        Endpoint::JobServices(id) => services::of_job(id, view),
        Endpoint::JobScale(id) => jobs::scale(id, view),
        Endpoint::JobSubmission(id) => jobs::submission(id, view),
        Endpoint::ScalingPolicies => scaling::list(view),
        Endpoint::ScalingPolicy(id) => scaling::one(id, view),
        Endpoint::Services => services::list(view),
        Endpoint::Service(name) => services::one(name, view),
        Endpoint::JobAllocations(id) => allocations::of_job(id, view),
        Endpoint::JobEvaluations(id) => evaluations::of_job(id, view),
        Endpoint::JobDeployments(id) => deployments::of_job(id, view),
        Endpoint::JobDeployment(id) => deployments::newest_of_job(id, view),
        Endpoint::Evaluations => evaluations::list(view),
        Endpoint::EvaluationCount => evaluations::count(view),
        Endpoint::Evaluation(id) => evaluations::one(id, view),
        Endpoint::EvaluationAllocations(id) => allocations::of_evaluation(id, view),
        Endpoint::Deployments => deployments::list(view),
        Endpoint::Deployment(id) => deployments::one(id, view),
        Endpoint::DeploymentAllocations(id) => allocations::of_deployment(id, view),
        Endpoint::Allocations => allocations::list(view),
        Endpoint::Allocation(id) => allocations::one(id, view),
        Endpoint::AllocationChecks(id) => allocations::checks(id, view),
        Endpoint::AllocationServices(id) => allocations::services(id, view),
        Endpoint::Nodes => cluster::nodes(|_| true, view),
        Endpoint::Pools => pools::list(view),
        Endpoint::Pool(name) => pools::one(name, view),
        Endpoint::PoolNodes(name) => pools::nodes(name, view),
        Endpoint::PoolJobs(name) => pools::jobs(name, view),
        Endpoint::Node(id) => cluster::node(id, view),
        Endpoint::NodeAllocations(id) => allocations::on_node(id, view),
        Endpoint::Volumes => volumes::list(view),
        Endpoint::Volume(id) => volumes::one(id, view),
        Endpoint::HostVolumes => volumes::hosts(view),
        Endpoint::HostVolume(id) => volumes::host(id, view),
        Endpoint::Snapshots => volumes::snapshots(view),
        Endpoint::ExternalVolumes => volumes::external(view),
        Endpoint::Plugins => cluster::plugins(view),
        Endpoint::Plugin(id) => cluster::plugin(id, view),
        Endpoint::Namespaces => cluster::namespaces(view),
        Endpoint::Regions => Reply::of(&json!([REGION]), view.query),
        Endpoint::AgentSelf => Reply::of(&agent::about(view.facts), view.query),
        Endpoint::Metrics => metrics::answer(view),
        Endpoint::Members => Reply::of(&agent::members(view.facts), view.query),
        Endpoint::Leader => Reply::of(&agent::leader(view.facts)?, view.query),
        Endpoint::Peers => Reply::of(&agent::peers(view.facts), view.query),
        Endpoint::SchedulerConfiguration => Reply::of(&agent::scheduler(view.facts), view.query),
        Endpoint::Nothing => Reply::of(&json!([]), view.query),
        Endpoint::AgentHealth => {
            let well = json!({ "ok": true, "message": "ok" });
            Reply::of(&json!({ "server": well, "client": well }), view.query)
        }
        Endpoint::Search(request) => Reply::of(&search::answer(request, view.world, view.scopes), view.query),
    }
}
