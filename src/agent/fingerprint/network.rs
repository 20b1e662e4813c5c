//! The addresses that ports are given on.

use std::fs;
use std::net::{IpAddr, UdpSocket};

use drover_api::client_node::{Fingerprint, HostNetwork};

use super::put;
use crate::config::agent::AgentConfig;

/// The address of the default route, or the configured one, as host network `default`.
pub(super) fn network(config: &AgentConfig, found: &mut Fingerprint) -> Result<(), String> {
    let address = match &config.address {
        Some(address) => address.parse().map_err(|error| format!("address {address}: {error}"))?,
        None => {
            default_address().ok_or("this machine has no default route: set address in the agent's configuration")?
        }
    };
    let bits = if address.is_ipv4() { 32 } else { 128 };
    put(found, "unique.network.ip-address", address.to_string());
    put(found, "unique.advertise.address", address.to_string());
    let interface = default_interface().unwrap_or_default();
    found.host_networks = vec![HostNetwork {
        name: "default".to_owned(),
        cidr: format!("{address}/{bits}"),
        interface,
        reserved_ports: String::new(),
    }];
    Ok(())
}

/// The address that packets to elsewhere would carry. Connecting a datagram socket sends nothing.
fn default_address() -> Option<IpAddr> {
    let try_family = |local: &str, documentation_address: &str| {
        let socket = UdpSocket::bind(local).ok()?;
        socket.connect(documentation_address).ok()?;
        socket.local_addr().ok().map(|address| address.ip())
    };
    try_family("0.0.0.0:0", "192.0.2.1:9").or_else(|| try_family("[::]:0", "[2001:db8::1]:9"))
}

fn default_interface() -> Option<String> {
    let routes = fs::read_to_string("/proc/net/route").ok()?;
    let is_default = |line: &&str| line.split_whitespace().nth(1) == Some("00000000");
    routes.lines().skip(1).find(is_default).and_then(|line| line.split_whitespace().next()).map(str::to_owned)
}
