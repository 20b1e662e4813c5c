//! Hook `dispatch_payload`: the payload of a dispatched job, as a file in the task's `local` directory. Written once:
//! what a task made of it stays at a restart.

use drover_core::dispatch;

use super::hook_error::TaskHookError;
use crate::tasks::plan::TaskPlan;
use crate::tasks::runner_env::RunnerEnv;

pub(super) fn prestart(env: &RunnerEnv, plan: &TaskPlan) -> Result<(), TaskHookError> {
    let Some(file) = plan.task.dispatch_payload.as_ref().map(|payload| payload.file.as_str()) else { return Ok(()) };
    let payload = dispatch::payload(&plan.job).map_err(|reason| TaskHookError {
        hook: "dispatch_payload",
        reason: format!("the payload is no base64: {reason}; dispatch the job again"),
        is_recoverable: false,
    })?;
    if payload.is_empty() {
        return Ok(());
    }
    env.machine.disk.write_once(&plan.dir, &plan.task.name, file, &payload).map_err(|error| TaskHookError {
        hook: "dispatch_payload",
        reason: format!("local/{file} cannot be written: {error}"),
        is_recoverable: true,
    })
}
