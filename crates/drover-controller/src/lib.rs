//! The controller: watches in, decisions of `drover-core`, writes out. One of several replicas leads; all state is in
//! the API server, and a new leader rebuilds what it needs from there.
//!
//! `LeaderLoop` takes in changes and routes each to the components that it concerns: jobs, periodic jobs, allocations,
//! deployments, nodes, volumes, services. Each has its own state, gets what all share (`Shared`), and leaves its
//! `Action`s to the `Writer`.

mod actions;
mod allocations;
mod cache;
mod cluster_config;
pub mod config;
mod counting;
mod deployments;
mod finalizers;
mod garbage;
mod heartbeat_config;
mod host_volumes;
mod jobs;
mod keys;
mod leader;
mod leader_loop;
mod nodes;
mod plan_writes;
mod recorder;
mod run;
mod services;
mod shared;
mod status_writes;
mod stored;
#[cfg(test)]
mod tests;
mod timers;
mod volumes;
mod writer;

pub use run::{Process, main, run_on};
