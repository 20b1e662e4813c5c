//! Whether an allocation counts as healthy: for its deployment, or for the drain that moved it.
//!
//! Input: the blocks that say what healthy means, observations of tasks and checks, the time. Output: at most one
//! verdict, and the time at which to look again when nothing else happens.
//!
//! Invariants: a verdict is final until another tracker is made; without observation of a change the same input gives
//! the same answer; a task that restarts within the minimum time puts the verdict off and does not fail it.
//!
//! Must never know: processes, requests of checks, the API server, a clock.

mod ground;
mod policy;
mod reported;
mod tracker;

pub use ground::has_ground;
pub use policy::{HealthMode, HealthPolicy, health_policy};
pub use reported::reported;
pub use tracker::{CheckFacts, CheckState, HealthStep, HealthVerdict, Observation, Responsible, TaskFacts, Tracker};
