//! Evaluations that clients ask for by the id that a write has given them, which the leader may not have made yet, or
//! has made together with a later one.
//!
//! Input: an id, and what is known. Output: the evaluation, pending until its work is seen to be done. Every replica
//! answers alike, and one that knows an older state says `pending`.

use std::sync::Arc;

use drover_api::allocation::DesiredStatus;
use drover_api::job::{EvalStatus, EvalTrigger, EvaluationStatus, JobReason};
use drover_api::{Allocation, Deployment, Job};
use drover_core::evaluation_id::{self, Point};
use drover_core::model::DEFAULT_PRIORITY;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::evaluation::{Evaluation, NONE_FAILED, id as known_id, of_job};
use crate::world::{World, namespace, uid};

/// How many changes of a spec ago an evaluation is still found.
const GENERATIONS: i64 = 64;
/// How many evaluations that were asked for without one ago.
const ASKED: i64 = 16;

/// An evaluation of a namespace by its id.
pub(crate) fn find<'a>(world: &'a World, space: &'a str, wanted: &str) -> Option<Evaluation<'a>> {
    let tag = evaluation_id::tag_of(wanted)?;
    world.jobs_of_tag(space, tag).find_map(|job| {
        let shown = of_job(job).into_iter().find(|one| one.id == wanted);
        shown.or_else(|| of_state(world, job, wanted)).or_else(|| of_objects(world, job, wanted))
    })
}

/// The allocations that an evaluation placed or changed.
pub(crate) fn allocations<'a>(world: &'a World, evaluation: &Evaluation<'a>) -> Vec<&'a Arc<Allocation>> {
    let job = evaluation.job;
    let stopped = |it: &Allocation| stop_of(uid(Some(&job.metadata)), it, &evaluation.id);
    let ids = [evaluation.id.as_str(), evaluation.next.as_str()];
    let follows = |it: &Allocation| {
        let before = world.allocations.named(namespace(&it.metadata), &it.spec.previous_allocation);
        before.is_some_and(|before| stopped(before))
    };
    world
        .own_allocations(job)
        .filter(|it| ids.contains(&it.spec.eval_id.as_str()) || stopped(it) || follows(it))
        .collect()
}

/// The one that follows a state of the job.
fn of_state<'a>(world: &World, job: &'a Job, wanted: &str) -> Option<Evaluation<'a>> {
    let (job_uid, now) = (uid(Some(&job.metadata)), Point::of(job));
    let down = |from: i64, by: i64| (from.saturating_sub(by).max(0)..=from).rev();
    let mut points = down(now.generation, GENERATIONS)
        .flat_map(|generation| down(now.asked, ASKED).map(move |asked| Point { generation, asked }));
    let point = points.find(|point| evaluation_id::of_point(job_uid, *point) == wanted)?;
    let is_over = job.spec.stop || job.metadata.deletion_timestamp.is_some();
    let trigger = if is_over { EvalTrigger::JobDeregister } else { EvalTrigger::JobRegister };
    let awaited = pending(job, wanted, trigger);
    let seen = |one: &&EvaluationStatus| Point { generation: one.generation, asked: one.asked }.covers(point);
    let status = job.status.as_ref();
    // The oldest that has seen it.
    if let Some(record) = status.and_then(|status| status.evaluations.iter().rfind(seen)) {
        let next = known_id(job_uid, &record.id);
        return Some(Evaluation {
            status: EvalStatus::Complete,
            description: "a later evaluation has seen it",
            deployment: &record.deployment_name,
            next,
            ..awaited
        });
    }
    if world.jobs.with_uid(job_uid).is_none() {
        return Some(Evaluation { status: EvalStatus::Complete, description: "the job is gone", ..awaited });
    }
    let refused = status.into_iter().flat_map(|status| &status.conditions).find(|condition| {
        let is_refusal = matches!(condition.reason, JobReason::InvalidSpec | JobReason::NoGateway);
        is_refusal && condition.observed_generation >= point.generation
    });
    if let Some(refused) = refused {
        return Some(Evaluation { status: EvalStatus::Failed, description: &refused.message, ..awaited });
    }
    Some(awaited)
}

/// The one that follows a request to an allocation or a deployment of the job.
fn of_objects<'a>(world: &'a World, job: &'a Job, wanted: &str) -> Option<Evaluation<'a>> {
    let (space, name) = (namespace(&job.metadata), job.metadata.name.as_deref().unwrap_or_default());
    let job_uid = uid(Some(&job.metadata));
    if let Some(stopped) = world.allocations_of(space, name).find(|it| stop_of(job_uid, it, wanted)) {
        let is_done = stopped.spec.desired_status != DesiredStatus::Run;
        let awaited = pending(job, wanted, EvalTrigger::AllocStop);
        let status = if is_done { EvalStatus::Complete } else { EvalStatus::Pending };
        return Some(Evaluation { status, deployment: &stopped.spec.deployment_name, ..awaited });
    }
    let asked = world.deployments_of(space, name).find(|it| request_of(job_uid, it, wanted))?;
    let seen = asked.status.as_ref().map_or(-1, |status| status.observed_generation);
    let is_done = asked.metadata.generation.is_some_and(|now| seen >= now);
    let awaited = pending(job, wanted, EvalTrigger::DeploymentWatcher);
    let status = if is_done { EvalStatus::Complete } else { EvalStatus::Pending };
    let deployment = asked.metadata.name.as_deref().unwrap_or_default();
    Some(Evaluation { status, deployment, ..awaited })
}

/// Whether an id is that of the evaluation after a stop of the allocation.
fn stop_of(job_uid: &str, allocation: &Allocation, wanted: &str) -> bool {
    !allocation.spec.desired_transition.is_empty()
        && generations(&allocation.metadata)
            .any(|at| evaluation_id::of_stop(job_uid, uid(Some(&allocation.metadata)), at) == wanted)
}

/// Whether an id is that of the evaluation after a request to the deployment.
fn request_of(job_uid: &str, deployment: &Deployment, wanted: &str) -> bool {
    generations(&deployment.metadata)
        .any(|at| evaluation_id::of_request(job_uid, uid(Some(&deployment.metadata)), at) == wanted)
}

/// The last states of an object's spec, newest first.
fn generations(meta: &ObjectMeta) -> impl Iterator<Item = i64> {
    let now = meta.generation.unwrap_or(0);
    (now.saturating_sub(GENERATIONS).max(0)..=now).rev()
}

fn pending<'a>(job: &'a Job, id: &str, trigger: EvalTrigger) -> Evaluation<'a> {
    let made = job.metadata.creation_timestamp.as_ref().map(|time| time.0).unwrap_or_default();
    Evaluation {
        id: id.to_owned(),
        job,
        status: EvalStatus::Pending,
        trigger,
        description: "",
        priority: if job.spec.priority == 0 { DEFAULT_PRIORITY } else { job.spec.priority },
        time: made,
        failed: &NONE_FAILED,
        blocked: String::new(),
        previous: String::new(),
        deployment: "",
        next: String::new(),
    }
}
