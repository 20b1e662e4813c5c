//! The metrics table of CONVENTIONS section 8, as values that others count into.
//!
//! Labels come from bounded sets; no name, id or address is ever one, but for `drover_job_info`, which operators ask
//! for. Must never know where a number comes from.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use super::agent_metrics::AgentMetrics;
use super::gateway_metrics::GatewayMetrics;

/// Pools that are told apart: creators of nodes name pools, and labels are bounded.
const MOST_POOLS: usize = 100;
/// What the pools beyond those are called.
const OTHER_POOLS: &str = "other";

/// Everything that a daemon counts; clones share it.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Registry>,
    /// What an agent counts.
    pub agent: AgentMetrics,
    /// What a gateway counts.
    pub gateway: GatewayMetrics,
    pub(super) api: ApiMetrics,
    leader: Family<RoleLabels, Gauge>,
    reconciling: ReconcileMetrics,
    scheduling: SchedulingMetrics,
    cluster: ClusterMetrics,
    deployment_steps: Family<CauseLabels, Counter>,
    volume_reaps: Family<StepLabels, Histogram>,
}

/// What a daemon asks of the API server.
#[derive(Clone, Debug, Default)]
pub(super) struct ApiMetrics {
    pub(super) kube_requests: Family<RequestLabels, Counter>,
    watch_restarts: Family<KindLabels, Counter>,
}

/// Objects that components looked at.
#[derive(Clone, Debug)]
struct ReconcileMetrics {
    reconciles: Family<ReconcileLabels, Counter>,
    reconcile_times: Family<ReconcileLabels, Histogram>,
}

/// Evaluations, and what their plans came to.
#[derive(Clone, Debug)]
struct SchedulingMetrics {
    evals: Family<StateLabels, Gauge>,
    eval_waits: Family<TypeLabels, Histogram>,
    eval_times: Family<TypeLabels, Histogram>,
    nodes_considered: Family<StageLabels, Counter>,
    placements: Family<PlacementLabels, Counter>,
    plan_conflicts: Counter,
}

/// The cluster, as the leader knows it.
#[derive(Clone, Debug, Default)]
struct ClusterMetrics {
    nodes: Family<NodeLabels, Gauge>,
    allocations: Family<AllocationLabels, Gauge>,
    deployments: Family<PhaseLabels, Gauge>,
    volume_claims: Family<StateLabels, Gauge>,
    volume_tasks: Family<StateLabels, Gauge>,
    heartbeats_missed: Family<PoolLabels, Counter>,
    jobs: Family<JobLabels, Gauge>,
    /// The pools that have their own label.
    pools: Arc<Mutex<BTreeSet<String>>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReconcileLabels {
    controller: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TypeLabels {
    r#type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StageLabels {
    stage: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StepLabels {
    step: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CauseLabels {
    cause: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolLabels {
    pool: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct JobLabels {
    namespace: String,
    job: String,
    r#type: &'static str,
}

impl JobLabels {
    fn of(namespace: &str, job: &str, r#type: &'static str) -> Self {
        Self { namespace: namespace.to_owned(), job: job.to_owned(), r#type }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PlacementLabels {
    r#type: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NodeLabels {
    pool: String,
    phase: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AllocationLabels {
    client_status: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PhaseLabels {
    phase: String,
}

/// Labels of a request to the API server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct RequestLabels {
    pub(super) verb: String,
    pub(super) kind: String,
    pub(super) code: String,
}

/// Whether a watch was there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchBegin {
    First,
    Again,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RoleLabels {
    role: &'static str,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Arc::default(),
            agent: AgentMetrics::default(),
            gateway: GatewayMetrics::default(),
            api: ApiMetrics::default(),
            leader: Family::default(),
            reconciling: ReconcileMetrics::default(),
            scheduling: SchedulingMetrics::default(),
            cluster: ClusterMetrics::default(),
            deployment_steps: Family::default(),
            volume_reaps: Family::new_with_constructor(reap_times),
        };
        metrics.registry = Arc::new(metrics.register());
        metrics
    }
}

impl Default for ReconcileMetrics {
    fn default() -> Self {
        Self { reconciles: Family::default(), reconcile_times: Family::new_with_constructor(times) }
    }
}

impl Default for SchedulingMetrics {
    fn default() -> Self {
        Self {
            evals: Family::default(),
            eval_waits: Family::new_with_constructor(times),
            eval_times: Family::new_with_constructor(times),
            nodes_considered: Family::default(),
            placements: Family::default(),
            plan_conflicts: Counter::default(),
        }
    }
}

impl Metrics {
    fn register(&self) -> Registry {
        let mut registry = Registry::with_prefix("drover");
        let all = &mut registry;
        all.register("kube_requests", "Requests to the API server", self.api.kube_requests.clone());
        all.register("watch_restarts", "Watches that were begun again", self.api.watch_restarts.clone());
        all.register("leader", "1 for what this controller is: leader or follower", self.leader.clone());
        let help =
            "Looks at an object, by what looked and whether writes followed; and writes that were refused or failed";
        all.register("reconcile", help, self.reconciling.reconciles.clone());
        let help = "Time that such a look took, without the writes that follow from it";
        all.register_with_unit("reconcile_duration", help, Unit::Seconds, self.reconciling.reconcile_times.clone());
        all.register(
            "evals",
            "Evaluations that wait: for their turn, for room, for their time",
            self.scheduling.evals.clone(),
        );
        let help = "Time that the evaluation of a job waited for its turn, by the type of the job";
        all.register_with_unit("eval_wait", help, Unit::Seconds, self.scheduling.eval_waits.clone());
        let help = "Time that the evaluation of a job took, by the type of the job";
        all.register_with_unit("eval_process", help, Unit::Seconds, self.scheduling.eval_times.clone());
        let help = "Nodes that were looked at to place allocations, and those that rules or a lack of room took out";
        all.register("nodes_considered", help, self.scheduling.nodes_considered.clone());
        all.register(
            "placements",
            "Allocations that were to be made, by what became of it",
            self.scheduling.placements.clone(),
        );
        let help = "Parts of plans that the API server refused because another writer came first";
        all.register("plan_conflicts", help, self.scheduling.plan_conflicts.clone());
        all.register("nodes", "Nodes, as the leader knows them", self.cluster.nodes.clone());
        all.register("allocations", "Allocations, as the leader knows them", self.cluster.allocations.clone());
        all.register("deployments", "Deployments, as the leader knows them", self.cluster.deployments.clone());
        let help = "Steps of deployments, by what caused them";
        all.register("deployment_steps", help, self.deployment_steps.clone());
        all.register(
            "volume_claims",
            "Claims of volumes, as the leader knows them",
            self.cluster.volume_claims.clone(),
        );
        let help = "Time that a step of a claim's release took, its failures and waits included: off the node, off the \
                    controller, out of the volume's list";
        all.register_with_unit("volume_reap", help, Unit::Seconds, self.volume_reaps.clone());
        let help = "What the leader keeps of volumes to which something happens: 0 while nothing does";
        all.register("volume_tasks", help, self.cluster.volume_tasks.clone());
        let help = "Nodes whose heartbeat did not come in time";
        all.register("heartbeats_missed", help, self.cluster.heartbeats_missed.clone());
        all.register("job_info", "1 for each job, where metrics.perJob asks for it", self.cluster.jobs.clone());
        self.agent.register(all);
        self.gateway.register(all);
        registry
    }

    /// A component reconciled an object.
    pub fn reconciled(&self, controller: &'static str, result: &'static str, took: Duration) {
        let labels = ReconcileLabels { controller, result };
        self.reconciling.reconciles.get_or_create(&labels).inc();
        self.reconciling.reconcile_times.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// A write that followed from a look did not happen.
    pub fn write_failed(&self, controller: &'static str, result: &'static str) {
        self.reconciling.reconciles.get_or_create(&ReconcileLabels { controller, result }).inc();
    }

    /// So many evaluations wait in this state.
    pub fn evals(&self, state: &'static str, n: usize) {
        self.scheduling.evals.get_or_create(&StateLabels { state }).set(i64::try_from(n).unwrap_or(i64::MAX));
    }

    /// The evaluation of a job of this type had its turn after this time.
    pub fn waited(&self, r#type: &'static str, time: Duration) {
        self.scheduling.eval_waits.get_or_create(&TypeLabels { r#type }).observe(time.as_secs_f64());
    }

    /// So many nodes came to this stage of a search.
    pub fn nodes_considered(&self, stage: &'static str, n: i64) {
        self.scheduling.nodes_considered.get_or_create(&StageLabels { stage }).inc_by(u64::try_from(n).unwrap_or(0));
    }

    /// A job of this type was evaluated.
    pub fn evaluated(&self, r#type: &'static str, took: Duration) {
        self.scheduling.eval_times.get_or_create(&TypeLabels { r#type }).observe(took.as_secs_f64());
    }

    /// Allocations of a job of this type were, or were not, made.
    pub fn placed(&self, r#type: &'static str, result: &'static str, n: usize) {
        if n > 0 {
            self.scheduling.placements.get_or_create(&PlacementLabels { r#type, result }).inc_by(n as u64);
        }
    }

    /// The API server refused parts of a plan.
    pub fn conflicted(&self, n: usize) {
        self.scheduling.plan_conflicts.inc_by(n as u64);
    }

    /// So many more nodes of a pool are in a phase, as the leader knows them; fewer where negative.
    pub fn nodes(&self, pool: &str, phase: &str, more: i64) {
        let labels = NodeLabels { pool: self.pool(pool), phase: phase.to_owned() };
        self.cluster.nodes.get_or_create(&labels).inc_by(more);
    }

    /// The heartbeat of a node of this pool did not come in time.
    pub fn heartbeat_missed(&self, pool: &str) {
        self.cluster.heartbeats_missed.get_or_create(&PoolLabels { pool: self.pool(pool) }).inc();
    }

    /// The pool's label. The same pool has the same one each time, so that what is counted up is counted down where it
    /// was.
    fn pool(&self, pool: &str) -> String {
        let mut known = self.cluster.pools.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() < MOST_POOLS {
            known.insert(pool.to_owned());
        }
        if known.contains(pool) { pool.to_owned() } else { OTHER_POOLS.to_owned() }
    }

    /// Nodes of a pool in a phase, as counted now.
    pub fn n_nodes(&self, pool: &str, phase: &str) -> i64 {
        self.cluster.nodes.get_or_create(&NodeLabels { pool: pool.to_owned(), phase: phase.to_owned() }).get()
    }

    /// Series of jobs that are kept now.
    pub fn n_jobs(&self) -> usize {
        self.n_series("drover_job_info")
    }

    /// Series of a metric that are kept now.
    fn n_series(&self, name: &str) -> usize {
        self.text().lines().filter(|line| line.starts_with(&format!("{name}{{"))).count()
    }

    /// Looks of a controller with this result so far.
    pub fn n_reconciles(&self, controller: &'static str, result: &'static str) -> u64 {
        self.reconciling.reconciles.get_or_create(&ReconcileLabels { controller, result }).get()
    }

    /// So many more allocations have a client status.
    pub fn allocations(&self, status: &str, more: i64) {
        self.cluster.allocations.get_or_create(&AllocationLabels { client_status: status.to_owned() }).inc_by(more);
    }

    /// So many more deployments are in a phase.
    pub fn deployments(&self, phase: &str, more: i64) {
        self.cluster.deployments.get_or_create(&PhaseLabels { phase: phase.to_owned() }).inc_by(more);
    }

    /// A deployment went a step on.
    pub fn deployment_stepped(&self, cause: &'static str) {
        self.deployment_steps.get_or_create(&CauseLabels { cause }).inc();
    }

    /// So many more claims of volumes are in a state.
    pub fn volume_claims(&self, state: &'static str, more: i64) {
        self.cluster.volume_claims.get_or_create(&StateLabels { state }).inc_by(more);
    }

    /// A step of a claim's release was done after this time.
    pub fn reaped(&self, step: &'static str, took: Duration) {
        self.volume_reaps.get_or_create(&StepLabels { step }).observe(took.as_secs_f64());
    }

    /// So much is kept of volumes in a state.
    pub fn volume_tasks(&self, state: &'static str, n: usize) {
        self.cluster.volume_tasks.get_or_create(&StateLabels { state }).set(i64::try_from(n).unwrap_or(i64::MAX));
    }

    /// A job is there.
    pub fn job_there(&self, namespace: &str, job: &str, r#type: &'static str) {
        self.cluster.jobs.get_or_create(&JobLabels::of(namespace, job, r#type)).set(1);
    }

    /// A job is gone.
    pub fn job_gone(&self, namespace: &str, job: &str, r#type: &'static str) {
        self.cluster.jobs.remove(&JobLabels::of(namespace, job, r#type));
    }

    /// A controller that follows knows nothing of the cluster and says nothing.
    pub fn forget_cluster(&self) {
        self.cluster.nodes.clear();
        self.cluster.allocations.clear();
        self.cluster.deployments.clear();
        self.scheduling.evals.clear();
        self.cluster.volume_claims.clear();
        self.cluster.volume_tasks.clear();
        self.cluster.jobs.clear();
    }

    /// The text that a scrape is answered with.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail; a metric that refuses its own labels would be left out.
        if let Err(error) = encode(&mut text, &self.registry) {
            tracing::error!(%error, "the metrics cannot be written");
        }
        text
    }

    /// A watch begins. The number of restarts is there, as 0, from the first time on.
    pub(super) fn watch_begun(&self, kind: &str, begin: WatchBegin) {
        let restarts = self.api.watch_restarts.get_or_create(&KindLabels { kind: kind.to_owned() });
        match begin {
            WatchBegin::First => {}
            WatchBegin::Again => drop(restarts.inc()),
        }
    }

    /// Whether this controller leads.
    pub fn leads(&self, leads: bool) {
        self.leader.get_or_create(&RoleLabels { role: "leader" }).set(i64::from(leads));
        self.leader.get_or_create(&RoleLabels { role: "follower" }).set(i64::from(!leads));
    }
}

/// Buckets of times that the controller takes: 0.1 ms to 6.5 s.
fn times() -> Histogram {
    Histogram::new(exponential_buckets(0.0001, 4.0, 9))
}

/// Buckets of times that the release of a volume takes: 10 ms to 11 min.
fn reap_times() -> Histogram {
    Histogram::new(exponential_buckets(0.01, 4.0, 9))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_beyond_the_first_hundred_share_a_label() {
        let metrics = Metrics::default();
        for n in 0..2 * MOST_POOLS {
            metrics.nodes(&format!("p-{n}"), "ready", 1);
            metrics.heartbeat_missed(&format!("p-{n}"));
        }
        for name in ["drover_nodes", "drover_heartbeats_missed_total"] {
            assert_eq!(metrics.n_series(name), MOST_POOLS + 1, "{name}");
        }
        assert_eq!((metrics.n_nodes("p-0", "ready"), metrics.n_nodes(OTHER_POOLS, "ready")), (1, 100));
        metrics.nodes("p-150", "ready", -1);
        metrics.nodes("p-7", "ready", -1);
        assert_eq!((metrics.n_nodes("p-7", "ready"), metrics.n_nodes(OTHER_POOLS, "ready")), (0, 99));
    }

    #[test]
    fn what_changes_is_counted_where_it_is_now_and_a_follower_counts_nothing() {
        let metrics = Metrics::default();
        metrics.nodes("default", "ready", 2);
        metrics.allocations("pending", 3);
        metrics.allocations("pending", -3);
        metrics.allocations("running", 3);
        metrics.deployments("running", 1);
        metrics.evals("blocked", 4);
        metrics.volume_claims("taken", 2);
        metrics.job_there("shop", "web", "service");
        metrics.job_there("shop", "old", "service");
        metrics.job_gone("shop", "old", "service");
        let text = metrics.text();
        for line in [
            "drover_nodes{pool=\"default\",phase=\"ready\"} 2\n",
            "drover_allocations{client_status=\"running\"} 3\n",
            "drover_allocations{client_status=\"pending\"} 0\n",
            "drover_deployments{phase=\"running\"} 1\n",
            "drover_evals{state=\"blocked\"} 4\n",
            "drover_volume_claims{state=\"taken\"} 2\n",
            "drover_job_info{namespace=\"shop\",job=\"web\",type=\"service\"} 1\n",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("job=\"old\""), "{text}");
        metrics.forget_cluster();
        let text = metrics.text();
        for label in ["client_status=", "phase=", "state=", "job="] {
            assert!(!text.contains(label), "{label} is still in\n{text}");
        }
    }

    #[test]
    fn names_are_those_of_the_table() {
        let metrics = Metrics::default();
        metrics.reconciled("job", "unchanged", Duration::from_millis(2));
        metrics.write_failed("job", "conflict");
        metrics.waited("service", Duration::from_millis(2));
        metrics.evaluated("service", Duration::from_millis(2));
        metrics.nodes_considered("filtered", 7);
        metrics.deployment_stepped("promoted");
        metrics.heartbeat_missed("gpu");
        metrics.reaped("node", Duration::from_millis(2));
        metrics.placed("service", "made", 3);
        metrics.conflicted(1);
        metrics.leads(true);
        let text = metrics.text();
        for line in [
            "drover_reconcile_total{controller=\"job\",result=\"unchanged\"} 1\n",
            "drover_reconcile_total{controller=\"job\",result=\"conflict\"} 1\n",
            "drover_reconcile_duration_seconds_count{controller=\"job\",result=\"unchanged\"} 1\n",
            "drover_eval_wait_seconds_count{type=\"service\"} 1\n",
            "drover_nodes_considered_total{stage=\"filtered\"} 7\n",
            "drover_deployment_steps_total{cause=\"promoted\"} 1\n",
            "drover_volume_reap_seconds_count{step=\"node\"} 1\n",
            "drover_heartbeats_missed_total{pool=\"gpu\"} 1\n",
            "drover_eval_process_seconds_count{type=\"service\"} 1\n",
            "drover_placements_total{type=\"service\",result=\"made\"} 3\n",
            "drover_plan_conflicts_total 1\n",
            "drover_leader{role=\"leader\"} 1\n",
            "drover_leader{role=\"follower\"} 0\n",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
