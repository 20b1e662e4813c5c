//! Deployment: one roll-out of one version of a job.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::condition::Condition;
use crate::duration::GoDuration;
use crate::string_enum::string_enum;

string_enum! {
    /// Where a deployment stands.
    pub enum DeploymentPhase default Running {
        /// Under way.
        Running = "running",
        /// Paused by a user.
        Paused = "paused",
        /// Waits for its region's turn.
        Pending = "pending",
        /// Done here, waits for other regions.
        Blocked = "blocked",
        /// All regions are done.
        Unblocking = "unblocking",
        /// Just made, in a multi-region job.
        Initializing = "initializing",
        /// Done.
        Successful = "successful",
        /// Failed.
        Failed = "failed",
        /// Made needless by a stop or a newer version.
        Cancelled = "cancelled",
    }
}

impl DeploymentPhase {
    /// Whether it can still change.
    pub const fn is_active(self) -> bool {
        match self {
            Self::Running | Self::Paused | Self::Pending | Self::Blocked | Self::Unblocking | Self::Initializing => {
                true
            }
            Self::Successful | Self::Failed | Self::Cancelled => false,
        }
    }
}

string_enum! {
    /// Why a deployment is in its phase.
    pub enum DeploymentDescription default Running {
        /// In progress.
        Running = "Running",
        /// Canaries wait for promotion.
        NeedsPromotion = "NeedsPromotion",
        /// Canaries are promoted when healthy.
        AutoPromotion = "AutoPromotion",
        /// Waits for its region's turn.
        PendingPeer = "PendingPeer",
        /// Paused by a user.
        Paused = "Paused",
        /// Done.
        Successful = "Successful",
        /// Done here, waits for other regions.
        BlockedOnPeer = "BlockedOnPeer",
        /// All regions are done.
        Unblocking = "Unblocking",
        /// Allocations are unhealthy.
        FailedAllocations = "FailedAllocations",
        /// No allocation became healthy in time.
        ProgressDeadline = "ProgressDeadline",
        /// A user failed it.
        FailedByUser = "FailedByUser",
        /// Another region failed.
        FailedByPeer = "FailedByPeer",
        /// The job was stopped.
        StoppedJob = "StoppedJob",
        /// A newer version took its place.
        NewerJob = "NewerJob",
    }
}

string_enum! {
    /// What became of a wanted rollback.
    pub enum RollbackResult {
        /// A stable version was restored.
        RolledBack = "RolledBack",
        /// The newest stable version has the same spec.
        RollbackSameSpec = "RollbackSameSpec",
        /// There is no stable version.
        NoStableVersion = "NoStableVersion",
    }
}

string_enum! {
    /// The aspects of a deployment's state.
    pub enum DeploymentConditionType {
        /// It succeeded.
        Ready = "Ready",
        /// It goes on.
        Reconciling = "Reconciling",
        /// An intervention or a new spec is needed.
        Stalled = "Stalled",
        /// Its canaries are promoted.
        Promoted = "Promoted",
        /// All its allocations are healthy.
        Healthy = "Healthy",
    }
}

string_enum! {
    /// Why a deployment's condition is as it is.
    pub enum DeploymentReason {
        /// Under way.
        InProgress = "InProgress",
        /// Healthy canaries wait for promotion.
        AwaitingPromotion = "AwaitingPromotion",
        /// A user paused it.
        Paused = "Paused",
        /// Other regions are not done.
        Blocked = "Blocked",
        /// No allocation became healthy in time.
        ProgressDeadlineExceeded = "ProgressDeadlineExceeded",
        /// Allocations are unhealthy.
        UnhealthyAllocations = "UnhealthyAllocations",
        /// A user failed it.
        FailedByUser = "FailedByUser",
        /// Another region failed.
        FailedByPeer = "FailedByPeer",
        /// A stop or a newer version ended it.
        Cancelled = "Cancelled",
        /// It succeeded.
        Successful = "Successful",
        /// Its canaries are promoted.
        Promoted = "Promoted",
        /// It has no canaries.
        NoCanaries = "NoCanaries",
        /// Its canaries are not promoted.
        NotPromoted = "NotPromoted",
        /// All its allocations are healthy.
        AllHealthy = "AllHealthy",
        /// Some are not healthy yet.
        NotAllHealthy = "NotAllHealthy",
    }
}

/// A condition of a Deployment.
pub type DeploymentCondition = Condition<DeploymentConditionType, DeploymentReason>;

/// One roll-out of one version of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "drover.dev",
    version = "v1alpha1",
    kind = "Deployment",
    plural = "deployments",
    singular = "deployment",
    shortname = "ddep",
    category = "drover",
    namespaced,
    status = "DeploymentStatus",
    derive = "PartialEq",
    doc = "One roll-out of one version of a job. Created by drover; users pause, promote and fail it.",
    selectable = ".spec.jobName",
    selectable = ".status.phase",
    printcolumn(name = "Job", type_ = "string", json_path = ".spec.jobName"),
    printcolumn(name = "Version", type_ = "integer", json_path = ".spec.jobVersion"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Desired", type_ = "string", json_path = ".status.columns.desired"),
    printcolumn(name = "Placed", type_ = "string", json_path = ".status.columns.placed"),
    printcolumn(name = "Healthy", type_ = "string", json_path = ".status.columns.healthy"),
    printcolumn(name = "Unhealthy", type_ = "string", json_path = ".status.columns.unhealthy"),
    printcolumn(name = "Promoted", type_ = "string", json_path = ".status.columns.promoted"),
    printcolumn(name = "Progress-By", type_ = "string", json_path = ".status.columns.progressBy", priority = 1),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.columns.reason", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentSpec {
    /// The job.
    #[schemars(length(min = 1, max = 63))]
    pub job_name: String,
    /// The job's metadata.uid.
    #[serde(rename = "jobUID")]
    #[schemars(length(min = 1, max = 64))]
    pub job_uid: String,
    /// The version that it rolls out.
    #[schemars(range(min = 0))]
    pub job_version: i64,
    /// The job's metadata.generation when it was made.
    #[serde(default)]
    pub job_generation: i64,
    /// Deprecated: nothing writes it in this version. Whether the job runs in several regions.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_multiregion: bool,
    /// Priority of its evaluations; 0 for the job's.
    #[serde(default)]
    #[schemars(range(min = 0, max = 100))]
    pub eval_priority: i64,
    /// Set it to true to pause the roll-out, to false to go on.
    #[serde(default)]
    pub paused: bool,
    /// Set it to promote healthy canaries: `{all: true}` or `{groups: [api]}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promote: Option<Promote>,
    /// Set it to true to fail the roll-out.
    #[serde(default)]
    pub fail: bool,
    /// Set it to declare allocations healthy or unhealthy, for `healthCheck: manual`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation_health: Option<AllocationHealth>,
}

/// Which groups' canaries to promote.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Promote {
    /// All groups.
    pub all: bool,
    /// These groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 63)), extend("x-kubernetes-list-type" = "set"))]
    pub groups: Vec<String>,
}

impl Promote {
    /// The merge patch that puts this request in the place of an earlier one: such a patch leaves what is not named.
    pub fn patch(&self) -> Value {
        if self.all { json!({ "all": true, "groups": null }) } else { json!({ "all": null, "groups": self.groups }) }
    }
}

/// Allocations judged by a user or a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AllocationHealth {
    /// metadata.uid of those that are healthy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000), inner(length(min = 1, max = 64)), extend("x-kubernetes-list-type" = "set"))]
    pub healthy: Vec<String>,
    /// metadata.uid of those that are not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000), inner(length(min = 1, max = 64)), extend("x-kubernetes-list-type" = "set"))]
    pub unhealthy: Vec<String>,
}

/// What drover knows of a deployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DeploymentStatus {
    /// The metadata.generation that this status is about; -1 before the first observation.
    #[schemars(range(min = -1))]
    pub observed_generation: i64,
    /// running, paused, pending, blocked, unblocking, initializing, successful, failed or cancelled.
    pub phase: DeploymentPhase,
    /// Why, as a code.
    pub description: DeploymentDescription,
    /// What became of a wanted rollback.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollback: Option<Rollback>,
    /// An act of several writes that is not complete yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intent: Option<Intent>,
    /// The requests of `spec` that were carried out or refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acted: Option<Acted>,
    /// Its groups, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub groups: BTreeMap<String, GroupState>,
    /// The last plan that changed this status: the id of its evaluation, and how many writes carry it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub plan: Option<String>,
    /// When it last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modified_at: Option<Timestamp>,
    /// Texts for the columns of `kubectl get`.
    pub columns: DeploymentColumns,
    /// The aspects of its state.
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<DeploymentCondition>,
}

/// What became of a wanted rollback.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rollback {
    /// The outcome.
    pub result: RollbackResult,
    /// The stable version it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<i64>,
}

/// An act of several writes that is not complete yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Intent {
    /// Names the act, so that a repetition is recognised.
    #[schemars(length(min = 1, max = 128))]
    pub id: String,
    /// The version to restore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback_to_version: Option<i64>,
}

/// The requests of `spec` that were carried out or refused; each is acted on once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Acted {
    /// `spec.promote` as it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub promote: Option<Promote>,
    /// A digest of `spec.allocationHealth` as it was.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub allocation_health: String,
    /// When that was accepted; absent where it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocation_health_at: Option<Timestamp>,
}

/// The roll-out of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupState {
    /// Whether its failure goes back to the newest stable version.
    pub auto_revert: bool,
    /// Whether its healthy canaries are promoted automatically.
    pub auto_promote: bool,
    /// By how long after the last healthy allocation the next one must follow; 0 for no deadline.
    pub progress_deadline: GoDuration,
    /// Canaries wanted.
    pub desired_canaries: i64,
    /// Allocations of the new version wanted.
    pub desired_total: i64,
    /// Names of the allocations placed as canaries.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000), inner(length(max = 253)), extend("x-kubernetes-list-type" = "set"))]
    pub placed_canaries: Vec<String>,
    /// Whether its canaries are promoted.
    pub promoted: bool,
    /// Allocations placed.
    pub placed_allocs: i64,
    /// Allocations that became healthy.
    pub healthy_allocs: i64,
    /// Allocations that became unhealthy.
    pub unhealthy_allocs: i64,
    /// By when the next allocation must be healthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub require_progress_by: Option<Timestamp>,
}

/// Texts for the columns of `kubectl get ddep`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DeploymentColumns {
    /// Allocations wanted.
    pub desired: String,
    /// Allocations placed.
    pub placed: String,
    /// Allocations healthy.
    pub healthy: String,
    /// Allocations unhealthy.
    pub unhealthy: String,
    /// Groups promoted, as `1/2`.
    pub promoted: String,
    /// Next deadline.
    pub progress_by: String,
    /// Reason of the condition that matters most.
    pub reason: String,
}

impl Default for DeploymentColumns {
    fn default() -> Self {
        let dash = || "-".to_owned();
        Self {
            desired: dash(),
            placed: dash(),
            healthy: dash(),
            unhealthy: dash(),
            promoted: dash(),
            progress_by: dash(),
            reason: dash(),
        }
    }
}
