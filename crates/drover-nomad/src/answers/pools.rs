//! Node pools: the names that nodes give in `spec.nodePool`, and Nomad's two that are always there.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::reply::Reply;
use super::view::View;
use super::{cluster, jobs as of_jobs};
use crate::fault::Fault;
use crate::full_job::spec;
use crate::listing::{Order, Place, page};
use crate::world::{Kind, World};

/// The pool of all nodes.
const ALL: &str = "all";
/// The pool of those that name none.
const DEFAULT: &str = "default";

/// The list of pools.
pub(super) fn list(view: View<'_>) -> Result<Reply, Fault> {
    let View { world, query, .. } = view;
    let names = names(world);
    let candidates = names.iter().map(|name| (Place::new(Order::Id, query, "", name, 0), *name));
    let page = page(Order::Id, query, candidates, |name| wire(name, world))?;
    Reply::page(page, query, |name| wire(name, world))
}

/// A pool.
pub(super) fn one(name: &str, view: View<'_>) -> Result<Reply, Fault> {
    Reply::of(&wire(known(name, view.world)?, view.world), view.query)
}

/// The nodes in a pool.
pub(super) fn nodes(name: &str, view: View<'_>) -> Result<Reply, Fault> {
    let name = known(name, view.world)?;
    cluster::nodes(|node| name == ALL || node.spec.node_pool == name, view)
}

/// The jobs that name a pool.
pub(super) fn jobs(name: &str, view: View<'_>) -> Result<Reply, Fault> {
    of_jobs::list(|job| spec(job, view.world).node_pool == name, view)
}

fn names(world: &World) -> BTreeSet<&str> {
    world.nodes.iter().map(|node| node.spec.node_pool.as_str()).chain([ALL, DEFAULT]).collect()
}

fn known<'a>(name: &str, world: &'a World) -> Result<&'a str, Fault> {
    names(world).get(name).copied().ok_or_else(|| Fault::missing("node pool", name))
}

fn wire(name: &str, world: &World) -> Value {
    let description = match name {
        ALL => "Node pool with all nodes in the cluster.",
        DEFAULT => "Default node pool.",
        _ => "",
    };
    json!({
        "Name": name, "Description": description, "Meta": {}, "NodeIdentityTTL": 0, "SchedulerConfiguration": null,
        "CreateIndex": 1, "ModifyIndex": world.index(Kind::Node),
    })
}
