//! What the node says of itself while its agent runs: facts of drivers, devices, volumes and plugins as they come, and
//! metadata that people set.
//!
//! `batch` decides what a fact changes, `meta` what becomes of metadata; `keeper` is the loop over both. Must never
//! know how the facts are found, nor how the node's object is written.

mod batch;
mod keeper;
mod meta;

pub(crate) use batch::{Fact, Manager};
pub(crate) use keeper::{Keeper, MetaError, MetaHandle, watch_drivers};
pub(crate) use meta::{Changes as MetaChanges, Meta, effective as effective_meta};
