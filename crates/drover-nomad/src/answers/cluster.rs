//! Nodes, volumes, plugins and namespaces.

use drover_api::ClientNode;
use k8s_openapi::api::core::v1::Namespace;
use serde_json::{Map, Value, json};

use super::reply::Reply;
use super::view::View;
use crate::fault::Fault;
use crate::listing::{Order, Page, Place, page};
use crate::resource::Resource;
use crate::wire::times::created;
use crate::wire::{node as node_wire, plugin as plugin_wire, volume as volume_wire};
use crate::world::{namespace, uid, version, volume_id};

/// The list of those nodes that are chosen.
pub(super) fn nodes(is_chosen: impl Fn(&ClientNode) -> bool, view: View<'_>) -> Result<Reply, Fault> {
    let View { world, query, .. } = view;
    let candidates = world.nodes.iter().filter(|node| is_chosen(node)).map(|node| {
        let meta = &node.metadata;
        (Place::new(Order::Id, query, "", uid(Some(meta)), created(meta)), node)
    });
    let page = page(Order::Id, query, candidates, |node| node_wire::full(node))?;
    let parts = node_wire::NodeParts { resources: query.is("resources", false), os: query.is("os", false) };
    Reply::page(page, query, |node| node_wire::stub(node, parts))
}

/// A node.
pub(super) fn node(id: &str, view: View<'_>) -> Result<Reply, Fault> {
    let found = view.world.nodes.with_uid(id).ok_or_else(|| Fault::missing("node", id))?;
    Reply::of(&node_wire::full(found), view.query)
}

/// The list of volumes: those of CSI drivers. Host volumes have no ids of their own, and are shown with their nodes.
pub(super) fn volumes(view: View<'_>) -> Result<Reply, Fault> {
    let View { world, query, scopes, .. } = view;
    if query.text("type").is_some_and(|kind| kind != "csi") {
        return Reply::page(Page::<()> { items: Vec::new(), next: None }, query, |()| Value::Null);
    }
    let node = query.text("node_id").map(|id| world.nodes.with_uid(id).and_then(|node| node.metadata.name.clone()));
    let is_on = |volume: &drover_api::CSIVolume| match &node {
        None => true,
        Some(None) => false,
        Some(Some(name)) => {
            volume.status.iter().flat_map(|status| &status.claims).any(|claim| claim.node_name == *name)
        }
    };
    let shown = world
        .volumes
        .iter()
        .filter(|it| scopes.has(Resource::Volumes, namespace(&it.metadata)))
        .filter(|it| query.text("plugin_id").is_none_or(|plugin| it.spec.plugin_id == plugin))
        .filter(|it| is_on(it));
    let candidates = shown.map(|it| {
        let meta = &it.metadata;
        (Place::new(Order::Scoped, query, namespace(meta), volume_id(it), created(meta)), it)
    });
    let page = page(Order::Scoped, query, candidates, |it| volume_wire::full(it, world))?;
    Reply::page(page, query, |it| volume_wire::stub(it))
}

/// A CSI volume. The allocations that hold it are there for those who may list them.
pub(super) fn volume(id: &str, view: View<'_>) -> Result<Reply, Fault> {
    let found = view.world.volume(&view.query.namespace(), id).ok_or_else(|| Fault::missing("volume", id))?;
    let full = volume_wire::full(found, view.world);
    Reply::of(&with_seen_allocations(full, view), view.query)
}

/// The list of plugins: those of type `csi`, where these are asked for.
pub(super) fn plugins(view: View<'_>) -> Result<Reply, Fault> {
    let View { world, query, .. } = view;
    let all = plugin_wire::all(world);
    let shown = all.iter().filter(|_| query.text("type") == Some("csi"));
    let candidates = shown.map(|(id, plugin)| (Place::new(Order::Id, query, "", id, 0), (id, plugin)));
    let page = page(Order::Id, query, candidates, |(id, plugin)| plugin_wire::full(id, plugin, world))?;
    Reply::page(page, query, |(id, plugin)| plugin_wire::stub(id, plugin))
}

/// A plugin. The allocations that serve it are there for those who may list them.
pub(super) fn plugin(id: &str, view: View<'_>) -> Result<Reply, Fault> {
    let all = plugin_wire::all(view.world);
    let found = all.get(id).ok_or_else(|| Fault::missing("plugin", id))?;
    let full = plugin_wire::full(id, found, view.world);
    Reply::of(&with_seen_allocations(full, view), view.query)
}

fn with_seen_allocations(mut object: Value, view: View<'_>) -> Value {
    if let Some(Value::Array(stubs)) = object.get_mut("Allocations") {
        stubs.retain(|stub| {
            let space = stub.get("Namespace").and_then(Value::as_str);
            space.is_some_and(|space| view.scopes.has(Resource::Allocations, space))
        });
    }
    object
}

/// The list of namespaces that the caller may see.
pub(super) fn namespaces(view: View<'_>) -> Result<Reply, Fault> {
    let View { world, query, scopes, .. } = view;
    let name = |it: &Namespace| it.metadata.name.clone().unwrap_or_default();
    let shown = world.namespaces.iter().filter(|it| scopes.has(Resource::Namespaces, &name(it)));
    let candidates = shown.map(|it| (Place::new(Order::Id, query, "", &name(it), 0), it));
    let wire = |it: &Namespace| {
        let meta: Map<String, Value> =
            it.metadata.labels.iter().flatten().map(|(key, value)| (key.clone(), json!(value))).collect();
        json!({
            "Name": name(it), "Description": "", "Quota": "", "Capabilities": null, "NodePoolConfiguration": null,
            "VaultConfiguration": null, "ConsulConfiguration": null, "RequiredExtraClaims": null, "OptionalExtraClaims": null,
            "Meta": meta, "CreateIndex": created(&it.metadata), "ModifyIndex": version(&it.metadata),
        })
    };
    let page = page(Order::Id, query, candidates, |it| wire(it))?;
    Reply::page(page, query, |it| wire(it))
}
