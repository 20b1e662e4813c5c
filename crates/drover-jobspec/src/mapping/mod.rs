//! From a job file's blocks to manifests: tables of what each block may hold, and what of it has another shape here.

mod convert;
mod job;
mod sugar;
mod tables;
mod template_objects;
mod volume;

pub(crate) use job::manifest as job;
pub(crate) use volume::manifests as volumes;
