//! The evaluation that follows a change of a job: how it is asked for, and what clients learn of it.

use drover_api::{Job, annotation};
use drover_core::evaluation_id::{self, Point};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::order::{Change, Target};
use super::written::Written;
use crate::fault::Fault;
use crate::wire::times::seconds;
use crate::world::{Kind, uid};

/// Lowest and highest priority of an evaluation.
const PRIORITIES: std::ops::RangeInclusive<i64> = 1..=100;
/// The answer of what makes or changes a job: the evaluation that follows, of a template none.
pub(super) fn registered(
    now: Timestamp,
    is_template: bool,
    warnings: Vec<String>,
) -> impl FnOnce(&[Written]) -> Value + Send + 'static {
    move |written| {
        let meta = job_of(written);
        let id = meta.filter(|_| !is_template).map(id);
        json!({
            "EvalCreateIndex": if id.is_some() { seconds(now) } else { 0 },
            "EvalID": id.unwrap_or_default(),
            "JobModifyIndex": meta.and_then(|meta| meta.generation).unwrap_or(0),
            "Warnings": warnings.join("\n"),
        })
    }
}

/// The id of the evaluation that follows what was written of a job; empty where nothing was.
pub(super) fn id_of(written: &[Written]) -> String {
    job_of(written).map(id).unwrap_or_default()
}

fn id(job: &ObjectMeta) -> String {
    evaluation_id::of_point(uid(Some(job)), Point::new(job.generation, job.annotations.as_ref()))
}

/// The metadata of the job as it was written last. Of a deletion nothing is known but whose it was.
fn job_of(written: &[Written]) -> Option<&ObjectMeta> {
    written.iter().rfind(|one| one.kind == Kind::Job && one.meta.generation.is_some()).map(|one| &one.meta)
}

/// Asks for an evaluation of a job whose spec stays as it is.
pub(super) fn ask_again(job: &Job) -> Change {
    let asked = Point::of(job).asked.saturating_add(1).to_string();
    let target = Target::unchanged(Kind::Job, &job.metadata);
    Change::Patch(target, json!({ "metadata": { "annotations": { annotation::EVALUATE: asked } } }))
}

/// Checks the priority that an evaluation is to have; 0 is the job's.
///
/// # Errors
/// 400 outside 1 to 100.
pub(super) fn check_priority(priority: i64) -> Result<(), Fault> {
    if priority == 0 || PRIORITIES.contains(&priority) {
        return Ok(());
    }
    Err(Fault::bad(format!("EvalPriority is {priority}: take a number from 1 to 100")))
}
