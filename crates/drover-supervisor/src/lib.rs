//! The supervisor: one process per agent that is the parent of every `raw_exec` and `exec` task and outlives the agent.
//!
//! Input: requests over a Unix socket ([`protocol`]), task output through FIFOs, the end of tasks through pidfds.
//! Output: exit events, rotated log files. Nothing in it polls: an idle supervisor uses no CPU.
//!
//! Invariants: one supervisor per state folder (a lock file); an exit result is kept until the agent has acknowledged
//! it; a task's end is told only when nothing of its process group is left; its own death neither kills a task nor
//! breaks its pipes.
//!
//! Must never know: allocations, jobs, restart policies, the API server. It starts what it is told and says how it
//! ended.

mod cgroup;
pub mod client;
mod container;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod launch;
mod logs;
mod mounts;
mod processes;
pub mod protocol;
mod sandbox;
mod server;
mod spawn;
mod sys;
mod tasks;
mod upgrade;

pub use cgroup::{ContainerGroup, Usage, container_group, entrances, join_shims, missing as missing_cgroups, usage};
pub use container::ContainerProcess;
pub use launch::short_path;
pub use logs::{HeldFifos, hold_fifos, remove_fifos};
pub use mounts::{is_mount_point, mounts_below, unmount_below};
pub use sandbox::{
    CAPABILITIES, EnterPlan, FirstArgument, Word, held_capabilities, is_limit, missing_mounts, permitted_calls,
};
pub use sys::{watch_owned, watch_terminal};

pub use launch::{LaunchError, Launcher, detach};
pub use sandbox::{enter, run as sandbox};
pub use server::run;
pub use server::{cgroup_name, raise_open_files};
