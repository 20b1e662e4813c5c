//! One folder for each noun, one file for each verb.

pub(crate) mod alloc;
pub(crate) mod deployment;
pub(crate) mod dump;
pub(crate) mod job;
pub(crate) mod node;
pub(crate) mod nomad;
pub(crate) mod plan;
pub(crate) mod system;
pub(crate) mod top;
pub(crate) mod volume;
