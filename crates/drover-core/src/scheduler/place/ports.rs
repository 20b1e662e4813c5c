//! Ports of a group on a node (`spec/scheduler.md` 5.2).

use std::net::IpAddr;

use drover_api::allocation::AllocatedPort;
use drover_api::group::Group;
use drover_api::network::Port;

use crate::model::{HostAddress, Node};
use crate::scheduler::feasible::host_network;
use crate::usage::Usage;

/// Random tries before the exact list of free ports is made.
const TRIES: usize = 20;

/// The dimension that is exhausted when no dynamic port is left.
const NONE_LEFT: &str = "network: dynamic port selection failed";

/// Chooses ports.
///
/// # Errors
/// The dimension that is exhausted.
pub(super) fn assign(
    group: &Group,
    node: &Node,
    usage: &Usage,
    rng: &mut fastrand::Rng,
) -> Result<Vec<AllocatedPort>, String> {
    let mut offer = Offer { node, usage, given: Vec::new() };
    let asked: Vec<&Port> = group.networks.iter().flat_map(|network| &network.ports).collect();
    // Static ports first, so that no dynamic one takes their place.
    let fixed: Vec<Option<(IpAddr, u16)>> = asked.iter().map(|port| offer.fixed(port)).collect::<Result<_, _>>()?;
    let mut ports = Vec::with_capacity(asked.len());
    for (port, fixed) in asked.into_iter().zip(fixed) {
        let (address, value) = match fixed {
            Some(fixed) => fixed,
            None => offer.dynamic(port, rng)?,
        };
        let value = i64::from(value);
        let to = match port.to {
            Some(-1) => value,
            other => other.unwrap_or(0),
        };
        ports.push(AllocatedPort { label: port.label.clone(), value, to, host_ip: address.to_string() });
    }
    Ok(ports)
}

/// Whether the ports can be had, without choosing them.
///
/// # Errors
/// The dimension that is exhausted.
pub(super) fn check(group: &Group, node: &Node, usage: &Usage) -> Result<(), String> {
    let mut offer = Offer { node, usage, given: Vec::new() };
    let mut dynamic: Vec<&Port> = Vec::new();
    for port in group.networks.iter().flat_map(|network| &network.ports) {
        if offer.fixed(port)?.is_none() {
            dynamic.push(port);
        }
    }
    let mut asked: Vec<(IpAddr, usize)> = Vec::new();
    for port in dynamic {
        let has_room = |address: &&HostAddress| {
            let before = asked.iter().find(|(ip, _)| *ip == address.ip).map_or(0, |(_, n)| *n);
            offer.n_free(address) > before
        };
        let ip = offer.addresses(port).find(has_room).map(|address| address.ip).ok_or(NONE_LEFT)?;
        match asked.iter_mut().find(|(known, _)| *known == ip) {
            Some((_, n)) => *n += 1,
            None => asked.push((ip, 1)),
        }
    }
    Ok(())
}

/// Ports of a node that one allocation is being offered.
struct Offer<'a> {
    node: &'a Node,
    usage: &'a Usage,
    given: Vec<(IpAddr, u16)>,
}

impl<'a> Offer<'a> {
    fn addresses(&self, port: &'a Port) -> impl Iterator<Item = &'a HostAddress> + use<'a> {
        let alias = host_network(port.host_network.as_deref(), self.node);
        self.node.host_networks.iter().filter(move |address| address.alias == alias)
    }

    fn is_taken(&self, address: &HostAddress, port: u16) -> bool {
        self.node.reserved_ports.contains(&port)
            || address.reserved_ports.contains(&port)
            || self.usage.holds_port(address.ip, port)
            || self.given.contains(&(address.ip, port))
    }

    /// A static port, on the first address where it is free; none for a dynamic one.
    fn fixed(&mut self, port: &'a Port) -> Result<Option<(IpAddr, u16)>, String> {
        let Some(value) = port.r#static else { return Ok(None) };
        let value = u16::try_from(value).unwrap_or(0);
        let free = self.addresses(port).find(|address| port.ignore_collision || !self.is_taken(address, value));
        let address = free.ok_or_else(|| format!("network: reserved port collision {}={value}", port.label))?.ip;
        self.given.push((address, value));
        Ok(Some((address, value)))
    }

    /// How many dynamic ports are free on an address.
    fn n_free(&self, address: &HostAddress) -> usize {
        let (first, last) = self.node.dynamic_ports;
        if first > last {
            return 0;
        }
        let range = first..=last;
        let mut taken: Vec<u16> = self
            .usage
            .ports
            .iter()
            .chain(&self.given)
            .filter(|(ip, port)| range.contains(port) && crate::usage::overlaps(*ip, address.ip))
            .map(|(_, port)| *port)
            .chain(self.node.reserved_ports.range(range.clone()).copied())
            .chain(address.reserved_ports.range(range.clone()).copied())
            .collect();
        taken.sort_unstable();
        taken.dedup();
        usize::from(last - first) + 1 - taken.len()
    }

    fn dynamic(&mut self, port: &'a Port, rng: &mut fastrand::Rng) -> Result<(IpAddr, u16), String> {
        let (first, last) = self.node.dynamic_ports;
        let found =
            self.addresses(port).find_map(|address| Some((address.ip, self.free_port(address, first, last, rng)?)));
        let found = found.ok_or(NONE_LEFT)?;
        self.given.push(found);
        Ok(found)
    }

    fn free_port(&self, address: &HostAddress, first: u16, last: u16, rng: &mut fastrand::Rng) -> Option<u16> {
        if first > last {
            return None;
        }
        let tried = (0..TRIES).map(|_| rng.u16(first..=last)).find(|port| !self.is_taken(address, *port));
        tried.or_else(|| {
            let free: Vec<u16> = (first..=last).filter(|port| !self.is_taken(address, *port)).collect();
            (!free.is_empty()).then(|| free[rng.usize(..free.len())])
        })
    }
}
