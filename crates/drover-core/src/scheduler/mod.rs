//! The scheduler: `plan` looks at one job and says what to do. Pure and deterministic: the same view, evaluation and
//! seed give the same plan. It must never know how plans are written, or a clock.

pub mod apply;
pub mod attempts;
pub mod class;
pub mod explain;
pub mod feasible;
pub mod operand;
pub mod place;
pub mod plan;
pub mod preempt;
mod proposed;
pub mod reconcile;
pub mod reschedule;
mod schedule;
pub mod system;
pub mod typed;
pub mod version;

pub use schedule::{accepts, plan};

#[cfg(test)]
pub(crate) mod tests;
