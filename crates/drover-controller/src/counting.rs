//! Counts what the loop of a leader does: turns, looks, evaluations and plans. Without anybody to tell nothing is
//! counted.

use std::sync::Arc;
use std::time::Duration;

use drover_api::metric::AllocMetric;
use drover_core::broker::queue::NextEvaluation;
use drover_core::ids::JobKey;
use drover_core::scheduler::plan::Plan;
use drover_store::StoreError;
use tokio::time::Instant;

use crate::plan_writes::Written;
use crate::shared::Shared;
use crate::volumes::Volumes;

/// A look at an object that has begun.
#[derive(Debug)]
pub(crate) struct Began {
    pub(crate) at: Instant,
    n_writes: u64,
}

impl Shared {
    /// A look at an object begins.
    pub(crate) fn begin_look(&self) -> Began {
        Began { at: Instant::now(), n_writes: self.outbox.n_pushed() }
    }

    /// A look is over: did it start a write?
    pub(crate) fn count_look(&self, controller: &'static str, began: &Began) {
        let Some(metrics) = &self.recorder.metrics else { return };
        let result = if self.outbox.n_pushed() > began.n_writes { "written" } else { "unchanged" };
        metrics.reconciled(controller, result, began.at.elapsed());
    }

    /// A job has its turn. One that waited for a time has waited since then.
    pub(crate) fn count_turn(&mut self, next: &NextEvaluation) {
        let asked_at = self.recorder.asked_at.remove(&next.job);
        let Some(metrics) = &self.recorder.metrics else { return };
        let late = |at| Duration::try_from(self.clock.now().duration_since(at)).unwrap_or_default();
        let waited = asked_at.map(|at| at.elapsed()).or_else(|| next.wait_until.map(late));
        metrics.waited(self.type_of(&next.job), waited.unwrap_or_default());
    }

    /// A job was evaluated.
    pub(crate) fn count_evaluation(&self, job: &JobKey, began: &Began) {
        let Some(metrics) = &self.recorder.metrics else { return };
        metrics.evaluated(self.type_of(job), began.at.elapsed());
        self.count_look("job", began);
    }

    /// How many evaluations wait, and for what.
    pub(crate) fn count_waiting(&self, volumes: &Volumes) {
        let Some(metrics) = &self.recorder.metrics else { return };
        metrics.evals("ready", self.evaluations.broker.n_ready());
        metrics.evals("blocked", self.evaluations.blocked.n_waiting());
        metrics.evals("delayed", self.evaluations.broker.n_delayed());
        for (state, n) in volumes.under_way() {
            metrics.volume_tasks(state, n);
        }
    }

    /// A plan was made: the nodes that it looked at, and what found none.
    pub(crate) fn count_search(&self, job: &JobKey, plan: &Plan) {
        let Some(metrics) = &self.recorder.metrics else { return };
        for counts in searches(plan) {
            metrics.nodes_considered("evaluated", counts.nodes_evaluated);
            metrics.nodes_considered("filtered", counts.nodes_filtered);
            metrics.nodes_considered("exhausted", counts.nodes_exhausted);
        }
        let unplaced: i64 = plan.failed.values().map(|counts| 1 + counts.coalesced_failures).sum();
        metrics.placed(self.type_of(job), "unplaced", usize::try_from(unplaced).unwrap_or(0));
    }

    /// A plan was written, or a part of it.
    pub(crate) fn count_plan(&self, job: &JobKey, written: &Written) {
        let Some(metrics) = &self.recorder.metrics else { return };
        let kind = self.type_of(job);
        let n_conflicts = written.failed.iter().filter(|(_, error)| matches!(error, StoreError::Conflict(_))).count();
        metrics.conflicted(n_conflicts);
        metrics.placed(kind, "made", written.created.len());
    }

    /// So many allocations of a plan were not made.
    pub(crate) fn count_unmade(&self, job: &JobKey, n: usize) {
        if let Some(metrics) = &self.recorder.metrics {
            metrics.placed(self.type_of(job), "refused", n);
        }
    }

    fn type_of(&self, job: &JobKey) -> &'static str {
        self.job(job).map_or("gone", |job| job.spec.r#type.as_str())
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
    use drover_core::ids::NodeName;
    use drover_core::scheduler::plan::{Metrics as Found, Placement};

    use super::*;

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
            host_volumes: std::collections::BTreeMap::new(),
            previous: None,
            replaces: None,
            is_destructive: false,
            preempts: Vec::new(),
            tracker: None,
            metrics: Found { counts, best: Vec::new() },
        }
    }
}
