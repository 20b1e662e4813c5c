//! Scaling policies, as autoscalers follow them.

use super::reply::Reply;
use super::view::View;
use crate::fault::Fault;
use crate::listing::{Order, Place, page};
use crate::resource::Resource;
use crate::wire::scaling::{ScalingPolicy, of_job, policy};
use crate::wire::times::created;
use crate::world::namespace;

/// The list of policies; with `job` those of that one.
pub(super) fn list(view: View<'_>) -> Result<Reply, Fault> {
    let View { world, query, scopes, .. } = view;
    let seen = world.jobs.iter().filter(|job| scopes.has(Resource::Jobs, namespace(&job.metadata)));
    let all = seen.flat_map(|job| of_job(job, world));
    let shown = all.filter(|policy| query.text("job").is_none_or(|job| crate::world::job_id(policy.job) == job));
    let candidates = shown.map(|policy| {
        let meta = &policy.job.metadata;
        (Place::new(Order::Id, query, namespace(meta), &policy.id(), created(meta)), policy)
    });
    let page = page(Order::Id, query, candidates, ScalingPolicy::full)?;
    Reply::page(page, query, ScalingPolicy::stub)
}

/// A policy.
pub(super) fn one(id: &str, view: View<'_>) -> Result<Reply, Fault> {
    let found = policy(view.world, &view.query.namespace(), id);
    Reply::of(&found.ok_or_else(|| Fault::missing("scaling policy", id))?.full(), view.query)
}
