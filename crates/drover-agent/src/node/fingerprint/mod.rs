//! What this machine is and has.
//!
//! Input: `/proc`, `/sys`, the agent's configuration. Output: the node's [`Fingerprint`]. Must never know what jobs ask
//! for.

mod attribute;
mod bounds;
mod detect;
mod host;
mod machine;
mod network;

pub(crate) use bounds::cut;
pub(crate) use detect::{cpu, detect, offered_slice};
