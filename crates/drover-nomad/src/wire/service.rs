//! Registrations of services.

use drover_api::Allocation;
use drover_core::service::planned;
use serde_json::{Value, json};

use super::allocation::{id_of_job, version_of};
use super::times::created;
use crate::world::{World, namespace, uid, version};

/// The services by which an allocation is found now. Names and tags are the job's, ports the scheduler's, and whether
/// one is registered its agent's.
pub(crate) fn registrations(allocation: &Allocation, world: &World) -> Vec<Value> {
    let (spec, meta) = (&allocation.spec, &allocation.metadata);
    let status = allocation.status.clone().unwrap_or_default();
    let job = version_of(allocation, world).map(|version| &version.spec.job);
    let group = job.and_then(|job| Some((job, job.group(&spec.group)?)));
    // One with services that cannot be registered fails on its node, which says why.
    let planned = group.and_then(|(job, group)| planned(allocation, job, group).ok()).unwrap_or_default();
    let is_registered = |id: &str| status.services.iter().any(|known| known.id == id);
    let datacenter = world.nodes.named("", &spec.node_name).map(|node| node.spec.datacenter.clone());
    let shown = planned.iter().filter(|service| is_registered(&service.id)).map(|service| {
        json!({
            "ID": service.id, "ServiceName": service.name, "Namespace": namespace(meta),
            "NodeID": world.node_id(&spec.node_name), "Datacenter": datacenter, "JobID": id_of_job(allocation, world),
            "AllocID": uid(Some(meta)), "Tags": service.tags, "Address": service.port.ip,
            "Port": service.port.number, "CreateIndex": created(meta), "ModifyIndex": version(meta),
        })
    });
    shown.collect()
}
