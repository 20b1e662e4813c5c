//! From the objects of the API to what the scheduler knows of them: the one place where `Option`s of the wire become
//! values.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drover_api::allocation::{AllocationStatus, DesiredStatus, TaskRunState, VolumeState};
use drover_api::client_node::Eligibility;
use drover_api::{Allocation, CSIVolume, ClientNode, Deployment, HostVolume, Job, JobSpec, finalizer};
use drover_core::definition::Definition;
use drover_core::health::has_ground;
use drover_core::host_volume::known::KnownVolume;
use drover_core::ids::{AllocKey, JobKey, NodeName, ObjectKey, Uid};
use drover_core::job_status::Stopper;
use drover_core::model::{self, Alloc, Amounts, DriverState, Health, HostAddress, Node, parse_ports};
use drover_core::scheduler::plan::StopReason;
use jiff::Timestamp;
use kube::core::ObjectMeta;

/// More cores than a machine has: what is above is no core.
const MOST_CORES: i64 = 8192;
/// First and last dynamic port where a node names none.
const DYNAMIC_PORTS: (u16, u16) = (20_000, 29_999);

/// The key of a namespaced object.
pub fn object_key(meta: &ObjectMeta) -> AllocKey {
    AllocKey::new(meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

/// The uid of an object.
pub fn uid(meta: &ObjectMeta) -> Uid {
    Uid::from(meta.uid.clone().unwrap_or_default())
}

/// When an object was created; the epoch where the API server did not say.
pub fn created_at(meta: &ObjectMeta) -> Timestamp {
    meta.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0)
}

/// Who set `spec.stop`, and when, as the API server has recorded it; none where it has not. Of several the first: the
/// others only agreed.
pub fn stopper(meta: &ObjectMeta) -> Option<Stopper> {
    let writers = meta.managed_fields.iter().flatten();
    let of_stop = writers
        .filter(|writer| writer.fields_v1.as_ref().is_some_and(|fields| fields.0["f:spec"].get("f:stop").is_some()));
    let found = of_stop.filter_map(|writer| Some((writer.time.as_ref()?.0, writer.manager.as_ref()?))).min()?;
    Some(Stopper { manager: found.1.clone(), at: found.0 })
}

/// A node.
pub fn node(object: &ClientNode) -> Node {
    let status = object.status.clone().unwrap_or_default();
    let print = status.fingerprint.unwrap_or_default();
    let mut meta: BTreeMap<String, String> = print.meta.static_meta.clone();
    for (key, value) in &print.meta.dynamic {
        if value.is_empty() {
            meta.remove(key);
        } else {
            meta.insert(key.clone(), value.clone());
        }
    }
    meta.extend(object.spec.meta.clone());
    let reserved_cores: BTreeSet<i64> = print.reserved.cores.iter().copied().collect();
    let drivers = print.drivers.iter().map(|(name, info)| {
        let state = match (info.detected, info.healthy) {
            (false, _) => DriverState::Undetected,
            (true, false) => DriverState::Unhealthy,
            (true, true) => DriverState::Healthy,
        };
        (name.clone(), state)
    });
    let port = |value: i64| u16::try_from(value).unwrap_or(u16::MAX);
    Node {
        name: NodeName::from(object.metadata.name.clone().unwrap_or_default()),
        datacenter: object.spec.datacenter.clone(),
        pool: object.spec.node_pool.clone(),
        class: object.spec.node_class.clone(),
        phase: status.phase,
        is_eligible: object.spec.eligibility == Eligibility::Eligible,
        is_draining: object.spec.drain.is_some(),
        attributes: print.attributes.clone(),
        meta,
        allocatable: Amounts {
            cpu: print.resources.cpu.saturating_sub(print.reserved.cpu).max(0),
            memory_mb: print.resources.memory_mb.saturating_sub(print.reserved.memory_mb).max(0),
            disk_mb: print.resources.disk_mb.saturating_sub(print.reserved.disk_mb).max(0),
        },
        cores: (0..print.resources.cores.min(MOST_CORES)).filter(|core| !reserved_cores.contains(core)).collect(),
        core_mhz: if print.resources.cores > 0 { print.resources.cpu / print.resources.cores } else { 0 },
        drivers: drivers.collect(),
        host_networks: print
            .host_networks
            .iter()
            .filter_map(|network| {
                Some(HostAddress {
                    alias: network.name.clone(),
                    ip: network.cidr.split('/').next()?.parse().ok()?,
                    reserved_ports: parse_ports(&network.reserved_ports),
                })
            })
            .collect(),
        network_modes: print.network_modes.iter().cloned().collect(),
        reserved_ports: parse_ports(&print.reserved.ports),
        dynamic_ports: print.dynamic_ports.map_or(DYNAMIC_PORTS, |range| (port(range.min), port(range.max))),
        devices: print.devices,
        host_volumes: print.host_volumes,
        csi: print.csi,
        max_allocs: print.max_allocs,
    }
}

/// An allocation.
pub fn alloc(object: &Allocation) -> Alloc {
    let (meta, spec) = (&object.metadata, &object.spec);
    let status = object.status.clone().unwrap_or_default();
    let namespace = meta.namespace.clone().unwrap_or_default();
    let finished = status.task_states.values().filter_map(|task| task.finished_at).max();
    let ran_successfully = !status.task_states.is_empty()
        && status.task_states.values().all(|task| task.state == TaskRunState::Dead && !task.failed);
    Alloc {
        key: object_key(meta),
        uid: uid(meta),
        job: JobKey::new(namespace, spec.job_name.clone()),
        job_uid: Uid::from(spec.job_uid.clone()),
        job_version: spec.job_version,
        group: spec.group.clone(),
        index: spec.index,
        node: NodeName::from(spec.node_name.clone()),
        desired: spec.desired_status,
        is_superseded: spec.desired_status != DesiredStatus::Run
            && ![String::new(), StopReason::NotNeeded.to_string()].contains(&spec.desired_description),
        client: status.client_status,
        transition: spec.desired_transition,
        previous: named(&spec.previous_allocation),
        follow_up: spec.follow_up.clone(),
        resources: Arc::new(spec.resources.clone()),
        canary: spec.canary,
        deployment: named(&spec.deployment_name),
        health: status
            .health
            .as_ref()
            .filter(|health| !health.healthy || has_ground(status.client_status, &status.task_states))
            .map(|health| Health {
                is_healthy: health.healthy,
                deployment: named(&health.deployment_name),
                at: health.timestamp,
            }),
        // The view that takes it in knows.
        health_index: 0,
        states: status.alloc_states.iter().map(|entry| (entry.value, entry.time)).collect(),
        best_score: spec.metrics.as_ref().and_then(|metrics| Some(metrics.score_meta_data.first()?.norm_score)),
        task_starts: task_starts(&status),
        ran_successfully,
        last_event_at: finished.or(status.modified_at).unwrap_or_else(|| created_at(meta)),
        tracker: spec.reschedule_tracker.clone(),
        is_deleting: meta.deletion_timestamp.is_some(),
        has_ended: status.ended_at.is_some(),
        unmounted: unmounted(&status),
        host_volumes: spec.host_volumes.clone(),
        created_at: created_at(meta),
    }
}

/// A name, where one is given.
fn named(name: &str) -> Option<Arc<str>> {
    (!name.is_empty()).then(|| Arc::from(name))
}

/// When each task last started: one that was restarted counts from then.
fn task_starts(status: &AllocationStatus) -> Vec<(String, Timestamp)> {
    let start = |state: &drover_api::allocation::TaskState| {
        state.last_restart.filter(|_| state.restarts > 0).or(state.started_at)
    };
    status.task_states.iter().filter_map(|(name, state)| Some((name.clone(), start(state)?))).collect()
}

/// The ids of the volumes that an allocation's agent has unmounted.
fn unmounted(status: &AllocationStatus) -> BTreeSet<String> {
    let done = status.volumes.values().filter(|volume| volume.state == VolumeState::Unmounted);
    done.map(|volume| volume.volume_id.clone()).collect()
}

/// A deployment.
pub fn deployment(object: &Deployment) -> model::Deployment {
    let (meta, status) = (&object.metadata, object.status.clone().unwrap_or_default());
    model::Deployment {
        key: object_key(meta),
        uid: uid(meta),
        job: JobKey::new(meta.namespace.clone().unwrap_or_default(), object.spec.job_name.clone()),
        job_uid: Uid::from(object.spec.job_uid.clone()),
        job_version: object.spec.job_version,
        phase: status.phase,
        eval_priority: object.spec.eval_priority,
        judgements: drover_core::deployment::judgements(&object.spec, &status),
        groups: status.groups,
        created_at: created_at(meta),
    }
}

/// The resourceVersion of an object as a number: one etcd orders the writes of all kinds by it; 0 where there is none.
pub fn version_of(meta: &ObjectMeta) -> u64 {
    meta.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or(0)
}

/// The id by which groups name a volume, in its namespace.
pub fn volume_id(object: &CSIVolume) -> ObjectKey {
    let id = object.spec.id_or(object.metadata.name.as_deref().unwrap_or_default());
    ObjectKey::new(object.metadata.namespace.clone().unwrap_or_default(), id)
}

/// A HostVolume.
pub fn host_volume(object: &HostVolume) -> KnownVolume {
    let (meta, key) = (&object.metadata, object_key(&object.metadata));
    let name = if object.spec.name.is_empty() { Arc::clone(&key.name) } else { Arc::from(object.spec.name.as_str()) };
    KnownVolume {
        key,
        id: uid(meta),
        name,
        spec: object.spec.clone(),
        node: object.status.as_ref().and_then(|status| named(&status.node_name)).map(NodeName::from),
        claims: object.status.iter().flat_map(|status| status.claims.iter().cloned()).collect(),
        is_deleting: meta.deletion_timestamp.is_some(),
        is_held: finalizer::is_held(meta, finalizer::REMOVE_VOLUME),
    }
}

/// A job in a version, and the group that `spec.scale` sets with its count and the manifest's.
pub fn job(
    object: &Job,
    version: i64,
    definition: Arc<Definition>,
    is_namespace_going: bool,
) -> (model::Job, Option<(String, i64, i64)>) {
    let meta = &object.metadata;
    let mut counts: BTreeMap<String, i64> =
        definition.spec.groups.iter().map(|group| (group.name.clone(), group.count)).collect();
    let scaled = scale(&object.spec).and_then(|(group, count)| {
        let manifest = *counts.get(&group)?;
        let known = definition.group(&group)?;
        let (least, most) = known.scaling.as_ref().map_or((None, None), |scaling| (scaling.min, scaling.max));
        let count = count.max(least.unwrap_or(0)).min(most.unwrap_or(i64::MAX));
        counts.insert(group.clone(), count);
        Some((group, count, manifest))
    });
    let job = model::Job {
        key: object_key(meta),
        uid: uid(meta),
        generation: meta.generation.unwrap_or(0),
        version,
        stopped: object.spec.stop || meta.deletion_timestamp.is_some() || is_namespace_going,
        definition,
        counts,
    };
    (job, scaled)
}

/// The group and the count that `spec.scale` sets.
pub fn scale(spec: &JobSpec) -> Option<(String, i64)> {
    let scale = spec.scale.as_ref()?;
    let count = scale.count?;
    let group = if scale.group.is_empty() { spec.groups.first()?.name.clone() } else { scale.group.clone() };
    Some((group, count))
}

/// Whether a node's change concerns the scheduler: all but a heartbeat does.
pub fn is_same_to_scheduler(one: &Node, other: &Node) -> bool {
    one == other
}

/// Whether a node has just become one that allocations may be placed on, or one whose allocations are disconnected,
/// back or lost.
pub fn changed_sides(before: Option<&Node>, after: &Node) -> bool {
    before.is_none_or(|before| before.is_ready() != after.is_ready() || before.phase != after.phase)
}
