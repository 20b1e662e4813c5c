//! The prestart hooks in their order, which is part of the contract. The first error ends the start and counts as a
//! start error.

use super::hook_error::TaskHookError;
use super::{csi_plugin, devices, dispatch_payload, task_dir, validate};
use crate::tasks::plan::TaskPlan;
use crate::tasks::runner_env::RunnerEnv;

type Prestart = fn(&RunnerEnv, &TaskPlan) -> Result<(), TaskHookError>;

/// The prestart hooks in their order.
const PRESTART: &[Prestart] =
    &[validate::prestart, task_dir::prestart, dispatch_payload::prestart, devices::prestart, csi_plugin::prestart];

/// Runs the prestart hooks.
pub(crate) fn prestart(env: &RunnerEnv, plan: &TaskPlan) -> Result<(), TaskHookError> {
    PRESTART.iter().try_for_each(|hook| hook(env, plan))
}
