//! The custom resource types of drover (group `drover.dev`): wire shapes, schema, conditions, names.
//!
//! Input and output are JSON: the shapes of the objects as users and clusters see them. A field's description here is what
//! `kubectl explain` prints. The crate must never know a decision: which defaults depend on other fields, whether a spec makes
//! sense as a whole, or what follows from it, is `drover-core`'s.

#![allow(clippy::doc_markdown, reason = "descriptions of fields are what kubectl explain prints, as plain text")]
#![allow(clippy::duplicated_attributes, reason = "each printcolumn has the same keys")]

mod string_enum;

pub mod allocation;
pub mod client_node;
pub mod condition;
pub mod csi_volume;
pub mod deployment;
pub mod duration;
pub mod group;
pub mod job;
pub mod job_version;
pub mod message;
pub mod metric;
pub mod names;
pub mod network;
pub mod placement;
pub mod policy;
pub mod schema;
pub mod service;
pub mod task;
pub mod volume_request;

pub use allocation::{Allocation, AllocationSpec, AllocationStatus};
pub use client_node::{ClientNode, ClientNodeSpec, ClientNodeStatus};
pub use csi_volume::{CSIVolume, CSIVolumeSpec, CSIVolumeStatus};
pub use deployment::{Deployment, DeploymentSpec, DeploymentStatus};
pub use duration::GoDuration;
pub use job::{Job, JobSpec, JobStatus};
pub use job_version::{JobVersion, JobVersionSpec, JobVersionStatus};
pub use schema::crds;

/// The API group of every kind.
pub const GROUP: &str = "drover.dev";
/// The served and stored version of every kind.
pub const VERSION: &str = "v1alpha1";
/// `apiVersion` of every object.
pub const API_VERSION: &str = "drover.dev/v1alpha1";
/// The namespace of drover's own Leases and ConfigMaps unless configured otherwise.
pub const SYSTEM_NAMESPACE: &str = "drover-system";

/// The Lease that the leading controller holds.
pub const LEADER_LEASE: &str = "drover-controller";

/// Field managers, one per writer: a manager applies its whole set each time.
pub mod field_manager {
    /// The controller, as writer of Job status.
    pub const CONTROLLER_JOB: &str = "drover-controller/job";
    /// The controller, as writer of Deployments.
    pub const CONTROLLER_DEPLOYMENT: &str = "drover-controller/deployment";
    /// The controller, as writer of Allocations.
    pub const CONTROLLER_ALLOCATION: &str = "drover-controller/allocation";
    /// The controller, as writer of CSIVolume status.
    pub const CONTROLLER_VOLUME: &str = "drover-controller/csivolume";
    /// The controller, as writer of ClientNodes.
    pub const CONTROLLER_NODE: &str = "drover-controller/clientnode";
    /// The controller, as writer of JobVersions.
    pub const CONTROLLER_JOB_VERSION: &str = "drover-controller/jobversion";
    /// The node agent, for all it writes.
    pub const AGENT: &str = "drover-agent";
    /// The command line tool.
    pub const CLI: &str = "drover-cli";
}

/// Finalizers: set and removed by the controller only.
pub mod finalizer {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    /// On a Job: its allocations are stopped before it goes.
    pub const STOP_ALLOCATIONS: &str = "drover.dev/stop-allocations";
    /// On an Allocation: nothing of it is left on its node before it goes.
    pub const NODE_CLEANUP: &str = "drover.dev/node-cleanup";
    /// On a CSIVolume: its claims are released before it goes.
    pub const RELEASE_CLAIMS: &str = "drover.dev/release-claims";

    /// Whether this finalizer holds the object.
    pub fn is_held(meta: &ObjectMeta, name: &str) -> bool {
        meta.finalizers.iter().flatten().any(|one| one == name)
    }

    /// The object's finalizers but for this one: what a merge writes to release it.
    pub fn without<'a>(meta: &'a ObjectMeta, name: &str) -> Vec<&'a str> {
        meta.finalizers.iter().flatten().map(String::as_str).filter(|one| *one != name).collect()
    }
}

/// Annotations by which people say what they want; the controller takes them away when it is done.
pub mod annotation {
    /// On a CSIVolume: names of nodes, separated by commas, for which a person answers that nothing there uses the volume any more.
    pub const FORCE_RELEASE: &str = "drover.dev/force-release";

    /// The nodes that a [`FORCE_RELEASE`] names.
    pub fn nodes(value: &str) -> impl Iterator<Item = &str> {
        value.split(',').map(str::trim).filter(|node| !node.is_empty())
    }

    /// The value of a [`FORCE_RELEASE`] that names one more node than the one before did.
    pub fn with_node(before: Option<&str>, node: &str) -> String {
        let named: Vec<&str> = nodes(before.unwrap_or_default()).filter(|known| *known != node).chain([node]).collect();
        named.join(",")
    }

    /// On a CSIVolume that is being deleted: `force` lets it go with the claims of allocations that are over; no plugin is called.
    pub const DEREGISTER: &str = "drover.dev/deregister";
    /// On a CSIVolume that is being deleted: `true` has its provider delete it with all its data first.
    pub const DELETE_DATA: &str = "drover.dev/delete-data";
    /// On a CSIVolume: the name of a snapshot that is to be taken of it.
    pub const TAKE_SNAPSHOT: &str = "drover.dev/take-snapshot";
    /// On a CSIVolume: the provider's id of a snapshot that is to be deleted.
    pub const DELETE_SNAPSHOT: &str = "drover.dev/delete-snapshot";
    /// On a CSIVolume: `true` has its provider asked for its snapshots.
    pub const LIST_SNAPSHOTS: &str = "drover.dev/list-snapshots";

    /// On a VolumeAttachment of drover's: namespace and name of the CSIVolume that it attaches, as `shop/data`. Nobody takes it away.
    pub const VOLUME: &str = "drover.dev/volume";
}

/// Labels on the objects that the controller creates.
pub mod label {
    /// Name of the Job an object belongs to.
    pub const JOB: &str = "drover.dev/job";
    /// Name of the group an Allocation belongs to.
    pub const GROUP: &str = "drover.dev/group";
    /// Name of the periodic or parameterized Job that a Job was made from.
    pub const PARENT: &str = "drover.dev/parent";
    /// Who made an object of a kind that others make too.
    pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
    /// The value of [`MANAGED_BY`] on what drover made.
    pub const DROVER: &str = "drover";
}
