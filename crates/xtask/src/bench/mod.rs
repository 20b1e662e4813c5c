//! `cargo xtask bench`: figures of a whole drover on this machine, taken on a system of its own that `up` starts and
//! that ends afterwards. What is printed for programs is described in the project's bench format: one JSON object on
//! stdout.

mod agent;
mod agent_lives;
mod agent_neighbours;
mod args;
mod cluster;
mod cluster_load;
mod cluster_stage;
mod command;
mod containers;
mod density;
mod deployments;
mod door;
mod echoes;
mod gateway;
mod idle_tunnels;
mod nomad_api;
mod report;
mod scheduler;
mod secrets;
mod services;
mod start;
mod status;
mod volumes;
mod waiting;

pub use args::{BenchArgs, BenchName};
pub use command::run;
