//! The agent's socket: its frames, and the client that speaks them. The server is the agent's.

pub mod client;
pub mod protocol;
