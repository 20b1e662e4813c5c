//! Jobs: their versions, their evaluation, their status, and the jobs that they launch.

mod children;
mod dispatch;
mod evaluation;
mod failures;
mod launch;
mod limits;
mod periodic;
mod status;
#[cfg(test)]
mod tests;
mod versions;

pub(crate) use children::ChildJobs;
pub(crate) use evaluation::Jobs;
pub(crate) use launch::create_launch;
pub(crate) use periodic::PeriodicJobs;
pub(crate) use status::write_status;
pub(crate) use versions::{Preparation, Prepared, create_version, mark_stable, restored_version};
