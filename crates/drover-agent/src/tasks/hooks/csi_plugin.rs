//! Hook `csi_plugin`: the directory in which a task that is a CSI plugin makes its socket. What an earlier run has left
//! there goes.

use super::hook_error::TaskHookError;
use crate::csi;
use crate::tasks::plan::TaskPlan;
use crate::tasks::runner_env::RunnerEnv;

pub(super) fn prestart(env: &RunnerEnv, plan: &TaskPlan) -> Result<(), TaskHookError> {
    if plan.task.csi_plugin.is_none() {
        return Ok(());
    }
    let socket = csi::endpoint(env.csi.root(), &plan.uid, &plan.task.name);
    let made = socket
        .parent()
        .map_or(Ok(()), |dir| env.machine.disk.make_dir(dir))
        .and_then(|()| env.machine.disk.remove(&socket));
    made.map_err(|error| TaskHookError {
        hook: "csi_plugin",
        reason: format!("{}: {error}", socket.display()),
        is_recoverable: true,
    })
}
