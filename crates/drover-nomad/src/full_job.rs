//! A whole job on the wire.

use drover_api::Job;
use serde_json::{Value, json};

/// The spec of a job as Nomad's clients send and read it.
pub(crate) fn full_job(job: &Job) -> Value {
    json!({ "ID": crate::world::job_id(job) })
}
