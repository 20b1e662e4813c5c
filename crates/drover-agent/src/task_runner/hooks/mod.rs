//! What is done around a task's runs: one file per hook, in one ordered table. The order is part of the contract.
//!
//! Prestart hooks run one after the other; the first error ends the start and counts as a start error.

use super::{RunnerEnv, TaskPlan};

mod csi_plugin;
mod devices;
mod dispatch_payload;
mod task_dir;
mod validate;

/// Why a hook failed.
#[derive(Debug, thiserror::Error)]
#[error("{hook}: {reason}")]
pub(super) struct HookError {
    pub(super) hook: &'static str,
    pub(super) reason: String,
    /// Whether another try may help.
    pub(super) is_recoverable: bool,
}

type Prestart = fn(&RunnerEnv, &TaskPlan) -> Result<(), HookError>;

/// The prestart hooks in their order.
const PRESTART: &[Prestart] =
    &[validate::prestart, task_dir::prestart, dispatch_payload::prestart, devices::prestart, csi_plugin::prestart];

/// Runs the prestart hooks.
pub(super) fn prestart(env: &RunnerEnv, plan: &TaskPlan) -> Result<(), HookError> {
    PRESTART.iter().try_for_each(|hook| hook(env, plan))
}
