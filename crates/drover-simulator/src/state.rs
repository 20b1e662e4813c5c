//! What is in the store, for dumps, assertions and comparisons.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drover_api::{Allocation, Deployment, label};
use drover_store::memory::{FieldSelection, MemoryStore, Stored};
use serde_json::{Map, Value, json};

use super::readiness::is_ready;
use super::world::World;

/// All objects of a kind, by name.
pub(super) fn all(store: &MemoryStore, kind: &str) -> Vec<Arc<Stored>> {
    World::kind(kind).map(|kind| store.list(kind, &FieldSelection::default())).unwrap_or_default()
}

/// Whole objects, as a dump shows them.
pub(super) fn dump(store: &MemoryStore) -> Value {
    let objects = |kind: &str| -> Vec<Value> { all(store, kind).iter().map(|stored| stored.value.clone()).collect() };
    json!({
        "jobs": objects("Job"),
        "deployments": objects("Deployment"),
        "allocations": objects("Allocation"),
        "nodes": objects("ClientNode"),
        "volumes": objects("CSIVolume"),
    })
}

/// Orders objects by their creation. uids are given in that order.
pub(super) fn age(stored: &Stored) -> String {
    stored.uid().rsplit('-').next().unwrap_or_default().to_owned()
}

/// The newest deployment of a job, or of one of its versions.
pub(super) fn newest_deployment(
    store: &MemoryStore,
    namespace: &str,
    job: &str,
    version: Option<i64>,
) -> anyhow::Result<Option<Arc<Stored>>> {
    let is_of_job = |stored: &Arc<Stored>| {
        stored.key.namespace.as_deref() == Some(namespace)
            && stored.typed::<Deployment>().is_ok_and(|deployment| {
                deployment.spec.job_name == job && version.is_none_or(|version| deployment.spec.job_version == version)
            })
    };
    World::kind("Deployment")?;
    Ok(all(store, "Deployment").into_iter().filter(is_of_job).max_by_key(|stored| age(stored)))
}

/// The slices below a Service: those whose endpoints are ready, and the others.
pub(super) fn endpoints(store: &MemoryStore, namespace: &str, service: &str) -> (Vec<String>, Vec<String>) {
    let slices = all(store, "EndpointSlice").into_iter().filter(|stored| {
        stored.key.namespace.as_deref() == Some(namespace)
            && stored.value["metadata"]["labels"][label::SERVICE_NAME] == service
    });
    let (ready, not_ready): (Vec<_>, Vec<_>) = slices.partition(|stored| is_ready(&stored.value));
    let names = |slices: Vec<Arc<Stored>>| slices.iter().map(|stored| stored.key.name.clone()).collect();
    (names(ready), names(not_ready))
}

/// What is there, without what differs from run to run: names, uids, times, nodes of allocations, and what was lost
/// with those.
pub(super) fn end_state(store: &MemoryStore) -> Value {
    let mut slots: BTreeMap<String, usize> = BTreeMap::new();
    for stored in all(store, "Allocation") {
        let Ok(alloc) = stored.typed::<Allocation>() else { continue };
        let status = alloc.status.clone().unwrap_or_default();
        let (spec, client) = (&alloc.spec, status.client_status);
        let namespace = stored.key.namespace.as_deref().unwrap_or_default();
        if client.is_terminal() && spec.desired_status != drover_api::allocation::DesiredStatus::Run {
            continue;
        }
        let slot = format!(
            "{namespace}/{}.{}[{}] v{} {} {client}",
            spec.job_name, spec.group, spec.index, spec.job_version, spec.desired_status
        );
        *slots.entry(slot).or_default() += 1;
    }
    let jobs: BTreeMap<String, Value> = all(store, "Job")
        .iter()
        .map(|stored| {
            let status = &stored.value["status"];
            let mut summary = status["summary"].clone();
            // How many were lost depends on where they happened to be when a node was.
            for counts in summary.as_object_mut().into_iter().flat_map(Map::values_mut) {
                if let Some(counts) = counts.as_object_mut() {
                    counts.remove("lost");
                }
            }
            (stored.key.to_string(), json!([status["phase"], status["version"], summary]))
        })
        .collect();
    let nodes: BTreeMap<String, Value> = all(store, "ClientNode")
        .iter()
        .map(|stored| (stored.key.to_string(), json!([stored.value["status"]["phase"], stored.value["spec"]])))
        .collect();
    let mut newest: BTreeMap<String, (String, Value)> = BTreeMap::new();
    for stored in all(store, "Deployment") {
        let (spec, status) = (&stored.value["spec"], &stored.value["status"]);
        let known = newest
            .entry(format!("{}/{}", stored.key.namespace.as_deref().unwrap_or_default(), spec["jobName"]))
            .or_default();
        if age(&stored) > known.0 {
            *known = (age(&stored), json!([spec["jobVersion"], status["phase"], status["description"]]));
        }
    }
    let deployments: BTreeMap<String, Value> = newest.into_iter().map(|(job, (_, end))| (job, end)).collect();
    let volumes: BTreeMap<String, Value> =
        all(store, "CSIVolume").iter().map(|stored| (stored.key.to_string(), volume(&stored.value))).collect();
    let mut services: BTreeMap<String, BTreeMap<&str, usize>> = BTreeMap::new();
    for stored in all(store, "EndpointSlice") {
        let service = stored.value["metadata"]["labels"][label::SERVICE_NAME].as_str().unwrap_or_default();
        let namespace = stored.key.namespace.as_deref().unwrap_or_default();
        let counts = services.entry(format!("{namespace}/{service}")).or_default();
        *counts.entry(if is_ready(&stored.value) { "ready" } else { "notReady" }).or_default() += 1;
    }
    json!({
        "allocations": slots, "deployments": deployments, "jobs": jobs, "nodes": nodes, "services": services,
        "volumes": volumes,
    })
}

/// What of a volume is the same for any holder.
fn volume(stored: &Value) -> Value {
    let status = &stored["status"];
    let claims = status["claims"].as_array().into_iter().flatten();
    let mut claims: Vec<String> =
        claims.map(|claim| format!("{} {} {}", claim["mode"], claim["state"], claim["attach"])).collect();
    claims.sort();
    json!([stored["spec"], status["phase"], status["schedulable"], status["accessMode"], status["capacity"], claims])
}

/// The first place in which two states differ, with both values; none where they are the same.
pub(super) fn first_difference(was: &Value, is: &Value) -> Option<String> {
    if was == is {
        return None;
    }
    let (Value::Object(old), Value::Object(new)) = (was, is) else { return Some(format!("{is} instead of {was}")) };
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    names.into_iter().find_map(|name| {
        let value = |of: &serde_json::Map<String, Value>| of.get(name).cloned().unwrap_or_default();
        first_difference(&value(old), &value(new)).map(|what| format!("{name}: {what}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_says_where_it_is() {
        let (was, is) = (json!({ "a": 1, "b": { "c": 2 } }), json!({ "a": 1, "b": { "c": 3 }, "d": 4 }));
        assert_eq!(first_difference(&was, &is).as_deref(), Some("b: c: 3 instead of 2"));
        assert_eq!(first_difference(&was, &was), None);
    }
}
