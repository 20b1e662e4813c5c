//! Nodes, plugins and namespaces.

use drover_api::ClientNode;
use k8s_openapi::api::core::v1::Namespace;
use serde_json::{Map, Value, json};

use super::reply::Reply;
use super::view::View;
use crate::fault::Fault;
use crate::listing::{Order, Place, page};
use crate::resource::Resource;
use crate::wire::times::created;
use crate::wire::{node as node_wire, plugin as plugin_wire};
use crate::world::{uid, version};

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

/// An object, whose allocations are left to those that the caller may list.
pub(super) fn with_seen_allocations(mut object: Value, view: View<'_>) -> Value {
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
