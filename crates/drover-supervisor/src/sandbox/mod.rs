//! Shuts a task of driver `exec` into its own view of the machine: namespaces, a root of its own, few rights, few
//! system calls.
//!
//! A short-lived process of the supervisor (`droverd sandbox`) does it. It reads a [`Plan`] from its standard input, a
//! socket; leaves the host's namespaces; forks; tells the supervisor the pid of the fork and ends, so that the fork
//! becomes the supervisor's own child. The fork builds the view, waits for the word to go (by then the supervisor
//! watches it), gives up its rights and becomes the task. What goes wrong is told over the same socket, which closes by
//! itself when the task begins.
//!
//! In a PID namespace of its own the task is process 1: signals that it has no handler for are ignored, and its end is
//! the end of everything in there.
//!
//! Must never know: allocations, control groups, logs.

mod become_task;
mod enter;
mod filter;
mod held;
mod rights;
mod sys;
mod view;
mod wire;

pub use become_task::run;
pub use enter::{EnterPlan, enter};
pub use filter::{FirstArgument, permitted_calls};
pub use rights::{CAPABILITIES, held as held_capabilities, is_limit};
pub use view::missing as missing_mounts;
pub use wire::Word;

pub(crate) use wire::{GO, Plan};
