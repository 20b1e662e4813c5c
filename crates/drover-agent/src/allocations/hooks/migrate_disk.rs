//! Hook `migrate_disk`: a group with a sticky disk goes on with the files of the allocation that it replaces on this
//! node.

use super::hook_error::AllocHookError;
use crate::allocations::plan::AllocPlan;
use crate::node::alloc_dir::{AllocDir, TaskFolder};

pub(super) async fn prerun(plan: &AllocPlan, dir: &AllocDir) -> Result<(), AllocHookError> {
    let disk = &plan.group.ephemeral_disk;
    let Some(previous) = plan.previous_dir.as_ref().filter(|_| disk.sticky || disk.migrate) else { return Ok(()) };
    if !plan.restored.is_empty() {
        // It has moved them in an earlier life.
        return Ok(());
    }
    let owner = plan.env.machine.users.of(&plan.uid).await;
    for task in &plan.group.tasks {
        let folder = TaskFolder { task: &task.name, secrets_mb: task.resources.secrets_mb.unwrap_or(1), owner };
        plan.env
            .machine
            .disk
            .build_task(dir, &folder)
            .map_err(|error| AllocHookError { hook: "migrate_disk", reason: error.to_string() })?;
    }
    let tasks = plan.group.tasks.iter().map(|task| task.name.clone()).collect();
    plan.env.machine.disk.take_over(previous, dir, tasks).await;
    Ok(())
}
