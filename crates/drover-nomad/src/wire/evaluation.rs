//! Evaluations as they travel: those that the status of a job shows, and those that clients wait for.
//!
//! They are not objects. Their ids are derived (`drover_core::evaluation_id`); an older leader's, which are no UUIDs,
//! become some by the same rule, so that every replica answers for each.

use std::collections::BTreeMap;

use drover_api::Job;
use drover_api::job::{EvalStatus, EvalTrigger, EvaluationStatus};
use drover_api::metric::AllocMetric;
use drover_core::evaluation_id;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::metric;
use super::times::{nanos, seconds};
use crate::full_job::spec as job_spec;
use crate::world::{World, job_id, namespace, uid, version};

/// Nothing found no place.
pub(super) static NONE_FAILED: BTreeMap<String, AllocMetric> = BTreeMap::new();

/// An evaluation of a job.
#[derive(Clone, Debug)]
pub(crate) struct Evaluation<'a> {
    /// Its id, a UUID.
    pub(crate) id: String,
    /// The job.
    pub(crate) job: &'a Job,
    /// Where it stands.
    pub(crate) status: EvalStatus,
    pub(super) trigger: EvalTrigger,
    pub(super) description: &'a str,
    pub(super) priority: i64,
    pub(super) time: Timestamp,
    pub(super) failed: &'a BTreeMap<String, AllocMetric>,
    pub(super) blocked: String,
    /// The one of which this is the rest; empty for none.
    pub(super) previous: String,
    /// The name of the deployment that it made or found; empty for none.
    pub(super) deployment: &'a str,
    /// The evaluation that did what this one was to do; empty where it did so itself.
    pub(super) next: String,
}

impl Evaluation<'_> {
    /// When it was made, in seconds since 1970.
    pub(crate) fn created(&self) -> u64 {
        seconds(self.time)
    }
}

/// The evaluations that a job's status shows, and the one that waits for room.
pub(crate) fn of_job(job: &Job) -> Vec<Evaluation<'_>> {
    let Some(status) = &job.status else { return Vec::new() };
    let job_uid = uid(Some(&job.metadata));
    // What waits goes by the id of the evaluation that found no room; as one of its own it has another.
    let waits = status.blocked.as_ref().map(|blocked| evaluation_id::of_wait(job_uid, &blocked.id)).unwrap_or_default();
    let mut all: Vec<Evaluation<'_>> = status
        .evaluations
        .iter()
        .map(|one| {
            let EvaluationStatus { id: own, trigger, status, description, priority, time, failed, .. } = one;
            let id = id(job_uid, own);
            let blocked = if failed.is_empty() { String::new() } else { waits.clone() };
            // What is left of it waits as another one: clients follow one that is `blocked` without end.
            let status = if *status == EvalStatus::Blocked { EvalStatus::Complete } else { *status };
            Evaluation {
                id,
                job,
                status,
                trigger: *trigger,
                description,
                priority: *priority,
                time: *time,
                failed,
                blocked,
                previous: String::new(),
                deployment: &one.deployment_name,
                next: String::new(),
            }
        })
        .collect();
    if let Some(blocked) = &status.blocked {
        all.push(Evaluation {
            id: waits,
            job,
            status: EvalStatus::Blocked,
            trigger: EvalTrigger::QueuedAllocs,
            description: "",
            priority: job.spec.priority,
            time: blocked.since,
            failed: &blocked.failed,
            blocked: String::new(),
            previous: id(job_uid, &blocked.id),
            deployment: "",
            next: String::new(),
        });
    }
    all
}

/// The UUID of an evaluation.
pub(super) fn id(job_uid: &str, own: &str) -> String {
    if evaluation_id::is_uuid(own) { own.to_owned() } else { evaluation_id::of_leader(job_uid, own, 0) }
}

/// An evaluation; lists have the whole object too.
pub(crate) fn full(evaluation: &Evaluation<'_>, world: &World) -> Value {
    whole(evaluation, Value::Null, world)
}

/// An evaluation with the stubs of those that it followed, and that follow it.
pub(crate) fn with_related(evaluation: &Evaluation<'_>, world: &World) -> Value {
    let own = [&evaluation.previous, &evaluation.next, &evaluation.blocked];
    let is_related = |other: &&Evaluation<'_>| {
        let back = [&other.previous, &other.next, &other.blocked];
        other.id != evaluation.id && (own.contains(&&other.id) || back.contains(&&evaluation.id))
    };
    let all = of_job(evaluation.job);
    let related: Vec<Value> = all.iter().filter(is_related).map(|other| stub(other, world).into()).collect();
    whole(evaluation, related.into(), world)
}

fn whole(evaluation: &Evaluation<'_>, related: Value, world: &World) -> Value {
    let meta = &evaluation.job.metadata;
    let queued: Map<String, Value> = evaluation
        .job
        .status
        .iter()
        .flat_map(|status| &status.summary)
        .map(|(group, of)| (group.clone(), json!(of.queued)))
        .collect();
    let mut whole = stub(evaluation, world);
    let more = [
        ("JobModifyIndex", json!(meta.generation.unwrap_or(0))),
        ("NodeModifyIndex", json!(0)),
        ("Wait", json!(0)),
        ("RelatedEvals", related),
        ("PlanAnnotations", Value::Null),
        ("AnnotatePlan", json!(false)),
        ("ClassEligibility", Value::Null),
        ("EscapedComputedClass", json!(false)),
        ("QuotaLimitReached", json!("")),
        ("MissingNonNodeResources", Value::Null),
        ("FailedTGAllocs", metric::of_groups(evaluation.failed, world)),
        ("QueuedAllocations", Value::Object(queued)),
        ("SnapshotIndex", json!(version(meta))),
    ];
    whole.extend(more.map(|(key, value)| (key.to_owned(), value)));
    Value::Object(whole)
}

/// What other evaluations say of one.
fn stub(evaluation: &Evaluation<'_>, world: &World) -> Map<String, Value> {
    let meta = &evaluation.job.metadata;
    let deployment = world.deployments.named(namespace(meta), evaluation.deployment);
    let fields = [
        ("ID", json!(evaluation.id)),
        ("Namespace", json!(namespace(meta))),
        ("Priority", json!(evaluation.priority)),
        ("Type", json!(job_spec(evaluation.job, world).r#type)),
        ("TriggeredBy", json!(evaluation.trigger)),
        ("JobID", json!(job_id(evaluation.job))),
        ("NodeID", json!("")),
        ("DeploymentID", json!(uid(deployment.map(|deployment| &deployment.metadata)))),
        ("Status", json!(evaluation.status)),
        ("StatusDescription", json!(evaluation.description)),
        ("WaitUntil", json!(super::times::UNSET)),
        ("NextEval", json!(evaluation.next)),
        ("PreviousEval", json!(evaluation.previous)),
        ("BlockedEval", json!(evaluation.blocked)),
        ("CreateIndex", json!(evaluation.created())),
        ("ModifyIndex", json!(version(meta))),
        ("CreateTime", json!(nanos(evaluation.time))),
        ("ModifyTime", json!(nanos(evaluation.time))),
    ];
    fields.map(|(key, value)| (key.to_owned(), value)).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_older_leaders_become_uuids_that_every_replica_finds_and_uuids_stay_as_they_are() {
        let derived = id("u-1", "controller-7");
        assert_eq!(derived, id("u-1", "controller-7"));
        assert_ne!(derived, id("u-2", "controller-7"));
        assert_eq!(evaluation_id::tag_of(&derived), Some(evaluation_id::tag("u-1").as_str()));
        assert_eq!(id("u-1", &derived), derived);
    }
}
