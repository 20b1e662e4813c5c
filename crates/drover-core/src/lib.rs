//! The decisions of drover, as plain functions: what is there goes in, what to do comes out.
//!
//! The crate knows no clock, no IO, no runtime and no logging: times and randomness are arguments.

pub mod advice;
mod arithmetic;
pub mod artifact;
pub mod broker;
pub mod defaults;
pub mod definition;
pub mod deployment;
pub mod difference;
pub mod dispatch;
pub mod ephemeral_disk;
pub mod evaluation_id;
pub mod gc;
pub mod health;
pub mod host_volume;
pub mod ids;
pub mod job_status;
pub mod lifecycle;
pub mod limits;
pub mod model;
pub mod node;
pub mod periodic;
pub mod rolling;
pub mod scheduler;
pub mod service;
pub mod settings;
pub mod snapshot;
pub mod task;
pub mod triggers;
pub mod usage;
pub mod validate;
pub mod volume;
