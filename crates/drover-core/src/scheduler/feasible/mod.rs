//! Which nodes may take a group's allocations at all, and for the others: why not (`spec/scheduler.md` 4). Knows
//! nothing of counts or of room.
//!
//! Constraints are answered once for each class of nodes; what depends on one node (drivers, devices, networks,
//! volumes, `unique.` targets) is answered for each.

mod checks;
mod coverage;
pub mod device;
mod distinct;
mod host_volume;
mod target;
mod volume;
mod wanted;

pub use checks::{Checks, first_broken};
pub use coverage::{is_covered, is_in_pool, is_of_pool};
pub use distinct::{DistinctProperty, distinct_hosts, distinct_properties};
pub use host_volume::{asked_names, depends_on_slot, taken};
pub use target::resolve;
pub use wanted::WantedGroup;

pub(crate) use target::host_network;
