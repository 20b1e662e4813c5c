//! Decisions about tasks: which variables a task gets, what its driver takes as settings, where
//! its files go, what follows on a changed template, and why one failed.

pub mod common_settings;
pub mod container_config;
pub mod driver_config;
pub mod environment;
pub mod failure;
pub mod identity;
mod lenient;
pub mod pull_credentials;
pub mod sandbox_path;
pub mod secret;
pub mod standing;
pub mod template;
pub mod template_objects;
