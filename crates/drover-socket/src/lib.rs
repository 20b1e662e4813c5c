//! The agent's socket: its frames, and the client that speaks them; and what carries them further, tunnels to gateways
//! and the channels of commands, as far as both sides must agree. The server is the agent's.

pub mod channels;
pub mod client;
pub mod executor;
pub mod protocol;
pub mod tunnel;
