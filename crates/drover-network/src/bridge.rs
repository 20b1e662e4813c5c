//! The node's bridge: what joins the networks of allocations, and leads from them to everything else.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::PathBuf;

use crate::attachment::Attachment;
use crate::differences::{Differences, SeenNetworks};
use crate::links::{Links, Pair};
use crate::namespaces::Namespaces;
use crate::network_error::NetworkError;
use crate::subnet::Subnet;
use crate::{mac, port_table, sysctl};

/// The device within each network.
const INSIDE: &str = "eth0";

/// How a node's bridge is made.
#[derive(Clone, Debug)]
pub struct BridgeSettings {
    /// The name of its device.
    pub name: String,
    /// Its addresses.
    pub subnet: Subnet,
    /// The folder of the namespaces.
    pub namespaces: PathBuf,
}

/// The bridge of a node. Nothing is kept here: the kernel has it.
#[derive(Clone, Debug)]
pub struct Bridge {
    name: String,
    subnet: Subnet,
    namespaces: Namespaces,
}

impl Bridge {
    /// The name of the device within each network.
    pub const INSIDE: &'static str = INSIDE;

    /// Nothing is made yet.
    pub fn new(settings: BridgeSettings) -> Self {
        let BridgeSettings { name, subnet, namespaces } = settings;
        Self { name, subnet, namespaces: Namespaces::new(namespaces) }
    }

    /// Its addresses.
    pub fn subnet(&self) -> Subnet {
        self.subnet
    }

    /// Where its namespaces are.
    pub fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    /// Makes the bridge and the table of ports, as far as they are not there, and switches forwarding on.
    ///
    /// # Errors
    /// When the kernel refuses one of them, or lacks it.
    pub fn prepare(&self) -> Result<(), NetworkError> {
        sysctl::set("net/ipv4/ip_forward", "1")?;
        let mut links = Links::open();
        let gateway = self.subnet.gateway();
        if links.find(&self.name)?.is_none() {
            links.add_bridge(&self.name, mac::of_address(gateway))?;
        }
        let index = self.index(&mut links)?;
        links.add_address(index, gateway, self.subnet.prefix())?;
        links.raise(index)?;
        // For ports that are given on 127.0.0.1.
        sysctl::set(&format!("net/ipv4/conf/{}/route_localnet", self.name), "1")?;
        port_table::prepare(&self.name, self.subnet)
    }

    /// Makes a network: what is missing of it. Returns the path by which its namespace is entered.
    ///
    /// # Errors
    /// When a part cannot be made. What was made stays, for [`Bridge::detach`].
    pub fn attach(&self, id: &str, attachment: &Attachment) -> Result<PathBuf, NetworkError> {
        let path = self.namespaces.path(id);
        let mut links = Links::open();
        let device = mac::device(id);
        if self.namespaces.make(id)? {
            // One that has lost its namespace, whose processes may keep the other end.
            links.remove(&device)?;
        }
        if links.find(&device)?.is_none() {
            let namespace = File::open(&path)
                .map_err(NetworkError::because(format_args!("network namespace {}", path.display())))?;
            let pair = Pair {
                name: &device,
                bridge: self.index(&mut links)?,
                inside: INSIDE,
                inside_mac: mac::of_address(attachment.address),
                namespace: namespace.as_fd(),
            };
            links.add_pair(&pair)?;
        }
        links.reflect(&device)?;
        let (address, prefix, gateway) = (attachment.address, self.subnet.prefix(), self.subnet.gateway());
        self.namespaces.within(id, || {
            let mut links = Links::open();
            let inside = links.find(INSIDE)?.ok_or_else(|| NetworkError(format!("{INSIDE} has vanished")))?;
            links.raise(inside)?;
            links.add_address(inside, address, prefix)?;
            links.add_default_route(gateway)
        })?;
        port_table::put(&port_table::elements(address, &attachment.ports))?;
        Ok(path)
    }

    /// Takes a network back: its ports first, so that nothing is led to an address that others may get.
    ///
    /// # Errors
    /// When something of it stays; the rest is gone.
    pub fn detach(&self, id: &str, attachment: &Attachment) -> Result<(), NetworkError> {
        let ports = port_table::take_out(&port_table::elements(attachment.address, &attachment.ports));
        let device = Links::open().remove(&mac::device(id));
        let namespace = self.namespaces.remove(id);
        ports.and(device).and(namespace)
    }

    /// Makes the kernel as it is to be, after a crash, a reboot, or the hands of others. Says what was different.
    /// Namespaces of `others` stay.
    ///
    /// # Errors
    /// When the kernel cannot be looked at. What cannot be mended of one network is logged; its allocation tries again.
    pub fn repair(
        &self,
        wanted: &BTreeMap<String, Attachment>,
        others: &BTreeSet<String>,
    ) -> Result<Differences, NetworkError> {
        let todo = Differences::between(wanted, others, &self.seen()?);
        port_table::take_out(&todo.elements)?;
        let mut links = Links::open();
        for device in &todo.devices {
            links.remove(device)?;
        }
        for id in &todo.namespaces {
            self.namespaces.remove(id)?;
        }
        for id in &todo.incomplete {
            let Some(attachment) = wanted.get(id) else { continue };
            if let Err(error) = self.attach(id, attachment) {
                tracing::warn!(network = id, error = %error, "a network cannot be mended");
            }
        }
        Ok(todo)
    }

    /// The networks that the kernel has, where what was kept of them is lost: their addresses are in their namespaces,
    /// and the ports of the node say where they lead.
    pub fn found(&self) -> BTreeMap<String, Attachment> {
        let ports = port_table::all().unwrap_or_else(|error| {
            tracing::warn!(error = %error, "mapped ports are not known again");
            port_table::PortElements::new()
        });
        let ids = self.namespaces.list().unwrap_or_default().into_iter().filter(|(_, is_pinned)| *is_pinned);
        let of = |id: String| {
            let address = self.namespaces.within(&id, || Links::open().address_of(INSIDE)).ok().flatten()?;
            let address = Some(address).filter(|address| self.subnet.contains(*address))?;
            Some((id, Attachment { address, ports: port_table::mappings_to(&ports, address) }))
        };
        ids.filter_map(|(id, _)| of(id)).collect()
    }

    /// What the kernel has of its networks.
    fn seen(&self) -> Result<SeenNetworks, NetworkError> {
        let links = Links::open().all()?;
        let bridge = links.iter().find(|link| link.name == self.name).map(|link| link.index);
        let is_ours = |name: &str| {
            name.len() == mac::device("").len() && name.starts_with(mac::DEVICE_PREFIX) && name != self.name
        };
        let ours = links.iter().filter(|link| is_ours(&link.name) && (link.bridge.is_none() || link.bridge == bridge));
        Ok(SeenNetworks {
            devices: ours.map(|link| link.name.clone()).collect(),
            namespaces: self.namespaces.list()?,
            elements: port_table::all()?,
        })
    }

    fn index(&self, links: &mut Links) -> Result<u32, NetworkError> {
        links.find(&self.name)?.ok_or_else(|| NetworkError(format!("bridge {} has vanished", self.name)))
    }
}
