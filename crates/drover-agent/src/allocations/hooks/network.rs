//! Hook `network`: an allocation in mode bridge or cni has its namespace before any task begins. Afterwards it is taken
//! back.

use std::time::Duration;

use super::hook_error::AllocHookError;
use crate::allocations::plan::AllocPlan;
use crate::drivers::FsIsolation;
use crate::networks::NetworkAsk;
use crate::reporting::events::Reason;

/// How long the report of an allocation's end waits for its network.
const PATIENCE: Duration = Duration::from_secs(40);

pub(super) async fn prerun(plan: &AllocPlan) -> Result<(), AllocHookError> {
    let Some(network) = plan.group.networks.first() else { return Ok(()) };
    if !network.mode.is_own() || !plan.env.machine.networks.are_real() {
        return Ok(());
    }
    let allocation = plan.wanted.borrow().allocation.clone();
    let made = if let Some(driver) = stranger(plan) {
        Err(format!(
            "driver {driver} runs its tasks in the network of the node, not in one of mode {}: take driver exec, or mode host",
            network.mode
        ))
    } else {
        let ask = NetworkAsk { network, ports: &allocation.spec.resources.ports };
        plan.env.machine.networks.make(&plan.uid, ask).await
    };
    made.map_err(|reason| {
        plan.env.events.emit(&allocation, Reason::NetworkError, reason.clone());
        AllocHookError { hook: "network", reason }
    })
}

/// The first driver whose tasks join no network: who shares the node's files shares its network too.
fn stranger(plan: &AllocPlan) -> Option<&str> {
    let joins = |name: &str| {
        plan.env.machine.drivers.find(name).is_some_and(|driver| driver.fs_isolation() != FsIsolation::None)
    };
    plan.group.tasks.iter().map(|task| task.driver.as_str()).find(|name| !joins(name))
}

/// Takes the network back. What stays is tried again by the next agent.
pub(crate) async fn postrun(plan: &AllocPlan) {
    let taken = tokio::time::timeout(PATIENCE, plan.env.machine.networks.take_back(&plan.uid)).await;
    match taken {
        Ok(Ok(())) => {}
        Ok(Err(reason)) => tracing::warn!(allocation = plan.uid, reason, "its network is left on the node"),
        Err(_) => tracing::warn!(allocation = plan.uid, "its network is still being taken back"),
    }
}
