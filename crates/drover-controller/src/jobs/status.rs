//! Job status: what the leader knows of a job besides its objects, and what its status says of that.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_api::condition::{Wanted, merged};
use drover_api::job::{
    BlockedEvaluation, EvaluationStatus, JobColumns, JobConditionType, JobPhase, JobReason, JobStatus, ScaleStatus,
};
use drover_api::{Job, field_manager, label, message};
use drover_core::definition::Definition;
use drover_core::ids::JobKey;
use drover_core::job_status::JobVerdict;
use drover_core::model::Deployment;
use drover_core::scheduler::attempts::Attempts;
use drover_core::validate::{self, PodSecurity, Violation};
use drover_store::{Precondition, Store, StoreError, status_body};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::Resource;
use serde_json::Value;
use tokio::time::Instant;

use crate::keys::key_of;
use crate::status_writes::Memo;

/// Evaluations that a status shows.
const SHOWN_EVALUATIONS: usize = 10;
/// Largest status; explanations of older evaluations are left out to stay below.
const SIZE_LIMIT: usize = 64 * 1024;

/// What the leader knows of a job besides its objects.
#[derive(Debug, Default)]
pub(super) struct JobState {
    /// The last evaluations, newest first.
    pub(super) evaluations: Vec<EvaluationStatus>,
    /// The evaluation that waits for room.
    pub(super) blocked: Option<BlockedEvaluation>,
    /// For each group: wanted and not placed.
    pub(super) queued: BTreeMap<String, i64>,
    /// The tries of an evaluation whose plan could not be written as it was.
    pub(super) attempts: Option<Attempts>,
    /// The status as last sent, and when.
    pub(super) sent: Option<(Arc<Value>, Instant)>,
    /// The status as it was wanted last, with its JSON: mostly it is wanted so again.
    pub(super) wanted: Memo<JobStatus>,
    /// Whether a write is under way.
    pub(super) is_writing: bool,
    /// The version that the stored status names, once it is known or known to be gone.
    pub(super) fetched_version: Option<i64>,
    /// Since when the status differs from the one sent.
    pub(super) differs_since: Option<Instant>,
    /// The failure of an allocation that was told last, by its generation and cause.
    pub(super) told_failure: Option<String>,
    /// What was found of its spec when it was checked last.
    pub(super) checked: Option<Checked>,
    /// The limit that it is over.
    pub(super) over_limit: Option<Violation>,
    /// What keeps its services from being found.
    pub(super) services: Option<Wanted<JobConditionType, JobReason>>,
}

/// A spec with what is wrong with it.
#[derive(Clone, Debug)]
pub(super) struct Checked {
    uid: Option<String>,
    generation: Option<i64>,
    /// The spec, complete.
    pub(super) definition: Arc<Definition>,
    /// What is wrong with it.
    pub(super) violations: Arc<[Violation]>,
}

impl Checked {
    /// Checks a job's spec.
    pub(super) fn new(job: &Job, name: &str) -> Self {
        let definition = Definition::new(&job.spec, name);
        let violations = validate::violations(&definition).into();
        let (uid, generation) = (job.metadata.uid.clone(), job.metadata.generation);
        Self { uid, generation, definition, violations }
    }

    /// What is in the way of acting on it: what is wrong with it, that its namespace refuses it, or that this cluster
    /// lacks what it needs.
    pub(super) fn here(&self, has_gateway: bool, namespace: Option<&Namespace>) -> Arc<[Violation]> {
        if !self.violations.is_empty() {
            return Arc::clone(&self.violations);
        }
        let spec = &self.definition.spec;
        let refused = namespace.and_then(pod_security).map(|standard| standard.violations(spec));
        if let Some(refused) = refused.filter(|refused| !refused.is_empty()) {
            return refused.into();
        }
        if has_gateway { [].into() } else { validate::needs_gateway(spec).into_iter().collect() }
    }
}

/// What a namespace refuses of jobs.
pub(super) fn pod_security(namespace: &Namespace) -> Option<PodSecurity> {
    PodSecurity::of_labels(namespace.metadata.labels.as_ref()?)
}

impl JobState {
    /// The job's spec as it is checked; it is checked again when it has changed.
    pub(super) fn checked(&mut self, job: &Job, name: &str) -> &Checked {
        let is_of =
            |checked: &Checked| checked.uid == job.metadata.uid && checked.generation == job.metadata.generation;
        let known = self.checked.take().filter(is_of);
        self.checked.insert(known.unwrap_or_else(|| Checked::new(job, name)))
    }

    /// Adds an evaluation to the shown ones. One that is made again, because its plan was refused, stands there once:
    /// the list is keyed by the id, and the API server refuses a status that names one twice.
    pub(super) fn record(&mut self, evaluation: EvaluationStatus) {
        self.evaluations.retain(|known| known.id != evaluation.id);
        self.evaluations.insert(0, evaluation);
        self.evaluations.truncate(SHOWN_EVALUATIONS);
    }
}

/// What a status says besides the verdict.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    /// The version that runs, and whether it is stable.
    pub(super) version: Option<(i64, bool)>,
    /// The group that an autoscaler scales, and its count.
    pub(super) scaled: Option<(String, i64)>,
    /// The newest deployment of that version.
    pub(super) deployment: Option<&'a Deployment>,
    pub(super) now: Timestamp,
}

/// The status of a job as it should be.
pub(super) fn desired(job: &Job, verdict: JobVerdict, known: &JobState, facts: &Facts<'_>) -> JobStatus {
    let Facts { version, scaled, deployment, now } = facts;
    let (version, deployment) = (*version, *deployment);
    let before = job.status.clone().unwrap_or_default();
    let generation = job.meta().generation.unwrap_or(0);
    let name = job.meta().name.clone().unwrap_or_default();
    let dash = || "-".to_owned();
    let mut status = JobStatus {
        observed_generation: generation,
        phase: verdict.phase,
        version: version.map(|(version, _)| version),
        stable: version.is_some_and(|(_, is_stable)| is_stable),
        summary: verdict.summary,
        evaluations: known.evaluations.clone(),
        blocked: known.blocked.clone(),
        scale: scaled
            .as_ref()
            .map(|(_, count)| ScaleStatus { count: *count, selector: format!("{}={name}", label::JOB) }),
        deployment: deployment.map(|deployment| deployment.key.name.to_string()).unwrap_or_default(),
        columns: JobColumns {
            running: verdict.running,
            version: version.map_or_else(dash, |(version, _)| version.to_string()),
            deployment: deployment.map_or_else(dash, |deployment| deployment.phase.to_string()),
            reason: verdict.reason.map_or_else(dash, |reason| reason.to_string()),
            message: if verdict.message.is_empty() { dash() } else { message::cut(verdict.message) },
            next_launch: dash(),
        },
        conditions: merged(&before.conditions, verdict.conditions, generation, *now),
        ..JobStatus::default()
    };
    // Only explanations make a status long.
    let is_long = |status: &JobStatus| serde_json::to_vec(status).map_or(0, |bytes| bytes.len()) > SIZE_LIMIT;
    while status.evaluations.len() > 1 && is_explained(&status) && is_long(&status) {
        status.evaluations.pop();
    }
    status
}

/// Whether it says why something found no place.
fn is_explained(status: &JobStatus) -> bool {
    status.blocked.is_some() || status.evaluations.iter().any(|evaluation| !evaluation.failed.is_empty())
}

/// Whether nothing of the job's present spec runs or will run.
pub(super) fn is_done(job: &Job) -> bool {
    let seen = job.status.as_ref().map(|status| (status.phase, status.observed_generation));
    job.spec.stop || seen == Some((JobPhase::Dead, job.metadata.generation.unwrap_or(0)))
}

/// Sends a status. The precondition is the object that it was decided from: a leader that is behind must not undo a
/// newer one's.
pub(crate) async fn write_status<S: Store>(
    store: S,
    key: JobKey,
    precondition: Precondition,
    status: Arc<Value>,
) -> (JobKey, Result<Job, StoreError>) {
    let (manager, body) = (field_manager::CONTROLLER_JOB, status_body(Value::clone(&status)));
    let result = store.apply_status(&key_of(&key), manager, &precondition, body).await;
    (key, result)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_evaluation_that_is_made_again_is_shown_once() {
        let mut known = JobState::default();
        for id in ["a", "b", "a", "c"] {
            let one = json!({ "id": id, "trigger": "job-register", "status": "complete", "priority": 50, "time": "2026-01-01T00:00:00Z" });
            known.record(serde_json::from_value(one).expect("an evaluation"));
        }
        let shown: Vec<&str> = known.evaluations.iter().map(|one| one.id.as_str()).collect();
        assert_eq!(shown, ["c", "a", "b"]);
    }
}
