//! What is read, by path.

use crate::paths::{OfId, by_end, by_ends, some_id};
use crate::query::Query;
use crate::search::SearchRequest;
use crate::unbuilt;

/// What is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// The list of jobs.
    Jobs,
    /// A job.
    Job(String),
    /// Its allocations.
    JobAllocations(String),
    /// Its evaluations.
    JobEvaluations(String),
    /// Its deployments.
    JobDeployments(String),
    /// Its newest deployment.
    JobDeployment(String),
    /// How many of its allocations are in which state.
    JobSummary(String),
    /// What it once was.
    JobVersions(String),
    /// The services by which its allocations are found.
    JobServices(String),
    /// The counts of its groups.
    JobScale(String),
    /// The text that it was registered with.
    JobSubmission(String),
    /// The list of scaling policies: one for each group that has limits.
    ScalingPolicies,
    /// A scaling policy.
    ScalingPolicy(String),
    /// The services of each namespace.
    Services,
    /// What a service leads to.
    Service(String),
    /// The list of evaluations.
    Evaluations,
    /// How many evaluations there are.
    EvaluationCount,
    /// An evaluation.
    Evaluation(String),
    /// The allocations that it placed or changed.
    EvaluationAllocations(String),
    /// The list of deployments.
    Deployments,
    /// A deployment.
    Deployment(String),
    /// The allocations that count for it.
    DeploymentAllocations(String),
    /// The list of allocations.
    Allocations,
    /// An allocation.
    Allocation(String),
    /// What its checks found last.
    AllocationChecks(String),
    /// The services by which it is found.
    AllocationServices(String),
    /// The list of nodes.
    Nodes,
    /// A node.
    Node(String),
    /// The allocations on it.
    NodeAllocations(String),
    /// The list of node pools.
    Pools,
    /// A node pool.
    Pool(String),
    /// The nodes in it.
    PoolNodes(String),
    /// The jobs that are for it.
    PoolJobs(String),
    /// The list of volumes: those of CSI drivers.
    Volumes,
    /// A CSI volume.
    Volume(String),
    /// The list of host volumes.
    HostVolumes,
    /// A host volume.
    HostVolume(String),
    /// The list of snapshots of a plugin's volumes.
    Snapshots,
    /// The list of what a plugin's provider has.
    ExternalVolumes,
    /// The list of plugins.
    Plugins,
    /// A CSI plugin.
    Plugin(String),
    /// The list of namespaces.
    Namespaces,
    /// The list of regions.
    Regions,
    /// What answers.
    AgentSelf,
    /// What it has counted.
    Metrics,
    /// Whether it can answer.
    AgentHealth,
    /// The controllers.
    Members,
    /// Which of them leads.
    Leader,
    /// The addresses of all.
    Peers,
    /// What the operator has set for the scheduler.
    SchedulerConfiguration,
    /// A list of what there never is.
    Nothing,
    /// Objects whose ids begin so.
    Search(SearchRequest),
}

impl Endpoint {
    /// The endpoint that is meant where the parameters say which of two lists that is.
    #[must_use]
    pub fn with(self, query: &Query) -> Self {
        match self {
            Self::Volumes if query.text("type") == Some("host") => Self::HostVolumes,
            other => other,
        }
    }
}

/// What there is of a job, by how the path ends.
const OF_JOB: &[(&str, OfId<Endpoint>)] = &[
    ("/allocations", Endpoint::JobAllocations),
    ("/deployment", Endpoint::JobDeployment),
    ("/deployments", Endpoint::JobDeployments),
    ("/evaluations", Endpoint::JobEvaluations),
    ("/scale", Endpoint::JobScale),
    ("/services", Endpoint::JobServices),
    ("/submission", Endpoint::JobSubmission),
    ("/summary", Endpoint::JobSummary),
    ("/versions", Endpoint::JobVersions),
];

/// Lists of things that drover has none of: clients that list them go on.
const EMPTY: &[&str] = &[
    "acl/binding-rules",
    "acl/policies",
    "acl/roles",
    "acl/tokens",
    "operator/keyring/keys",
    "quota-usages",
    "quotas",
    "recommendations",
    "sentinel/policies",
    "vars",
];

/// What is read at a path without a body.
pub(crate) fn of(path: &str) -> Option<Endpoint> {
    let list = match path {
        "jobs" => Some(Endpoint::Jobs),
        "evaluations" => Some(Endpoint::Evaluations),
        "evaluations/count" => Some(Endpoint::EvaluationCount),
        "node/pools" => Some(Endpoint::Pools),
        "deployments" => Some(Endpoint::Deployments),
        "allocations" => Some(Endpoint::Allocations),
        "nodes" => Some(Endpoint::Nodes),
        "volumes" => Some(Endpoint::Volumes),
        "volumes/snapshot" => Some(Endpoint::Snapshots),
        "volumes/external" => Some(Endpoint::ExternalVolumes),
        "plugins" => Some(Endpoint::Plugins),
        "namespaces" => Some(Endpoint::Namespaces),
        "regions" => Some(Endpoint::Regions),
        "agent/self" => Some(Endpoint::AgentSelf),
        "metrics" => Some(Endpoint::Metrics),
        "agent/health" => Some(Endpoint::AgentHealth),
        "agent/members" => Some(Endpoint::Members),
        "status/leader" => Some(Endpoint::Leader),
        "status/peers" => Some(Endpoint::Peers),
        "operator/scheduler/configuration" => Some(Endpoint::SchedulerConfiguration),
        "scaling/policies" => Some(Endpoint::ScalingPolicies),
        "services" => Some(Endpoint::Services),
        path if EMPTY.contains(&path) => Some(Endpoint::Nothing),
        _ => None,
    };
    list.or_else(|| object(path))
}

/// Whether what stands behind a job's id is one of the things that are read of it.
pub(crate) fn is_of_job(path: &str) -> bool {
    by_end(OF_JOB, path).is_some()
}

fn object(path: &str) -> Option<Endpoint> {
    if let Some(rest) = path.strip_prefix("job/") {
        if unbuilt::is_of_job(path) {
            return None;
        }
        return match by_end(OF_JOB, rest) {
            Some((id, of)) => some_id(id).map(of),
            None => some_id(rest).map(Endpoint::Job),
        };
    }
    let simple: &[(&str, &str, OfId<Endpoint>)] = &[
        ("deployment/allocations/", "", Endpoint::DeploymentAllocations),
        ("deployment/", "", Endpoint::Deployment),
        ("allocation/", "/checks", Endpoint::AllocationChecks),
        ("allocation/", "/services", Endpoint::AllocationServices),
        ("allocation/", "", Endpoint::Allocation),
        ("evaluation/", "/allocations", Endpoint::EvaluationAllocations),
        ("evaluation/", "", Endpoint::Evaluation),
        ("node/pool/", "/nodes", Endpoint::PoolNodes),
        ("node/pool/", "/jobs", Endpoint::PoolJobs),
        ("node/pool/", "", Endpoint::Pool),
        ("node/", "/allocations", Endpoint::NodeAllocations),
        ("node/", "", Endpoint::Node),
        ("plugin/csi/", "", Endpoint::Plugin),
        ("scaling/policy/", "", Endpoint::ScalingPolicy),
        ("service/", "", Endpoint::Service),
        ("volume/host/", "", Endpoint::HostVolume),
    ];
    if let Some(id) = path.strip_prefix("volume/csi/").and_then(some_id) {
        // These may hold `/`, as jobs' may.
        return Some(Endpoint::Volume(id));
    }
    by_ends(simple, path)
}
