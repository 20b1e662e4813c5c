//! The volumes a group asks for.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::csi_volume::{AttachmentMode, MountOptions};
use crate::string_enum::string_enum;

string_enum! {
    /// Where a group's volume comes from.
    pub enum VolumeType {
        /// A CSIVolume object of the job's namespace.
        Csi = "csi",
        /// A HostVolume object of the job's namespace, or a directory that the node offers by name.
        Host = "host",
    }
}

string_enum! {
    /// How a group uses a volume.
    pub enum RequestAccessMode {
        /// Read on one node (host volumes' word for single-node-reader-only).
        SingleNodeReader = "single-node-reader",
        /// Read on one node.
        SingleNodeReaderOnly = "single-node-reader-only",
        /// Read and write on one node.
        SingleNodeWriter = "single-node-writer",
        /// Read and write on one node, by one allocation (host volumes).
        SingleNodeSingleWriter = "single-node-single-writer",
        /// Read and write on one node, by many allocations (host volumes).
        SingleNodeMultiWriter = "single-node-multi-writer",
        /// Read on many nodes.
        MultiNodeReaderOnly = "multi-node-reader-only",
        /// Read on many nodes, written by one.
        MultiNodeSingleWriter = "multi-node-single-writer",
        /// Read and write on many nodes.
        MultiNodeMultiWriter = "multi-node-multi-writer",
    }
}

/// A volume that a group's tasks can mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeRequest {
    /// The name by which the tasks' volumeMounts refer to it, a DNS label.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// csi or host.
    pub r#type: VolumeType,
    /// The CSIVolume's id, or the host volume's name: that of a HostVolume of the namespace, else one of hostVolumes of
    /// the agents' configuration. With perAlloc the allocation's `[index]` is added.
    #[schemars(length(min = 1, max = 128))]
    pub source: String,
    /// How it is used; required for csi. Host volumes default to single-node-reader with readOnly, else
    /// single-node-writer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_mode: Option<RequestAccessMode>,
    /// As files or as a block device; required for csi, host volumes default to file-system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attachment_mode: Option<AttachmentMode>,
    /// Whether it is only read; reader access modes need it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// Whether each allocation has a volume of its own, `<source>[<index>]`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub per_alloc: bool,
    /// Whether a replacement must get the HostVolume that the allocation before it had; it waits until that is free to
    /// use.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sticky: bool,
    /// How to mount it (csi with attachmentMode file-system only); overrides the volume's own options field by field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount_options: Option<MountOptions>,
}
