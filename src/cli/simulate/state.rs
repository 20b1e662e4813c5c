//! What is in the store, for dumps, assertions and comparisons.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_api::{Allocation, Deployment};
use drover_sim::{Selection, Store, Stored};
use serde_json::{Value, json};

use super::world::World;

/// All objects of a kind, by name.
pub(super) fn all(store: &Store, kind: &str) -> Vec<Arc<Stored>> {
    World::kind(kind).map(|kind| store.list(kind, &Selection::default())).unwrap_or_default()
}

/// Whole objects, as a dump shows them.
pub(super) fn dump(store: &Store) -> Value {
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
    store: &Store,
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

/// What is there, without what differs from run to run: names, uids, times, nodes of allocations.
pub(super) fn end_state(store: &Store) -> Value {
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
            (stored.key.to_string(), json!([status["phase"], status["version"], status["summary"]]))
        })
        .collect();
    let nodes: BTreeMap<String, Value> = all(store, "ClientNode")
        .iter()
        .map(|stored| (stored.key.to_string(), json!([stored.value["status"]["phase"], stored.value["spec"]])))
        .collect();
    json!({ "allocations": slots, "jobs": jobs, "nodes": nodes })
}
