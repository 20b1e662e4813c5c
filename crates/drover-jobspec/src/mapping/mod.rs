//! From a job file's blocks to manifests, and from a job back to them: tables of what each block may hold, and what of
//! it has another shape here.

mod convert;
#[cfg(test)]
mod coverage;
mod job;
mod read_wire;
mod report;
mod shapes;
mod sugar;
mod table;
mod tables;
mod template_objects;
mod text;
mod usual;
mod volume;
mod wire;
mod write_hcl;
mod write_wire;

pub(crate) use job::manifest as job;
pub(crate) use volume::{manifests as volumes, wire_manifests as wire_volume};
pub(crate) use wire::manifest as wire_manifest;
pub use wire::{hcl, wire_job};
