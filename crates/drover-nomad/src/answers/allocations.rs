//! Allocations.

use std::sync::Arc;

use drover_api::Allocation;
use drover_api::names::object_name;

use super::reply::Reply;
use super::view::View;
use crate::client::check_results;
use crate::fault::Fault;
use crate::listing::{Order, Place, page};
use crate::resource::Resource;
use crate::wire::allocation::{StubParts, full, name, stub, without_empty};
use crate::wire::awaited;
use crate::wire::service::registrations;
use crate::wire::times::created;
use crate::world::{namespace, uid};

/// The list of allocations.
pub(super) fn list(view: View<'_>) -> Result<Reply, Fault> {
    let shown = view.world.allocations.iter();
    stubs(shown.filter(|it| view.scopes.has(Resource::Allocations, namespace(&it.metadata))), view)
}

/// An allocation by its whole id. Fields without a value are left out.
pub(super) fn one(id: &str, view: View<'_>) -> Result<Reply, Fault> {
    Reply::of(&without_empty(full(found(id, view)?, view.world)), view.query)
}

/// What an allocation's checks found last, as its agent has reported it.
pub(super) fn checks(id: &str, view: View<'_>) -> Result<Reply, Fault> {
    let found = found(id, view)?;
    let checks = found.status.as_ref().map(|status| status.checks.clone()).unwrap_or_default();
    Reply::of(&check_results(&checks, &name(found, view.world)), view.query)
}

/// The services by which an allocation is found.
pub(super) fn services(id: &str, view: View<'_>) -> Result<Reply, Fault> {
    Reply::of(&registrations(found(id, view)?, view.world).into(), view.query)
}

fn found<'a>(id: &str, view: View<'a>) -> Result<&'a Allocation, Fault> {
    let found = view.world.allocation(&view.query.namespace(), id);
    found.map(|found| &**found).ok_or_else(|| Fault::missing("allocation", id))
}

/// The allocations of a job; with `all` those of earlier jobs of its name too. Without a job there are none.
pub(super) fn of_job(id: &str, view: View<'_>) -> Result<Reply, Fault> {
    let View { world, query, .. } = view;
    let (space, is_all) = (query.namespace(), query.is("all", false));
    let job = world.job(&space, id);
    let name = job.and_then(|job| job.metadata.name.clone()).unwrap_or_else(|| object_name(id));
    let own = job.and_then(|job| job.metadata.uid.as_deref());
    let is_shown = |it: &&Arc<Allocation>| is_all || Some(it.spec.job_uid.as_str()) == own;
    stubs(world.allocations_of(&space, &name).filter(is_shown), view)
}

/// The allocations that count for a deployment.
pub(super) fn of_deployment(id: &str, view: View<'_>) -> Result<Reply, Fault> {
    let View { world, query, .. } = view;
    let space = query.namespace();
    let found = world.deployment(&space, id).ok_or_else(|| Fault::missing("deployment", id))?;
    let name = found.metadata.name.as_deref().unwrap_or_default();
    stubs(world.allocations_for(&space, name), view)
}

/// The allocations that an evaluation placed or changed.
pub(super) fn of_evaluation(id: &str, view: View<'_>) -> Result<Reply, Fault> {
    let space = view.query.namespace();
    let found = awaited::find(view.world, &space, id).ok_or_else(|| Fault::missing("evaluation", id))?;
    stubs(awaited::allocations(view.world, &found).into_iter(), view)
}

/// The whole allocations on a node, of each namespace that the caller may see.
pub(super) fn on_node(id: &str, view: View<'_>) -> Result<Reply, Fault> {
    let View { world, query, scopes, .. } = view;
    let node = world.nodes.with_uid(id).ok_or_else(|| Fault::missing("node", id))?;
    let on = world.allocations_on(node.metadata.name.as_deref().unwrap_or_default());
    let shown = on.filter(|it| scopes.has(Resource::Allocations, namespace(&it.metadata)));
    let page = page(Order::Created, query, placed(shown, view), |it| full(it, world))?;
    Reply::page(page, query, |it| full(it, world))
}

fn stubs<'a>(shown: impl Iterator<Item = &'a Arc<Allocation>>, view: View<'a>) -> Result<Reply, Fault> {
    let View { world, query, .. } = view;
    let parts = StubParts { resources: query.is("resources", false), task_states: query.is("task_states", true) };
    let page = page(Order::Created, query, placed(shown, view), |it| full(it, world))?;
    Reply::page(page, query, |it| stub(it, world, parts))
}

fn placed<'a>(
    shown: impl Iterator<Item = &'a Arc<Allocation>>,
    view: View<'a>,
) -> impl Iterator<Item = (Place, &'a Arc<Allocation>)> {
    shown.map(move |it| {
        let meta = &it.metadata;
        (Place::new(Order::Created, view.query, namespace(meta), uid(Some(meta)), created(meta)), it)
    })
}
