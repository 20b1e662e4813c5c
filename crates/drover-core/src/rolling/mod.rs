//! New values of Secrets and `ConfigMaps` that reach the allocations of a group one after the other: who gets them now.
//!
//! Input: a group's allocations with what their agents report of them, the object's newest version, the pace. Output:
//! whose turn it is, who waits, and where it has stopped. It is read from the allocations each time, so that all who
//! ask have the same answer, before and after a restart.
//!
//! Invariants: no more than `update.maxParallel` have values, or may take them, with which they are not known to be
//! well; while one is not well with the newest, no other gets them. One whose turn it is keeps it until it has taken
//! them, so that two who ask at different times do not give them to more. Must never know a value, a connection, a
//! clock.

mod members;
mod policy;
mod rollout;
#[cfg(test)]
mod tests;

pub use policy::{RollingPolicy, is_rolling, rolling_policy};
pub use rollout::{RolloutStep, RolloutView, Turn, ValueRollout};
