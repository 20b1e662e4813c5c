//! Decisions about HostVolumes: which node gets one, what is asked of its agent, what its object says, and when it may
//! go.
//!
//! Input: the view. Output: a node, requests, a status. Must never know how a folder is made.

pub mod choose;
pub mod claims;
pub mod index;
pub mod known;
pub mod request;
pub mod step;
#[cfg(test)]
mod tests;
