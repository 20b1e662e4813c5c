//! containerd's API over its Unix socket: its own messages and clients, and the calls that drover makes.
//!
//! Input: a socket and the namespace in which everything of drover's is. Output: what containerd answers, or the error
//! with its code. Each call has a time limit.
//!
//! Must never know: allocations, jobs, what a container is for.

pub mod api;
mod call_error;
mod containerd;
mod transfer;
mod unpack;

pub use call_error::CallError;
pub use containerd::{Containerd, NewTask, runc_options, spec_of};
pub use transfer::{Import, Login, Pull};
pub use unpack::Layer;
