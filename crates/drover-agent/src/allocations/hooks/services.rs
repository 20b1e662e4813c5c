//! Hook `services`: the group's and its tasks' services can be registered, or the allocation fails before a task
//! begins. They are registered when their tasks run.

use drover_core::service;

use super::hook_error::AllocHookError;
use crate::allocations::plan::AllocPlan;

pub(super) fn prerun(plan: &AllocPlan) -> Result<(), AllocHookError> {
    let allocation = plan.wanted.borrow().allocation.clone();
    let planned = service::planned(&allocation, &plan.job, &plan.group);
    planned.map(drop).map_err(|error| AllocHookError { hook: "services", reason: error.to_string() })
}
