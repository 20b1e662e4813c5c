//! Decisions about tasks: which variables a task gets, and why one failed.

pub mod environment;
pub mod failure;
