//! What every daemon of drover has: probes and metrics, logs, the signals that end it, no cores of its memory, and
//! why its configuration is refused.
//!
//! Must never know what a job, a node or a task is.

pub mod config;
pub mod memory;
pub mod monitor;
pub mod shutdown;
pub mod telemetry;
