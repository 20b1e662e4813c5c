//! Hook `admission`: ports, cores and memory are the allocation's alone, or it waits, or it fails with the holder's
//! name.

use super::hook_error::AllocHookError;
use crate::allocations::admission::Need;
use crate::allocations::plan::AllocPlan;

pub(super) async fn prerun(plan: &AllocPlan) -> Result<(), AllocHookError> {
    let allocation = plan.wanted.borrow().allocation.clone();
    let name = allocation.metadata.name.clone().unwrap_or_default();
    let need = Need::of(&allocation, &plan.group);
    if !plan.restored.is_empty() {
        plan.admission.restore(&plan.uid, &name, need);
        return Ok(());
    }
    let mut changes = plan.admission.changes();
    loop {
        changes.mark_unchanged();
        let Err(refused) = plan.admission.claim(&plan.uid, &name, need.clone()) else { return Ok(()) };
        let reason = format!("{} is held by allocation {}", refused.what, refused.holder);
        if !refused.is_stopping {
            return Err(AllocHookError { hook: "admission", reason });
        }
        tracing::info!(allocation = plan.uid, reason, "waiting for a stopping allocation");
        if changes.changed().await.is_err() {
            return Err(AllocHookError { hook: "admission", reason });
        }
    }
}
