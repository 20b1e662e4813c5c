//! Nodes: who is heard of, who is down, who is drained, and what ClientNode status says of it.

mod change;
mod drain;
mod status_queue;

pub(crate) use change::{NodeChange, Nodes};
