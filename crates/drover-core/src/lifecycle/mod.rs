//! What happens to the tasks of one allocation, and when.
//!
//! Input: the tasks' places in the lifecycle, their states and the time. Output: open gates, reactions, a derived
//! client status, the order of a kill, the next restart. The agent's runners carry these out.
//!
//! Invariants: every function is total; the same input gives the same answer (randomness is passed in as a number).
//!
//! Must never know: processes, drivers, files, the API server, a clock.

mod coordinator;
mod garbage;
mod kill_order;
#[cfg(test)]
mod orders;
mod reaction;
mod restart;
mod stage;
mod status;
mod stop_after;
#[cfg(test)]
mod tests;

pub use coordinator::{Coordinator, Gates};
pub use garbage::{GarbageLimits, GarbageReason, NodeUsage, garbage_reason, oldest};
pub use kill_order::kill_stages;
pub use reaction::{KillCause, Reaction, react};
pub use restart::{
    Decision, ExitFacts, NotRestarting, RestartCount, RestartMode, RestartPolicy, RestartReason, RestartTracker,
};
pub use stage::{Hook, Progress, RunState, Stage, TaskPlace};
pub use status::{DerivedStatus, StatusInput, derive_status};
pub use stop_after::{CutOff, cut_off};
