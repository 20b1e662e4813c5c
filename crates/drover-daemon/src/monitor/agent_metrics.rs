//! The rows of CONVENTIONS section 8 that are an agent's, as values that it counts into.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

/// The labels of a metric that has none, and that is not shown before it is counted.
type NoLabels = [(&'static str, &'static str); 0];

/// Everything that an agent counts; clones share it. What was never counted is not shown, so that a controller says
/// nothing of it.
#[derive(Clone, Debug)]
pub struct AgentMetrics {
    tasks: Family<TaskLabels, Gauge>,
    start_times: Family<StartLabels, Histogram>,
    restore_times: Family<NoLabels, Histogram>,
    status_writes: Family<PriorityLabels, Counter>,
    status_coalesced: Family<NoLabels, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TaskLabels {
    driver: String,
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StartLabels {
    driver: String,
    phase: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PriorityLabels {
    priority: &'static str,
}

impl Default for AgentMetrics {
    fn default() -> Self {
        Self {
            tasks: Family::default(),
            start_times: Family::new_with_constructor(times),
            restore_times: Family::new_with_constructor(times),
            status_writes: Family::default(),
            status_coalesced: Family::default(),
        }
    }
}

impl AgentMetrics {
    pub(super) fn register(&self, all: &mut Registry) {
        all.register("agent_tasks", "Tasks that the agent looks after", self.tasks.clone());
        let help = "Time that the start of a task took: to prepare it, and until its driver had started it";
        all.register_with_unit("agent_task_start", help, Unit::Seconds, self.start_times.clone());
        let help = "Time until every task of an earlier life of the agent was found again or given up";
        all.register_with_unit("agent_restore", help, Unit::Seconds, self.restore_times.clone());
        let help = "Statuses of allocations that the API server accepted";
        all.register("agent_status_writes", help, self.status_writes.clone());
        let help = "Statuses of allocations that were never sent, because a newer one came first";
        all.register("agent_status_coalesced", help, self.status_coalesced.clone());
    }

    /// An agent counts from now on: what may never happen is there, as 0.
    pub fn begin(&self) {
        for priority in ["urgent", "typical"] {
            self.status_writes.get_or_create(&PriorityLabels { priority }).inc_by(0);
        }
        self.status_coalesced.get_or_create(&[]).inc_by(0);
    }

    /// So many more tasks of a driver are in a state.
    pub fn tasks(&self, driver: &str, state: &'static str, more: i64) {
        self.tasks.get_or_create(&TaskLabels { driver: driver.to_owned(), state }).inc_by(more);
    }

    /// Tasks of a driver in a state, as counted now.
    pub fn n_tasks(&self, driver: &str, state: &'static str) -> i64 {
        self.tasks.get_or_create(&TaskLabels { driver: driver.to_owned(), state }).get()
    }

    /// A phase of a task's start is over.
    pub fn started(&self, driver: &str, phase: &'static str, took: Duration) {
        let labels = StartLabels { driver: driver.to_owned(), phase };
        self.start_times.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// Nothing of an earlier life is left to be found.
    pub fn restored(&self, took: Duration) {
        self.restore_times.get_or_create(&[]).observe(took.as_secs_f64());
    }

    /// The API server accepted a status.
    pub fn status_written(&self, priority: &'static str) {
        self.status_writes.get_or_create(&PriorityLabels { priority }).inc();
    }

    /// The statuses that were urgent, that were not, and that were replaced.
    /// Status writes so far: urgent, typical, and those that a newer one replaced.
    pub fn n_reports(&self) -> [u64; 3] {
        let written = |priority| self.status_writes.get_or_create(&PriorityLabels { priority }).get();
        [written("urgent"), written("typical"), self.status_coalesced.get_or_create(&[]).get()]
    }

    /// A newer status took the place of one that was not sent yet.
    pub fn status_coalesced(&self) {
        self.status_coalesced.get_or_create(&[]).inc();
    }
}

/// Buckets of times that tasks take: 1 ms to 66 s.
fn times() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 4.0, 9))
}

#[cfg(test)]
mod tests {
    use super::super::Metrics;
    use super::*;

    #[test]
    fn names_are_those_of_the_table_and_a_controller_has_none_of_them() {
        let metrics = Metrics::default();
        assert!(!metrics.text().contains("drover_agent_"), "{}", metrics.text());
        metrics.agent.tasks("exec", "running", 2);
        metrics.agent.started("exec", "prepare", Duration::from_millis(3));
        metrics.agent.restored(Duration::from_millis(3));
        metrics.agent.status_written("urgent");
        metrics.agent.status_coalesced();
        let text = metrics.text();
        for line in [
            "drover_agent_tasks{driver=\"exec\",state=\"running\"} 2\n",
            "drover_agent_task_start_seconds_count{driver=\"exec\",phase=\"prepare\"} 1\n",
            "drover_agent_restore_seconds_count{} 1\n",
            "drover_agent_status_writes_total{priority=\"urgent\"} 1\n",
            "drover_agent_status_coalesced_total{} 1\n",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
