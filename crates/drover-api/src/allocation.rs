//! Allocation: one instance of a group on one node.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::duration::GoDuration;
use crate::job::EvalTrigger;
use crate::metric::{AllocMetric, is_zero};
use crate::string_enum::string_enum;

string_enum! {
    /// What the controller wants of an allocation.
    pub enum DesiredStatus default Run {
        /// Its tasks run.
        Run = "run",
        /// Its tasks end.
        Stop = "stop",
        /// Its tasks end, for one of higher priority.
        Evict = "evict",
    }
}

string_enum! {
    /// How an allocation fares.
    pub enum ClientStatus default Pending {
        /// Not started, or between restarts.
        Pending = "pending",
        /// Tasks run.
        Running = "running",
        /// All tasks ended well.
        Complete = "complete",
        /// A task failed.
        Failed = "failed",
        /// Its node is lost.
        Lost = "lost",
        /// Its node is disconnected.
        Unknown = "unknown",
    }
}

impl ClientStatus {
    /// Whether it is final.
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Complete | Self::Failed | Self::Lost => true,
            Self::Pending | Self::Running | Self::Unknown => false,
        }
    }
}

string_enum! {
    /// State of a task.
    pub enum TaskRunState default Pending {
        /// Not started, or between restarts.
        Pending = "pending",
        /// Runs.
        Running = "running",
        /// Ended.
        Dead = "dead",
    }
}

string_enum! {
    /// What happened to a task.
    pub enum TaskEventType {
        /// The agent accepted the task.
        Received = "Received",
        /// Its directory is being prepared.
        TaskSetup = "Task Setup",
        /// Its definition was rejected.
        FailedValidation = "Failed Validation",
        /// It could not be prepared.
        SetupFailure = "Setup Failure",
        /// Its artifacts are being fetched.
        DownloadingArtifacts = "Downloading Artifacts",
        /// An artifact could not be fetched.
        FailedArtifactDownload = "Failed Artifact Download",
        /// It could not be launched.
        DriverFailure = "Driver Failure",
        /// Its driver says something.
        Driver = "Driver",
        /// It is up.
        Started = "Started",
        /// Its process ended.
        Terminated = "Terminated",
        /// It will be started again.
        Restarting = "Restarting",
        /// It will not be started again.
        NotRestarting = "Not Restarting",
        /// A user asked for a restart.
        RestartSignaled = "Restart Signaled",
        /// It is being sent a signal.
        Signaling = "Signaling",
        /// It is being ended.
        Killing = "Killing",
        /// It was ended.
        Killed = "Killed",
        /// Another task of the group failed.
        SiblingTaskFailed = "Sibling Task Failed",
        /// The group's leader ended.
        LeaderTaskDead = "Leader Task Dead",
        /// Only helper tasks were left.
        MainTasksDead = "Main Tasks Dead",
        /// A step around the task failed.
        TaskHookFailed = "Task hook failed",
        /// A step around the task says something.
        TaskHookMessage = "Task hook message",
        /// The running task was lost.
        FailedRestoringTask = "Failed Restoring Task",
        /// Its plugin is healthy.
        PluginHealthy = "Plugin became healthy",
        /// Its plugin is not healthy.
        PluginUnhealthy = "Plugin became unhealthy",
        /// The agent is connected again.
        Reconnected = "Reconnected",
        /// It is left running for its shutdown delay.
        WaitingForShutdownDelay = "Waiting for shutdown delay",
        /// Its shutdown delay is left out.
        SkippingShutdownDelay = "Skipping shutdown delay",
        /// A template says something.
        Template = "Template",
        /// Its allocation is unhealthy because of it.
        AllocUnhealthy = "Alloc Unhealthy",
    }
}

string_enum! {
    /// The aspects of an allocation's state.
    pub enum AllocationConditionType {
        /// Running and healthy, or complete.
        Ready = "Ready",
        /// On its way.
        Reconciling = "Reconciling",
        /// Failed or lost.
        Stalled = "Stalled",
        /// Its health.
        Healthy = "Healthy",
        /// Its network.
        Network = "Network",
        /// Its volumes.
        Volumes = "Volumes",
    }
}

string_enum! {
    /// Why an allocation's condition is as it is.
    pub enum AllocationReason {
        /// Its agent has not looked at it yet.
        Pending = "Pending",
        /// Its tasks are being started.
        Starting = "Starting",
        /// Its tasks are being ended.
        Stopping = "Stopping",
        /// Its node is disconnected.
        Reconnecting = "Reconnecting",
        /// A task failed.
        Failed = "Failed",
        /// Its node is lost.
        Lost = "Lost",
        /// Its tasks run.
        Running = "Running",
        /// All its tasks ended well.
        Complete = "Complete",
        /// It is healthy.
        Healthy = "Healthy",
        /// It is not healthy.
        Unhealthy = "Unhealthy",
        /// Its health is not known yet.
        NotJudged = "NotJudged",
        /// Its network could not be made.
        NetworkFailed = "NetworkFailed",
        /// Its network is there.
        NetworkReady = "NetworkReady",
        /// A volume could not be mounted.
        VolumeFailed = "VolumeFailed",
        /// Its volumes are mounted.
        VolumesReady = "VolumesReady",
        /// It waits for a volume.
        VolumesPending = "VolumesPending",
    }
}

/// A condition of an Allocation.
pub type AllocationCondition = Condition<AllocationConditionType, AllocationReason>;

/// One instance of a group on one node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "drover.dev",
    version = "v1alpha1",
    kind = "Allocation",
    plural = "allocations",
    singular = "allocation",
    shortname = "alloc",
    category = "drover",
    namespaced,
    status = "AllocationStatus",
    derive = "PartialEq",
    doc = "One instance of a group on one node. Created by drover; delete it to have it replaced.",
    selectable = ".spec.nodeName",
    selectable = ".spec.jobName",
    selectable = ".spec.deploymentName",
    selectable = ".status.clientStatus",
    printcolumn(name = "Job", type_ = "string", json_path = ".spec.jobName"),
    printcolumn(name = "Group", type_ = "string", json_path = ".spec.group"),
    printcolumn(name = "Node", type_ = "string", json_path = ".spec.nodeName"),
    printcolumn(name = "Desired", type_ = "string", json_path = ".spec.desiredStatus"),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.clientStatus"),
    printcolumn(name = "Healthy", type_ = "string", json_path = ".status.columns.healthy"),
    printcolumn(name = "Restarts", type_ = "string", json_path = ".status.columns.restarts"),
    printcolumn(name = "Version", type_ = "integer", json_path = ".spec.jobVersion", priority = 1),
    printcolumn(name = "Deployment", type_ = "string", json_path = ".status.columns.deployment", priority = 1),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.columns.reason", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct AllocationSpec {
    /// The job.
    #[schemars(length(min = 1, max = 63))]
    pub job_name: String,
    /// The job's metadata.uid.
    #[serde(rename = "jobUID")]
    #[schemars(length(min = 1, max = 64))]
    pub job_uid: String,
    /// The version of the job that it runs.
    #[schemars(range(min = 0))]
    pub job_version: i64,
    /// The group of the job that it runs.
    #[schemars(length(min = 1, max = 63))]
    pub group: String,
    /// Its slot in the group, from 0.
    #[schemars(range(min = 0))]
    pub index: i64,
    /// The node that it runs on.
    #[schemars(length(min = 1, max = 253))]
    pub node_name: String,
    /// The deployment that it counts for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub deployment_name: String,
    /// The evaluation that placed it, or updated it in place last: a UUID.
    #[serde(rename = "evalID", default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub eval_id: String,
    /// Whether it runs beside the old version until promotion.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub canary: bool,
    /// What the controller wants of it: run, stop or evict.
    #[serde(default)]
    pub desired_status: DesiredStatus,
    /// Why, as a code: `NotNeeded`, `Migrating`, `Updating`, `Lost`, `Rescheduled`, …
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub desired_description: String,
    /// Requests for its next transition.
    #[serde(default, skip_serializing_if = "DesiredTransition::is_empty")]
    pub desired_transition: DesiredTransition,
    /// The allocation that it replaces.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub previous_allocation: String,
    /// The delayed evaluation that it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follow_up: Option<FollowUp>,
    /// What it holds of the node.
    #[serde(default)]
    pub resources: AllocatedResources,
    /// The HostVolumes that it uses: their ids, by the names of the group's volumes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub host_volumes: BTreeMap<String, String>,
    /// Names of the allocations that were evicted for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 253)), extend("x-kubernetes-list-type" = "set"))]
    pub preempted_allocations: Vec<String>,
    /// metadata.uid of the allocation that it was evicted for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub preempted_by: String,
    /// The reschedules that led to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reschedule_tracker: Option<RescheduleTracker>,
    /// Deprecated: nothing writes it in this version. Audience of its tasks' tokens.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub identity_audience: String,
    /// What the scheduler found when it placed the allocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<AllocMetric>,
}

impl Allocation {
    /// Whether its status is one that it keeps: complete, failed or lost.
    pub fn has_ended(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.client_status.is_terminal())
    }
}

/// What is to become of an allocation next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[expect(clippy::struct_excessive_bools, reason = "the wire shape: independent requests")]
pub struct DesiredTransition {
    /// Move it off its node.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub migrate: bool,
    /// Allow its replacement while its deployment is active.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub reschedule: bool,
    /// Replace it, whatever the reschedule policy allows.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub force_reschedule: bool,
    /// Stop it without a replacement.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub migrate_disable_placement: bool,
    /// Skip its shutdown delays.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_shutdown_delay: bool,
}

impl DesiredTransition {
    /// Whether nothing is requested.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A delayed evaluation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FollowUp {
    /// Its trigger.
    pub trigger: EvalTrigger,
    /// When it is due.
    pub at: Timestamp,
}

/// What an allocation holds of its node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AllocatedResources {
    /// By task.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub tasks: BTreeMap<String, TaskResources>,
    /// Ports on the node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["label"]))]
    pub ports: Vec<AllocatedPort>,
    /// Disk space in MiB.
    #[serde(rename = "diskMB")]
    #[schemars(range(min = 0))]
    pub disk_mb: i64,
}

/// What a task holds of its node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TaskResources {
    /// MHz.
    #[schemars(range(min = 0))]
    pub cpu: i64,
    /// MiB.
    #[serde(rename = "memoryMB")]
    #[schemars(range(min = 0))]
    pub memory_mb: i64,
    /// MiB that it may use beyond its reservation; 0 for none, -1 for no limit.
    #[serde(rename = "memoryMaxMB", skip_serializing_if = "is_zero")]
    #[schemars(range(min = -1))]
    pub memory_max_mb: i64,
    /// Numbers of its own cores.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4096), extend("x-kubernetes-list-type" = "set"))]
    pub cores: Vec<i64>,
    /// Its devices.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub devices: Vec<AllocatedDevice>,
}

/// Device instances of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AllocatedDevice {
    /// Who made it.
    pub vendor: String,
    /// What it is, as `gpu`.
    pub r#type: String,
    /// Its model.
    pub name: String,
    /// The instances.
    #[schemars(length(max = 128), extend("x-kubernetes-list-type" = "set"))]
    pub ids: Vec<String>,
}

/// A port on the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AllocatedPort {
    /// Its label in the group.
    #[schemars(length(min = 1, max = 63))]
    pub label: String,
    /// Its number on the node.
    #[schemars(range(min = 0, max = 65535))]
    pub value: i64,
    /// Its number inside the network namespace; 0 when not mapped.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0, max = 65535))]
    pub to: i64,
    /// The node's address.
    #[serde(rename = "hostIP", skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub host_ip: String,
}

string_enum! {
    /// How the last reschedule of an allocation went.
    pub enum LastReschedule {
        /// A replacement was placed.
        Ok = "ok",
        /// No node was found.
        NoPlacement = "no placement",
    }
}

/// The reschedules that led to an allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RescheduleTracker {
    /// Oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub events: Vec<RescheduleEvent>,
    /// How the last attempt to replace this allocation went.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_reschedule: Option<LastReschedule>,
}

/// One reschedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RescheduleEvent {
    /// When.
    pub time: Timestamp,
    /// metadata.uid of the allocation that failed.
    #[serde(rename = "prevAllocID")]
    #[schemars(length(max = 64))]
    pub prev_alloc_id: String,
    /// The node that it failed on.
    #[schemars(length(max = 253))]
    pub prev_node_name: String,
    /// The pause before it.
    pub delay: GoDuration,
}

/// What is known of an allocation. The agent's, but for allocStates and a clientStatus of lost or unknown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AllocationStatus {
    /// The metadata.generation that this status is about; -1 before the first observation.
    #[schemars(range(min = -1))]
    pub observed_generation: i64,
    /// pending, running, complete, failed, lost or unknown.
    pub client_status: ClientStatus,
    /// The reason, as a sentence.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub client_description: String,
    /// Its tasks, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub task_states: BTreeMap<String, TaskState>,
    /// The verdict on its health; absent while there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    /// When it became unknown, lost or running again, oldest first; the controller's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub alloc_states: Vec<AllocStateEntry>,
    /// Its network namespace (modes bridge and cni).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkStatus>,
    /// Last result of each check, by check id: `<task or group-<group>>/<service>/<port>/<check>`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 256))]
    pub checks: BTreeMap<String, CheckStatus>,
    /// Its services, as registered.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["id"]))]
    pub services: Vec<ServiceRegistration>,
    /// Its volumes, by name in the group.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub volumes: BTreeMap<String, VolumeStatus>,
    /// When a writer last changed this status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modified_at: Option<Timestamp>,
    /// When a person asked its agent to stop it: the controller stops it then, and places another one in its stead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_requested_at: Option<Timestamp>,
    /// When the last of it was removed from its node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// Texts for the columns of `kubectl get`.
    pub columns: AllocationColumns,
    /// The aspects of its state.
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<AllocationCondition>,
}

/// Texts for the columns of `kubectl get alloc`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AllocationColumns {
    /// true, false or `-`.
    pub healthy: String,
    /// Restarts of all its tasks.
    pub restarts: String,
    /// The deployment that it counts for.
    pub deployment: String,
    /// Reason of the condition that matters most.
    pub reason: String,
}

impl Default for AllocationColumns {
    fn default() -> Self {
        let dash = || "-".to_owned();
        Self { healthy: dash(), restarts: "0".to_owned(), deployment: dash(), reason: dash() }
    }
}

/// State of a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TaskState {
    /// pending, running or dead.
    pub state: TaskRunState,
    /// Whether it failed for good.
    pub failed: bool,
    /// How often it was started again.
    pub restarts: i64,
    /// When it was last started again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_restart: Option<Timestamp>,
    /// When it last began to run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// What happened to it: the newest 10, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10), extend("x-kubernetes-list-type" = "atomic"))]
    pub events: Vec<TaskEvent>,
    /// What has taken effect in it of the Secrets and ConfigMaps that it lists, by `Secret/<name>` and
    /// `ConfigMap/<name>`; only of a task with a template that has rolling.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub values: BTreeMap<String, ValuesInUse>,
}

/// Which values of an object a task uses. The values themselves are in no object but their own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ValuesInUse {
    /// The metadata.resourceVersion that the object had.
    #[schemars(length(max = 128))]
    pub version: String,
    /// Since when they are in use, by the node's clock.
    pub since: Timestamp,
}

/// Something that happened to a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskEvent {
    /// Type of the event.
    pub r#type: TaskEventType,
    /// When, by the node's clock.
    pub time: Timestamp,
    /// The event, as a sentence.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    pub message: String,
    /// Exit code of a terminated task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i64>,
    /// Number of the signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i64>,
    /// Whether it used too much memory.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub oom_killed: bool,
    /// The pause before a restart, or the kill timeout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<GoDuration>,
}

/// A verdict on an allocation's health.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// The verdict.
    pub healthy: bool,
    /// When, by the node's clock.
    pub timestamp: Timestamp,
    /// The deployment that it counts for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub deployment_name: String,
}

string_enum! {
    /// Which field an entry of allocStates is about.
    pub enum AllocStateField default ClientStatus {
        /// clientStatus.
        ClientStatus = "clientStatus",
    }
}

/// A change that the controller made to an allocation's status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AllocStateEntry {
    /// The field.
    pub field: AllocStateField,
    /// Its new value.
    pub value: ClientStatus,
    /// When.
    pub time: Timestamp,
}

/// An allocation's network namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkStatus {
    /// Its interface.
    pub interface_name: String,
    /// Its address.
    pub address: String,
    /// Its IPv6 address.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub address_v6: String,
    /// Its name servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns: Option<crate::network::Dns>,
}

string_enum! {
    /// Result of a check.
    pub enum CheckResult default Pending {
        /// No result yet.
        Pending = "pending",
        /// It passed.
        Success = "success",
        /// It passed with a warning: the service is found, the allocation not healthy.
        Warning = "warning",
        /// It failed.
        Failure = "failure",
    }
}

/// Last result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CheckStatus {
    /// The check's name.
    pub check: String,
    /// The service's name.
    pub service: String,
    /// The task that it belongs to, if any.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub task: String,
    /// The result.
    pub status: CheckResult,
    /// healthiness or readiness.
    pub mode: String,
    /// The answer.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 3072))]
    pub output: String,
    /// Status code of an http check.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_code: Option<i64>,
    /// When.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<Timestamp>,
}

/// A service as registered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceRegistration {
    /// Its id.
    #[schemars(length(min = 1, max = 512))]
    pub id: String,
    /// Its name.
    pub service_name: String,
    /// Deprecated: nothing writes it in this version, whose controller takes tags from the job. Its tags.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub tags: Vec<String>,
    /// Its address where that is one of the allocation's own network, for people: the controller takes it from
    /// `network`, and all others from what it assigned.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub address: String,
    /// Its port on that address.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0, max = 65535))]
    pub port: i64,
    /// Whether its tasks run and all its checks pass.
    pub ready: bool,
}

string_enum! {
    /// How a volume of an allocation fares on its node.
    pub enum VolumeState default Pending {
        /// Not mounted yet.
        Pending = "pending",
        /// Mounted.
        Mounted = "mounted",
        /// Unmounted, and to be released.
        Unmounted = "unmounted",
        /// Its unmount is being tried again.
        UnmountFailed = "unmount-failed",
    }
}

/// A volume of an allocation on its node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeStatus {
    /// The CSIVolume's id.
    #[serde(rename = "volumeID")]
    pub volume_id: String,
    /// Its state.
    pub state: VolumeState,
    /// The last error.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub error: String,
}
