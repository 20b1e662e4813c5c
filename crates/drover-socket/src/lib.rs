//! The agent's socket: its frames, and the client that speaks them; and what carries them further, tunnels to gateways,
//! the channels of commands, the values of Secrets and the files of sticky disks, as far as both sides must agree. The
//! server is the agent's.

pub mod channels;
pub mod client;
pub mod disks;
pub mod executor;
mod flood;
pub mod protocol;
pub mod tunnel;
pub mod values;
