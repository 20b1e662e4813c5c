//! Decisions about tasks: which variables a task gets.

pub mod environment;
