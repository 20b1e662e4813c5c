//! JobVersion: a job's spec as it once was. Internal; `kubectl get djv` is the job's history.

use jiff::Timestamp;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::job::JobSpec;

/// A job's spec as it once was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "drover.dev",
    version = "v1alpha1",
    kind = "JobVersion",
    plural = "jobversions",
    singular = "jobversion",
    shortname = "djv",
    namespaced,
    status = "JobVersionStatus",
    derive = "PartialEq",
    doc = "A job's spec as it once was. Created by drover and never changed: the job's history.",
    selectable = ".spec.jobName",
    printcolumn(name = "Job", type_ = "string", json_path = ".spec.jobName"),
    printcolumn(name = "Version", type_ = "integer", json_path = ".spec.version"),
    printcolumn(name = "Stable", type_ = "string", json_path = ".status.columns.stable"),
    printcolumn(name = "Tag", type_ = "string", json_path = ".status.columns.tag"),
    printcolumn(name = "Groups", type_ = "string", json_path = ".spec.groupNames"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct JobVersionSpec {
    /// The job.
    #[schemars(length(min = 1, max = 63))]
    pub job_name: String,
    /// The job's metadata.uid: a job that was deleted and created again is another one.
    #[serde(rename = "jobUID")]
    #[schemars(length(min = 1, max = 64))]
    pub job_uid: String,
    /// Its number, from 0.
    #[schemars(range(min = 0))]
    pub version: i64,
    /// The job's metadata.generation that it was made from.
    #[serde(default)]
    pub job_generation: i64,
    /// Names of the job's groups, separated by commas, for the column of `kubectl get`.
    #[schemars(length(max = 4096))]
    pub group_names: String,
    /// The spec of the job, less scale and stop.
    #[schemars(schema_with = "crate::schema::free_form_object")]
    pub job: JobSpec,
    /// When it was made.
    pub submitted_at: Timestamp,
    /// The version whose spec this one restored, for a revert.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revert_of: Option<i64>,
    /// The deployment intent that made it, so that a repeated revert is recognised.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub intent: String,
}

impl JobVersion {
    /// Whether an automatic revert may go back to it.
    pub fn is_stable(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.stable)
    }

    /// The name that a user gave it.
    pub fn tag(&self) -> Option<&str> {
        self.status.as_ref()?.tag.as_deref()
    }
}

/// State of a version.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct JobVersionStatus {
    /// The metadata.generation that this status is about; -1 before the first observation.
    #[schemars(range(min = -1))]
    pub observed_generation: i64,
    /// Whether it was deployed successfully, or a user says so; an automatic revert restores the newest such one.
    pub stable: bool,
    /// A name that a user gave it, of one version of a job alone; a tagged version is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub tag: Option<String>,
    /// Why it was tagged.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub tag_description: String,
    /// When it was tagged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tagged_at: Option<Timestamp>,
    /// Texts for the columns of `kubectl get`.
    pub columns: JobVersionColumns,
}

/// Texts for the columns of `kubectl get djv`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct JobVersionColumns {
    /// Whether it is stable.
    pub stable: String,
    /// Its tag.
    pub tag: String,
}

impl Default for JobVersionColumns {
    fn default() -> Self {
        Self { stable: "false".to_owned(), tag: "-".to_owned() }
    }
}
