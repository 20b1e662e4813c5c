//! containerd's messages and clients, as its proto files have them.

#![allow(
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    rustdoc::all,
    reason = "all of it is generated"
)]

include!(concat!(env!("OUT_DIR"), "/containerd_api.rs"));

pub use containerd::runc::v1 as runc;
pub use containerd::services::containers::v1 as containers;
pub use containerd::services::content::v1 as content;
pub use containerd::services::diff::v1 as diff;
pub use containerd::services::images::v1 as images;
pub use containerd::services::leases::v1 as leases;
pub use containerd::services::snapshots::v1 as snapshots;
pub use containerd::services::streaming::v1 as streaming;
pub use containerd::services::tasks::v1 as tasks;
pub use containerd::services::transfer::v1 as transfers;
pub use containerd::services::version::v1 as version;
pub use containerd::types;
pub use containerd::v1::types as task;
