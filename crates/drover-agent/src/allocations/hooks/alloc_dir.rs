//! Hook `alloc_dir`: the directory that the allocation's tasks share, and the user that it belongs to.

use super::hook_error::AllocHookError;
use crate::allocations::plan::AllocPlan;
use crate::node::alloc_dir::AllocDir;

pub(super) async fn prerun(plan: &AllocPlan, dir: &AllocDir) -> Result<(), AllocHookError> {
    let failed = |reason: String| AllocHookError { hook: "alloc_dir", reason };
    let machine = &plan.env.machine;
    if !plan.restored.is_empty() && !machine.disk.has(dir) {
        return Err(failed(format!("directory {} has vanished while the agent was away", dir.root().display())));
    }
    let owner = if plan.restored.is_empty() {
        machine.users.take(&plan.uid).await.map_err(failed)?
    } else {
        machine.users.of(&plan.uid).await
    };
    machine.disk.build(dir, owner).map_err(|error| failed(error.to_string()))
}
