//! Drivers: what a task runner needs to know of how tasks are run. One small trait, one file per driver.
//!
//! A driver is told everything in a [`StartRequest`] and keeps nothing: what finds a task again is in its handle, which
//! the runner stores. It must never know allocations' desired states, restart policies or hooks.

mod containerd;
mod driver;
mod exec;
mod found_image;
mod mock;
mod process;
mod raw_exec;
mod resources;
mod signals;
mod table;
pub(crate) mod users;

pub use containerd::make_container;
pub(crate) use containerd::{
    ContainerDriver, ContainerRights, ContainerSettings, Discards, NodeContainers, keep as keep_containers,
};
pub(crate) use driver::{
    Driver, DriverError, ExitResult, FsIsolation, HealthReport, LogLimits, NetworkPlace, PullSecrets, Running,
    StartError, StartRequest, StatsError, TaskHandle, UsageStream,
};
pub(crate) use exec::{Exec, ExecSettings, SharedNamespaces};
pub(crate) use found_image::ImageSlot;
pub(crate) use mock::Mock;
#[cfg(any(test, feature = "simulated"))]
pub(crate) use mock::MockChange;
pub(crate) use raw_exec::{RawExec, RawExecSettings};
pub(crate) use resources::missing_rights;
pub(crate) use signals::{SIGNALS, signal_number};
pub(crate) use table::Drivers;
