//! Search by the beginning of ids.

use serde_json::{Map, Value, json};

use super::context::{Context, MOST};
use super::request::SearchRequest;
use crate::resource::{Resource, Scopes};
use crate::wire::{evaluation, plugin, scaling};
use crate::world::{World, job_id, namespace, volume_id};

/// Searches. Each asked context is a key, also where nothing was found.
pub(super) fn answer(request: &SearchRequest, world: &World, scopes: &Scopes) -> Value {
    let (mut matches, mut truncations) = (Map::new(), Map::new());
    for context in request.contexts() {
        let mut found = ids(context, world, scopes);
        found.retain(|id| id.starts_with(&request.text));
        found.sort();
        found.dedup();
        truncations.insert(context.name().to_owned(), json!(found.len() > MOST));
        found.truncate(MOST);
        matches.insert(context.name().to_owned(), if found.is_empty() { Value::Null } else { json!(found) });
    }
    json!({ "Matches": matches, "Truncations": truncations })
}

/// The ids of a context that the caller may see.
pub(super) fn ids(context: Context, world: &World, scopes: &Scopes) -> Vec<String> {
    if !context.resource().is_some_and(|resource| scopes.knows(resource)) {
        return Vec::new();
    }
    match context {
        Context::Allocations => {
            let of = world.allocations.iter().filter(|it| scopes.has(Resource::Allocations, namespace(&it.metadata)));
            of.filter_map(|it| it.metadata.uid.clone()).collect()
        }
        Context::Deployments => {
            let of = world.deployments.iter().filter(|it| scopes.has(Resource::Deployments, namespace(&it.metadata)));
            of.filter_map(|it| it.metadata.uid.clone()).collect()
        }
        Context::Evaluations => {
            let of = world.jobs.iter().filter(|it| scopes.has(Resource::Jobs, namespace(&it.metadata)));
            of.flat_map(|job| evaluation::of_job(job).into_iter().map(|one| one.id)).collect()
        }
        Context::Jobs => {
            let of = world.jobs.iter().filter(|it| scopes.has(Resource::Jobs, namespace(&it.metadata)));
            of.map(|job| job_id(job).to_owned()).collect()
        }
        Context::Volumes => {
            let of = world.volumes.iter().filter(|it| scopes.has(Resource::Volumes, namespace(&it.metadata)));
            of.map(|volume| volume_id(volume).to_owned()).collect()
        }
        Context::Nodes => world.nodes.iter().filter_map(|node| node.metadata.uid.clone()).collect(),
        Context::Pools => {
            let of = world.nodes.iter().map(|node| node.spec.node_pool.clone());
            of.chain(["all".to_owned(), "default".to_owned()]).collect()
        }
        Context::Plugins => plugin::all(world).into_keys().collect(),
        Context::Namespaces => {
            let names = world.namespaces.iter().filter_map(|it| it.metadata.name.clone());
            names.filter(|name| scopes.has(Resource::Namespaces, name)).collect()
        }
        Context::ScalingPolicies => {
            let of = world.jobs.iter().filter(|it| scopes.has(Resource::Jobs, namespace(&it.metadata)));
            of.flat_map(|job| scaling::of_job(job, world)).map(|policy| policy.id()).collect()
        }
        Context::HostVolumes => {
            let of = world.host_volumes.iter().filter(|it| scopes.has(Resource::HostVolumes, namespace(&it.metadata)));
            of.filter_map(|it| it.metadata.uid.clone()).collect()
        }
        Context::Variables | Context::All => Vec::new(),
    }
}
