//! Jobs and their versions.

use std::sync::Arc;

use drover_api::{Job, JobVersion};
use drover_core::definition::Definition;
use drover_core::difference::JobDiff;
use serde_json::{Value, json};

use super::reply::Reply;
use super::view::View;
use crate::fault::Fault;
use crate::listing::{Order, Place, page};
use crate::query::Query;
use crate::resource::Resource;
use crate::wire::difference;
use crate::wire::job as wire;
use crate::wire::submission::of_version as submission_of;
use crate::wire::times::created;
use crate::world::{job_id, namespace};

/// The list of those jobs that are chosen.
pub(super) fn list(is_chosen: impl Fn(&Job) -> bool, view: View<'_>) -> Result<Reply, Fault> {
    let View { world, query, scopes, .. } = view;
    let seen = world.jobs.iter().filter(|job| scopes.has(Resource::Jobs, namespace(&job.metadata)));
    let shown = seen.filter(|job| is_chosen(job));
    let candidates = shown.map(|job| {
        let meta = &job.metadata;
        (Place::new(Order::Scoped, query, namespace(meta), job_id(job), created(meta)), job)
    });
    let page = page(Order::Scoped, query, candidates, |job| wire::full(job, world))?;
    let with_meta = query.is("meta", false);
    Reply::page(page, query, |job| wire::stub(job, world, with_meta))
}

/// A job of the namespace that is asked for.
pub(super) fn find<'a>(id: &str, view: View<'a>) -> Result<&'a Arc<Job>, Fault> {
    view.world.job(&view.query.namespace(), id).ok_or_else(|| Fault::missing("job", id))
}

/// A job.
pub(super) fn one(id: &str, view: View<'_>) -> Result<Reply, Fault> {
    Reply::of(&wire::full(find(id, view)?, view.world), view.query)
}

/// How many of its allocations are in which state.
pub(super) fn summary(id: &str, view: View<'_>) -> Result<Reply, Fault> {
    Reply::of(&wire::summary(find(id, view)?, view.world), view.query)
}

/// How many allocations each of its groups asks for, has and runs.
pub(super) fn scale(id: &str, view: View<'_>) -> Result<Reply, Fault> {
    Reply::of(&wire::scale(find(id, view)?, view.world), view.query)
}

/// The text that it was registered with; with `version` that of one of its versions.
pub(super) fn submission(id: &str, view: View<'_>) -> Result<Reply, Fault> {
    let View { world, query, .. } = view;
    let job = find(id, view)?;
    let asked = query.text("version").filter(|text| !text.is_empty());
    let wrong = |text: &str| Fault::bad(format!("version is {text:?}: give the number of a version"));
    let asked: Option<i64> = asked.map(|text| text.parse().map_err(|_| wrong(text))).transpose()?;
    let mut versions = world.own_versions(job).filter(|it| asked.is_none_or(|asked| it.spec.version == asked));
    let shown = match asked {
        None => submission_of(job, &job.spec),
        Some(_) => versions.next().and_then(|version| submission_of(job, &version.spec.job)),
    };
    Reply::of(&shown.ok_or_else(|| Fault::missing("source of job", id))?, query)
}

/// What it once was, newest first; with `diffs` what each changed of the one before it, or of one that is named.
pub(super) fn versions(id: &str, view: View<'_>) -> Result<Reply, Fault> {
    let View { world, query, .. } = view;
    let job = find(id, view)?;
    let mut own: Vec<_> = world.own_versions(job).collect();
    if own.is_empty() {
        return Err(Fault::missing("versions of job", id));
    }
    own.sort_by_key(|it| std::cmp::Reverse(it.spec.version));
    let diffs = if query.is("diffs", false) { json!(diffs(&own, query)?) } else { Value::Null };
    let versions: Vec<Value> = own.into_iter().map(|it| wire::of_version(it, Some(job), world)).collect();
    Reply::of(&json!({ "Versions": versions, "Diffs": diffs }), query)
}

/// What is different in each version, newest first: from the one before it, so that the oldest has none; with
/// `diff_version` or `diff_tag` from that one.
fn diffs(versions: &[&Arc<JobVersion>], query: &Query) -> Result<Vec<Value>, Fault> {
    let definition = |it: &JobVersion| Definition::new(&it.spec.job, &it.spec.job_name);
    let between = |old: &Definition, new: &Definition| difference::of_job(&JobDiff::between(Some(old), new));
    let all: Vec<Arc<Definition>> = versions.iter().map(|it| definition(it)).collect();
    let base = match (query.text("diff_version"), query.text("diff_tag")) {
        (None, None) => {
            return Ok(all.windows(2).filter_map(|two| Some(between(two.get(1)?, two.first()?))).collect());
        }
        (Some(text), _) => {
            let wrong = |_| Fault::bad(format!("diff_version is {text:?}: give the number of a version"));
            let number: i64 = text.parse().map_err(wrong)?;
            let found = versions.iter().find(|it| it.spec.version == number);
            found.ok_or_else(|| Fault::missing("version", text))?
        }
        (None, Some(tag)) => {
            versions.iter().find(|it| it.tag() == Some(tag)).ok_or_else(|| Fault::missing("version with tag", tag))?
        }
    };
    let base = definition(base);
    Ok(all.iter().map(|it| between(&base, it)).collect())
}
