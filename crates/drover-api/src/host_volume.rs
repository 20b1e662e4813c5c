//! HostVolume: a folder on one node, made or registered for the groups of its namespace.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::csi_volume::AttachmentMode;
use crate::placement::Constraint;
use crate::string_enum::string_enum;
use crate::volume_request::RequestAccessMode;

string_enum! {
    /// Who makes the folder of a host volume.
    pub enum HostVolumePlugin {
        /// The agent, below its state folder.
        Mkdir = "mkdir",
    }
}

string_enum! {
    /// Where a host volume stands.
    pub enum HostVolumePhase default Pending {
        /// It has no node yet, or its node has not made it yet.
        Pending = "pending",
        /// Groups can mount it.
        Ready = "ready",
        /// It was ready, and its node is silent or gone; or it is being deleted.
        Unavailable = "unavailable",
    }
}

string_enum! {
    /// The aspects of a host volume's state.
    pub enum HostVolumeConditionType {
        /// Groups can mount it.
        Ready = "Ready",
        /// drover works on it.
        Reconciling = "Reconciling",
        /// An intervention is needed.
        Stalled = "Stalled",
    }
}

string_enum! {
    /// Why a host volume's condition is as it is.
    pub enum HostVolumeReason {
        /// Its node has it.
        Available = "Available",
        /// No node is what its spec wants.
        NoNode = "NoNode",
        /// Another volume of its namespace and name is on the node that its spec names.
        NameInUse = "NameInUse",
        /// Its node is asked for it.
        Making = "Making",
        /// Its node refuses it.
        MakeFailed = "MakeFailed",
        /// Its node is not ready, or gone.
        NodeUnavailable = "NodeUnavailable",
        /// It is being deleted, and allocations use it.
        InUse = "InUse",
        /// Its node is asked to take it away.
        Removing = "Removing",
        /// Its node was not able to take it away.
        RemoveFailed = "RemoveFailed",
    }
}

/// A condition of a HostVolume.
pub type HostVolumeCondition = Condition<HostVolumeConditionType, HostVolumeReason>;

/// A folder on one node, for the groups of its namespace that name it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "drover.dev",
    version = "v1alpha1",
    kind = "HostVolume",
    plural = "hostvolumes",
    singular = "hostvolume",
    shortname = "hvol",
    category = "drover",
    namespaced,
    status = "HostVolumeStatus",
    derive = "PartialEq",
    doc = "A folder on one node, made or registered for the groups of its namespace that name it.",
    printcolumn(name = "Source", type_ = "string", json_path = ".status.columns.source"),
    printcolumn(name = "Node", type_ = "string", json_path = ".status.columns.node"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Allocs", type_ = "string", json_path = ".status.columns.allocs"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.columns.reason", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct HostVolumeSpec {
    /// The name by which groups of the namespace ask for it; default the object's name. Volumes on several nodes may
    /// have one name: each allocation takes the one of its node. A per-allocation volume is `data[2]`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub name: String,
    /// The node that is to have it; default: one that nodePool, constraints and capacity allow.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub node_name: String,
    /// The pool of the node, where nodeName names none; default `default`, and `all` for any.
    #[serde(default = "default_pool")]
    #[schemars(length(min = 1, max = 128))]
    pub node_pool: String,
    /// Rules that the node must satisfy, where nodeName names none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub constraints: Vec<Constraint>,
    /// Who makes its folder: mkdir. Either this or hostPath.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<HostVolumePlugin>,
    /// Settings for its making. mkdir takes mode (octal, default 0700), uid and gid.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 8))]
    pub parameters: BTreeMap<String, String>,
    /// A folder of the node that exists already; drover never removes it. It must lie below one of hostVolumePaths of
    /// the agent's configuration.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub host_path: String,
    /// Wanted size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<HostVolumeCapacity>,
    /// How it may be used; at least one.
    #[schemars(length(min = 1, max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub capabilities: Vec<HostVolumeCapability>,
}

fn default_pool() -> String {
    "default".to_owned()
}

/// The size of a host volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HostVolumeCapacity {
    /// The node must offer allocations at least this much disk, as `10Gi`. Nothing is reserved, and nothing limits what
    /// tasks write.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 32), regex(pattern = r"^([0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti|Pi|Ei|k|M|G|T|P|E)?)?$"))]
    pub min: String,
}

/// One way in which a host volume may be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostVolumeCapability {
    /// Who may use it at the same time.
    pub access_mode: RequestAccessMode,
    /// As files or as a block device.
    pub attachment_mode: AttachmentMode,
}

/// What drover knows of a host volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HostVolumeStatus {
    /// The metadata.generation that this status is about; -1 before the first observation.
    #[schemars(range(min = -1))]
    pub observed_generation: i64,
    /// pending, ready or unavailable.
    pub phase: HostVolumePhase,
    /// The node that has it, or is asked for it; it stays.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub node_name: String,
    /// Its id, the name of its folder on the node: the object's metadata.uid.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub id: String,
    /// The slots of groups with `sticky` that used it: their next allocations go where it is. A claim goes with its job
    /// and with the group's `sticky`. Slots beyond 4,096 are not bound.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4096), extend("x-kubernetes-list-type" = "atomic"))]
    pub claims: Vec<HostVolumeClaim>,
    /// Texts for the columns of `kubectl get`.
    pub columns: HostVolumeColumns,
    /// The aspects of its state.
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<HostVolumeCondition>,
}

/// A slot of a group that has a host volume as its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostVolumeClaim {
    /// The job, in the volume's namespace.
    #[schemars(length(max = 253))]
    pub job_name: String,
    /// Its metadata.uid: a job that is made again under the name has none of its claims.
    #[serde(rename = "jobUID")]
    #[schemars(length(max = 64))]
    pub job_uid: String,
    /// The group.
    #[schemars(length(max = 63))]
    pub group: String,
    /// The slot's number.
    #[schemars(range(min = 0))]
    pub index: i64,
}

/// Texts for the columns of `kubectl get hvol`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HostVolumeColumns {
    /// The plugin that makes it, or the folder that it is.
    pub source: String,
    /// The node that has it.
    pub node: String,
    /// How many allocations use it.
    pub allocs: String,
    /// Why it cannot be used, or what is being done with it.
    pub reason: String,
}

impl Default for HostVolumeColumns {
    fn default() -> Self {
        let dash = || "-".to_owned();
        Self { source: dash(), node: dash(), allocs: "0".to_owned(), reason: dash() }
    }
}

string_enum! {
    /// What an agent is asked to do with a host volume.
    pub enum HostVolumeCall default Keep {
        /// Make it, or register it.
        Keep = "keep",
        /// Take it away: what drover has made with its files, what was registered as it is.
        Remove = "remove",
    }
}

/// A host volume that the controller requests of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostVolumeRequest {
    /// What to do.
    #[serde(default)]
    pub call: HostVolumeCall,
    /// Namespace of the volume's object.
    #[schemars(length(max = 63))]
    pub namespace: String,
    /// The name by which groups ask for it.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Who makes it; absent for a folder that exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<HostVolumePlugin>,
    /// Settings for its making.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 8))]
    pub parameters: BTreeMap<String, String>,
    /// The folder that exists.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub host_path: String,
}
