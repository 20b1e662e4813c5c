//! Allocations: the stubs of lists, and the whole object.

use std::borrow::Cow;

use drover_api::allocation::{AllocationStatus, DesiredTransition, RescheduleTracker, TaskResources};
use drover_api::{Allocation, Job, JobVersion};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::field_list::FieldList;
use super::tasks::{self, States};
use super::times::{UNSET, created, created_nanos, date, nanos};
use super::{job, legacy, metric};
use crate::full_job::spec as job_spec;
use crate::world::{World, job_id, namespace, uid, version};

/// What of a stub is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StubParts {
    /// What it holds of its node.
    pub(crate) resources: bool,
    /// The states of its tasks.
    pub(crate) task_states: bool,
}

/// A stub, as lists have it.
pub(crate) fn stub<'a>(allocation: &'a Allocation, world: &World, parts: StubParts) -> impl Serialize + use<'a> {
    let mut stub: Vec<_> = common(allocation, world).map(|(key, value)| (key, StubPart::Value(value))).into();
    let job = of_job(allocation, world).map(|job| job_spec(job, world).r#type);
    stub.push(("JobType", StubPart::Value(json!(job))));
    stub.push(("JobVersion", StubPart::Value(json!(allocation.spec.job_version))));
    if parts.resources {
        stub.push(("AllocatedResources", StubPart::Value(resources(allocation))));
    }
    stub.push(("TaskStates", StubPart::States(parts.task_states.then(|| states(allocation)))));
    FieldList(stub)
}

/// What a stub consists of.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum StubPart<'a> {
    Value(Value),
    States(Option<States<'a>>),
}

fn states(allocation: &Allocation) -> States<'_> {
    allocation.status.as_ref().map(|status| tasks::states(&status.task_states)).unwrap_or_default()
}

/// The whole object, with every key.
pub(crate) fn full(allocation: &Allocation, world: &World) -> Value {
    let mut full = without_job(allocation, world);
    full["Job"] = of_version(allocation, world);
    full
}

/// The same, without its job.
pub(crate) fn without_job(allocation: &Allocation, world: &World) -> Value {
    let mut full = Map::from_iter(common(allocation, world).map(|(key, value)| (key.to_owned(), value)));
    let (spec, meta) = (&allocation.spec, &allocation.metadata);
    let status = status(allocation);
    let deployment = world.deployments.named(namespace(meta), &spec.deployment_name);
    let previous = world.allocations.named(namespace(meta), &spec.previous_allocation);
    let more = [
        ("TaskStates", json!(states(allocation))),
        ("AllocatedResources", resources(allocation)),
        ("Resources", legacy::of_group(&spec.resources)),
        ("TaskResources", legacy::of_tasks(&spec.resources)),
        ("Services", Value::Null),
        ("Metrics", spec.metrics.as_ref().map_or(Value::Null, |of| metric::metric(of, world))),
        ("AllocStates", alloc_states(&status)),
        ("DeploymentID", json!(uid(deployment.map(|it| &it.metadata)))),
        ("PreviousAllocation", json!(uid(previous.map(|it| &it.metadata)))),
        ("NetworkStatus", network(&status)),
        ("AllocModifyIndex", json!(meta.generation.unwrap_or(0))),
    ];
    full.extend(more.map(|(key, value)| (key.to_owned(), value)));
    Value::Object(full)
}

/// The same, without the keys that have no value.
pub(crate) fn without_empty(object: Value) -> Value {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    };
    match object {
        Value::Object(map) => Value::Object(map.into_iter().filter(|(_, value)| !is_empty(value)).collect()),
        other => other,
    }
}

/// The name that Nomad gives it: `web.api[0]`.
pub(crate) fn name(allocation: &Allocation, world: &World) -> String {
    let spec = &allocation.spec;
    format!("{}.{}[{}]", id_of_job(allocation, world), spec.group, spec.index)
}

/// Its job, if that is still there.
fn of_job<'a>(allocation: &Allocation, world: &'a World) -> Option<&'a Job> {
    let job = world.jobs.named(namespace(&allocation.metadata), &allocation.spec.job_name)?;
    (job.metadata.uid.as_deref() == Some(allocation.spec.job_uid.as_str())).then_some(job)
}

/// The id of its job, also after the job's end.
pub(crate) fn id_of_job(allocation: &Allocation, world: &World) -> String {
    let spec = &allocation.spec;
    match of_job(allocation, world) {
        Some(job) => job_id(job).to_owned(),
        None => spec.job_name.clone(),
    }
}

/// The version of its job that an allocation runs.
pub(crate) fn version_of<'a>(allocation: &Allocation, world: &'a World) -> Option<&'a JobVersion> {
    let spec = &allocation.spec;
    let mut versions = world.versions_of(namespace(&allocation.metadata), &spec.job_name);
    versions.find(|it| it.spec.job_uid == spec.job_uid && it.spec.version == spec.job_version).map(|it| &**it)
}

/// The job as it was in the version that the allocation runs.
fn of_version(allocation: &Allocation, world: &World) -> Value {
    version_of(allocation, world)
        .map_or(Value::Null, |version| job::of_version(version, of_job(allocation, world), world))
}

/// What stubs and whole objects have in common.
fn common(allocation: &Allocation, world: &World) -> [(&'static str, Value); 23] {
    let (spec, meta) = (&allocation.spec, &allocation.metadata);
    let status = status(allocation);
    let next = world.successor(namespace(meta), meta.name.as_deref().unwrap_or_default());
    let preempted: Vec<&str> = spec
        .preempted_allocations
        .iter()
        .filter_map(|name| world.allocations.named(namespace(meta), name)?.metadata.uid.as_deref())
        .collect();
    [
        ("ID", json!(uid(Some(meta)))),
        // No evaluation is recorded with an allocation.
        ("EvalID", json!(spec.eval_id)),
        ("Name", json!(name(allocation, world))),
        ("Namespace", json!(namespace(meta))),
        ("NodeID", json!(world.node_id(&spec.node_name))),
        ("NodeName", json!(spec.node_name)),
        ("JobID", json!(id_of_job(allocation, world))),
        ("TaskGroup", json!(spec.group)),
        ("DesiredStatus", json!(spec.desired_status)),
        ("DesiredDescription", json!(spec.desired_description)),
        ("ClientStatus", json!(status.client_status)),
        ("ClientDescription", json!(status.client_description)),
        ("DesiredTransition", transition(spec.desired_transition)),
        ("DeploymentStatus", health(allocation, &status)),
        ("FollowupEvalID", json!("")),
        ("NextAllocation", json!(uid(next.map(|it| &it.metadata)))),
        ("RescheduleTracker", tracker(spec.reschedule_tracker.as_ref(), world)),
        ("PreemptedAllocations", json!(preempted)),
        ("PreemptedByAllocation", json!(spec.preempted_by)),
        ("CreateIndex", json!(created(meta))),
        ("ModifyIndex", json!(version(meta))),
        ("CreateTime", json!(created_nanos(meta))),
        ("ModifyTime", json!(status.modified_at.map_or_else(|| created_nanos(meta), nanos))),
    ]
}

/// Its status, also before there is one.
fn status(allocation: &Allocation) -> Cow<'_, AllocationStatus> {
    allocation.status.as_ref().map_or_else(Cow::default, Cow::Borrowed)
}

/// What is not asked for is null.
fn transition(transition: DesiredTransition) -> Value {
    let is = |asked: bool| if asked { json!(true) } else { Value::Null };
    json!({
        "Migrate": is(transition.migrate),
        "Reschedule": is(transition.reschedule),
        "ForceReschedule": is(transition.force_reschedule),
        "NoShutdownDelay": is(transition.no_shutdown_delay),
        "MigrateDisablePlacement": is(transition.migrate_disable_placement),
    })
}

/// Its health in its deployment; null where there is neither a verdict nor a canary.
fn health(allocation: &Allocation, status: &AllocationStatus) -> Value {
    let spec = &allocation.spec;
    let verdict = status.health.as_ref().filter(|health| health.deployment_name == spec.deployment_name);
    if spec.deployment_name.is_empty() || (verdict.is_none() && !spec.canary) {
        return Value::Null;
    }
    json!({
        "Healthy": verdict.map(|verdict| verdict.healthy),
        "Timestamp": verdict.map_or_else(|| json!(UNSET), |verdict| date(Some(verdict.timestamp))),
        "Canary": spec.canary,
        "ModifyIndex": version(&allocation.metadata),
    })
}

fn tracker(tracker: Option<&RescheduleTracker>, world: &World) -> Value {
    let Some(tracker) = tracker else { return Value::Null };
    let events: Vec<Value> = tracker
        .events
        .iter()
        .map(|event| {
            json!({
                "RescheduleTime": nanos(event.time),
                "PrevAllocID": event.prev_alloc_id,
                "PrevNodeID": world.node_id(&event.prev_node_name),
                "Delay": event.delay.as_nanos(),
            })
        })
        .collect();
    json!({ "Events": events })
}

fn alloc_states(status: &AllocationStatus) -> Value {
    let entry = |entry: &drover_api::allocation::AllocStateEntry| json!({ "Field": "ClientStatus", "Value": entry.value, "Time": date(Some(entry.time)) });
    Value::Array(status.alloc_states.iter().map(entry).collect())
}

fn network(status: &AllocationStatus) -> Value {
    let Some(network) = &status.network else { return Value::Null };
    let dns = network
        .dns
        .as_ref()
        .map(|dns| json!({ "Servers": dns.servers, "Searches": dns.searches, "Options": dns.options }));
    json!({
        "InterfaceName": network.interface_name,
        "Address": network.address,
        "AddressIPv6": network.address_v6,
        "DNS": dns,
    })
}

fn resources(allocation: &Allocation) -> Value {
    let held = &allocation.spec.resources;
    let tasks: Map<String, Value> = held.tasks.iter().map(|(name, of)| (name.clone(), of_task(of))).collect();
    let ports: Vec<Value> = held
        .ports
        .iter()
        .map(|port| json!({ "Label": port.label, "Value": port.value, "To": port.to, "HostIP": port.host_ip }))
        .collect();
    json!({ "Tasks": tasks, "Shared": { "DiskMB": held.disk_mb, "Networks": [], "Ports": ports } })
}

fn of_task(held: &TaskResources) -> Value {
    let devices: Vec<Value> = held
        .devices
        .iter()
        .map(|it| json!({ "Vendor": it.vendor, "Type": it.r#type, "Name": it.name, "DeviceIDs": it.ids }))
        .collect();
    json!({
        "Cpu": { "CpuShares": held.cpu, "ReservedCores": held.cores },
        "Memory": { "MemoryMB": held.memory_mb, "MemoryMaxMB": held.memory_max_mb },
        "Networks": [],
        "Devices": devices,
    })
}
