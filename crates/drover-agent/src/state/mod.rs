//! What the agent keeps over its own death: allocations, tasks, job versions, and what was set at run time.

mod file;
#[cfg(feature = "fuzzing")]
mod fuzz;
#[cfg_attr(
    not(any(test, feature = "simulated")),
    expect(dead_code, unreachable_pub, reason = "agents on virtual time alone have it")
)]
mod memory;
mod records;
mod store;
mod tables;

#[cfg(feature = "fuzzing")]
pub(crate) use fuzz::fuzz;
#[cfg(any(test, feature = "simulated"))]
pub(crate) use memory::MemoryState;
#[cfg(any(test, feature = "simulated"))]
pub use memory::{StateFaults, StateWrite};
pub(crate) use records::{AllocRecord, Flaws, Saved};
#[cfg(test)]
pub(crate) use store::tests::{SmallDisk, big_job};
pub(crate) use store::{Pending, StateError, StateStore};
