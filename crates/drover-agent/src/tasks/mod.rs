//! The tasks of an allocation: one runner for each, what is done around their runs, and what a run is told.

pub(crate) mod commands;
mod hooks;
pub(crate) mod orders;
pub(crate) mod plan;
pub(crate) mod policy;
pub(crate) mod record;
pub(crate) mod runner_env;
pub(crate) mod starts;
pub(crate) mod task_event;
pub(crate) mod task_runner;
mod task_words;

#[cfg(test)]
mod tests;
