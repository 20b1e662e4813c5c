//! Decisions about tasks: which variables a task gets, and what its driver takes as settings.

pub mod driver_config;
pub mod environment;
