//! What the daemon does beside running the role of another crate.

pub mod stop_all;
