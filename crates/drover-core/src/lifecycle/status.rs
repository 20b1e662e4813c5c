//! The client status that follows from the tasks' states. `lost` and `unknown` cannot follow from them: they are the
//! controller's.

use super::{Progress, RunState};

/// A client status that an agent may compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DerivedStatus {
    /// No task has started, or all are between two runs.
    Pending,
    /// A task runs.
    Running,
    /// All tasks ended and none failed.
    Complete,
    /// A task failed for good.
    Failed,
}

impl DerivedStatus {
    /// Whether the allocation has ended.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Complete | Self::Failed)
    }
}

/// What the status is derived from.
#[derive(Clone, Debug, Default)]
pub struct StatusInput<'a> {
    /// The longest permitted run is over.
    pub max_run_exceeded: bool,
    /// A status that the runner was given, with its description.
    pub forced: Option<(DerivedStatus, &'static str)>,
    /// Every task, poststop ones too.
    pub tasks: &'a [Progress],
}

/// Derives the client status and its description; `None` without tasks. O(tasks).
pub fn derive_status(input: &StatusInput<'_>) -> Option<(DerivedStatus, &'static str)> {
    if input.max_run_exceeded {
        return Some((DerivedStatus::Complete, "max run duration reached"));
    }
    if let Some(forced) = input.forced {
        return Some(forced);
    }
    let any = |state: RunState| input.tasks.iter().any(|task| task.state == state);
    if input.tasks.iter().any(|task| task.is_failed()) {
        Some((DerivedStatus::Failed, "failed tasks"))
    } else if any(RunState::Running) {
        Some((DerivedStatus::Running, "tasks running"))
    } else if any(RunState::Pending) {
        Some((DerivedStatus::Pending, "no task started"))
    } else if any(RunState::Dead) {
        Some((DerivedStatus::Complete, "all tasks done"))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use DerivedStatus::{Complete, Failed, Pending, Running};

    const RUNNING: Progress = Progress { state: RunState::Running, failed: false };
    const DONE: Progress = Progress { state: RunState::Dead, failed: false };
    const FAILED: Progress = Progress { state: RunState::Dead, failed: true };

    fn derive(tasks: &[Progress]) -> Option<DerivedStatus> {
        derive_status(&StatusInput { tasks, ..StatusInput::default() }).map(|(status, _)| status)
    }

    #[test]
    fn a_046_status_follows_from_the_tasks() {
        assert_eq!(derive(&[RUNNING, DONE]), Some(Running));
        assert_eq!(derive(&[FAILED, RUNNING]), Some(Failed));
        assert_eq!(derive(&[Progress::PENDING, DONE]), Some(Pending));
        assert_eq!(derive(&[DONE]), Some(Complete));
        assert_eq!(derive(&[]), None);
    }

    #[test]
    fn the_time_limit_wins_over_a_forced_status_and_that_over_the_tasks() {
        let forced = Some((Failed, "alloc setup failed"));
        let input = StatusInput { max_run_exceeded: false, forced, tasks: &[RUNNING] };
        assert_eq!(derive_status(&input), forced);
        assert_eq!(
            derive_status(&StatusInput { max_run_exceeded: true, ..input }),
            Some((Complete, "max run duration reached"))
        );
    }
}
