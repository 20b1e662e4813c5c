//! What the agent tells of its allocations: status reports, Kubernetes Events, metrics.

pub(crate) mod events;
pub(crate) mod metrics;
pub(crate) mod report;
pub(crate) mod reports;
pub(crate) mod sync;
