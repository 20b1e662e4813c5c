//! Evaluations: those that the status of each job shows, and those that clients wait for.

use drover_api::Job;
use serde_json::{Value, json};

use super::reply::Reply;
use super::view::View;
use crate::endpoint::Endpoint;
use crate::fault::Fault;
use crate::listing::{Order, Page, Place, page};
use crate::query::Query;
use crate::resource::Resource;
use crate::wire::awaited::find;
use crate::wire::evaluation::{Evaluation, full, of_job as all_of, with_related};
use crate::world::{World, job_id, namespace};

/// The list of evaluations.
pub(super) fn list(view: View<'_>) -> Result<Reply, Fault> {
    listed(seen(view)?, view)
}

/// How many evaluations a list would hold without pages.
pub(super) fn count(view: View<'_>) -> Result<Reply, Fault> {
    let Page { items, .. } = chosen(seen(view)?, view)?;
    Reply::of(&json!({ "Count": items.len() }), view.query)
}

/// Those that the caller may see, of a status or a job where one is asked for.
fn seen(view: View<'_>) -> Result<impl Iterator<Item = Evaluation<'_>>, Fault> {
    let View { world, query, scopes, .. } = view;
    let (status, job) = (query.text("status"), query.text("job"));
    if query.text("filter").is_some() && (status.is_some() || job.is_some()) {
        return Err(Fault::bad("filter cannot be given together with status or job: put them into the filter"));
    }
    let shown = world.jobs.iter().filter(move |it| scopes.has(Resource::Jobs, namespace(&it.metadata)));
    let shown = shown.filter(move |it| job.is_none_or(|job| job_id(it) == job)).map(AsRef::as_ref);
    Ok(shown.flat_map(all_of).filter(move |one| status.is_none_or(|status| one.status.as_str() == status)))
}

/// An evaluation; with `related` those before and behind it too.
pub(super) fn one(id: &str, view: View<'_>) -> Result<Reply, Fault> {
    let space = view.query.namespace();
    let found = find(view.world, &space, id).ok_or_else(|| Fault::missing("evaluation", id))?;
    let wire = if view.query.is("related", false) { with_related } else { full };
    Reply::of(&wire(&found, view.world), view.query)
}

/// Whether a read is about an evaluation that is not known here: one of a write through another replica is not before
/// the watch tells of that write.
pub fn is_unseen(endpoint: &Endpoint, query: &Query, world: &World) -> bool {
    let (Endpoint::Evaluation(id) | Endpoint::EvaluationAllocations(id)) = endpoint else { return false };
    find(world, &query.namespace(), id).is_none()
}

/// The evaluations of a job. Without a job there are none.
pub(super) fn of_job(id: &str, view: View<'_>) -> Result<Reply, Fault> {
    let job: Option<&Job> = view.world.job(&view.query.namespace(), id).map(AsRef::as_ref);
    listed(job.into_iter().flat_map(all_of), view)
}

fn listed<'a>(all: impl Iterator<Item = Evaluation<'a>>, view: View<'_>) -> Result<Reply, Fault> {
    Reply::page(chosen(all, view)?, view.query, |one| -> Value { full(one, view.world) })
}

fn chosen<'a>(all: impl Iterator<Item = Evaluation<'a>>, view: View<'_>) -> Result<Page<Evaluation<'a>>, Fault> {
    let View { world, query, .. } = view;
    let candidates = all.map(|one| {
        let place = Place::new(Order::Created, query, namespace(&one.job.metadata), &one.id, one.created());
        (place, one)
    });
    page(Order::Created, query, candidates, |one| full(one, world))
}
