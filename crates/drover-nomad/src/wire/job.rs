//! Jobs: the stubs of lists, summaries, and the whole object.

use std::sync::Arc;

use drover_api::job::{GroupSummary, JobPhase, JobStatus};
use drover_api::{Job, JobVersion, JobVersionStatus, label};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};

use super::times::{created, created_nanos, nanos};
use crate::full_job::{full_job, spec as whole_spec};
use crate::world::{World, job_id, namespace, version};

/// A stub, as lists have it. `with_meta`: the job's own key and value pairs too.
pub(crate) fn stub(job: &Job, world: &World, with_meta: bool) -> Value {
    let (spec, meta) = (whole_spec(job, world), &job.metadata);
    let status = job.status.clone().unwrap_or_default();
    let mut stub = json!({
        "ID": job_id(job),
        "ParentID": parent_id(job, world),
        "Name": if spec.name.is_empty() { job_id(job) } else { &spec.name },
        "Namespace": namespace(meta),
        "Datacenters": spec.datacenters,
        "Type": spec.r#type,
        "Priority": spec.priority,
        "Periodic": spec.periodic.is_some(),
        "ParameterizedJob": spec.parameterized.is_some() && spec.dispatch.is_none(),
        "Stop": spec.stop,
        "Status": status.phase,
        "StatusDescription": "",
        "JobSummary": summary(job, world),
        "CreateIndex": created(meta),
        "ModifyIndex": version(meta),
        "JobModifyIndex": meta.generation.unwrap_or(0),
        "SubmitTime": submitted(job, world, &status),
    });
    if with_meta && let Some(stub) = stub.as_object_mut() {
        stub.insert("Meta".to_owned(), json!(spec.meta));
    }
    stub
}

/// How many allocations of each group are in which state.
pub(crate) fn summary(job: &Job, world: &World) -> Value {
    let status = job.status.clone().unwrap_or_default();
    let none = GroupSummary::default();
    let groups: Map<String, Value> = whole_spec(job, world)
        .groups
        .iter()
        .map(|group| &group.name)
        .chain(status.summary.keys())
        .map(|name| (name.clone(), of_group(status.summary.get(name).unwrap_or(&none))))
        .collect();
    let children = status.children.unwrap_or_default();
    json!({
        "JobID": job_id(job),
        "Namespace": namespace(&job.metadata),
        "Summary": groups,
        "Children": { "Pending": children.pending, "Running": children.running, "Dead": children.dead },
        "CreateIndex": created(&job.metadata),
        "ModifyIndex": version(&job.metadata),
    })
}

/// How many allocations each group asks for, has and runs; health where a deployment judges it.
pub(crate) fn scale(job: &Job, world: &World) -> Value {
    let (meta, status) = (&job.metadata, job.status.clone().unwrap_or_default());
    let deployment = world.deployments.named(namespace(meta), &status.deployment);
    let judged = deployment.and_then(|it| it.status.as_ref()).map(|status| &status.groups);
    let spec = whole_spec(job, world);
    let groups = spec.groups.iter().map(|group| {
        let found = status.summary.get(&group.name).copied().unwrap_or_default();
        let of = judged.and_then(|groups| groups.get(&group.name));
        let of_group = json!({
            "Desired": spec.count_of(group),
            "Placed": found.starting + found.running + found.unknown,
            "Running": found.running,
            "Healthy": of.map_or(0, |of| of.healthy_allocs),
            "Unhealthy": of.map_or(0, |of| of.unhealthy_allocs),
            "Events": [],
        });
        (group.name.clone(), of_group)
    });
    json!({
        "JobID": job_id(job),
        "Namespace": namespace(meta),
        "JobCreateIndex": created(meta),
        "JobModifyIndex": meta.generation.unwrap_or(0),
        "JobStopped": spec.stop,
        "TaskGroups": groups.collect::<Map<String, Value>>(),
    })
}

fn of_group(group: &GroupSummary) -> Value {
    json!({
        "Queued": group.queued, "Complete": group.complete, "Failed": group.failed, "Running": group.running,
        "Starting": group.starting, "Lost": group.lost, "Unknown": group.unknown,
    })
}

/// The whole object as it is now.
pub(crate) fn full(job: &Job, world: &World) -> Value {
    let status = job.status.clone().unwrap_or_default();
    let mut full = full_job(job, world);
    let tag = current(job, world, &status).and_then(|it| it.status.as_ref()).map_or(Value::Null, version_tag);
    let parts = [
        ("ParentID", json!(parent_id(job, world))),
        ("SubmitTime", json!(submitted(job, world, &status))),
        ("VersionTag", tag),
    ];
    set(&mut full, parts);
    full
}

fn set<const N: usize>(object: &mut Value, parts: [(&str, Value); N]) {
    if let Some(object) = object.as_object_mut() {
        object.extend(parts.map(|(key, value)| (key.to_owned(), value)));
    }
}

/// The whole object as it was in a version; `job` is the job itself, if it is still there.
pub(crate) fn of_version(stored: &JobVersion, job: Option<&Job>, world: &World) -> Value {
    let spec = &stored.spec;
    let meta = ObjectMeta {
        name: Some(spec.job_name.clone()),
        namespace: stored.metadata.namespace.clone(),
        labels: job.and_then(|job| job.metadata.labels.clone()),
        ..ObjectMeta::default()
    };
    let of_then = Job { metadata: meta, spec: spec.job.clone(), status: None };
    let mut full = full_job(&of_then, world);
    let status = stored.status.clone().unwrap_or_default();
    let phase = job.map_or(JobPhase::Dead, |job| job.status.as_ref().map_or(JobPhase::Pending, |it| it.phase));
    let parts = [
        ("ParentID", json!(parent_id(job.unwrap_or(&of_then), world))),
        ("Status", json!(phase)),
        ("Stop", json!(job.is_some_and(|job| job.spec.stop))),
        ("Version", json!(spec.version)),
        ("Stable", json!(status.stable)),
        ("SubmitTime", json!(nanos(spec.submitted_at))),
        ("VersionTag", version_tag(&status)),
        ("CreateIndex", json!(created(job.map_or(&stored.metadata, |job| &job.metadata)))),
        ("ModifyIndex", json!(version(&stored.metadata))),
        ("JobModifyIndex", json!(spec.job_generation)),
    ];
    set(&mut full, parts);
    full
}

/// The name that a version has, with what is known of it; null where it has none.
pub(crate) fn version_tag(status: &JobVersionStatus) -> Value {
    let Some(name) = &status.tag else { return Value::Null };
    let at = status.tagged_at.map_or(0, nanos);
    json!({ "Name": name, "Description": status.tag_description, "TaggedTime": at })
}

/// The id of the job that this one was made from; empty for others.
fn parent_id(job: &Job, world: &World) -> String {
    let dispatched = job.spec.dispatch.as_ref().map(|dispatch| dispatch.parent.clone());
    let labelled = || job.metadata.labels.as_ref()?.get(label::PARENT).cloned();
    let Some(name) = dispatched.or_else(labelled) else { return String::new() };
    world.jobs.named(namespace(&job.metadata), &name).map_or(name, |parent| job_id(parent).to_owned())
}

/// When its spec was taken, in nanoseconds since 1970.
fn submitted(job: &Job, world: &World, status: &JobStatus) -> i64 {
    current(job, world, status).map_or_else(|| created_nanos(&job.metadata), |it| nanos(it.spec.submitted_at))
}

/// The version that its spec is.
fn current<'a>(job: &'a Job, world: &'a World, status: &JobStatus) -> Option<&'a Arc<JobVersion>> {
    world.own_versions(job).find(|it| Some(it.spec.version) == status.version)
}
