//! What the agent keeps over its own death: allocations, tasks, job versions, and what was set at run time.

mod file;
#[cfg(feature = "fuzzing")]
mod fuzz;
mod records;
mod store;
mod tables;

#[cfg(feature = "fuzzing")]
pub(crate) use fuzz::fuzz;
pub(crate) use records::{AllocRecord, Flaws, Saved};
#[cfg(any(test, feature = "simulated"))]
pub(crate) use store::MemoryState;
#[cfg(test)]
pub(crate) use store::tests::{SmallDisk, big_job};
pub(crate) use store::{Pending, StateError, StateStore};
