//! The prestart hooks in their order, which is part of the contract. The first error ends the start and counts as a
//! start error.

use super::hook_error::TaskHookError;
use super::{csi_plugin, devices, dispatch_payload, task_dir, validate};
use crate::tasks::plan::TaskPlan;
use crate::tasks::runner_env::RunnerEnv;

type Prestart = fn(&RunnerEnv, &TaskPlan) -> Result<(), TaskHookError>;

/// The prestart hooks before the artifacts are fetched, in their order: there has to be a directory to fetch into. The
/// payload follows, which may have to be read from the API server.
const BEFORE_ARTIFACTS: &[Prestart] = &[validate::prestart, task_dir::prestart];
/// And after: what takes minutes holds nothing.
const AFTER_ARTIFACTS: &[Prestart] = &[devices::prestart, csi_plugin::prestart];

/// Runs the hooks before the artifacts.
pub(crate) async fn before_artifacts(env: &RunnerEnv, plan: &TaskPlan) -> Result<(), TaskHookError> {
    BEFORE_ARTIFACTS.iter().try_for_each(|hook| hook(env, plan))?;
    dispatch_payload::prestart(env, plan).await
}

/// Runs the hooks after the artifacts.
pub(crate) fn after_artifacts(env: &RunnerEnv, plan: &TaskPlan) -> Result<(), TaskHookError> {
    AFTER_ARTIFACTS.iter().try_for_each(|hook| hook(env, plan))
}
