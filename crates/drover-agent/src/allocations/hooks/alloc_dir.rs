//! Hook `alloc_dir`: the directory that the allocation's tasks share.

use super::hook_error::AllocHookError;
use crate::allocations::plan::AllocPlan;
use crate::node::alloc_dir::AllocDir;

pub(super) fn prerun(plan: &AllocPlan, dir: &AllocDir) -> Result<(), AllocHookError> {
    let failed = |reason: String| AllocHookError { hook: "alloc_dir", reason };
    if !plan.restored.is_empty() && !plan.env.machine.disk.has(dir) {
        return Err(failed(format!("directory {} has vanished while the agent was away", dir.root().display())));
    }
    plan.env.machine.disk.build(dir).map_err(|error| failed(error.to_string()))
}
