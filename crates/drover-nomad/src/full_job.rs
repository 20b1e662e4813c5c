//! A whole job on the wire.

use std::borrow::Cow;

use drover_api::{Job, JobSpec};
use drover_core::dispatch;
use serde_json::Value;

use crate::world::{World, namespace};

/// The spec of a job as Nomad's clients send and read it, with its state.
pub(crate) fn full_job(job: &Job, world: &World) -> Value {
    match spec(job, world) {
        Cow::Borrowed(_) => drover_jobspec::wire_job(job),
        Cow::Owned(spec) => drover_jobspec::wire_job(&Job { spec, ..job.clone() }),
    }
}

/// What a job runs: a dispatch has its groups from its parent, as long as that is there.
pub(crate) fn spec<'a>(job: &'a Job, world: &World) -> Cow<'a, JobSpec> {
    let parent = job.spec.dispatch.as_ref().filter(|_| job.spec.groups.is_empty());
    match parent.and_then(|dispatch| world.jobs.named(namespace(&job.metadata), &dispatch.parent)) {
        Some(parent) => {
            let name = job.metadata.name.as_deref().unwrap_or_default();
            Cow::Owned(dispatch::whole(&parent.spec, &job.spec, name))
        }
        None => Cow::Borrowed(&job.spec),
    }
}
