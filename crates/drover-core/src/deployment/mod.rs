//! Deployments (`spec/deployments.md`): what a roll-out needs now, from its object, the allocations that belong to it
//! and the versions of its job.
//!
//! [`step`] is the state machine; the scheduler begins, completes and cancels deployments, everything else is decided
//! here. Level-triggered: the same view gives the same step, whichever leader asks and however often, so that a new
//! leader goes on where the last one stopped. It must never know a clock, nor how anything is written.

mod evaluations;
mod newest;
mod progress;
pub mod request;
mod rollback;
mod status;
mod step;
#[cfg(test)]
mod tests;

pub use evaluations::{EvalRecord, latest_index};
pub use newest::{Aged, DeploymentAge, newest};
pub use progress::{awaits_promotion, cutoff, is_done, needed};
pub use rollback::{Target, VersionFacts, goes_back_to};
pub use status::{Standing, Unhealthy, is_unhealthy, judge_unhealthy, status};
pub use step::{DeploymentEffect, DeploymentStep, DeploymentView, StepNotice, digest, judgements, step};
