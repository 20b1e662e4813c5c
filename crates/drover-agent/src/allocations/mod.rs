//! The allocations of this node: which there are, one runner for each, and what is done around their tasks.
//!
//! Input: the watch of allocations by `spec.nodeName`, orders of the controller in them. Output: task runners, reports.
//! Must never know why something was placed here.

pub(crate) mod admission;
pub(crate) mod alloc_runner;
pub(crate) mod allocs;
pub(crate) mod commands;
pub(crate) mod directory;
mod health;
mod hooks;
mod job_versions;
mod kill;
pub(crate) mod plan;
mod previous;
mod runner_table;
mod service_watch;
mod silence;
mod task_commands;
mod task_states;
pub(crate) mod volume_sources;
