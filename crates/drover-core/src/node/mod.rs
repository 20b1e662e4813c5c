//! Decisions about nodes: who is silent for too long.

pub mod heartbeat;
