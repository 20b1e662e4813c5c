//! The custom resource types of drover (group `drover.dev`): wire shapes, schema, conditions, names.
//!
//! Input and output are JSON: the shapes of the objects as users and clusters see them. A field's description here is
//! what `kubectl explain` prints. The crate must never know a decision: which defaults depend on other fields, whether
//! a spec makes sense as a whole, or what follows from it, is `drover-core`'s.

#![allow(clippy::doc_markdown, reason = "descriptions of fields are what kubectl explain prints, as plain text")]
#![allow(clippy::duplicated_attributes, reason = "each printcolumn has the same keys")]

pub mod allocation;
pub mod annotation;
pub mod client_node;
pub mod condition;
pub mod csi_volume;
pub mod deployment;
pub mod duration;
pub mod field_manager;
pub mod finalizer;
pub mod gateway;
pub mod group;
mod group_version;
pub mod host_volume;
pub mod job;
pub mod job_version;
pub mod label;
pub mod message;
pub mod metric;
pub mod names;
pub mod network;
pub mod owner;
pub mod placement;
mod plan_write;
pub mod policy;
pub mod schema;
pub mod service;
mod string_enum;
pub mod task;
pub mod value_object;
pub mod volume_request;

pub use allocation::{Allocation, AllocationSpec, AllocationStatus};
pub use client_node::{ClientNode, ClientNodeSpec, ClientNodeStatus};
pub use csi_volume::{CSIVolume, CSIVolumeSpec, CSIVolumeStatus};
pub use deployment::{Deployment, DeploymentSpec, DeploymentStatus};
pub use duration::GoDuration;
pub use group_version::{API_VERSION, GROUP, LEADER_LEASE, SYSTEM_NAMESPACE, VERSION};
pub use host_volume::{HostVolume, HostVolumeSpec, HostVolumeStatus};
pub use job::{Job, JobSpec, JobStatus};
pub use job_version::{JobVersion, JobVersionSpec, JobVersionStatus};
pub use plan_write::{NoPlanWrite, PlanWrite};
pub use schema::crds;
