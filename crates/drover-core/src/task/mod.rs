//! Decisions about tasks: which variables a task gets, what its driver takes as settings, and why one failed.

pub mod common_settings;
pub mod container_config;
pub mod driver_config;
pub mod environment;
pub mod failure;
pub mod secret;
