//! Nodes: who is heard of, who is down, who is drained, and what ClientNode status says of it.

mod change;
mod drain;
mod heartbeat;
mod plugins;
mod state;
mod status;
mod status_queue;
#[cfg(test)]
mod tests;

pub(crate) use state::{NodeChange, Nodes};
