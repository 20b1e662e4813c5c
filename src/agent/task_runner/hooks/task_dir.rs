//! Hook `task_dir`: the task's directories. At a restart only what is missing is made.

use super::{HookError, TaskPlan};

pub(super) fn prestart(plan: &TaskPlan) -> Result<(), HookError> {
    let secrets_mb = plan.task.resources.secrets_mb.unwrap_or(1);
    plan.dir.build_task(&plan.task.name, secrets_mb).map_err(|error| HookError {
        hook: "task_dir",
        reason: error.to_string(),
        is_recoverable: true,
    })
}
