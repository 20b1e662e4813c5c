//! Hook `volumes`: the group's volumes are there before any task begins: first all claims, then all mounts, so that
//! less has to be taken back. Afterwards they are unmounted, and the allocation has ended only when that is done.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_api::Allocation;
use drover_api::allocation::{VolumeState, VolumeStatus};
use drover_api::client_node::OfferedVolume;
use drover_api::volume_request::{VolumeRequest, VolumeType};
use drover_core::volume::access;

use super::hook_error::AllocHookError;
use crate::allocations::plan::AllocPlan;
use crate::allocations::volume_sources::VolumeSource;
use crate::csi::Granted;
use crate::reporting::events::Reason;

/// How long the report of an allocation's end waits for its volumes; what is not unmounted by then is told later.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) async fn prerun(plan: &AllocPlan) -> Result<(), AllocHookError> {
    if plan.group.volumes.is_empty() {
        return Ok(());
    }
    let prepared = prepare(plan).await;
    prepared.map_err(|reason| {
        let allocation = plan.wanted.borrow().allocation.clone();
        plan.env.events.emit(&allocation, Reason::VolumeError, reason.clone());
        AllocHookError { hook: "volumes", reason }
    })
}

async fn prepare(plan: &AllocPlan) -> Result<(), String> {
    let mut drivers = plan.group.tasks.iter().filter(|task| !task.volume_mounts.is_empty()).map(|task| &task.driver);
    let cannot = |name: &&String| !plan.env.machine.drivers.find(name).is_some_and(|driver| driver.mounts_volumes());
    if let Some(name) = drivers.find(cannot) {
        return Err(format!("driver {name} cannot mount volumes; take driver exec for tasks with volumeMounts"));
    }
    let allocation = plan.wanted.borrow().allocation.clone();
    let index = allocation.spec.index;
    let namespace = allocation.metadata.namespace.clone().unwrap_or_default();
    for request in plan.group.volumes.iter().filter(|request| request.r#type == VolumeType::Host) {
        let source = host_volume(plan, request, &allocation)?;
        plan.volumes.set(&request.name, source);
    }
    let mut granted: Vec<(&VolumeRequest, Granted)> = Vec::new();
    for request in csi_requests(plan) {
        if let Some(path) = plan.env.csi.mounted(&plan.uid, &request.name) {
            plan.volumes.set(&request.name, VolumeSource { path, is_read_only: request.read_only });
            continue;
        }
        let id = access::source(request, index);
        granted.push((request, plan.env.csi.claimed(&namespace, &plan.uid, &id, request).await?));
    }
    for (request, granted) in granted {
        let path = plan.env.csi.mount(&plan.uid, &request.name, &granted).await?;
        plan.volumes.set(&request.name, VolumeSource { path, is_read_only: request.read_only });
    }
    Ok(())
}

fn host_volume(plan: &AllocPlan, request: &VolumeRequest, allocation: &Allocation) -> Result<VolumeSource, String> {
    let name = access::source(request, allocation.spec.index);
    let print = plan.env.machine.fingerprint.borrow();
    let missing = || format!("this node has no host volume {name}");
    let volume = match allocation.spec.host_volumes.get(&request.name) {
        None => print.host_volumes.get(&name).filter(|volume| volume.namespace.is_empty()).ok_or_else(missing)?,
        Some(id) => {
            let namespace = allocation.metadata.namespace.as_ref();
            let is_it = |volume: &&OfferedVolume| {
                volume.id == *id && Some(&volume.namespace) == namespace && volume.ready == Some(true)
            };
            let volume = print.host_volumes.get(id).filter(is_it).ok_or_else(missing)?;
            // A folder that was registered may have become a link.
            if std::fs::canonicalize(&volume.path).is_ok_and(|real| real.as_os_str() != volume.path.as_str()) {
                return Err(format!(
                    "host volume {name}: {} is not the folder any more that was registered",
                    volume.path
                ));
            }
            volume
        }
    };
    Ok(VolumeSource { path: volume.path.clone().into(), is_read_only: request.read_only || volume.read_only })
}

fn csi_requests(plan: &AllocPlan) -> impl Iterator<Item = &VolumeRequest> {
    plan.group.volumes.iter().filter(|request| access::is_csi(request))
}

/// Unmounts the volumes, for a while. It goes on where that is not enough.
pub(crate) async fn postrun(plan: &AllocPlan) {
    plan.env.csi.release(&plan.uid);
    if tokio::time::timeout(PATIENCE, plan.env.csi.cleared(&plan.uid)).await.is_err() {
        tracing::warn!(allocation = plan.uid, "volumes are not unmounted yet; it is tried again and again");
    }
}

/// How the volumes fare; without a mount they are not mounted yet, or not any more.
pub(crate) fn statuses(plan: &AllocPlan, is_over: bool) -> BTreeMap<String, VolumeStatus> {
    let index = plan.wanted.borrow().allocation.spec.index;
    let status = |request: &VolumeRequest| {
        let state = if is_over { VolumeState::Unmounted } else { VolumeState::Pending };
        let unmounted = || VolumeStatus { volume_id: access::source(request, index), state, error: String::new() };
        (request.name.clone(), plan.env.csi.status(&plan.uid, &request.name).unwrap_or_else(unmounted))
    };
    csi_requests(plan).map(status).collect()
}
