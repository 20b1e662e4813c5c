//! `drover alloc …`: an allocation as the cluster knows it, and what can be done with one from anywhere, through the
//! API server and the gateway: its output, files and usage, commands in its tasks, restarts, signals, an early end. On
//! the allocation's node the same goes by the agent's socket, and needs neither.
//!
//! Input: arguments and the agent's answers. Output: results on standard output and an exit code. Must never know what
//! the answers are made from.

mod agent;
mod check_rows;
mod checks;
mod command;
mod exec;
mod files;
mod gc;
mod list;
mod logs;
mod lookup;
mod remote;
mod remote_exec;
mod restart;
mod show;
mod signal;
mod stats;
mod status;
mod stop;
mod target;
mod task_output;
mod usage;

pub(crate) use command::{AllocArgs, run};
pub(crate) use task_output::{Shown, TaskOutput, task_output};
pub(crate) use usage::usage;
