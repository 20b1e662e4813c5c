//! The API group of drover, and the names of what it owns of the cluster.

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
