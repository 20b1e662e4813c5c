//! Labels on the objects that the controller creates.

/// Name of the Job an object belongs to.
pub const JOB: &str = "drover.dev/job";
/// Name of the group an Allocation belongs to.
pub const GROUP: &str = "drover.dev/group";
/// Name of the periodic or parameterized Job that a Job was made from.
pub const PARENT: &str = "drover.dev/parent";
/// Before the key of a tag `key=value`, on an EndpointSlice.
pub const TAG_PREFIX: &str = "tag.drover.dev/";
/// Name of the Service that an EndpointSlice belongs to; Kubernetes' own.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Who keeps an EndpointSlice; Kubernetes' own.
pub const SLICE_MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// Who made an object of a kind that others make too.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The value of [`MANAGED_BY`] on what drover made.
pub const DROVER: &str = "drover";
