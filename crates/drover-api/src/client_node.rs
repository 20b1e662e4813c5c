//! ClientNode: a machine whose agent runs allocations.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::condition::Condition;
use crate::csi_volume::{AccessMode, AttachmentMode, MOST_SNAPSHOTS, PluginSource, VolumeSnapshot};
use crate::duration::GoDuration;
use crate::host_volume::{HostVolumeCapability, HostVolumeRequest};
use crate::string_enum::string_enum;

string_enum! {
    /// Whether new allocations may be placed on a node.
    pub enum Eligibility default Eligible {
        /// They may.
        Eligible = "eligible",
        /// They may not.
        Ineligible = "ineligible",
    }
}

string_enum! {
    /// Where a node stands.
    pub enum NodePhase default Initializing {
        /// Registered, not heard of yet.
        Initializing = "initializing",
        /// Heard of in time.
        Ready = "ready",
        /// Silent for too long.
        Down = "down",
        /// Silent, with allocations that may be away for a while.
        Disconnected = "disconnected",
    }
}

string_enum! {
    /// How a drain ended or goes on.
    pub enum DrainStatus {
        /// Allocations are leaving.
        Draining = "draining",
        /// All have left.
        Complete = "complete",
        /// A user ended it.
        Canceled = "canceled",
    }
}

string_enum! {
    /// The aspects of a node's state.
    pub enum NodeConditionType {
        /// It is heard of and eligible.
        Ready = "Ready",
        /// It is on its way.
        Reconciling = "Reconciling",
        /// It is down.
        Stalled = "Stalled",
        /// New allocations may be placed on it.
        Eligible = "Eligible",
        /// All its detected drivers are healthy.
        DriversHealthy = "DriversHealthy",
        /// A part of its agent does not work; tasks are looked after all the same.
        AgentImpaired = "AgentImpaired",
        /// It is short of memory.
        MemoryPressure = "MemoryPressure",
        /// It is short of disk space.
        DiskPressure = "DiskPressure",
    }
}

string_enum! {
    /// Why a node's condition is as it is.
    pub enum NodeReason {
        /// It is not heard of yet.
        Initializing = "Initializing",
        /// It is being drained.
        Draining = "Draining",
        /// It is silent, and some of its allocations may be away for a while.
        Disconnected = "Disconnected",
        /// It is silent for too long.
        Down = "Down",
        /// It is silent together with most of its pool, so that it is marked later.
        PoolSilent = "PoolSilent",
        /// It is heard of in time.
        HeartbeatsArrive = "HeartbeatsArrive",
        /// An operator made it ineligible.
        Ineligible = "Ineligible",
        /// New allocations may be placed on it.
        Eligible = "Eligible",
        /// All drivers are healthy.
        AllHealthy = "AllHealthy",
        /// A driver is not healthy.
        DriverUnhealthy = "DriverUnhealthy",
        /// The agent's port is held by another process.
        PortTaken = "PortTaken",
        /// Allocations cannot have a network mode that its agent's configuration names.
        NetworkModeUnavailable = "NetworkModeUnavailable",
        /// There is enough.
        Sufficient = "Sufficient",
        /// There is too little.
        Insufficient = "Insufficient",
    }
}

/// A condition of a ClientNode.
pub type NodeCondition = Condition<NodeConditionType, NodeReason>;

/// A machine whose agent runs allocations. The agent creates it from its configuration; afterwards its spec belongs to
/// the operator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "drover.dev",
    version = "v1alpha1",
    kind = "ClientNode",
    plural = "clientnodes",
    singular = "clientnode",
    shortname = "cnode",
    category = "drover",
    status = "ClientNodeStatus",
    derive = "PartialEq",
    doc = "A machine whose agent runs allocations. The agent creates it; operators set eligibility, drain and meta.",
    selectable = ".spec.nodePool",
    selectable = ".status.phase",
    printcolumn(name = "Pool", type_ = "string", json_path = ".spec.nodePool"),
    printcolumn(name = "DC", type_ = "string", json_path = ".spec.datacenter"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Eligible", type_ = "string", json_path = ".spec.eligibility"),
    printcolumn(name = "Drain", type_ = "string", json_path = ".status.columns.drain"),
    printcolumn(name = "Allocs", type_ = "string", json_path = ".status.columns.allocs"),
    printcolumn(name = "CPU", type_ = "string", json_path = ".status.columns.cpu", priority = 1),
    printcolumn(name = "Memory", type_ = "string", json_path = ".status.columns.memory", priority = 1),
    printcolumn(name = "Drivers", type_ = "string", json_path = ".status.columns.drivers", priority = 1),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.columns.version", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ClientNodeSpec {
    /// Where it is; default dc1.
    #[serde(default = "default_datacenter")]
    #[schemars(length(min = 1, max = 128))]
    pub datacenter: String,
    /// The pool that jobs name to use it; default `default`.
    #[serde(default = "default_pool")]
    #[schemars(length(min = 1, max = 128))]
    pub node_pool: String,
    /// The class of the node, for constraints on `${node.class}`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub node_class: String,
    /// Key and value pairs for constraints on `${meta.<key>}`; they win over those of the agent's configuration.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 128))]
    pub meta: BTreeMap<String, String>,
    /// ineligible keeps new allocations away and leaves the running ones; default eligible.
    #[serde(default)]
    pub eligibility: Eligibility,
    /// Set it to move all allocations away; drover clears it at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<Drain>,
}

fn default_datacenter() -> String {
    "dc1".to_owned()
}

fn default_pool() -> String {
    "default".to_owned()
}

/// How allocations leave a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Drain {
    /// How long allocations may take to leave before they are stopped; default 1h, 0 for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<GoDuration>,
    /// true stops all allocations immediately.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// true leaves allocations of system jobs running.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ignore_system_jobs: bool,
}

impl Drain {
    /// The merge patch that puts this request in the place of an earlier one: such a patch leaves what is not named.
    pub fn patch(&self) -> Value {
        let Self { deadline, force, ignore_system_jobs } = self;
        json!({
            "deadline": deadline,
            "force": force.then_some(true),
            "ignoreSystemJobs": ignore_system_jobs.then_some(true),
        })
    }
}

/// State of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClientNodeStatus {
    /// The metadata.generation that this status is about; -1 before the first observation.
    #[schemars(range(min = -1))]
    pub observed_generation: i64,
    /// initializing, ready, down or disconnected.
    pub phase: NodePhase,
    /// When the phase last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase_changed_at: Option<Timestamp>,
    /// What the agent found on its machine; written by the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Fingerprint>,
    /// What allocations can get: resources minus reserved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocatable: Option<NodeResources>,
    /// The drain under way, or the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainState>,
    /// What the node's CSI plugins are asked for, by the name of the request; each is answered in
    /// fingerprint.csiAnswers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 256))]
    pub csi_requests: BTreeMap<String, CsiRequest>,
    /// The host volumes that the node is asked for, by id; each is answered in fingerprint.hostVolumes.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 128))]
    pub volume_requests: BTreeMap<String, HostVolumeRequest>,
    /// What happened to it: the newest 10, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10), extend("x-kubernetes-list-type" = "atomic"))]
    pub events: Vec<NodeEvent>,
    /// Texts for the columns of `kubectl get`.
    pub columns: NodeColumns,
    /// The aspects of its state.
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<NodeCondition>,
}

/// Texts for the columns of `kubectl get cnode`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeColumns {
    /// Whether it is being drained.
    pub drain: String,
    /// Allocations that are not terminal.
    pub allocs: String,
    /// MHz in use and allocatable, as `300/4000`.
    pub cpu: String,
    /// MiB in use and allocatable, as `300/8192`.
    pub memory: String,
    /// Healthy drivers.
    pub drivers: String,
    /// The agent's version.
    pub version: String,
}

impl Default for NodeColumns {
    fn default() -> Self {
        let dash = || "-".to_owned();
        Self { drain: dash(), allocs: dash(), cpu: dash(), memory: dash(), drivers: dash(), version: dash() }
    }
}

/// What an agent found on its machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Fingerprint {
    /// Facts, for constraints on `${attr.<key>}`.
    #[schemars(extend("maxProperties" = 512))]
    pub attributes: BTreeMap<String, String>,
    /// Key and value pairs of the agent.
    pub meta: FingerprintMeta,
    /// All there is.
    pub resources: NodeResources,
    /// What allocations do not get.
    pub reserved: ReservedResources,
    /// Drivers, by name.
    #[schemars(extend("maxProperties" = 32))]
    pub drivers: BTreeMap<String, DriverInfo>,
    /// Groups of devices.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub devices: Vec<DeviceGroup>,
    /// Directories that groups can mount, by name; those of HostVolumes by id.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 128))]
    pub host_volumes: BTreeMap<String, OfferedVolume>,
    /// Addresses for ports, by alias.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub host_networks: Vec<HostNetwork>,
    /// Network modes besides host that it offers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 128)), extend("x-kubernetes-list-type" = "set"))]
    pub network_modes: Vec<String>,
    /// First and last dynamic port; default 20000 and 29999.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dynamic_ports: Option<PortRange>,
    /// CSI plugins, by id.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub csi: BTreeMap<String, CsiInfo>,
    /// Answers of its CSI plugins, by the name of the request.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 256))]
    pub csi_answers: BTreeMap<String, CsiAnswer>,
    /// To which the publish contexts of volumes that are mounted here are sealed, so that only this node's agent reads
    /// them: an X25519 key (HPKE, RFC 9180), 32 bytes in base64. Its agent keeps the other half.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 44))]
    pub sealing_key: String,
    /// Most allocations that it takes; absent for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_allocs: Option<i64>,
    /// Deprecated: nothing writes it in this version. A drain that the agent asks for because it shuts down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain_requested: Option<Drain>,
    /// Deprecated, and not read: the controller computes the class itself. Agents of chart 0.1.0 write it, and the API
    /// server would refuse their whole status without it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub computed_class: String,
    /// The cgroup that holds all tasks.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cgroup_parent: String,
    /// What of the agent itself does not work, and why, by part: `port`, where it answers probes and scrapes;
    /// `network mode bridge` and `network mode cni`, which its configuration names and the node does not offer.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 8))]
    pub agent_problems: BTreeMap<String, String>,
}

/// Key and value pairs of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FingerprintMeta {
    /// From its configuration.
    #[serde(rename = "static", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 128))]
    pub static_meta: BTreeMap<String, String>,
    /// Set at run time; they win. An empty value hides the configured one.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 128))]
    pub dynamic: BTreeMap<String, String>,
}

/// Amounts of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeResources {
    /// MHz of all cores together.
    #[schemars(range(min = 0))]
    pub cpu: i64,
    /// MiB.
    #[serde(rename = "memoryMB")]
    #[schemars(range(min = 0))]
    pub memory_mb: i64,
    /// MiB.
    #[serde(rename = "diskMB")]
    #[schemars(range(min = 0))]
    pub disk_mb: i64,
    /// Processor cores.
    #[schemars(range(min = 0))]
    pub cores: i64,
}

/// What allocations do not get.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReservedResources {
    /// MHz.
    pub cpu: i64,
    /// MiB.
    #[serde(rename = "memoryMB")]
    pub memory_mb: i64,
    /// MiB.
    #[serde(rename = "diskMB")]
    pub disk_mb: i64,
    /// Numbers of cores.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4096), extend("x-kubernetes-list-type" = "set"))]
    pub cores: Vec<i64>,
    /// Ports and ranges, as `22,80,8500-8600`.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 4096))]
    pub ports: String,
}

/// State of a driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DriverInfo {
    /// Whether the node has it.
    pub detected: bool,
    /// Whether it works.
    pub healthy: bool,
    /// Why not, as a sentence.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub description: String,
    /// Facts about it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
}

/// Devices of one model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceGroup {
    /// Who made them.
    pub vendor: String,
    /// What they are, as `gpu`.
    pub r#type: String,
    /// Their model.
    pub name: String,
    /// Facts about them; numbers may have a unit, as `11 GiB`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
    /// The devices.
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["id"]))]
    pub instances: Vec<DeviceInstance>,
}

/// One device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceInstance {
    /// Its id.
    #[schemars(length(min = 1, max = 128))]
    pub id: String,
    /// Whether it works.
    pub healthy: bool,
    /// Deprecated: nothing fills it in this version. Where it is plugged in.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hw_locality: String,
}

/// A directory that groups can mount.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct OfferedVolume {
    /// Where it is on the node.
    pub path: String,
    /// Whether it can only be read.
    pub read_only: bool,
    /// Id of a dynamic one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// Namespace of the HostVolume that it is of; absent for one that the node itself offers. Groups of other
    /// namespaces do not get it.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub namespace: String,
    /// Why the node did not do what it was asked for, as a sentence; absent where it did.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub error: String,
    /// Whether a dynamic one is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// How a dynamic one may be used.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub capabilities: Vec<HostVolumeCapability>,
}

/// Addresses for ports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HostNetwork {
    /// Its alias; `default` is the one of ports that name none.
    pub name: String,
    /// Its address with the length of its prefix.
    pub cidr: String,
    /// Its interface.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub interface: String,
    /// Ports of this address that allocations do not get.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 4096))]
    pub reserved_ports: String,
}

/// A range of ports, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PortRange {
    /// The first.
    #[schemars(range(min = 1, max = 65535))]
    pub min: i64,
    /// The last.
    #[schemars(range(min = 1, max = 65535))]
    pub max: i64,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A CSI plugin on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[expect(clippy::struct_excessive_bools, reason = "the wire shape: independent facts")]
pub struct CsiInfo {
    /// Whether its controller half runs here.
    pub controller: bool,
    /// Whether its node half runs here.
    pub node: bool,
    /// Whether it works.
    pub healthy: bool,
    /// Why not, as a sentence.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub description: String,
    /// Whether its volumes need a controller.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub requires_controller_plugin: bool,
    /// Who runs it; absent for a task of a drover job.
    #[serde(skip_serializing_if = "is_default")]
    pub source: PluginSource,
    /// The allocation that runs it; empty for a driver of the cluster.
    #[serde(rename = "allocID", skip_serializing_if = "String::is_empty")]
    pub alloc_id: String,
    /// Most volumes of it on this node; 0 for no limit.
    pub max_volumes: i64,
    /// The provider's id of this node.
    #[serde(rename = "nodeID", skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub node_id: String,
    /// Where this node is, as the plugin names it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub topology: BTreeMap<String, String>,
    /// The provider's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub provider: String,
    /// The provider's version.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub provider_version: String,
    /// What the plugin can do, as CSI names it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(max = 64)), extend("x-kubernetes-list-type" = "set"))]
    pub capabilities: Vec<String>,
    /// Access modes that volumes may have; empty for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "set"))]
    pub access_modes: Vec<AccessMode>,
}

string_enum! {
    /// What a CSI plugin is asked for.
    pub enum CsiCall {
        /// Its controller half attaches a volume to a node.
        ControllerPublish = "controller-publish",
        /// Its controller half detaches a volume from a node.
        ControllerUnpublish = "controller-unpublish",
        /// Its node half unmounts what an allocation that is gone has left.
        NodeUnpublish = "node-unpublish",
        /// Its controller half makes a volume.
        CreateVolume = "create-volume",
        /// Its controller half deletes a volume at its provider.
        DeleteVolume = "delete-volume",
        /// Its controller half makes a volume larger.
        ControllerExpand = "controller-expand",
        /// Its node half makes a mount follow a volume that was made larger.
        NodeExpand = "node-expand",
        /// Its controller half says whether a volume can be used as its spec says.
        ValidateVolume = "validate-volume",
        /// Its controller half takes a snapshot of a volume.
        CreateSnapshot = "create-snapshot",
        /// Its controller half deletes a snapshot.
        DeleteSnapshot = "delete-snapshot",
        /// Its controller half says which snapshots of a volume there are.
        ListSnapshots = "list-snapshots",
    }
}

impl CsiCall {
    /// Whether it is one that a plugin is asked for one at a time (`spec/volumes.md` 5). What its node half does, and
    /// what changes nothing at the provider, waits for no other call.
    pub const fn takes_lock(self) -> bool {
        match self {
            Self::ControllerPublish
            | Self::ControllerUnpublish
            | Self::CreateVolume
            | Self::DeleteVolume
            | Self::ControllerExpand
            | Self::CreateSnapshot
            | Self::DeleteSnapshot => true,
            Self::NodeUnpublish | Self::NodeExpand | Self::ValidateVolume | Self::ListSnapshots => false,
        }
    }
}

/// A call to a CSI plugin that the controller requests from a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CsiRequest {
    /// Which call.
    pub call: CsiCall,
    /// The plugin.
    #[serde(rename = "pluginID")]
    #[schemars(length(min = 1, max = 63))]
    pub plugin_id: String,
    /// Namespace of the volume's object, which holds the rest of what the call needs.
    #[schemars(length(max = 63))]
    pub namespace: String,
    /// Name of the volume's object.
    #[schemars(length(max = 253))]
    pub volume: String,
    /// The provider's id of the volume.
    #[serde(rename = "externalID", default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub external_id: String,
    /// The allocation that the call is for, by its metadata.uid.
    #[serde(rename = "allocID", default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub alloc_id: String,
    /// The provider's id of the node to attach to or to detach from.
    #[serde(rename = "nodeID", default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub node_id: String,
    /// The sealing key of that node, to which the publish context of the answer is sealed; empty where its agent has
    /// none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 44))]
    pub node_key: String,
    /// Whether the allocation only reads.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// How the allocation uses the volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_mode: Option<AccessMode>,
    /// What it sees of the volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attachment_mode: Option<AttachmentMode>,
    /// Lower limit of the size, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required_bytes: Option<i64>,
    /// Upper limit of the size, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<i64>,
    /// The name of the snapshot to take, or the provider's id of the one to delete.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub snapshot: String,
}

/// Answer of a CSI plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiAnswer {
    /// What went wrong; empty when nothing did.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub error: String,
    /// Whether another try may help.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub retryable: bool,
    /// Publish context, sealed to the node that mounts where its agent has a key, or the created volume's context.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub context: BTreeMap<String, String>,
    /// The created volume's id at its provider.
    #[serde(rename = "externalID", skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub external_id: String,
    /// The created or expanded volume's size in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_bytes: Option<i64>,
    /// Whether nodes that mount the volume must expand it too.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub node_expansion_required: bool,
    /// Where the created volume can be reached from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub topologies: Vec<crate::csi_volume::Topology>,
    /// The snapshot that was taken, or the volume's snapshots.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST_SNAPSHOTS), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["id"]))]
    pub snapshots: Vec<VolumeSnapshot>,
}

/// A drain under way, or the last one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DrainState {
    /// When it began.
    pub started_at: Timestamp,
    /// When the remaining allocations are stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force_deadline: Option<Timestamp>,
    /// Allocations still there.
    #[serde(default)]
    pub remaining: i64,
    /// Its progress.
    pub status: DrainStatus,
}

/// Something that happened to a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeEvent {
    /// When.
    pub time: Timestamp,
    /// Which part of it, as `Cluster`, `Drain`, `Driver`, `Storage`.
    #[schemars(length(max = 64))]
    pub subsystem: String,
    /// What happened, as a sentence.
    #[schemars(length(max = 1024))]
    pub message: String,
}
