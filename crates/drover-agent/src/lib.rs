//! The node agent: registers its machine as a ClientNode, runs the allocations that name it, and reports how they fare.
//!
//! Input: the agent's configuration, its ClientNode and the Allocations with its name (watches), job versions (read
//! once each). Output: processes under the supervisor, directories, Allocation and ClientNode status, one Lease.
//!
//! Invariants: what was decided is in the state file before it is done; a task handle is there before the task is
//! reported; an agent that ends leaves its tasks running; no runner ever waits for the API server; the agent writes no
//! object of another node.
//!
//! Must never know: other nodes' allocations, why something was placed here, how a replacement is chosen.

mod allocations;
mod artifacts;
mod checks;
pub mod config;
mod csi;
mod drivers;
mod enter;
mod folder;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod gateway;
mod glob;
mod helper;
mod networks;
mod node;
mod random;
mod remote_disks;
mod renderer;
mod reporting;
mod run;
#[cfg(any(test, feature = "simulated"))]
pub mod simulated;
pub mod socket;
mod state;
mod task_api;
mod tasks;
mod turns;
mod values;
mod watch;

pub use drivers::make_container;
pub use run::{AgentStart, run};
