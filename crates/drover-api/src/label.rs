//! Labels on the objects that the controller creates.

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
