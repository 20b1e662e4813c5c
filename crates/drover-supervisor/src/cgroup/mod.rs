//! The control group of each task: limits before it starts, its processes and usage while it runs, the cause when
//! memory ran out, and nothing left of it afterwards.
//!
//! Input: the hierarchies that the host has mounted. The code path is chosen by what is there: [`v1`] where controllers
//! have hierarchies of their own, [`v2`] where one tree has them all. All files are below the given roots, so that a
//! recorded tree can stand in for a machine.
//!
//! Must never know: tasks' definitions, namespaces, the agent.

mod cores;
mod devices;
mod files;
mod group;
mod host;
mod sys;
mod usage;
mod v1;
mod v2;

pub use group::entrances;
pub use host::{ContainerGroup, container_group, join_shims, missing};
pub use usage::{Usage, usage};

#[cfg(feature = "fuzzing")]
pub(crate) use devices::fuzz;
pub(crate) use group::Cgroup;
pub(crate) use host::Cgroups;

#[cfg(test)]
mod tests;
