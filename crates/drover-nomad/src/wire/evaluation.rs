//! Evaluations: those that the status of a job shows.
//!
//! They are not objects. Nomad's clients know them by UUIDs: where the controller's own id is none, the id is the hash
//! of the job's uid and of that id, so that every replica answers for it.

use std::collections::BTreeMap;

use drover_api::Job;
use drover_api::job::{EvalStatus, EvalTrigger, EvaluationStatus};
use drover_api::metric::AllocMetric;
use drover_api::names::hex;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::metric;
use super::times::{nanos, seconds};
use crate::full_job::spec as job_spec;
use crate::world::{World, job_id, namespace, uid, version};

/// An evaluation of a job.
#[derive(Clone, Debug)]
pub(crate) struct Evaluation<'a> {
    /// Its id, a UUID.
    pub(crate) id: String,
    /// The job.
    pub(crate) job: &'a Job,
    /// Where it stands.
    pub(crate) status: EvalStatus,
    trigger: EvalTrigger,
    description: &'a str,
    priority: i64,
    time: Timestamp,
    failed: &'a BTreeMap<String, AllocMetric>,
    blocked: String,
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
    let waits = status.blocked.as_ref().map(|blocked| id(job_uid, &blocked.id)).unwrap_or_default();
    let mut all: Vec<Evaluation<'_>> = status
        .evaluations
        .iter()
        .map(|one| {
            let EvaluationStatus { id: own, trigger, status, description, priority, time, failed } = one;
            let id = id(job_uid, own);
            let blocked = if failed.is_empty() || id == waits { String::new() } else { waits.clone() };
            Evaluation {
                id,
                job,
                status: *status,
                trigger: *trigger,
                description,
                priority: *priority,
                time: *time,
                failed,
                blocked,
            }
        })
        .collect();
    if let Some(blocked) = &status.blocked
        && !all.iter().any(|one| one.id == waits)
    {
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
        });
    }
    all
}

/// The UUID of an evaluation.
fn id(job_uid: &str, own: &str) -> String {
    let is_uuid = own.len() == 36
        && own
            .chars()
            .enumerate()
            .all(|(at, c)| if matches!(at, 8 | 13 | 18 | 23) { c == '-' } else { c.is_ascii_hexdigit() });
    if is_uuid {
        return own.to_owned();
    }
    let mut hasher = Sha256::new();
    hasher.update(job_uid.as_bytes());
    hasher.update([0]);
    hasher.update(own.as_bytes());
    let digits = hex(&hasher.finalize());
    let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default();
    [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-")
}

/// An evaluation; lists have the whole object too.
pub(crate) fn full(evaluation: &Evaluation<'_>, world: &World) -> Value {
    let meta = &evaluation.job.metadata;
    let queued: Map<String, Value> = evaluation
        .job
        .status
        .iter()
        .flat_map(|status| &status.summary)
        .map(|(group, of)| (group.clone(), json!(of.queued)))
        .collect();
    json!({
        "ID": evaluation.id,
        "Namespace": namespace(meta),
        "Priority": evaluation.priority,
        "Type": job_spec(evaluation.job, world).r#type,
        "TriggeredBy": evaluation.trigger,
        "JobID": job_id(evaluation.job),
        "DeploymentID": "",
        "Status": evaluation.status,
        "StatusDescription": evaluation.description,
        "Wait": 0,
        "WaitUntil": super::times::UNSET,
        "NextEval": "",
        "PreviousEval": "",
        "BlockedEval": evaluation.blocked,
        "FailedTGAllocs": metric::of_groups(evaluation.failed, world),
        "QueuedAllocations": queued,
        "SnapshotIndex": version(meta),
        "CreateIndex": evaluation.created(),
        "ModifyIndex": version(meta),
        "CreateTime": nanos(evaluation.time),
        "ModifyTime": nanos(evaluation.time),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_uuids_that_every_replica_finds_and_uuids_stay_as_they_are() {
        let derived = id("u-1", "controller-7");
        assert_eq!(derived, id("u-1", "controller-7"));
        assert_ne!(derived, id("u-2", "controller-7"));
        assert_eq!(derived.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
        assert_eq!(id("u-1", &derived), derived);
        assert_ne!(id("u-1", &derived.replace('-', "x")), derived);
    }
}
