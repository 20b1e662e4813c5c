//! An agent on virtual time, over a machine without hardware. Only simulations and tests have it.

mod machine;
mod plugin;
mod ports;

pub use machine::{Life, Machine, RequestError, Restart, SimulatedEnd, TaskChange, TaskRun};
pub use plugin::{Cloud, MountChange, MountRun, PluginCall, PluginNews, PluginObserver, PluginSpec};
pub use ports::PortAnswer;

pub use crate::state::{StateFaults, StateWrite};
