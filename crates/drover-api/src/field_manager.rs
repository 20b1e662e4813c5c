//! Field managers, one per writer: a manager applies its whole set each time.

/// The controller, as writer of Job status.
pub const CONTROLLER_JOB: &str = "drover-controller/job";
/// The controller, as writer of Deployments.
pub const CONTROLLER_DEPLOYMENT: &str = "drover-controller/deployment";
/// The controller, as writer of Allocations.
pub const CONTROLLER_ALLOCATION: &str = "drover-controller/allocation";
/// The controller, as writer of CSIVolume status.
pub const CONTROLLER_VOLUME: &str = "drover-controller/csivolume";
/// The controller, as writer of HostVolume status.
pub const CONTROLLER_HOST_VOLUME: &str = "drover-controller/hostvolume";
/// The controller, as writer of ClientNodes.
pub const CONTROLLER_NODE: &str = "drover-controller/clientnode";
/// The controller, as writer of JobVersions.
pub const CONTROLLER_JOB_VERSION: &str = "drover-controller/jobversion";
/// The node agent, for all it writes.
pub const AGENT: &str = "drover-agent";
/// The command line tool.
pub const CLI: &str = "drover-cli";
