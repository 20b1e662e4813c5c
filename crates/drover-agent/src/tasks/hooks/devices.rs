//! Hook `devices`: every device that the allocation was given must be there before its task starts.

use super::hook_error::TaskHookError;
use crate::tasks::plan::TaskPlan;
use crate::tasks::runner_env::RunnerEnv;

pub(super) fn prestart(env: &RunnerEnv, plan: &TaskPlan) -> Result<(), TaskHookError> {
    let resources = plan.allocation.spec.resources.tasks.get(&plan.task.name);
    let devices = resources.map(|resources| &resources.devices[..]).unwrap_or_default();
    match env.machine.devices.reserve(devices) {
        Ok(_) => Ok(()),
        Err(reason) => Err(TaskHookError { hook: "devices", reason, is_recoverable: true }),
    }
}
