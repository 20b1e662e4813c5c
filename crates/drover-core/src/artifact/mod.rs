//! Artifacts: what a source asks to be fetched, where it goes, and which addresses a download may reach
//! (`spec/agent.md` 8.1, `spec/containers.md` 3).
//!
//! Input: an artifact of a task, its values expanded. Output: a [`FetchPlan`], or the field that is wrong with the
//! remedy. The same function answers at admission and on the node.
//!
//! Must never know: connections, files, which allocation asks.

mod destination;
mod git;
mod plan;
mod reach;
mod source_error;
mod way;
mod web_address;

pub use destination::{DestinationError, destination};
pub use git::GitTree;
pub use plan::{ArchiveForm, Checksum, ChecksumKind, Compression, FetchPlan, fetch_plan};
pub use reach::refusal;
pub use source_error::SourceError;
pub use way::{FetchWay, S3Keys, S3Object, sha256_of};
pub use web_address::{WebAddress, WebAddressError};
