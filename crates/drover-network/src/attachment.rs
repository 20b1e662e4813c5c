//! What a network on the bridge has.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// A port of the node that leads into a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PortMapping {
    /// The node's address that it is on.
    pub host_ip: Ipv4Addr,
    /// Its number there.
    pub host_port: u16,
    /// Its number in the network.
    pub port: u16,
}

/// What a network on the bridge has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Its address.
    pub address: Ipv4Addr,
    /// The node's ports that lead to it.
    pub ports: Vec<PortMapping>,
}
