//! Volumes of CSI drivers with their snapshots, and volumes of nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_api::CSIVolume;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::cluster::with_seen_allocations;
use super::reply::Reply;
use super::view::View;
use crate::fault::Fault;
use crate::listing::{Order, Page, Place, page};
use crate::resource::Resource;
use crate::wire::{host_volume as host_wire, snapshot as snapshot_wire, volume as volume_wire};
use crate::world::{namespace, uid, volume_id};

/// The list of CSI volumes. Of a type that there is not the list is empty.
pub(super) fn list(view: View<'_>) -> Result<Reply, Fault> {
    let View { world, query, scopes, .. } = view;
    if query.text("type").is_some_and(|kind| kind != "csi") {
        return Reply::page(Page::<()> { items: Vec::new(), next: None }, query, |()| Value::Null);
    }
    let is_held_there = |volume: &CSIVolume| {
        let claims = volume.status.as_ref().map(|status| &status.claims[..]).unwrap_or_default();
        is_there(view, |node| claims.iter().any(|claim| claim.node_name == node))
    };
    let shown = world
        .volumes
        .iter()
        .filter(|it| scopes.has(Resource::Volumes, namespace(&it.metadata)))
        .filter(|it| query.text("plugin_id").is_none_or(|plugin| it.spec.plugin_id == plugin))
        .filter(|it| is_held_there(it));
    let candidates = shown.map(|it| (place(&it.metadata, volume_id(it)), it));
    let page = page(Order::Scoped, query, candidates, |it| volume_wire::full(it, world))?;
    Reply::page(page, query, |it| volume_wire::stub(it))
}

/// Where a volume stands in a list.
fn place(meta: &ObjectMeta, id: &str) -> Place {
    Place::Scoped(namespace(meta).to_owned(), id.to_owned())
}

/// Whether something is on the node that is asked for, if one is.
fn is_there(view: View<'_>, is_on: impl Fn(&str) -> bool) -> bool {
    let Some(id) = view.query.text("node_id") else { return true };
    let node = view.world.nodes.with_uid(id).and_then(|node| node.metadata.name.as_deref());
    node.is_some_and(is_on)
}

/// A CSI volume. The allocations that hold it are there for those who may list them.
pub(super) fn one(id: &str, view: View<'_>) -> Result<Reply, Fault> {
    let found = view.world.volume(&view.query.namespace(), id).ok_or_else(|| Fault::missing("volume", id))?;
    let full = volume_wire::full(found, view.world);
    Reply::of(&with_seen_allocations(full, view), view.query)
}

/// The list of host volumes.
pub(super) fn hosts(view: View<'_>) -> Result<Reply, Fault> {
    let View { world, query, scopes, .. } = view;
    let shown = world
        .host_volumes
        .iter()
        .filter(|it| scopes.has(Resource::HostVolumes, namespace(&it.metadata)))
        .filter(|it| query.text("plugin_id").is_none_or(|plugin| host_wire::plugin_id(it) == plugin))
        .filter(|it| is_there(view, |node| host_wire::node_name(it) == node));
    let candidates = shown.map(|it| (place(&it.metadata, uid(Some(&it.metadata))), it));
    let page = page(Order::Scoped, query, candidates, |it| host_wire::full(it, world))?;
    Reply::page(page, query, |it| host_wire::stub(it, world))
}

/// A host volume. The allocations that use it are there for those who may list them.
pub(super) fn host(id: &str, view: View<'_>) -> Result<Reply, Fault> {
    let found = view.world.host_volume(&view.query.namespace(), id).ok_or_else(|| Fault::missing("volume", id))?;
    let full = host_wire::full(found, view.world);
    Reply::of(&with_seen_allocations(full, view), view.query)
}

/// The snapshots of a plugin's volumes, as each volume's status has them: what its provider answered last.
pub(super) fn snapshots(view: View<'_>) -> Result<Reply, Fault> {
    let of_volume = |volume: &CSIVolume| -> Vec<(String, Value)> {
        let known = volume.status.iter().flat_map(|status| &status.snapshots);
        known.map(|snapshot| (snapshot.id.clone(), snapshot_wire::wire(volume, snapshot))).collect()
    };
    let all = of_plugin(view)?.flat_map(|volume| of_volume(volume)).collect();
    by_provider("Snapshots", all, view)
}

/// What a plugin's provider has, as far as volumes are that: each of its ids once.
pub(super) fn external(view: View<'_>) -> Result<Reply, Fault> {
    let mut all: BTreeMap<&str, Vec<&CSIVolume>> = BTreeMap::new();
    for volume in of_plugin(view)?.filter(|it| !volume_wire::external_id(it).is_empty()) {
        all.entry(volume_wire::external_id(volume)).or_default().push(volume);
    }
    let all = all.into_iter().map(|(id, volumes)| (id.to_owned(), volume_wire::external(id, &volumes))).collect();
    by_provider("Volumes", all, view)
}

/// The volumes of the plugin that is asked for.
fn of_plugin(view: View<'_>) -> Result<impl Iterator<Item = &Arc<CSIVolume>>, Fault> {
    let View { world, query, scopes, .. } = view;
    let missing = || Fault::bad("plugin_id is missing: name the plugin whose volumes or snapshots are meant");
    let plugin = query.text("plugin_id").ok_or_else(missing)?;
    let is_of_it = move |it: &&Arc<CSIVolume>| {
        scopes.has(Resource::Volumes, namespace(&it.metadata)) && it.spec.plugin_id == plugin
    };
    Ok(world.volumes.iter().filter(is_of_it))
}

/// A list of what a provider has, by its ids: under `key`, and where the next page begins.
fn by_provider(key: &str, all: Vec<(String, Value)>, View { query, .. }: View<'_>) -> Result<Reply, Fault> {
    let candidates = all.into_iter().map(|(id, shown)| (Place::Id(id), shown));
    let page = page(Order::Id, query, candidates, Value::clone)?;
    Reply::of(&json!({ key: page.items, "NextToken": page.next.unwrap_or_default() }), query)
}
