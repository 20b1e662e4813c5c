//! An allocation as its agent reports it, for those who judge its health from afar.

use drover_api::allocation::{AllocationStatus, CheckResult, ClientStatus};
use drover_api::group::Group;

use super::{CheckFacts, CheckState, Observation, TaskFacts};
use crate::lifecycle::{Progress, Stage};

/// What checks are called whose failure is no illness.
const READINESS: &str = "readiness";

/// What a status says of an allocation of this group. A task of which it says nothing has not started.
pub fn reported(group: &Group, status: &AllocationStatus) -> Observation {
    let facts = group.tasks.iter().map(|task| {
        let state = status.task_states.get(&task.name).cloned().unwrap_or_default();
        let facts =
            TaskFacts { stage: Stage::of_task(task), progress: Progress::of(&state), started_at: state.started_at };
        (task.name.clone(), facts)
    });
    let checks = status.checks.values().map(|check| {
        let state = match check.status {
            CheckResult::Pending => CheckState::Pending,
            CheckResult::Success => CheckState::Success,
            CheckResult::Warning => CheckState::Warning,
            CheckResult::Failure => CheckState::Failure,
        };
        CheckFacts { state, is_readiness: check.mode == READINESS }
    });
    let has_failed = matches!(status.client_status, ClientStatus::Failed | ClientStatus::Lost);
    Observation { tasks: facts.collect(), checks: checks.collect(), check_fault: None, has_failed }
}
