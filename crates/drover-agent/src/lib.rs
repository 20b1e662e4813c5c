//! The node agent: registers its machine as a ClientNode, runs the allocations that name it, and reports how they fare.
//!
//! Input: the agent's configuration, its ClientNode and the Allocations with its name (watches), job versions (read once each).
//! Output: processes under the supervisor, directories, Allocation and ClientNode status, one Lease.
//!
//! Invariants: what was decided is in the state file before it is done; a task handle is there before the task is reported; an
//! agent that ends leaves its tasks running; no runner ever waits for the API server; the agent writes no object of another node.
//!
//! Must never know: other nodes' allocations, why something was placed here, how a replacement is chosen.

mod admission;
mod alloc_runner;
mod allocs;
pub mod config;
mod csi;
mod devices;
mod directory;
mod dirs;
mod disk;
mod drivers;
mod environment;
mod events;
mod facts;
mod fingerprint;
mod heartbeat;
pub mod local;
mod node;
mod numbers;
mod pod;
mod random;
mod report;
mod reports;
mod run;
mod run_node;
pub mod simulated;
mod starts;
mod state;
mod stats;
mod sync;
mod task_runner;
mod volumes;
mod watch;

pub use run::{AgentStart, run};
