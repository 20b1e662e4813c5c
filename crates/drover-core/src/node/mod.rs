//! Decisions about nodes: who is silent for too long, what that makes of a node, and how one is drained.

pub mod drain;
pub mod heartbeat;
pub mod phase;
pub mod reference;
