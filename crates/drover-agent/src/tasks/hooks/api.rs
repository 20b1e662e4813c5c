//! Hook `api`: the task's socket to the gateway's API, from each start on.

use super::hook_error::TaskHookError;
use crate::task_api::{ApiPlace, ServedApi};
use crate::tasks::task_words::TaskWords;

/// Serves the API to a task that is about to start, or was found again.
///
/// # Errors
/// Why it has none: it starts all the same.
pub(crate) fn serve_api(words: &TaskWords) -> Result<Option<ServedApi>, TaskHookError> {
    let plan = words.plan();
    let failed = |reason| TaskHookError { hook: "api", reason, is_recoverable: true };
    let dir = plan.dir.task(&plan.task.name).join("secrets");
    let place = ApiPlace { dir: &dir, seen_as: &words.paths().secrets, owner: plan.owner_of_files().map_err(failed)? };
    words.runner_env().machine.api.serve(place).map_err(failed)
}
