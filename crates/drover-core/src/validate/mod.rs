//! What is wrong with a job's spec as a whole (`spec/scheduler.md`, 1.3): all violations, each with code, field, reason
//! and remedy. Rules that the API server checks too are checked again, because files are judged that no API server has
//! seen.
//!
//! Input is a complete definition, so that merged blocks are judged as they will act. The work is bounded whatever the
//! spec holds. Must never know what runs, which nodes exist, or how a spec was stored.

mod change;
mod files;
mod found;
mod gateway;
mod group;
mod job;
mod network;
mod placement;
mod pod_security;
mod policy;
mod service;
mod shape;
mod submission;
mod task;
mod volume;
mod warning;

pub use change::changes;
pub use files::is_mount_destination;
pub(crate) use found::Violations;
pub use found::{Violation, texts};
pub use gateway::{lacks_only_gateway, needs_gateway};
pub use job::{JOB_MAX_COUNT, SPEC_LIMIT_BYTES, violations};
pub use pod_security::PodSecurity;
pub use shape::{shape, status_shape};
pub use warning::warnings;

#[cfg(test)]
mod tests;
