//! What a term counts for its operators: each change is counted as it is taken in, however many objects there are. Nothing is
//! decided here, and without anybody to tell nothing is counted.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use drover_api::metric::AllocMetric;
use drover_api::{Allocation, CSIVolume, ClientNode, Deployment, Job};
use drover_core::broker::queue::Next;
use drover_core::deployment::News;
use drover_core::ids::JobKey;
use drover_core::scheduler::plan::Plan;
use tokio::time::Instant;

use crate::apply::{Written, key_of};
use crate::cache::Seen;
use crate::term::{Done, Term};
use drover_daemon::monitor::Metrics;
use drover_store::{ErrorClass, Store, StoreError};

/// Where a term's numbers go.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    metrics: Option<Metrics>,
    /// Whether jobs are named.
    per_job: bool,
    /// Since when jobs wait for their turn; as many as wait.
    asked_at: HashMap<JobKey, Instant>,
}

/// A look at an object that has begun.
#[derive(Debug)]
pub(super) struct Began {
    pub(super) at: Instant,
    n_writes: usize,
}

impl Numbers {
    /// Numbers for somebody, with jobs by name or without.
    pub(super) fn of(metrics: Option<Metrics>, per_job: bool) -> Self {
        Self { metrics, per_job, asked_at: HashMap::new() }
    }

    /// An evaluation of a job is wanted; it may have been before.
    pub(super) fn asked(&mut self, job: &JobKey) {
        if self.metrics.is_some() {
            self.asked_at.entry(job.clone()).or_insert_with(Instant::now);
        }
    }

    /// A node is new, changed or gone.
    pub(super) fn node(&self, seen: &Seen<ClientNode>) {
        let Some(metrics) = &self.metrics else { return };
        moved(seen, |node, more| {
            let phase = node.status.as_ref().map_or("initializing", |status| status.phase.as_str());
            metrics.nodes(&node.spec.node_pool, phase, more);
        });
    }

    /// A node of this pool was silent for too long.
    pub(super) fn silent(&self, pool: &str) {
        if let Some(metrics) = &self.metrics {
            metrics.heartbeat_missed(pool);
        }
    }

    /// An allocation is new, changed or gone.
    pub(super) fn allocation(&self, seen: &Seen<Allocation>) {
        let Some(metrics) = &self.metrics else { return };
        moved(seen, |alloc, more| {
            metrics.allocations(alloc.status.as_ref().map_or("pending", |status| status.client_status.as_str()), more);
        });
    }

    /// A deployment is new, changed or gone.
    pub(super) fn deployment(&self, seen: &Seen<Deployment>) {
        let Some(metrics) = &self.metrics else { return };
        moved(seen, |deployment, more| {
            metrics
                .deployments(deployment.status.as_ref().map_or("initializing", |status| status.phase.as_str()), more);
        });
    }

    /// A deployment's status is written, with this to be told of it.
    pub(super) fn stepped<'a>(&self, news: impl Iterator<Item = &'a News>) {
        let Some(metrics) = &self.metrics else { return };
        let mut causes = news.map(cause).peekable();
        if causes.peek().is_none() {
            metrics.deployment_stepped("progress");
        }
        for cause in causes {
            metrics.deployment_stepped(cause);
        }
    }

    /// A volume is new, changed or gone.
    pub(super) fn volume(&self, seen: &Seen<CSIVolume>) {
        let Some(metrics) = &self.metrics else { return };
        moved(seen, |volume, more| {
            for claim in volume.status.iter().flat_map(|status| &status.claims) {
                metrics.volume_claims(claim.state.as_str(), more);
            }
        });
    }

    /// A step of a claim's release was done after this time.
    pub(super) fn reaped(&self, step: &'static str, took: Duration) {
        if let Some(metrics) = &self.metrics {
            metrics.reaped(step, took);
        }
    }

    /// A job is new, changed or gone.
    pub(super) fn job(&self, seen: &Seen<Job>) {
        let Some(metrics) = self.metrics.as_ref().filter(|_| self.per_job) else { return };
        moved(seen, |job, more| {
            let of = |text: &Option<String>| text.clone().unwrap_or_default();
            let (namespace, name) = (of(&job.metadata.namespace), of(&job.metadata.name));
            let count = if more > 0 { Metrics::job_there } else { Metrics::job_gone };
            count(metrics, &namespace, &name, job.spec.r#type.as_str());
        });
    }

    /// A write that followed from a look ended.
    pub(super) fn ended(&self, done: &Done) {
        let Some(metrics) = &self.metrics else { return };
        let (controller, error) = outcome(done);
        if let Some(error) = error {
            let result = if error.class() == ErrorClass::Conflict { "conflict" } else { "failed" };
            metrics.write_failed(controller, result);
        }
    }

    /// The term is over: its successor counts.
    pub(super) fn end(&self) {
        if let Some(metrics) = &self.metrics {
            metrics.forget_cluster();
        }
    }
}

/// Whose write it was, and why it did not happen.
fn outcome(done: &Done) -> (&'static str, Option<&StoreError>) {
    match done {
        Done::Prepared(_, _, prepared) => ("job", prepared.error.as_ref()),
        Done::Applied(_, _, written) => ("job", written.failed.first().map(|(_, error)| error)),
        Done::JobStatus(_, result) => ("job-status", failed(result)),
        Done::VersionSought(_, _, result) => ("job-status", failed(result)),
        Done::NodeStatus(_, result) | Done::NodeSpec(_, result) => ("node", failed(result)),
        Done::VolumeStatus(_, result) => ("volume", failed(result)),
        Done::VolumeKept(_, result) => ("volume", failed(result)),
        Done::AttachmentMade(_, _, result) => ("volume", failed(result)),
        Done::AttachmentDeleted(_, _, result) => ("volume", failed(result)),
        Done::DeploymentStatus(_, _, result) => ("deployment", failed(result)),
        Done::DeploymentActed(_, acted) => ("deployment", acted.error()),
        Done::Launched(_, _, result) => ("periodic", failed(result)),
        Done::Settled(_, result) => ("allocation", failed(result)),
        Done::Marked(_, result) => ("allocation", failed(result)),
        Done::JobFreed(_, result) => ("job", failed(result)),
        Done::Ttl(result) => ("heartbeat", failed(result)),
        Done::Other(what, result) => (*what, failed(result)),
    }
}

fn failed<T>(result: &Result<T, StoreError>) -> Option<&StoreError> {
    result.as_ref().err()
}

const fn cause(news: &News) -> &'static str {
    match news {
        News::CanariesHealthy => "canaries-healthy",
        News::Promoted(_) => "promoted",
        News::Paused => "paused",
        News::Resumed => "resumed",
        News::AllocationUnhealthy(_) => "allocation-unhealthy",
        News::Failed(..) => "failed",
        News::Refused(_) => "refused",
    }
}

/// Counts an object where it is now, and no longer where it was.
fn moved<K>(seen: &Seen<K>, count: impl Fn(&K, i64)) {
    match seen {
        Seen::Now(now, before) => {
            if let Some(before) = before {
                count(before, -1);
            }
            count(now, 1);
        }
        Seen::Gone(last) => count(last, -1),
    }
}

impl<S: Store> Term<S> {
    /// A look at an object begins.
    pub(super) fn begin_look(&self) -> Began {
        Began { at: Instant::now(), n_writes: self.writes.len() }
    }

    /// A look is over: did it start a write?
    pub(super) fn count_look(&self, controller: &'static str, began: &Began) {
        let Some(metrics) = &self.numbers.metrics else { return };
        let result = if self.writes.len() > began.n_writes { "written" } else { "unchanged" };
        metrics.reconciled(controller, result, began.at.elapsed());
    }

    /// A job has its turn. One that waited for a time has waited since then.
    pub(super) fn count_turn(&mut self, next: &Next) {
        let asked_at = self.numbers.asked_at.remove(&next.job);
        let Some(metrics) = &self.numbers.metrics else { return };
        let late = |at| Duration::try_from(self.clock.now().duration_since(at)).unwrap_or_default();
        let waited = asked_at.map(|at| at.elapsed()).or_else(|| next.wait_until.map(late));
        metrics.waited(self.type_of(&next.job), waited.unwrap_or_default());
    }

    /// A job was evaluated.
    pub(super) fn count_evaluation(&self, job: &JobKey, began: &Began) {
        let Some(metrics) = &self.numbers.metrics else { return };
        metrics.evaluated(self.type_of(job), began.at.elapsed());
        self.count_look("job", began);
    }

    /// How many evaluations wait, and for what.
    pub(super) fn count_waiting(&self) {
        let Some(metrics) = &self.numbers.metrics else { return };
        metrics.evals("ready", self.broker.n_ready());
        metrics.evals("blocked", self.blocked.n_waiting());
        metrics.evals("delayed", self.broker.n_delayed());
        for (state, n) in self.claims.under_way() {
            metrics.volume_tasks(state, n);
        }
    }

    /// A plan was made: the nodes that it looked at, and what found none.
    pub(super) fn count_search(&self, job: &JobKey, plan: &Plan) {
        let Some(metrics) = &self.numbers.metrics else { return };
        for counts in searches(plan) {
            metrics.nodes_considered("evaluated", counts.nodes_evaluated);
            metrics.nodes_considered("filtered", counts.nodes_filtered);
            metrics.nodes_considered("exhausted", counts.nodes_exhausted);
        }
        let unplaced: i64 = plan.failed.values().map(|counts| 1 + counts.coalesced_failures).sum();
        metrics.placed(self.type_of(job), "unplaced", usize::try_from(unplaced).unwrap_or(0));
    }

    /// A plan was written, or a part of it.
    pub(super) fn count_plan(&self, job: &JobKey, written: &Written) {
        let Some(metrics) = &self.numbers.metrics else { return };
        let kind = self.type_of(job);
        let n_conflicts = written.failed.iter().filter(|(_, error)| matches!(error, StoreError::Conflict(_))).count();
        metrics.conflicted(n_conflicts);
        metrics.placed(kind, "made", written.created.len());
    }

    /// So many allocations of a plan were not made.
    pub(super) fn count_unmade(&self, job: &JobKey, n: usize) {
        if let Some(metrics) = &self.numbers.metrics {
            metrics.placed(self.type_of(job), "refused", n);
        }
    }

    fn type_of(&self, job: &JobKey) -> &'static str {
        self.jobs.get(&key_of(job)).map_or("gone", |job| job.spec.r#type.as_str())
    }
}

/// What was counted for a plan, each search once: placements between which nothing changed share their counts.
fn searches(plan: &Plan) -> impl Iterator<Item = &AllocMetric> {
    let mut last: Option<&Arc<AllocMetric>> = None;
    let found = plan.placements.iter().map(|placement| &placement.metrics.counts).filter(move |counts| {
        let is_same = last.is_some_and(|last| Arc::ptr_eq(last, counts));
        last = Some(*counts);
        !is_same
    });
    found.map(|counts| &**counts).chain(plan.failed.values())
}

#[cfg(test)]
mod tests {
    use drover_api::client_node::NodePhase;
    use drover_api::{ClientNodeSpec, ClientNodeStatus, JobSpec};
    use drover_core::ids::NodeName;
    use drover_core::scheduler::plan::{Metrics as Found, Placement};

    use super::*;

    #[test]
    fn jobs_are_named_only_where_that_is_asked_for() {
        let mut job = Job::new("web", JobSpec::default());
        job.metadata.namespace = Some("shop".to_owned());
        let job = Arc::new(job);
        let named = |per_job: bool| {
            let metrics = Metrics::default();
            let numbers = Numbers::of(Some(metrics.clone()), per_job);
            numbers.job(&Seen::Now(Arc::clone(&job), None));
            numbers.job(&Seen::Now(Arc::clone(&job), Some(Arc::clone(&job))));
            let there = metrics.n_jobs();
            numbers.job(&Seen::Gone(Arc::clone(&job)));
            (there, metrics.n_jobs())
        };
        assert_eq!((named(true), named(false)), ((1, 0), (0, 0)));
    }

    #[test]
    fn a_failed_write_counts_for_whose_it_was_and_a_lost_race_is_no_failure() {
        let node = || NodeName::from("n-1".to_owned());
        let lost = Done::NodeSpec(node(), Box::new(Err(StoreError::Conflict("changed".to_owned()))));
        let (controller, error) = outcome(&lost);
        assert_eq!((controller, error.map(StoreError::class)), ("node", Some(ErrorClass::Conflict)));
        let metrics = Metrics::default();
        let numbers = Numbers::of(Some(metrics.clone()), false);
        let refused = Done::NodeSpec(node(), Box::new(Err(StoreError::Forbidden("no".to_owned()))));
        let fine = Done::Other("event", Ok(()));
        for done in [lost, refused, fine] {
            numbers.ended(&done);
        }
        let counted = |result| metrics.n_reconciles("node", result);
        assert_eq!((counted("conflict"), counted("failed")), (1, 1));
    }

    #[test]
    fn placements_that_share_their_counts_were_one_search() {
        let counts = |n| Arc::new(AllocMetric { nodes_evaluated: n, ..AllocMetric::default() });
        let (first, second) = (counts(10), counts(7));
        let placement = |counts: &Arc<AllocMetric>| placement(Arc::clone(counts));
        let failed = [("g".to_owned(), AllocMetric { nodes_evaluated: 3, ..AllocMetric::default() })].into();
        let placements = vec![placement(&first), placement(&first), placement(&second)];
        let plan = Plan { placements, failed, ..Plan::default() };
        let looks: Vec<i64> = searches(&plan).map(|counts| counts.nodes_evaluated).collect();
        assert_eq!(looks, [10, 7, 3]);
    }

    fn placement(counts: Arc<AllocMetric>) -> Placement {
        Placement {
            group: "g".into(),
            index: 0,
            node: NodeName::from("n-1".to_owned()),
            job_version: 0,
            canary: false,
            deployment: None,
            resources: Arc::default(),
            previous: None,
            replaces: None,
            is_destructive: false,
            preempts: Vec::new(),
            tracker: None,
            metrics: Found { counts, best: Vec::new() },
        }
    }

    #[test]
    fn an_object_is_counted_once_wherever_it_moves_and_not_when_it_is_gone() {
        let metrics = Metrics::default();
        let numbers = Numbers::of(Some(metrics.clone()), false);
        let node = |phase| {
            let mut node = ClientNode::new("n-1", ClientNodeSpec { node_pool: "gpu".into(), ..Default::default() });
            node.status = Some(ClientNodeStatus { phase, ..Default::default() });
            Arc::new(node)
        };
        let (ready, down) = (node(NodePhase::Ready), node(NodePhase::Down));
        let counted = || (metrics.n_nodes("gpu", "ready"), metrics.n_nodes("gpu", "down"));
        numbers.node(&Seen::Now(Arc::clone(&ready), None));
        assert_eq!(counted(), (1, 0));
        numbers.node(&Seen::Now(Arc::clone(&down), Some(ready)));
        assert_eq!(counted(), (0, 1));
        numbers.node(&Seen::Gone(down));
        assert_eq!(counted(), (0, 0));
    }
}
