//! Jobs in Nomad's HCL and in Nomad's JSON, turned into manifests, and Jobs turned into both.
//!
//! Input: the text of a job file or a volume file, values for its variables and, where the caller has them, the files
//! that it reads; or a job, or a volume, in the JSON of Nomad's HTTP API. Output: manifests as JSON, ready to be
//! applied, or everything that is wrong with the file, each with its line and column. Nothing of a file is dropped
//! silently: what has no counterpart is named with what to do instead. It must never know a cluster, and it opens no
//! file itself.

mod document;
mod evaluate;
mod functions;
mod inputs;
mod manifests;
mod mapping;
mod source;
#[cfg(test)]
mod tests;
mod tree;
mod types;
mod value;

pub use inputs::{Files, Inputs};
pub use manifests::{is_wire, manifests, wire_manifest, wire_volume_manifests};
pub use mapping::{hcl, wire_job};
pub use source::Fault;
