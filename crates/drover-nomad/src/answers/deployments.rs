//! Deployments.

use std::sync::Arc;

use drover_api::Deployment;
use drover_api::names::object_name;
use serde_json::Value;

use super::reply::Reply;
use super::view::View;
use crate::fault::Fault;
use crate::listing::{Order, Place, page};
use crate::resource::Resource;
use crate::wire::deployment::full;
use crate::wire::times::created;
use crate::world::{namespace, uid};

/// The list of deployments.
pub(super) fn list(view: View<'_>) -> Result<Reply, Fault> {
    let all = view.world.deployments.iter();
    listed(all.filter(|it| view.scopes.has(Resource::Deployments, namespace(&it.metadata))), view)
}

/// A deployment.
pub(super) fn one(id: &str, view: View<'_>) -> Result<Reply, Fault> {
    let found = view.world.deployment(&view.query.namespace(), id);
    Reply::of(&full(found.ok_or_else(|| Fault::missing("deployment", id))?, view.world), view.query)
}

/// The deployments of a job; with `all` those of earlier jobs of its name too.
pub(super) fn of_job(id: &str, view: View<'_>) -> Result<Reply, Fault> {
    listed(own(id, view, view.query.is("all", false)), view)
}

/// The newest deployment of a job; null where there is none.
pub(super) fn newest_of_job(id: &str, view: View<'_>) -> Result<Reply, Fault> {
    let View { world, query, .. } = view;
    let newest = world.job(&query.namespace(), id).and_then(|job| world.newest_deployment(job));
    let body = newest.map_or(Value::Null, |it| full(it, world));
    Reply::of(&body, view.query)
}

fn own<'a>(id: &str, view: View<'a>, is_all: bool) -> impl Iterator<Item = &'a Arc<Deployment>> {
    let space = view.query.namespace();
    let job = view.world.job(&space, id);
    let name = job.and_then(|job| job.metadata.name.clone()).unwrap_or_else(|| object_name(id));
    let own = job.and_then(|job| job.metadata.uid.clone());
    let all: Vec<_> = view.world.deployments_of(&space, &name).collect();
    all.into_iter().filter(move |it| is_all || Some(&it.spec.job_uid) == own.as_ref())
}

fn listed<'a>(shown: impl Iterator<Item = &'a Arc<Deployment>>, view: View<'a>) -> Result<Reply, Fault> {
    let View { world, query, .. } = view;
    let candidates = shown.map(|it| {
        let meta = &it.metadata;
        (Place::new(Order::Created, query, namespace(meta), uid(Some(meta)), created(meta)), it)
    });
    let page = page(Order::Created, query, candidates, |it| full(it, world))?;
    Reply::page(page, query, |it| full(it, world))
}
