//! Services, as proxies and what discovers targets ask for them: what the allocations of a namespace are registered by.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::jobs;
use super::reply::Reply;
use super::view::View;
use crate::fault::Fault;
use crate::filter::Filter;
use crate::query::Query;
use crate::resource::Resource;
use crate::wire::service::registrations;
use crate::world::namespace;

/// The names of all services, with the tags of each, by namespace.
pub(super) fn list(view: View<'_>) -> Result<Reply, Fault> {
    let View { world, query, scopes, .. } = view;
    let mut spaces: BTreeMap<&str, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for allocation in world.allocations.iter() {
        let space = namespace(&allocation.metadata);
        if !scopes.has(Resource::Allocations, space) {
            continue;
        }
        for service in registrations(allocation, world) {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let tags = spaces.entry(space).or_default().entry(text(&service["ServiceName"])).or_default();
            tags.extend(service["Tags"].as_array().into_iter().flatten().map(text));
        }
    }
    let shown = spaces.iter().map(|(space, services)| {
        let services = services.iter().map(|(name, tags)| json!({ "ServiceName": name, "Tags": tags }));
        json!({ "Namespace": space, "Services": services.collect::<Vec<_>>() })
    });
    Reply::of(&shown.collect::<Value>(), query)
}

/// What a service leads to; nothing, where there is none of this name. With `choose=N|KEY` at most so many, the same
/// ones for the same key.
pub(super) fn one(name: &str, view: View<'_>) -> Result<Reply, Fault> {
    let View { world, query, .. } = view;
    let space = query.namespace();
    let all = world.allocations.of_namespace(&space).flat_map(|it| registrations(it, world));
    let mut shown = chosen(all.filter(|service| service["ServiceName"] == name), query)?;
    if let Some(choice) = query.text("choose") {
        let wrong = || Fault::bad(format!("choose is {choice:?}: give a number and a key, as in 2|here"));
        let (n, key) = choice.split_once('|').ok_or_else(wrong)?;
        let n: usize = n.parse().map_err(|_| wrong())?;
        shown.sort_by_cached_key(|it| place(key, it["ID"].as_str().unwrap_or_default()));
        shown.truncate(n);
    }
    Reply::of(&Value::from(shown), query)
}

/// What the services of a job lead to.
pub(super) fn of_job(id: &str, view: View<'_>) -> Result<Reply, Fault> {
    let View { world, query, .. } = view;
    let all = world.own_allocations(jobs::find(id, view)?).flat_map(|it| registrations(it, world));
    Reply::of(&Value::from(chosen(all, query)?), query)
}

/// Those that the filter leaves.
fn chosen(all: impl Iterator<Item = Value>, query: &Query) -> Result<Vec<Value>, Fault> {
    let Some(filter) = query.text("filter").map(Filter::parse).transpose()? else { return Ok(all.collect()) };
    let mut shown = Vec::new();
    for service in all {
        if filter.matches(&service)? {
            shown.push(service);
        }
    }
    Ok(shown)
}

/// Where a registration stands for a key: elsewhere for another one.
fn place(key: &str, id: &str) -> Vec<u8> {
    let mut hasher = Sha256::new();
    for part in [key, id] {
        hasher.update(part.as_bytes());
        hasher.update([0]);
    }
    hasher.finalize().to_vec()
}
