//! Hook `task_dir`: the task's directories. At a restart only what is missing is made.

use super::hook_error::TaskHookError;
use crate::node::alloc_dir::TaskFolder;
use crate::tasks::plan::TaskPlan;
use crate::tasks::runner_env::RunnerEnv;

pub(super) fn prestart(env: &RunnerEnv, plan: &TaskPlan) -> Result<(), TaskHookError> {
    let secrets_mb = plan.task.resources.secrets_mb.unwrap_or(1);
    let folder = TaskFolder { task: &plan.task.name, secrets_mb, owner: plan.owner };
    env.machine.disk.build_task(&plan.dir, &folder).map_err(|error| TaskHookError {
        hook: "task_dir",
        reason: error.to_string(),
        is_recoverable: true,
    })
}
