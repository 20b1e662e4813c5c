//! The text that a job was registered with, which is kept beside it (`spec/gateway.md` 6).
//!
//! It is that of one version: where the job was changed by other means since, nothing is shown for it.

use drover_api::names::hex;
use drover_api::{Job, JobSpec};
use drover_core::definition::version_spec;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// The longest text that is kept, in bytes: annotations are part of every read of the job.
pub(crate) const MOST_BYTES: usize = 32 * 1024;

/// What is kept.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    /// `hcl2`, `hcl1` or `json`.
    format: String,
    source: String,
    /// Of the spec that it is the text of.
    digest: String,
}

/// The annotation of a job with this text.
pub(crate) fn annotation(job: &Job, format: &str, source: &str) -> String {
    let digest = digest(job, &job.spec);
    json!(Kept { format: format.to_owned(), source: source.to_owned(), digest }).to_string()
}

/// The text of a version of a job; none: it is not known. Values of variables are never kept.
pub(crate) fn of_version(job: &Job, version: &JobSpec) -> Option<Value> {
    let text = job.metadata.annotations.as_ref()?.get(drover_api::annotation::SUBMISSION)?;
    let kept: Kept = serde_json::from_str(text).ok()?;
    let shown = json!({ "Source": kept.source, "Format": kept.format, "VariableFlags": {}, "Variables": "" });
    (kept.digest == digest(job, version)).then_some(shown)
}

/// What a spec means, whatever it writes out of what is usual.
fn digest(job: &Job, spec: &JobSpec) -> String {
    let job = Job { spec: version_spec(spec), status: None, metadata: job.metadata.clone() };
    let mut meant = drover_jobspec::wire_job(&job);
    // What the API server adds is not what was written.
    for field in ["CreateIndex", "ModifyIndex", "JobModifyIndex", "SubmitTime", "Version"] {
        meant[field] = Value::Null;
    }
    let mut hasher = Sha256::new();
    hasher.update(meant.to_string().as_bytes());
    hex(&hasher.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(count: i64) -> Job {
        let spec = json!({ "groups": [{ "name": "g", "count": count, "tasks": [{ "name": "t", "driver": "exec" }] }] });
        Job::new("web", serde_json::from_value(spec).expect("a spec"))
    }

    #[test]
    fn a_text_is_shown_with_the_version_that_it_was_registered_for_and_with_no_other() {
        let mut web = job(1);
        let text = annotation(&web, "hcl2", "job \"web\" {}");
        web.metadata.annotations = Some([(drover_api::annotation::SUBMISSION.to_owned(), text)].into());
        web.metadata.uid = Some("u".to_owned());
        web.metadata.generation = Some(4);
        let shown = of_version(&web, &job(1).spec).expect("known");
        assert_eq!((&shown["Source"], &shown["Format"]), (&json!("job \"web\" {}"), &json!("hcl2")));
        // Stopping and scaling make no version.
        let stopped = JobSpec { stop: true, ..job(1).spec };
        assert!(of_version(&web, &stopped).is_some());
        assert_eq!(of_version(&web, &job(2).spec), None);
        assert_eq!(of_version(&job(1), &job(1).spec), None);
    }
}
