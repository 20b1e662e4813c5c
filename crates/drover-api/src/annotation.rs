//! Annotations by which people say what they want; the controller takes them away when it is done.

/// On a CSIVolume: names of nodes, separated by commas, for which a person answers that nothing there uses the volume
/// any more.
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

/// On a Job: a number. Each time it grows the job is evaluated, although its spec is as it was. It is never taken away.
pub const EVALUATE: &str = "drover.dev/evaluate";

/// On a CSIVolume that is being deleted: `force` lets it go with the claims of allocations that are over; no plugin is
/// called.
pub const DEREGISTER: &str = "drover.dev/deregister";
/// On a CSIVolume that is being deleted: `true` has its provider delete it with all its data first.
pub const DELETE_DATA: &str = "drover.dev/delete-data";
/// On a CSIVolume: the name of a snapshot that is to be taken of it.
pub const TAKE_SNAPSHOT: &str = "drover.dev/take-snapshot";
/// On a CSIVolume: the provider's id of a snapshot that is to be deleted.
pub const DELETE_SNAPSHOT: &str = "drover.dev/delete-snapshot";
/// On a CSIVolume: `true` has its provider asked for its snapshots.
pub const LIST_SNAPSHOTS: &str = "drover.dev/list-snapshots";

/// On an Allocation or a Deployment: the last plan that changed its spec or made it, as
/// [`PlanWrite`](crate::PlanWrite).
pub const PLAN: &str = "drover.dev/plan";

/// On an EndpointSlice of drover's: the tags of its service, separated by commas.
pub const TAGS: &str = "drover.dev/tags";
/// On an EndpointSlice of drover's: the datacenter of its allocation's node, as it was when the slice was made.
pub const DATACENTER: &str = "drover.dev/datacenter";
/// On a Service without selector that drover has not made: `true` lets drover put slices below it.
pub const ENDPOINTS: &str = "drover.dev/endpoints";

/// On a VolumeAttachment of drover's: namespace and name of the CSIVolume that it attaches, as `shop/data`. It is
/// never taken away.
pub const VOLUME: &str = "drover.dev/volume";

/// On a Job: the text of the job file that it was registered from by clients of Nomad, as JSON, with the digest of the
/// spec that it stands for. drover itself only shows it to them.
pub const SUBMISSION: &str = "drover.dev/submission";
