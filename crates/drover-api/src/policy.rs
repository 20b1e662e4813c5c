//! The blocks that say how allocations are replaced: update, restart, reschedule, migrate, disconnect.
//!
//! No field here has a schema default: what an absent field means depends on the job's type or on the block above, so
//! that `drover-core` fills it in. Each description states the value.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::duration::GoDuration;
use crate::string_enum::string_enum;

string_enum! {
    /// How an allocation's health is found.
    pub enum HealthCheck default Checks {
        /// All tasks run and all checks of its services pass.
        Checks = "checks",
        /// All tasks run.
        TaskStates = "task_states",
        /// Only a user or a program sets it.
        Manual = "manual",
    }
}

string_enum! {
    /// What happens when restarts are used up.
    pub enum RestartMode default Fail {
        /// The task fails, and its allocation with it.
        Fail = "fail",
        /// The task waits for the end of the interval and starts again.
        Delay = "delay",
    }
}

string_enum! {
    /// How the delay between reschedules grows.
    pub enum DelayFunction default Exponential {
        /// Always the same.
        Constant = "constant",
        /// Doubles each time.
        Exponential = "exponential",
        /// The sum of the two before.
        Fibonacci = "fibonacci",
    }
}

string_enum! {
    /// Which allocation stays when a disconnected node comes back and a replacement runs.
    pub enum ReconcileStrategy default BestScore {
        /// The one whose node scores better.
        BestScore = "best_score",
        /// The one that has run longest.
        LongestRunning = "longest_running",
        /// The original.
        KeepOriginal = "keep_original",
        /// The replacement.
        KeepReplacement = "keep_replacement",
    }
}

/// How a new version replaces the old one. On the job it is the default for all groups, a group's own block overrides
/// it field by field. With maxParallel 0 there is no rolling update: everything is replaced at once and no Deployment
/// is made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Update {
    /// How many allocations of the group may be replaced at the same time; default 1. 0 turns rolling updates off.
    /// Example: 2 of 10 are stopped and started again, the next ones when these are healthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 50000))]
    pub max_parallel: Option<i64>,
    /// How many allocations of the new version to start beside the old ones before anything is replaced, which then
    /// waits for promotion; default 0, none. On system jobs a percentage of the nodes, at most 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 50000))]
    pub canary: Option<i64>,
    /// How long an allocation must be well, without a restart, before it counts as healthy; default 10s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_healthy_time: Option<GoDuration>,
    /// By when an allocation must be healthy, from its start, or it counts as unhealthy; default 5m.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub healthy_deadline: Option<GoDuration>,
    /// By when the next allocation must have become healthy, or the deployment fails; default 10m. 0 means that the
    /// first unhealthy allocation fails the deployment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_deadline: Option<GoDuration>,
    /// Whether a failed deployment goes back to the newest stable version; default false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_revert: Option<bool>,
    /// Whether healthy canaries are promoted automatically; default false. All groups with canaries must agree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_promote: Option<bool>,
    /// Pause between batches of system jobs without a deployment. Not acted on by this version: refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stagger: Option<GoDuration>,
    /// How health is found; default checks (for groups without services the same as task_states).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_check: Option<HealthCheck>,
}

/// How often a task that ended is started again on the same node. A task's own block overrides its group's field by
/// field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Restart {
    /// Restarts within one interval; default 2 for service and system, 3 for batch and sysbatch.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub attempts: Option<i64>,
    /// Span in which attempts are counted, at least 5s; default 30m for service and system, 24h for batch and sysbatch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<GoDuration>,
    /// Pause before a restart, to which up to 25 % are added at random; default 15s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<GoDuration>,
    /// What follows when the attempts are used up: fail (default) or delay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<RestartMode>,
    /// Whether all templates are rendered again before a restart, also what the task has changed in their files;
    /// default false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub render_templates: Option<bool>,
}

/// How an allocation that failed is placed again, usually on another node. Service and batch jobs only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Reschedule {
    /// Reschedules within one interval; default 1 for batch. Not together with unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub attempts: Option<i64>,
    /// Span in which attempts are counted, at least 15s; default 24h for batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<GoDuration>,
    /// First pause before a reschedule, at least 5s; default 30s for service, 5s for batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<GoDuration>,
    /// How the pause grows; default exponential for service, constant for batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_function: Option<DelayFunction>,
    /// Longest pause; default 1h for service. Not used by constant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_delay: Option<GoDuration>,
    /// Whether rescheduling has no limit; default true for service, false for batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unlimited: Option<bool>,
}

/// How allocations leave a draining node. Service jobs only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Migrate {
    /// How many allocations of the group may be on their way at the same time; default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 50000))]
    pub max_parallel: Option<i64>,
    /// How the health of the moved allocation is found: checks (default) or task_states.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_check: Option<HealthCheck>,
    /// How long it must be well before the next one moves; default 10s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_healthy_time: Option<GoDuration>,
    /// By when it must be healthy; default 5m.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub healthy_deadline: Option<GoDuration>,
}

/// What happens to allocations on a node that lost its connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Disconnect {
    /// How long an allocation of a silent node stays `unknown` before it counts as lost; default 0, at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_after: Option<GoDuration>,
    /// Whether a replacement is started meanwhile; default true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replace: Option<bool>,
    /// Which one stays when the node comes back; default best_score.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reconcile: Option<ReconcileStrategy>,
    /// How long after the last successful heartbeat the node itself stops the allocation; default never. Not together
    /// with lostAfter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_on_client_after: Option<GoDuration>,
}
