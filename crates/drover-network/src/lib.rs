//! Networks of allocations on one node: namespaces that are pinned by a mount, a bridge with a device for each of them,
//! addresses, and ports of the node that lead into them. The kernel is asked over netlink; no program of the node is
//! run for it.
//!
//! Input: which networks there are to be ([`NetworkTable`]), as the caller keeps them. Output: the kernel as these say,
//! and what of it was seen. Everything here blocks for as long as the kernel takes, and can be done twice. Must never
//! know jobs, tasks, or who is told of a network.

mod attachment;
mod bridge;
mod cni;
mod differences;
mod links;
mod mac;
mod namespaces;
mod network_error;
mod network_table;
mod plugin;
mod port_table;
mod rules;
mod subnet;
mod sysctl;
#[cfg(test)]
mod tests;
mod trial;

pub use attachment::{Attachment, PortMapping};
pub use bridge::{Bridge, BridgeSettings};
pub use cni::{CniDirs, CniNetworks, CniOrder, CniResult};
pub use differences::Differences;
pub use namespaces::Namespaces;
pub use network_error::NetworkError;
pub use network_table::{NetworkRecord, NetworkTable};
pub use subnet::{Subnet, SubnetError};
