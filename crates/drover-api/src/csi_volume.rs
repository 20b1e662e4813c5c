//! CSIVolume: a volume of a CSI driver, and who holds it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::metric::is_zero;
use crate::string_enum::string_enum;

/// What is shown in the place of secrets and mount flags.
pub const REDACTED: &str = "[REDACTED]";

string_enum! {
    /// Who may use a volume at the same time.
    pub enum AccessMode {
        /// Read on one node.
        SingleNodeReaderOnly = "single-node-reader-only",
        /// Read and write on one node.
        SingleNodeWriter = "single-node-writer",
        /// Read on many nodes.
        MultiNodeReaderOnly = "multi-node-reader-only",
        /// Read on many nodes, written on one.
        MultiNodeSingleWriter = "multi-node-single-writer",
        /// Read and write on many nodes.
        MultiNodeMultiWriter = "multi-node-multi-writer",
    }
}

string_enum! {
    /// What a task sees of a volume.
    pub enum AttachmentMode default FileSystem {
        /// Files.
        FileSystem = "file-system",
        /// A block device.
        BlockDevice = "block-device",
    }
}

string_enum! {
    /// Which half of a CSI plugin a task is.
    pub enum PluginType {
        /// Mounts volumes on its node.
        Node = "node",
        /// Makes and attaches volumes.
        Controller = "controller",
        /// Both.
        Monolith = "monolith",
    }
}

string_enum! {
    /// Who runs a CSI plugin.
    pub enum PluginSource default Job {
        /// A task of a drover job.
        Job = "job",
        /// The cluster: the driver has registered with the node's kubelet.
        Kubelet = "kubelet",
    }
}

string_enum! {
    /// Where a volume stands.
    pub enum VolumePhase default Pending {
        /// Being made or checked.
        Pending = "pending",
        /// It has no claims.
        Available = "available",
        /// It has claims.
        Claimed = "claimed",
        /// A claim is being released.
        Reaping = "reaping",
    }
}

string_enum! {
    /// What a claim allows.
    pub enum ClaimMode {
        /// Reading.
        Read = "read",
        /// Reading and writing.
        Write = "write",
    }
}

string_enum! {
    /// How far a claim is from being taken to being free; it only moves forward.
    pub enum ClaimState default Taken {
        /// In use.
        Taken = "taken",
        /// Its release is wanted.
        Unpublishing = "unpublishing",
        /// Off its node.
        NodeDetached = "node-detached",
        /// Detached by the controller plugin.
        ControllerDetached = "controller-detached",
        /// Free.
        ReadyToFree = "ready-to-free",
    }
}

string_enum! {
    /// Whether an allocation may mount the volume that it holds.
    pub enum AttachState default Pending {
        /// The controller plugin is still to attach it to the node.
        Pending = "pending",
        /// It may be mounted: it is attached, or need not be.
        Attached = "attached",
        /// It cannot be attached, and the allocation fails.
        Failed = "failed",
    }
}

string_enum! {
    /// The aspects of a volume's state.
    pub enum VolumeConditionType {
        /// It can be used and no claim is stuck.
        Ready = "Ready",
        /// drover works on it.
        Reconciling = "Reconciling",
        /// An intervention is needed.
        Stalled = "Stalled",
        /// Its plugin is healthy.
        Schedulable = "Schedulable",
    }
}

string_enum! {
    /// Why a volume's condition is as it is.
    pub enum VolumeReason {
        /// Claims are being released.
        Reaping = "Reaping",
        /// It is being attached.
        Attaching = "Attaching",
        /// No healthy instance of its plugin is known.
        PluginMissing = "PluginMissing",
        /// It cannot be detached.
        DetachFailed = "DetachFailed",
        /// Its plugin is healthy.
        PluginHealthy = "PluginHealthy",
        /// Its spec breaks rules.
        InvalidSpec = "InvalidSpec",
        /// It is being made.
        Creating = "Creating",
        /// Its plugin is asked whether it offers what the spec says.
        Validating = "Validating",
        /// Its making failed.
        CreateFailed = "CreateFailed",
        /// Another volume of the cluster names the same volume of the provider.
        HandleInUse = "HandleInUse",
        /// Nothing is wrong with it.
        Available = "Available",
        /// It is held.
        Claimed = "Claimed",
    }
}

/// A condition of a CSIVolume.
pub type VolumeCondition = Condition<VolumeConditionType, VolumeReason>;

/// A volume of a CSI driver, and who holds it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "drover.dev",
    version = "v1alpha1",
    kind = "CSIVolume",
    plural = "csivolumes",
    singular = "csivolume",
    shortname = "csivol",
    category = "drover",
    namespaced,
    status = "CSIVolumeStatus",
    derive = "PartialEq",
    doc = "A volume of a CSI driver, for the groups that name it, and who holds it.",
    selectable = ".spec.pluginID",
    printcolumn(name = "Plugin", type_ = "string", json_path = ".spec.pluginID"),
    printcolumn(name = "Access", type_ = "string", json_path = ".status.columns.access"),
    printcolumn(name = "Schedulable", type_ = "string", json_path = ".status.columns.schedulable"),
    printcolumn(name = "Claims", type_ = "string", json_path = ".status.columns.claims"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Capacity", type_ = "string", json_path = ".status.columns.capacity", priority = 1),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.columns.reason", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct CSIVolumeSpec {
    /// The id that groups name; default the object's name. A per-allocation volume `data[2]` is the object `data-2`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub id: String,
    /// Display name; the provider gets it when it creates the volume.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub name: String,
    /// The plugin that serves it. It cannot be changed.
    #[serde(rename = "pluginID")]
    #[schemars(length(min = 1, max = 63))]
    pub plugin_id: String,
    /// The provider's id of a volume that exists already; absent for one to be made.
    #[serde(rename = "externalID", default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub external_id: String,
    /// How it may be used; at least one.
    #[schemars(length(min = 1, max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub capabilities: Vec<VolumeCapability>,
    /// How it is mounted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount_options: Option<MountOptions>,
    /// Settings for its making. They cannot be changed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub parameters: BTreeMap<String, String>,
    /// What the provider wants back at each use.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub context: BTreeMap<String, String>,
    /// The Secret with the credentials for its plugin, in the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets_ref: Option<SecretRef>,
    /// Wanted size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<CapacityRange>,
    /// Where it may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_request: Option<TopologyRequest>,
    /// A volume to copy; not together with snapshotID.
    #[serde(rename = "cloneID", default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub clone_id: String,
    /// A snapshot to start from; not together with cloneID.
    #[serde(rename = "snapshotID", default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub snapshot_id: String,
}

impl CSIVolumeSpec {
    /// The id by which groups ask for it; `name` is the object's name, which stands for a missing id.
    pub fn id_or<'a>(&'a self, name: &'a str) -> &'a str {
        if self.id.is_empty() { name } else { &self.id }
    }
}

/// One way in which a volume may be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeCapability {
    /// Who may use it at the same time.
    pub access_mode: AccessMode,
    /// As files or as a block device.
    pub attachment_mode: AttachmentMode,
}

/// How a volume is mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MountOptions {
    /// File system type.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 32))]
    pub fs_type: String,
    /// Flags for mount; messages and the CLI never show their values. In a volume `$(key)` stands for the value of
    /// that key of the Secret that `secretsRef` names, and `$$` for a dollar sign: a flag with a credential is refused
    /// unless it takes it from there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(max = 256)), extend("x-kubernetes-list-type" = "set"))]
    pub mount_flags: Vec<String>,
}

/// A Secret of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SecretRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// A wanted size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CapacityRange {
    /// At least this much, as `10Gi`.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 32), regex(pattern = r"^([0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti|Pi|Ei|k|M|G|T|P|E)?)?$"))]
    pub min: String,
    /// At most this much.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 32), regex(pattern = r"^([0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti|Pi|Ei|k|M|G|T|P|E)?)?$"))]
    pub max: String,
}

/// Where a volume may be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologyRequest {
    /// It must be in one of these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub required: Vec<Topology>,
    /// It should be in one of these, first ones first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub preferred: Vec<Topology>,
}

/// A place, as the plugin names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Topology {
    /// Its parts, as `zone: a`; at least one.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 16))]
    pub segments: BTreeMap<String, String>,
}

/// What drover knows of a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CSIVolumeStatus {
    /// The metadata.generation that this status is about; -1 before the first observation.
    #[schemars(range(min = -1))]
    pub observed_generation: i64,
    /// pending, available, claimed or reaping.
    pub phase: VolumePhase,
    /// The provider's id: of a made volume, else the spec's.
    #[serde(rename = "externalID", skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub external_id: String,
    /// Whether drover has the provider make it: set before the provider is asked. Only then does drover delete its
    /// data.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub created_by_drover: bool,
    /// The name that drover chose for it at the provider; absent for one that was registered.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 320))]
    pub provider_name: String,
    /// What the provider answered when it was made.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub context: BTreeMap<String, String>,
    /// Actual size, as a quantity.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 32))]
    pub capacity: String,
    /// Whether its plugin is healthy enough to use it.
    pub schedulable: bool,
    /// How it is used now; absent while it is unclaimed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_mode: Option<AccessMode>,
    /// What its users see of it now; absent while it is unclaimed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attachment_mode: Option<AttachmentMode>,
    /// Where it can be reached from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub topologies: Vec<Topology>,
    /// The metadata.generation that the controller plugin has confirmed; 0 while it has confirmed none.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub validated_generation: i64,
    /// The provider's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub provider: String,
    /// The provider's version.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub provider_version: String,
    /// Whether its plugin has a controller half.
    pub controller_required: bool,
    /// Healthy controller instances.
    pub controllers_healthy: i64,
    /// Expected controller instances.
    pub controllers_expected: i64,
    /// Healthy node instances.
    pub nodes_healthy: i64,
    /// Expected node instances.
    pub nodes_expected: i64,
    /// When the provider ran out of room for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_exhausted: Option<Timestamp>,
    /// Who holds it, by allocation.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["allocID"]))]
    pub claims: Vec<Claim>,
    /// Its snapshots, as its provider answered when it was last asked about them. The provider may have others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST_SNAPSHOTS), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["id"]))]
    pub snapshots: Vec<VolumeSnapshot>,
    /// Why the last snapshot request failed; absent when it succeeded.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub snapshot_error: String,
    /// When this status last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modified_at: Option<Timestamp>,
    /// Texts for the columns of `kubectl get`.
    pub columns: VolumeColumns,
    /// The aspects of its state.
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<VolumeCondition>,
}

/// Most snapshots that a status or an answer holds.
pub const MOST_SNAPSHOTS: usize = 100;

/// A snapshot of a volume at its provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSnapshot {
    /// The provider's id of it, for `spec.snapshotID` of another volume.
    #[schemars(length(min = 1, max = 256))]
    pub id: String,
    /// The name that drover gave it; absent for snapshots that drover did not take.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub name: String,
    /// When it was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
    /// What a volume made from it needs at least, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<i64>,
    /// Whether volumes can be made from it; until then the provider is still at work.
    pub ready_to_use: bool,
}

/// Texts for the columns of `kubectl get csivol`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeColumns {
    /// How it is used now.
    pub access: String,
    /// Whether it can be used.
    pub schedulable: String,
    /// Read, write and past claims, as `0/1/0`.
    pub claims: String,
    /// Actual size.
    pub capacity: String,
    /// Why it cannot be used, or what is being done with it.
    pub reason: String,
}

impl Default for VolumeColumns {
    fn default() -> Self {
        let dash = || "-".to_owned();
        Self { access: dash(), schedulable: dash(), claims: "0/0/0".to_owned(), capacity: dash(), reason: dash() }
    }
}

/// One allocation's hold on a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    /// metadata.uid of the allocation.
    #[serde(rename = "allocID")]
    #[schemars(length(min = 1, max = 64))]
    pub alloc_id: String,
    /// Name of the allocation.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub allocation: String,
    /// The allocation's node.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub node_name: String,
    /// The provider's id of that node.
    #[serde(rename = "externalNodeID", default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub external_node_id: String,
    /// read or write; it stays through the release.
    pub mode: ClaimMode,
    /// How the allocation uses the volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_mode: Option<AccessMode>,
    /// What it sees of the volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attachment_mode: Option<AttachmentMode>,
    /// How far it is.
    #[serde(default)]
    pub state: ClaimState,
    /// Whether the allocation may mount it.
    #[serde(default)]
    pub attach: AttachState,
    /// Since when it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// What the controller plugin answered when it attached the volume, sealed so that only the agent of the claim's
    /// node reads it: drivers put credentials there.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub publish_context: BTreeMap<String, String>,
    /// The last error of its attaching or its release.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub error: String,
}
