//! Networks of allocations: one of their own for each, on the node's bridge or made by CNI plugins.
//!
//! Input: the groups' `networks` and the ports that the controller has assigned. Output: namespaces that drivers let
//! their tasks join, with what tasks learn of them, and which modes this node offers. What there is to be is in the
//! state file before anything is made, and gone from it when everything was taken back. Must never know how a driver
//! starts a task.

mod alloc_network;
mod alloc_networks;
mod config;
mod port_forwards;
mod resolver;

pub(crate) use alloc_network::TaskNetwork;
pub(crate) use alloc_networks::{AllocNetworks, NetworkAsk, NetworkOffer, NetworkParts};
pub(crate) use config::{DnsSource, NetworkConfig};
pub(crate) use port_forwards::ForwarderKeeper;
pub(crate) use resolver::Resolver;
