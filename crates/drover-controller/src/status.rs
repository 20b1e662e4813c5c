//! Job status: from the core's verdict to a write, at once when phase or a condition changed, else at most once per second.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use drover_api::condition::merged;
use drover_api::job::{BlockedEvaluation, EvaluationStatus, JobColumns, JobStatus, ScaleStatus};
use drover_api::{Job, field_manager, label};
use drover_core::definition::Definition;
use drover_core::ids::JobKey;
use drover_core::job_status::Verdict;
use drover_core::model::Deployment;
use drover_core::scheduler::attempts::Attempts;
use drover_core::validate::{self, Violation};
use jiff::Timestamp;
use kube::Resource;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use drover_store::{Key, Ownership, Part, Precondition, Store, StoreError, status_body};

/// Shortest pause between two writes of one status that change neither phase nor conditions.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
/// How long a count waits during a roll-out: a step takes some away and adds others a moment later.
const ROLLING_PAUSE: Duration = Duration::from_secs(3);
/// Evaluations that a status shows.
const SHOWN_EVALUATIONS: usize = 10;
/// Largest status; explanations of older evaluations are left out to stay below.
const SIZE_LIMIT: usize = 64 * 1024;

/// What the leader knows of a job besides its objects.
#[derive(Debug, Default)]
pub(super) struct Knowledge {
    /// The last evaluations, newest first.
    pub(super) evaluations: Vec<EvaluationStatus>,
    /// The evaluation that waits for room.
    pub(super) blocked: Option<BlockedEvaluation>,
    /// For each group: wanted and not placed.
    pub(super) queued: BTreeMap<String, i64>,
    /// Updates that wait for earlier ones.
    pub(super) held_back: i64,
    /// The newest write that its last evaluation saw.
    pub(super) planned_at: Option<u64>,
    /// The tries of an evaluation whose plan could not be written as it was.
    pub(super) attempts: Option<Attempts>,
    /// The status as last sent, and when.
    pub(super) sent: Option<(Arc<Value>, Instant)>,
    /// The status as it was wanted last, with its JSON: mostly it is wanted so again.
    pub(super) wanted: Memo<JobStatus>,
    /// Whether a write is under way.
    pub(super) is_writing: bool,
    /// The version that the stored status names, once it is known or known to be gone.
    pub(super) sought_version: Option<i64>,
    /// Since when the status differs from the one sent.
    pub(super) differs_since: Option<Instant>,
    /// What was found of its spec when it was checked last.
    pub(super) checked: Option<Checked>,
}

/// A status as it was wanted last, with its JSON.
#[derive(Debug)]
pub(super) struct Memo<T>(Option<(T, Arc<Value>)>);

impl<T> Default for Memo<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: PartialEq + Serialize> Memo<T> {
    /// The JSON of a status: the one from before where it is the same.
    pub(super) fn json(&mut self, status: T) -> Arc<Value> {
        match &self.0 {
            Some((known, shown)) if *known == status => Arc::clone(shown),
            Some(_) | None => {
                let shown = Arc::new(json!(status));
                self.0 = Some((status, Arc::clone(&shown)));
                shown
            }
        }
    }
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
}

impl Knowledge {
    /// The job's spec as it is checked; it is checked anew when it has changed.
    pub(super) fn checked(&mut self, job: &Job, name: &str) -> &Checked {
        let is_of =
            |checked: &Checked| checked.uid == job.metadata.uid && checked.generation == job.metadata.generation;
        let known = self.checked.take().filter(is_of);
        self.checked.insert(known.unwrap_or_else(|| Checked::new(job, name)))
    }

    /// Adds an evaluation to the shown ones. One that is made again, because its plan was refused, stands there once: the list is
    /// keyed by the id, and the API server refuses a status that names one twice.
    pub(super) fn record(&mut self, evaluation: EvaluationStatus) {
        self.evaluations.retain(|known| known.id != evaluation.id);
        self.evaluations.insert(0, evaluation);
        self.evaluations.truncate(SHOWN_EVALUATIONS);
    }
}

/// The status of a job as it should be.
pub(super) fn desired(
    job: &Job,
    version: Option<(i64, bool)>,
    verdict: Verdict,
    known: &Knowledge,
    scaled: Option<(String, i64)>,
    deployment: Option<&Deployment>,
    now: Timestamp,
) -> JobStatus {
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
        scale: scaled.map(|(_, count)| ScaleStatus { count, selector: format!("{}={name}", label::JOB) }),
        deployment: deployment.map(|deployment| deployment.key.name.to_string()).unwrap_or_default(),
        columns: JobColumns {
            running: verdict.running,
            version: version.map_or_else(dash, |(version, _)| version.to_string()),
            deployment: deployment.map_or_else(dash, |deployment| deployment.phase.to_string()),
            reason: verdict.reason.map_or_else(dash, |reason| reason.to_string()),
            next_launch: dash(),
        },
        conditions: merged(&before.conditions, verdict.conditions, generation, now),
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

/// What a status waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Calm {
    /// Whether a plan of the job is being written: what it changes belongs into the same status.
    pub(super) is_planning: bool,
    /// Whether it is rolled out: its counts go up and down with each step.
    pub(super) is_rolling: bool,
}

/// When a status may be written: now, or at that time; never when nothing differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing differs.
    Never,
    /// Phase or a condition differs, or the pause is over.
    Now,
    /// Something else differs.
    At(Instant),
}

/// Decides when to write a status, given the last one sent or stored, when that was, and since when it differs.
pub(super) fn due(
    wanted: &Value,
    last: Option<&Value>,
    sent_at: Option<Instant>,
    differs_since: Instant,
    calm: Calm,
    now: Instant,
) -> Due {
    let at = |time: Instant| if time <= now { Due::Now } else { Due::At(time) };
    let when_planned = if calm.is_planning { differs_since + PAUSE } else { now };
    let Some(last) = last else { return at(when_planned) };
    if is_same(wanted, last) {
        return Due::Never;
    }
    if is_urgent(wanted, last) {
        return at(when_planned);
    }
    let pause_over = sent_at.map_or(now, |at| at + PAUSE);
    at(if calm.is_rolling { pause_over.max(differs_since + ROLLING_PAUSE) } else { pause_over })
}

/// Whether two statuses are equal. Mostly both are the one that was sent last.
pub(super) fn is_same(wanted: &Value, last: &Value) -> bool {
    std::ptr::eq(wanted, last) || wanted == last
}

/// Whether phase, generation or a condition of a status differ.
pub(super) fn is_urgent(wanted: &Value, last: &Value) -> bool {
    fn conditions(status: &Value) -> &[Value] {
        status["conditions"].as_array().map_or(&[], Vec::as_slice)
    }
    let differ = |one: &Value, other: &Value, fields: &[&str]| fields.iter().any(|field| one[*field] != other[*field]);
    let (new, old) = (conditions(wanted), conditions(last));
    differ(wanted, last, &["phase", "observedGeneration"])
        || new.len() != old.len()
        || new.iter().zip(old).any(|(new, old)| differ(new, old, &["type", "status", "reason"]))
}

/// Sends a status. The precondition is the object that it was decided from: a leader that is behind must not undo a newer one's.
pub(super) async fn write<S: Store>(
    store: S,
    key: JobKey,
    precondition: Precondition,
    status: Arc<Value>,
) -> (JobKey, Result<Job, StoreError>) {
    let at = Key::namespaced(&*key.namespace, &*key.name);
    let (manager, body) = (field_manager::CONTROLLER_JOB, status_body(Value::clone(&status)));
    let result = store.apply(&at, Part::Status, manager, Ownership::Force, &precondition, body).await;
    (key, result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_written_at_once_and_a_count_after_the_pause() {
        let now = Instant::now();
        let status = |phase: &str, running: i64| json!({ "phase": phase, "conditions": [], "summary": { "g": { "running": running } } });
        let last = status("running", 1);
        let calm = Calm::default();
        assert_eq!(due(&status("running", 1), Some(&last), Some(now), now, calm, now), Due::Never);
        assert_eq!(due(&status("running", 2), Some(&last), Some(now), now, calm, now), Due::At(now + PAUSE));
        assert_eq!(due(&status("running", 2), Some(&last), Some(now), now, calm, now + PAUSE), Due::Now);
        assert_eq!(due(&status("dead", 1), Some(&last), Some(now), now, calm, now), Due::Now);
        assert_eq!(due(&last, None, None, now, calm, now), Due::Now);
    }

    #[test]
    fn an_evaluation_that_is_made_again_is_shown_once() {
        let mut known = Knowledge::default();
        for id in ["a", "b", "a", "c"] {
            let one = json!({ "id": id, "trigger": "job-register", "status": "complete", "priority": 50, "time": "2026-01-01T00:00:00Z" });
            known.record(serde_json::from_value(one).expect("an evaluation"));
        }
        let shown: Vec<&str> = known.evaluations.iter().map(|one| one.id.as_str()).collect();
        assert_eq!(shown, ["c", "a", "b"]);
    }

    #[test]
    fn a_condition_waits_for_the_plan_and_a_count_for_the_step_of_a_roll_out() {
        let now = Instant::now();
        let status = |phase: &str, running: i64| json!({ "phase": phase, "conditions": [], "summary": { "g": { "running": running } } });
        let last = status("running", 1);
        let planning = Calm { is_planning: true, ..Calm::default() };
        let at = |calm, wanted: &Value, later: Duration| due(wanted, Some(&last), Some(now), now, calm, now + later);
        assert_eq!(at(planning, &status("dead", 1), Duration::ZERO), Due::At(now + PAUSE));
        assert_eq!(at(planning, &status("dead", 1), PAUSE), Due::Now, "a long plan does not hide what happens");
        let rolling = Calm { is_rolling: true, ..Calm::default() };
        assert_eq!(at(rolling, &status("running", 2), PAUSE), Due::At(now + ROLLING_PAUSE));
        assert_eq!(at(rolling, &status("running", 2), ROLLING_PAUSE), Due::Now);
        assert_eq!(at(rolling, &status("dead", 1), Duration::ZERO), Due::Now);
    }
}
