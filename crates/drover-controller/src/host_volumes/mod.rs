//! HostVolumes: each gets a node, the node's agent is asked for it, and it goes when nothing uses it.
//!
//! Input: changes of volumes, allocations and nodes. Output: the status and the finalizer of each `HostVolume`. What
//! agents are asked for follows from the view and is written with their nodes' status. Every decision is
//! `drover_core::host_volume`'s.

mod component;
#[cfg(test)]
mod tests;

pub(crate) use component::HostVolumes;
