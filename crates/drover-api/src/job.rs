//! Job: what a user wants to run.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::group::Group;
use crate::metric::{AllocMetric, is_zero};
use crate::placement::{Affinity, Constraint, Spread};
use crate::policy::Update;
use crate::string_enum::string_enum;

string_enum! {
    /// How a job's allocations are placed and replaced.
    pub enum JobType default Service {
        /// Runs until it is stopped, `count` allocations of each group.
        Service = "service",
        /// Runs to completion, `count` allocations of each group.
        Batch = "batch",
        /// Runs until it is stopped, on every node that fits.
        System = "system",
        /// Runs to completion on every node that fits.
        Sysbatch = "sysbatch",
    }
}

string_enum! {
    /// Where a job stands.
    pub enum JobPhase default Pending {
        /// Not placed yet.
        Pending = "pending",
        /// Has allocations that run or will run.
        Running = "running",
        /// Has none any more.
        Dead = "dead",
    }
}

string_enum! {
    /// The aspects of a job's state.
    pub enum JobConditionType {
        /// All that is wanted is there and healthy; a batch job has ended well.
        Ready = "Ready",
        /// drover is still working towards the spec.
        Reconciling = "Reconciling",
        /// An intervention or a new spec is needed.
        Stalled = "Stalled",
        /// Every wanted allocation has a node.
        Placed = "Placed",
        /// The job is stopped.
        Stopped = "Stopped",
        /// An automatic revert made an older spec the effective one.
        Reverted = "Reverted",
        /// A batch job ended well.
        Complete = "Complete",
        /// A batch job ended badly.
        Failed = "Failed",
        /// A periodic or parameterized job is accepted and waits.
        Armed = "Armed",
        /// `spec.scale` overrides the group's count.
        ScaleOverride = "ScaleOverride",
        /// Its services can be found; there only while one cannot.
        Services = "Services",
    }
}

string_enum! {
    /// Why a job's condition is as it is.
    pub enum JobReason {
        /// A new spec was seen and is not acted on yet.
        NewGeneration = "NewGeneration",
        /// Allocations are being placed or started.
        Placing = "Placing",
        /// A deployment is under way.
        DeploymentRunning = "DeploymentRunning",
        /// Failed allocations wait for their reschedule.
        Rescheduling = "Rescheduling",
        /// Allocations are moving away from a draining node.
        Draining = "Draining",
        /// Some allocations have found no node for more than five minutes.
        PlacementBlocked = "PlacementBlocked",
        /// The newest deployment failed.
        DeploymentFailed = "DeploymentFailed",
        /// The spec breaks rules.
        InvalidSpec = "InvalidSpec",
        /// Its tasks need values from the gateway, and none is installed.
        NoGateway = "NoGateway",
        /// Failed allocations will not be rescheduled any more.
        ReschedulesExhausted = "ReschedulesExhausted",
        /// A batch job runs.
        Running = "Running",
        /// A batch job failed.
        Failed = "Failed",
        /// A cron expression cannot be read.
        InvalidCron = "InvalidCron",
        /// Everything wanted is there and healthy.
        AllHealthy = "AllHealthy",
        /// A batch job is complete.
        Completed = "Completed",
        /// The job is stopped.
        Stopped = "Stopped",
        /// Allocations are being stopped.
        Stopping = "Stopping",
        /// Everything wanted has a node.
        AllPlaced = "AllPlaced",
        /// Some allocations have found no node.
        NotPlaced = "NotPlaced",
        /// A periodic or parameterized job waits.
        Waiting = "Waiting",
        /// The schedule of a periodic job is switched off.
        ScheduleOff = "ScheduleOff",
        /// A deployment was reverted.
        AutoReverted = "AutoReverted",
        /// `spec.scale.count` is in effect.
        ScaleInEffect = "ScaleInEffect",
        /// A Service of the name of one of its services is not drover's.
        NameTaken = "NameTaken",
        /// An allocation has an address to which no Service may lead.
        AddressRefused = "AddressRefused",
        /// A Service or a slice could not be written.
        EndpointsFailed = "EndpointsFailed",
    }
}

/// A condition of a Job.
pub type JobCondition = Condition<JobConditionType, JobReason>;

/// What a user wants to run: groups of tasks, how many of them, where, and how a new version replaces the old one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "drover.dev",
    version = "v1alpha1",
    kind = "Job",
    plural = "jobs",
    singular = "job",
    shortname = "djob",
    category = "drover",
    namespaced,
    status = "JobStatus",
    derive = "PartialEq",
    doc = "What a user wants to run: groups of tasks, how many of them, where, and how a new version replaces the old one.",
    scale(
        spec_replicas_path = ".spec.scale.count",
        status_replicas_path = ".status.scale.count",
        label_selector_path = ".status.scale.selector"
    ),
    selectable = ".spec.type",
    selectable = ".status.phase",
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.type"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Running", type_ = "string", json_path = ".status.columns.running"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.columns.version"),
    printcolumn(name = "Deployment", type_ = "string", json_path = ".status.columns.deployment", priority = 1),
    printcolumn(name = "Priority", type_ = "integer", json_path = ".spec.priority", priority = 1),
    printcolumn(name = "Pool", type_ = "string", json_path = ".spec.nodePool", priority = 1),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.columns.reason"),
    printcolumn(name = "Next-Launch", type_ = "string", json_path = ".status.columns.nextLaunch", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.columns.message", priority = 1)
)]
#[serde(rename_all = "camelCase")]
pub struct JobSpec {
    /// Nomad's own id, default the object's name: what `NOMAD_JOB_ID`, `${…}` and the HTTP API show. May hold upper
    /// case and other characters that an object's name may not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub id: String,
    /// Display name; default the id.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub name: String,
    /// service (default): `count` allocations of each group, until stopped. batch: `count` allocations, to completion.
    /// system: one on every node that fits, until stopped. sysbatch: one on every node that fits, to completion. It
    /// cannot be changed.
    #[serde(default)]
    pub r#type: JobType,
    /// From 1 to 100, default 50: jobs of higher priority are placed first, and may evict those at least 10 lower where
    /// the cluster allows preemption.
    #[serde(default = "default_priority")]
    #[schemars(range(min = 1, max = 100))]
    pub priority: i64,
    /// The one region of this version, global; any other is refused. Default global.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub region: String,
    /// Datacenters it may run in; `*` and `?` match any text and any character. Default `["*"]`.
    #[serde(default = "default_datacenters")]
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 128)), extend("x-kubernetes-list-type" = "set"))]
    pub datacenters: Vec<String>,
    /// The node pool it runs in; `all` is every pool. Default `default`.
    #[serde(default = "default_pool")]
    #[schemars(length(min = 1, max = 128))]
    pub node_pool: String,
    /// Whether all allocations are placed at once or none; default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all_at_once: bool,
    /// true stops all its allocations and keeps the job; default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stop: bool,
    /// Key and value pairs, as `NOMAD_META_<key>` for all tasks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub meta: BTreeMap<String, String>,
    /// Rules that a node must satisfy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub constraints: Vec<Constraint>,
    /// Preferences for nodes; not for system jobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub affinities: Vec<Affinity>,
    /// How allocations are distributed; not for system jobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub spreads: Vec<Spread>,
    /// How a new version replaces the old one; the default for all groups. Service and system jobs only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update: Option<Update>,
    /// Makes the job a template that is launched on a schedule. Batch and sysbatch jobs only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub periodic: Option<Periodic>,
    /// Makes the job a template that is launched by dispatching it with a payload and meta. Batch and sysbatch jobs
    /// only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameterized: Option<Parameterized>,
    /// Makes the job one dispatch of a parameterized job: it runs the parent's groups with this payload and `meta`. It
    /// cannot be added, changed or removed later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatch: Option<Dispatch>,
    /// Peer clusters that run this job too. Not acted on by this version: refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multiregion: Option<Multiregion>,
    /// Overrides one group's count at run time, as `kubectl scale` and autoscalers do. Leave it out of Git.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<Scale>,
    /// The groups of tasks. Only a dispatch leaves them out: it has those of its parent.
    #[serde(default)]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub groups: Vec<Group>,
}

impl JobSpec {
    /// The id by which tasks and Nomad's clients know it; `name` is the object's name, which stands for a missing id.
    pub fn id_or<'a>(&'a self, name: &'a str) -> &'a str {
        if self.id.is_empty() { name } else { &self.id }
    }

    /// A spec with nothing but what stands for each field that is left out.
    pub fn unset() -> Self {
        Self {
            priority: default_priority(),
            datacenters: default_datacenters(),
            node_pool: default_pool(),
            ..Self::default()
        }
    }

    /// How many allocations one of its groups asks for: where `scale` sets it, that many.
    pub fn count_of(&self, group: &Group) -> i64 {
        let is_scaled =
            |scale: &&Scale| scale.group == group.name || (scale.group.is_empty() && self.groups.len() == 1);
        self.scale.as_ref().filter(is_scaled).and_then(|scale| scale.count).unwrap_or(group.count)
    }

    /// A group by name.
    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|group| group.name == name)
    }
}

fn default_priority() -> i64 {
    50
}

fn default_datacenters() -> Vec<String> {
    vec!["*".to_owned()]
}

fn default_pool() -> String {
    "default".to_owned()
}

/// When a periodic job is launched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Periodic {
    /// Cron expressions of five fields, or `@hourly` and the like; a launch happens at each time that any of them
    /// names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 256)), extend("x-kubernetes-list-type" = "atomic"))]
    pub crons: Vec<String>,
    /// Deprecated: write crons. One expression; accepted with a warning, not together with crons.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub cron: String,
    /// IANA time zone of the expressions; default UTC.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub time_zone: String,
    /// Whether a launch is skipped while an earlier one runs; default false.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub prohibit_overlap: bool,
    /// false pauses the schedule; default true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

string_enum! {
    /// Whether a dispatch brings a payload.
    pub enum PayloadRule default Optional {
        /// It may.
        Optional = "optional",
        /// It must.
        Required = "required",
        /// It must not.
        Forbidden = "forbidden",
    }
}

/// What a dispatch of the job may and must bring.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Parameterized {
    /// Whether a dispatch brings a payload: optional (default), required or forbidden.
    pub payload: PayloadRule,
    /// Meta keys that a dispatch must set.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 128)), extend("x-kubernetes-list-type" = "set"))]
    pub meta_required: Vec<String>,
    /// Meta keys that a dispatch may set.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 128)), extend("x-kubernetes-list-type" = "set"))]
    pub meta_optional: Vec<String>,
}

/// What a dispatched job is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Dispatch {
    /// The parameterized job.
    #[schemars(length(min = 1, max = 63))]
    pub parent: String,
    /// The payload, base64; at most 16 KiB before encoding.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 21848))]
    pub payload: String,
    /// Name of a Secret of the namespace whose key `payload` is the payload, in the place of `payload`: those who may
    /// read jobs do not see it. Who creates the dispatch needs the right to read it, and agents too: name it in the
    /// chart's `agent.volumeSecrets`.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub payload_secret: String,
    /// A dispatch with a token that a child already has answers with that child.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub idempotency_token: String,
    /// From 1 to 100; default the parent's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub priority: Option<i64>,
}

/// Peer clusters that run the job too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Multiregion {
    /// How the regions follow one another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<MultiregionStrategy>,
    /// The regions, in order.
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub regions: Vec<Region>,
}

string_enum! {
    /// What one region's failure means for the others.
    pub enum OnFailure {
        /// All regions fail.
        FailAll = "fail_all",
        /// Only that one fails.
        FailLocal = "fail_local",
    }
}

/// How regions follow one another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MultiregionStrategy {
    /// How many regions deploy at the same time; 0 for all.
    #[schemars(range(min = 0, max = 16))]
    pub max_parallel: i64,
    /// fail_all, fail_local, or absent: the failed region and all later ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<OnFailure>,
}

/// One region of a multi-region job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Region {
    /// Its name.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Count for groups with count 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 50000))]
    pub count: Option<i64>,
    /// Datacenters in this region.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 128)), extend("x-kubernetes-list-type" = "set"))]
    pub datacenters: Vec<String>,
    /// The node pool in this region.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub node_pool: String,
    /// Meta in this region; wins over the job's.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub meta: BTreeMap<String, String>,
}

/// A count at run time for one group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Scale {
    /// The group; default the job's only one.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub group: String,
    /// How many allocations, within the group's scaling limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 50000))]
    pub count: Option<i64>,
}

/// State of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct JobStatus {
    /// The metadata.generation that this status is about; -1 before the first observation.
    #[schemars(range(min = -1))]
    pub observed_generation: i64,
    /// pending, running or dead.
    pub phase: JobPhase,
    /// The version in effect: after an automatic revert a newer one than that of the spec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<i64>,
    /// Whether that version has been deployed successfully.
    pub stable: bool,
    /// The generation that an automatic revert replaced; it is not started again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reverted_generation: Option<i64>,
    /// Allocations of each group, by client status.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 128))]
    pub summary: BTreeMap<String, GroupSummary>,
    /// Child jobs of a periodic or parameterized one, by phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub children: Option<ChildrenSummary>,
    /// The last evaluations, newest first, at most 10.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["id"]))]
    pub evaluations: Vec<EvaluationStatus>,
    /// The evaluation that waits for room, if one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked: Option<BlockedEvaluation>,
    /// What the scale subresource shows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale: Option<ScaleStatus>,
    /// The newest deployment.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub deployment: String,
    /// Last launch of a periodic job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_launch: Option<Timestamp>,
    /// Last launch of a periodic job that was left out because an earlier one still ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_skipped_launch: Option<Timestamp>,
    /// Next launch of a periodic job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_launch: Option<Timestamp>,
    /// Texts for the columns of `kubectl get`.
    pub columns: JobColumns,
    /// The aspects of its state.
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<JobCondition>,
}

/// Texts for the columns of `kubectl get djob`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct JobColumns {
    /// Running and desired allocations, as `3/3`.
    pub running: String,
    /// The version in effect.
    pub version: String,
    /// The newest deployment.
    pub deployment: String,
    /// Reason of the condition that matters most.
    pub reason: String,
    /// Its message: why, and what would help.
    #[schemars(length(max = 1024))]
    pub message: String,
    /// Next launch of a periodic job.
    pub next_launch: String,
}

impl Default for JobColumns {
    fn default() -> Self {
        let dash = || "-".to_owned();
        Self {
            running: dash(),
            version: dash(),
            deployment: dash(),
            reason: dash(),
            message: dash(),
            next_launch: dash(),
        }
    }
}

/// Allocations of a group, by client status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupSummary {
    /// Wanted and not placed.
    pub queued: i64,
    /// Placed and not running yet.
    pub starting: i64,
    /// Running.
    pub running: i64,
    /// Ended well.
    pub complete: i64,
    /// Ended badly.
    pub failed: i64,
    /// On a node that is lost.
    pub lost: i64,
    /// On a node that is disconnected.
    pub unknown: i64,
}

/// Child jobs, by phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ChildrenSummary {
    /// Not placed yet.
    pub pending: i64,
    /// Running.
    pub running: i64,
    /// Ended.
    pub dead: i64,
}

string_enum! {
    /// What made drover look at a job.
    pub enum EvalTrigger {
        /// The job was created or changed.
        JobRegister = "job-register",
        /// The job was stopped or deleted.
        JobDeregister = "job-deregister",
        /// A periodic job was launched.
        PeriodicJob = "periodic-job",
        /// A node changed.
        NodeUpdate = "node-update",
        /// A node is being drained.
        NodeDrain = "node-drain",
        /// A user stopped an allocation.
        AllocStop = "alloc-stop",
        /// The next batch of a staggered update.
        RollingUpdate = "rolling-update",
        /// A deployment moved on.
        DeploymentWatcher = "deployment-watcher",
        /// Room appeared for a blocked evaluation.
        QueuedAllocs = "queued-allocs",
        /// Another try after too many conflicts.
        MaxPlanAttempts = "max-plan-attempts",
        /// Another try after an evaluation failed.
        FailedFollowUp = "failed-follow-up",
        /// Allocations were evicted.
        Preemption = "preemption",
        /// The job was scaled.
        JobScaling = "job-scaling",
        /// An allocation failed.
        AllocFailure = "alloc-failure",
        /// The pause before a reschedule is over.
        AllocReschedule = "alloc-reschedule",
        /// A disconnected allocation's time is up.
        MaxDisconnectTimeout = "max-disconnect-timeout",
        /// A disconnected allocation reported again.
        Reconnect = "reconnect",
    }
}

string_enum! {
    /// Where an evaluation stands.
    pub enum EvalStatus {
        /// In the queue.
        Pending = "pending",
        /// Done.
        Complete = "complete",
        /// Could not be done.
        Failed = "failed",
        /// Waits for room.
        Blocked = "blocked",
        /// A later one made it needless.
        Canceled = "canceled",
    }
}

/// One evaluation of the job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EvaluationStatus {
    /// Its id.
    #[schemars(length(max = 64))]
    pub id: String,
    /// What caused it.
    pub trigger: EvalTrigger,
    /// How it ended.
    pub status: EvalStatus,
    /// Why, where it failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub description: String,
    /// Its priority.
    pub priority: i64,
    /// When it ended.
    pub time: Timestamp,
    /// For each group that found no place: why.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failed: BTreeMap<String, AllocMetric>,
    /// The job's metadata.generation that it has seen.
    #[serde(default)]
    pub generation: i64,
    /// The job's annotation drover.dev/evaluate that it has seen; 0 for none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub asked: i64,
    /// The deployment that it made or that was under way.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub deployment_name: String,
}

/// The evaluation that waits for room.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlockedEvaluation {
    /// Its id.
    #[schemars(length(max = 64))]
    pub id: String,
    /// Since when.
    pub since: Timestamp,
    /// For each group that found no place: why.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failed: BTreeMap<String, AllocMetric>,
}

/// What the scale subresource shows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ScaleStatus {
    /// Allocations of the scaled group that are to run.
    pub count: i64,
    /// A label selector of the job's allocations.
    #[schemars(length(min = 1, max = 256))]
    pub selector: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_unset_spec_is_what_a_manifest_without_fields_is() {
        let read: JobSpec = serde_json::from_value(json!({})).expect("a spec");
        assert_eq!(JobSpec::unset(), read);
    }

    #[test]
    fn a_group_asks_for_what_scale_sets_where_it_is_meant() {
        let spec = |scale: serde_json::Value, names: &[&str]| -> JobSpec {
            let groups: Vec<_> = names.iter().map(|name| json!({ "name": name, "count": 2, "tasks": [] })).collect();
            serde_json::from_value(json!({ "scale": scale, "groups": groups })).expect("a spec")
        };
        for (scale, names, wanted) in [
            (json!(null), &["a", "b"][..], [2, 2].as_slice()),
            (json!({ "group": "b", "count": 5 }), &["a", "b"], &[2, 5]),
            (json!({ "group": "b" }), &["a", "b"], &[2, 2]),
            (json!({ "count": 5 }), &["a"], &[5]),
            (json!({ "count": 5 }), &["a", "b"], &[2, 2]),
        ] {
            let spec = spec(scale.clone(), names);
            let counts: Vec<i64> = spec.groups.iter().map(|group| spec.count_of(group)).collect();
            assert_eq!(counts, wanted, "{scale} {names:?}");
        }
    }
}
