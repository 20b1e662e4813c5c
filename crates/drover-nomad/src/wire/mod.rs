//! Objects as Nomad's clients know them: names in `PascalCase`, times as nanoseconds since 1970 or RFC 3339, ids
//! instead of names. Every key of an object is there, also where it has no value; only the full read of an allocation
//! leaves such keys out. Must never know who asks.

pub(crate) mod allocation;
pub(crate) mod awaited;
pub(crate) mod deployment;
pub(crate) mod difference;
pub(crate) mod evaluation;
mod field_list;
pub(crate) mod host_volume;
pub(crate) mod job;
mod legacy;
mod metric;
pub(crate) mod node;
pub(crate) mod planned;
pub(crate) mod plugin;
pub(crate) mod scaling;
pub(crate) mod service;
pub(crate) mod snapshot;
pub(crate) mod submission;
mod tasks;
pub(crate) mod times;
pub(crate) mod volume;
