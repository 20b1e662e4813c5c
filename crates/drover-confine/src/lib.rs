//! Takes from a helper process what it does not need, before it looks at anything of others: user, files, network,
//! programs, memory.
//!
//! Input: a [`Confinement`]. Must never know what the process is for.

mod confine;

pub use confine::{Confinement, confine};
