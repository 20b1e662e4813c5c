//! The addresses that ports are given on.

use std::fs;
use std::net::{IpAddr, UdpSocket};

use drover_api::client_node::{Fingerprint, HostNetwork};

use nix::sys::socket::SockaddrStorage;

use super::attribute::put;
use crate::config::{AgentConfig, HostNetworkConfig};

/// The address of the default route, or the configured one, as host network `default`. A configured interface is the
/// only one.
pub(super) fn network(config: &AgentConfig, found: &mut Fingerprint) -> Result<(), String> {
    let interface = config.network_interface.clone();
    let address = match (&config.address, &interface) {
        (Some(address), _) => address.parse().map_err(|error| format!("address {address}: {error}"))?,
        (None, Some(interface)) => address_of(interface)?,
        (None, None) => {
            default_address().ok_or("this machine has no default route: set address in the agent's configuration")?
        }
    };
    put(found, "unique.network.ip-address", address.to_string());
    put(found, "unique.advertise.address", address.to_string());
    found.host_networks.push(HostNetwork {
        name: "default".to_owned(),
        cidr: cidr(address),
        interface: interface.clone().or_else(default_interface).unwrap_or_default(),
        reserved_ports: String::new(),
    });
    if let Some(interface) = interface {
        keep_interface(found, &interface);
    }
    for (alias, network) in &config.host_networks {
        found.host_networks.push(named(alias, network)?);
    }
    Ok(())
}

/// A network of the configuration. Its address must be one of this machine, or no task could listen there.
fn named(alias: &str, network: &HostNetworkConfig) -> Result<HostNetwork, String> {
    let of = |error: String| format!("host network {alias}: {error}");
    let address = match (&network.address, &network.interface) {
        (Some(address), _) => {
            let address = address.parse().map_err(|error| of(format!("address {address}: {error}")))?;
            if !is_own(address).map_err(of)? {
                return Err(of(format!("no interface has address {address}: correct hostNetworks.{alias}.address")));
            }
            address
        }
        (None, Some(interface)) => address_of(interface).map_err(of)?,
        (None, None) => return Err(of("it has neither an address nor an interface".to_owned())),
    };
    Ok(HostNetwork {
        name: alias.to_owned(),
        cidr: cidr(address),
        interface: network.interface.clone().unwrap_or_default(),
        reserved_ports: network.reserved_ports.clone(),
    })
}

fn cidr(address: IpAddr) -> String {
    format!("{address}/{}", if address.is_ipv4() { 32 } else { 128 })
}

/// The addresses of this machine, each with its interface.
fn addresses() -> Result<Vec<(String, IpAddr)>, String> {
    let all = nix::ifaddrs::getifaddrs().map_err(|error| format!("the interfaces cannot be listed: {error}"))?;
    let ip = |address: SockaddrStorage| -> Option<IpAddr> {
        let v4 = address.as_sockaddr_in().map(|it| IpAddr::V4(it.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|it| IpAddr::V6(it.ip())))
    };
    Ok(all.filter_map(|it| Some((it.interface_name.clone(), ip(it.address?)?))).collect())
}

fn is_own(address: IpAddr) -> Result<bool, String> {
    Ok(addresses()?.iter().any(|(_, own)| *own == address))
}

/// Drops the networks of other interfaces. Modes with a bridge have no interface and stay.
fn keep_interface(found: &mut Fingerprint, interface: &str) {
    found.host_networks.retain(|network| network.interface == interface);
}

/// The first address of an interface, one that others can reach before one of the link.
fn address_of(interface: &str) -> Result<IpAddr, String> {
    let is_link_local = |address: &IpAddr| match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    let own: Vec<IpAddr> =
        addresses()?.into_iter().filter(|(name, _)| name == interface).map(|(_, address)| address).collect();
    own.iter().copied().min_by_key(|address| (is_link_local(address), address.is_ipv6())).ok_or_else(|| {
        format!("interface {interface} has no address: set networkInterface to one that has, or set address")
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_018_only_the_networks_of_the_configured_interface_stay_and_the_bridge() {
        let network = |name: &str, interface: &str| HostNetwork {
            name: name.to_owned(),
            interface: interface.to_owned(),
            ..HostNetwork::default()
        };
        let mut found = Fingerprint {
            host_networks: vec![network("any", "eth0"), network("default", "eth1"), network("public", "eth1")],
            network_modes: vec!["bridge".to_owned()],
            ..Fingerprint::default()
        };
        keep_interface(&mut found, "eth1");
        let names: Vec<&str> = found.host_networks.iter().map(|network| network.name.as_str()).collect();
        assert_eq!((names, &found.network_modes[..]), (vec!["default", "public"], &["bridge".to_owned()][..]));
    }

    #[test]
    fn a_configured_network_is_an_address_of_this_machine() {
        let of = |address: Option<&str>, interface: Option<&str>| HostNetworkConfig {
            address: address.map(str::to_owned),
            interface: interface.map(str::to_owned),
            reserved_ports: "22".to_owned(),
        };
        for network in [of(Some("127.0.0.1"), None), of(None, Some("lo"))] {
            let found = named("local", &network).expect("a network");
            assert_eq!((&*found.name, &*found.cidr, &*found.reserved_ports), ("local", "127.0.0.1/32", "22"));
        }
        let error = named("public", &of(Some("192.0.2.1"), None)).expect_err("refused");
        assert!(error.contains("hostNetworks.public.address"), "{error}");
    }

    #[test]
    fn an_interface_has_its_own_address_or_says_what_to_do() {
        assert_eq!(address_of("lo"), Ok(IpAddr::from([127, 0, 0, 1])));
        let error = address_of("no-such-interface").expect_err("refused");
        assert!(error.contains("no-such-interface") && error.contains("networkInterface"), "{error}");
    }
}
