//! `drover alloc …`: an allocation as the cluster knows it, and the allocations of the node that this machine is, by
//! the socket of its agent: their output, files and usage, commands in their tasks, restarts, signals, an early end.
//!
//! Input: arguments and the agent's answers. Output: results on standard output and an exit code. Must never know what
//! the answers are made from.

mod agent;
mod check_rows;
mod checks;
mod command;
mod exec;
mod files;
mod list;
mod logs;
mod restart;
mod show;
mod signal;
mod stats;
mod status;
mod stop;
mod target;

pub(crate) use command::{AllocArgs, run};
