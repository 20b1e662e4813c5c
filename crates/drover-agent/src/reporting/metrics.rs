//! What an agent counts for its operators. Nothing is decided here, and without anybody to tell nothing is counted.

use std::time::Duration;

use drover_api::allocation::TaskRunState;

use crate::reporting::report::Priority;
use drover_daemon::monitor::AgentMetrics;

/// What a driver is called that this node does not know: a manifest may name anything, and labels are bounded.
const UNKNOWN_DRIVER: &str = "unknown";

/// Where what an agent counts goes; clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeMetrics(Option<AgentMetrics>);

/// A part of a task's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartPhase {
    /// Its hooks, its settings, and its record on the disk.
    Prepare,
    /// Its driver.
    Start,
}

impl NodeMetrics {
    /// Metrics that are exported.
    pub(crate) fn of(metrics: AgentMetrics) -> Self {
        metrics.begin();
        Self(Some(metrics))
    }

    /// A task that this agent looks after, until the value is dropped. `driver` is none where this node does not know
    /// it.
    pub(crate) fn task(&self, driver: Option<&str>, state: TaskRunState) -> CountedTask {
        let driver = driver.unwrap_or(UNKNOWN_DRIVER).to_owned();
        let task = CountedTask { metrics: self.clone(), driver, state };
        task.count(1);
        task
    }

    /// A part of a task's start is over.
    pub(crate) fn started(&self, driver: &str, phase: StartPhase, took: Duration) {
        let Some(metrics) = &self.0 else { return };
        let phase = match phase {
            StartPhase::Prepare => "prepare",
            StartPhase::Start => "start",
        };
        metrics.started(driver, phase, took);
    }

    /// Every task of an earlier life was found again or given up.
    pub(crate) fn restored(&self, took: Duration) {
        if let Some(metrics) = &self.0 {
            metrics.restored(took);
        }
    }

    /// The API server accepted a report.
    pub(crate) fn report_accepted(&self, priority: Priority) {
        let Some(metrics) = &self.0 else { return };
        metrics.status_written(match priority {
            Priority::Urgent => "urgent",
            Priority::Typical | Priority::Paced | Priority::None => "typical",
        });
    }

    /// A report was never sent, because a newer one came first.
    pub(crate) fn report_coalesced(&self) {
        if let Some(metrics) = &self.0 {
            metrics.status_coalesced();
        }
    }
}

/// One task in the metrics.
#[derive(Debug)]
pub(crate) struct CountedTask {
    metrics: NodeMetrics,
    driver: String,
    state: TaskRunState,
}

impl CountedTask {
    /// It is in this state now.
    pub(crate) fn is_now(&mut self, state: TaskRunState) {
        if state != self.state {
            self.count(-1);
            self.state = state;
            self.count(1);
        }
    }

    fn count(&self, more: i64) {
        if let Some(metrics) = &self.metrics.0 {
            metrics.tasks(&self.driver, self.state.as_str(), more);
        }
    }
}

impl Drop for CountedTask {
    fn drop(&mut self) {
        self.count(-1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_counted_once_in_the_state_that_it_is_in_and_not_when_it_is_gone() {
        let metrics = AgentMetrics::default();
        let counting = NodeMetrics::of(metrics.clone());
        let counted = || ["pending", "running", "dead"].map(|state| metrics.n_tasks("exec", state));
        let mut task = counting.task(Some("exec"), TaskRunState::Pending);
        assert_eq!(counted(), [1, 0, 0]);
        task.is_now(TaskRunState::Running);
        task.is_now(TaskRunState::Running);
        assert_eq!(counted(), [0, 1, 0]);
        task.is_now(TaskRunState::Dead);
        assert_eq!(counted(), [0, 0, 1]);
        drop(task);
        assert_eq!(counted(), [0, 0, 0]);
        let _unknown = counting.task(None, TaskRunState::Pending);
        assert_eq!(metrics.n_tasks(UNKNOWN_DRIVER, "pending"), 1);
    }
}
