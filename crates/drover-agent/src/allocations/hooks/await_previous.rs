//! Hook `await_previous`: the allocations that this one replaces, or that were evicted for it, have to end first.

use super::hook_error::AllocHookError;
use crate::allocations::plan::AllocPlan;

pub(super) async fn prerun(plan: &AllocPlan) -> Result<(), AllocHookError> {
    if !plan.restored.is_empty() {
        // It has waited in an earlier life.
        return Ok(());
    }
    let allocation = plan.wanted.borrow().allocation.clone();
    let spec = &allocation.spec;
    let previous = (!spec.previous_allocation.is_empty()).then_some(&spec.previous_allocation);
    for name in previous.into_iter().chain(&spec.preempted_allocations) {
        (plan.previous_end)(&allocation, name).await;
    }
    Ok(())
}
