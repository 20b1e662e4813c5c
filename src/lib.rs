//! The shells of drover: the controller, the node agent and the user's command, around the decisions of `drover-core`.

pub mod agent;
pub mod cli;
pub mod clock;
pub mod config;
pub mod connect;
pub mod controller;
pub mod convert;
pub mod events;
pub mod monitor;
pub mod shutdown;
pub mod store;
pub mod supervisor;
pub mod telemetry;
pub mod uninstall;
