//! Volumes of CSI drivers with their snapshots, and volumes of nodes.

use drover_api::CSIVolume;
use serde_json::{Value, json};

use super::cluster::with_seen_allocations;
use super::reply::Reply;
use super::view::View;
use crate::fault::Fault;
use crate::listing::{Order, Page, Place, page};
use crate::resource::Resource;
use crate::wire::times::created;
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
    let candidates = shown.map(|it| {
        let meta = &it.metadata;
        (Place::new(Order::Scoped, query, namespace(meta), volume_id(it), created(meta)), it)
    });
    let page = page(Order::Scoped, query, candidates, |it| volume_wire::full(it, world))?;
    Reply::page(page, query, |it| volume_wire::stub(it))
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
    let candidates = shown.map(|it| {
        let meta = &it.metadata;
        (Place::new(Order::Scoped, query, namespace(meta), uid(Some(meta)), created(meta)), it)
    });
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
    let View { world, query, scopes, .. } = view;
    let plugin = query.text("plugin_id");
    let plugin = plugin.ok_or_else(|| Fault::bad("plugin_id is missing: name the plugin whose snapshots are meant"))?;
    let of_plugin = world
        .volumes
        .iter()
        .filter(|it| scopes.has(Resource::Volumes, namespace(&it.metadata)) && it.spec.plugin_id == plugin);
    let all = of_plugin.flat_map(|volume| {
        let known = volume.status.iter().flat_map(|status| &status.snapshots);
        known.map(move |snapshot| (volume, snapshot))
    });
    let candidates = all.map(|(volume, snapshot)| {
        (Place::new(Order::Id, query, namespace(&volume.metadata), &snapshot.id, 0), (volume, snapshot))
    });
    let page = page(Order::Id, query, candidates, |(volume, snapshot)| snapshot_wire::wire(volume, snapshot))?;
    let shown: Vec<Value> = page.items.iter().map(|(volume, snapshot)| snapshot_wire::wire(volume, snapshot)).collect();
    Reply::of(&json!({ "Snapshots": shown, "NextToken": page.next.unwrap_or_default() }), query)
}
