//! Evaluations: those that the status of each job shows, and those that clients wait for.

use drover_api::Job;
use serde_json::Value;

use super::reply::Reply;
use super::view::View;
use crate::fault::Fault;
use crate::listing::{Order, Place, page};
use crate::resource::Resource;
use crate::wire::awaited::find;
use crate::wire::evaluation::{Evaluation, full, of_job as all_of, with_related};
use crate::world::{job_id, namespace};

/// The list of evaluations.
pub(super) fn list(view: View<'_>) -> Result<Reply, Fault> {
    let View { world, query, scopes, .. } = view;
    let (status, job) = (query.text("status"), query.text("job"));
    if query.text("filter").is_some() && (status.is_some() || job.is_some()) {
        return Err(Fault::bad("filter cannot be given together with status or job: put them into the filter"));
    }
    let shown = world.jobs.iter().filter(|it| scopes.has(Resource::Jobs, namespace(&it.metadata)));
    let shown = shown.filter(|it| job.is_none_or(|job| job_id(it) == job)).map(AsRef::as_ref);
    let all = shown.flat_map(all_of).filter(|one| status.is_none_or(|status| one.status.as_str() == status));
    listed(all, view)
}

/// An evaluation; with `related` those before and behind it too.
pub(super) fn one(id: &str, view: View<'_>) -> Result<Reply, Fault> {
    let space = view.query.namespace();
    let found = find(view.world, &space, id).ok_or_else(|| Fault::missing("evaluation", id))?;
    let wire = if view.query.is("related", false) { with_related } else { full };
    Reply::of(&wire(&found, view.world), view.query)
}

/// The evaluations of a job. Without a job there are none.
pub(super) fn of_job(id: &str, view: View<'_>) -> Result<Reply, Fault> {
    let job: Option<&Job> = view.world.job(&view.query.namespace(), id).map(AsRef::as_ref);
    listed(job.into_iter().flat_map(all_of), view)
}

fn listed<'a>(all: impl Iterator<Item = Evaluation<'a>>, view: View<'_>) -> Result<Reply, Fault> {
    let View { world, query, .. } = view;
    let candidates = all.map(|one| {
        let place = Place::new(Order::Created, query, namespace(&one.job.metadata), &one.id, one.created());
        (place, one)
    });
    let page = page(Order::Created, query, candidates, |one| full(one, world))?;
    Reply::page(page, query, |one| -> Value { full(one, world) })
}
