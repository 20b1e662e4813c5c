//! The table `drover` of `nf_tables`: a map from ports of the node to ports in networks, and the rules around it.
//!
//! An element is `address . protocol . port → address . port`: the address of the node belongs to the key, because one
//! number may be given on two networks of the node to two allocations. Nothing of other tables is looked at or changed.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use netlink_bindings::nftables::{self, Chained, Nfgenmsg, SetFlags};
use netlink_socket2::{NetlinkSocket, ReplyError};

use crate::attachment::PortMapping;
use crate::links::{IPV4, is};
use crate::network_error::NetworkError;
use crate::rules::{BatchRule, RuleText};
use crate::subnet::Subnet;

/// The name of the table.
const TABLE: &str = "drover";
/// The name of the map.
const MAP: &str = "ports";
/// Bytes of an element's key and value: each field takes whole words.
const KEY_BYTES: u32 = 12;
const VALUE_BYTES: u32 = 8;
/// The types of the fields, as the program `nft` numbers and joins them: it shows the map by them.
const KEY_TYPE: u32 = (IPV4_ADDR << 12) | (INET_PROTO << 6) | INET_SERVICE;
const VALUE_TYPE: u32 = (IPV4_ADDR << 6) | INET_SERVICE;
const IPV4_ADDR: u32 = 7;
const INET_PROTO: u32 = 12;
const INET_SERVICE: u32 = 13;
/// Protocols whose ports are mapped: TCP and UDP.
pub(crate) const PROTOCOLS: [u8; 2] = [6, 17];
/// Elements in one message, whose length has 16 bits.
const AT_ONCE: usize = 256;
/// Messages of one batch at most, for their numbers.
const MESSAGES: u32 = 4096;
/// `NF_INET_…` and the priorities of `linux/netfilter_ipv4.h`.
const PRE_ROUTING: u32 = 0;
const LOCAL_OUT: u32 = 3;
const POST_ROUTING: u32 = 4;
const RAW: i32 = -300;
const DNAT: i32 = -100;
const SNAT: i32 = 100;

/// A port of the node, of one protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PortKey {
    pub(crate) address: Ipv4Addr,
    pub(crate) protocol: u8,
    pub(crate) port: u16,
}

/// Where a port of the node leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PortTarget {
    pub(crate) address: Ipv4Addr,
    pub(crate) port: u16,
}

/// Elements of the map.
pub(crate) type PortElements = BTreeMap<PortKey, PortTarget>;

/// The elements of a network's ports.
pub(crate) fn elements(address: Ipv4Addr, ports: &[PortMapping]) -> PortElements {
    let of = |mapping: &PortMapping, protocol: u8| {
        let key = PortKey { address: mapping.host_ip, protocol, port: mapping.host_port };
        (key, PortTarget { address, port: mapping.port })
    };
    ports.iter().flat_map(|mapping| PROTOCOLS.map(|protocol| of(mapping, protocol))).collect()
}

/// The ports that lead to an address.
pub(crate) fn mappings_to(elements: &PortElements, address: Ipv4Addr) -> Vec<PortMapping> {
    let ours = elements.iter().filter(|(key, target)| target.address == address && key.protocol == PROTOCOLS[0]);
    let of = |(key, target): (&PortKey, &PortTarget)| PortMapping {
        host_ip: key.address,
        host_port: key.port,
        port: target.port,
    };
    ours.map(of).collect()
}

impl PortKey {
    fn bytes(self) -> [u8; KEY_BYTES as usize] {
        let [a, b, c, d] = self.address.octets();
        let [high, low] = self.port.to_be_bytes();
        [a, b, c, d, self.protocol, 0, 0, 0, high, low, 0, 0]
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let [a, b, c, d, protocol, _, _, _, high, low, ..] = *bytes else { return None };
        Some(Self { address: Ipv4Addr::new(a, b, c, d), protocol, port: u16::from_be_bytes([high, low]) })
    }
}

impl PortTarget {
    fn bytes(self) -> [u8; VALUE_BYTES as usize] {
        let [a, b, c, d] = self.address.octets();
        let [high, low] = self.port.to_be_bytes();
        [a, b, c, d, high, low, 0, 0]
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let [a, b, c, d, high, low, ..] = *bytes else { return None };
        Some(Self { address: Ipv4Addr::new(a, b, c, d), port: u16::from_be_bytes([high, low]) })
    }
}

/// Makes the table with its map, or its rules again over the map that is there: in one step, so that no packet meets
/// half of them.
pub(crate) fn prepare(bridge: &str, subnet: Subnet) -> Result<(), NetworkError> {
    let made = make(bridge, subnet);
    let made = match made {
        // A map of another form, which an older or newer agent has made: it is not ours to use.
        Err(error) if is(&error, libc::EEXIST) => remove().and_then(|()| make(bridge, subnet)),
        made => made,
    };
    made.map_err(NetworkError::because(format_args!("making table {TABLE} of nf_tables")))
}

fn make(bridge: &str, subnet: Subnet) -> Result<(), ReplyError> {
    let mut batch = Batch::begin();
    batch.table();
    batch.map();
    batch.chain("guard", (c"filter", PRE_ROUTING, RAW));
    batch.chain("arriving", (c"nat", PRE_ROUTING, DNAT));
    batch.chain("leaving", (c"nat", LOCAL_OUT, DNAT));
    batch.chain("returning", (c"nat", POST_ROUTING, SNAT));
    // The bridge may carry loopback addresses, for ports on 127.0.0.1; its networks must not reach the node's own.
    batch.rule("guard").comes_over(bridge).meant_for_loopback().drop_packet();
    batch.rule("arriving").redirect_by(MAP).end();
    batch.rule("leaving").redirect_by(MAP).end();
    // No one outside knows these addresses.
    batch.rule("returning").from(subnet).leaves_elsewhere_than(bridge).masquerade();
    // Over a port of the node back to the same bridge: the answer has to come the same way.
    batch.rule("returning").from(subnet).leaves_over(bridge).was_redirected().masquerade();
    batch.rule("returning").sent_by_the_node_itself().leaves_over(bridge).masquerade();
    batch.send()
}

/// Removes the table with everything in it.
fn remove() -> Result<(), ReplyError> {
    let mut batch = Batch::begin();
    batch.0.request().op_deltable_do(&header()).encode().push_name_bytes(TABLE.as_bytes());
    batch.send()
}

/// Puts elements into the map, in place of those with the same keys.
pub(crate) fn put(wanted: &PortElements) -> Result<(), NetworkError> {
    if wanted.is_empty() {
        return Ok(());
    }
    let added = change(&PortElements::new(), wanted);
    let added = match added {
        // One of them leads elsewhere still.
        Err(error) if is(&error, libc::EEXIST) || is(&error, libc::EBUSY) => {
            let seen = all()?;
            let stale = wanted.keys().filter_map(|key| Some((*key, *seen.get(key)?))).collect();
            change(&stale, wanted)
        }
        added => added,
    };
    added.map_err(NetworkError::because("mapping ports of the node"))
}

/// Takes those elements out of the map that lead where they are to lead.
pub(crate) fn take_out(unwanted: &PortElements) -> Result<(), NetworkError> {
    if unwanted.is_empty() {
        return Ok(());
    }
    let seen = all()?;
    let there = unwanted.iter().filter(|(key, target)| seen.get(key) == Some(target));
    let there: PortElements = there.map(|(key, target)| (*key, *target)).collect();
    if there.is_empty() {
        return Ok(());
    }
    change(&there, &PortElements::new()).map_err(NetworkError::because("taking back ports of the node"))
}

fn change(out: &PortElements, into: &PortElements) -> Result<(), ReplyError> {
    let mut batch = Batch::begin();
    let (out, into): (Vec<_>, Vec<_>) = (out.iter().collect(), into.iter().collect());
    for some in out.chunks(AT_ONCE) {
        let request = batch.0.request().op_delsetelem_do(&header()).into_encoder();
        let mut list = request.push_table_bytes(TABLE.as_bytes()).push_set_bytes(MAP.as_bytes()).nested_elements();
        for (key, _) in some {
            list = list.nested_elem().nested_key().push_value(&key.bytes()).end_nested().end_nested();
        }
    }
    for some in into.chunks(AT_ONCE) {
        let request = batch.0.request().set_create().op_newsetelem_do(&header()).into_encoder();
        let mut list = request.push_table_bytes(TABLE.as_bytes()).push_set_bytes(MAP.as_bytes()).nested_elements();
        for (key, target) in some {
            let element = list.nested_elem().nested_key().push_value(&key.bytes()).end_nested();
            list = element.nested_data().push_value(&target.bytes()).end_nested().end_nested();
        }
    }
    batch.send()
}

/// The elements of the map; none when there is no table.
pub(crate) fn all() -> Result<PortElements, NetworkError> {
    match read_all() {
        Err(error) if is(&error, libc::ENOENT) => Ok(PortElements::new()),
        read => read.map_err(NetworkError::because("reading the mapped ports of the node")),
    }
}

fn read_all() -> Result<PortElements, ReplyError> {
    let mut socket = NetlinkSocket::new();
    let mut request = nftables::Request::new().op_getsetelem_dump(&header());
    request.encode().push_table_bytes(TABLE.as_bytes()).push_set_bytes(MAP.as_bytes());
    let mut replies = socket.request(&request)?;
    let mut found = PortElements::new();
    while let Some((_, attributes)) = replies.recv().transpose()? {
        let Ok(list) = attributes.get_elements() else { continue };
        for element in list.get_elem() {
            let key = PortKey::read(element.get_key()?.get_value()?);
            let target = PortTarget::read(element.get_data()?.get_value()?);
            found.extend(key.zip(target));
        }
    }
    Ok(found)
}

/// Changes that take effect together.
struct Batch(Chained<'static>, NetlinkSocket);

impl Batch {
    fn begin() -> Self {
        let mut socket = NetlinkSocket::new();
        let mut batch = Self(Chained::new(socket.reserve_seq(MESSAGES)), socket);
        batch.0.request().op_batch_begin_do(&frame());
        batch
    }

    fn table(&mut self) {
        self.0.request().set_create().op_newtable_do(&header()).encode().push_name_bytes(TABLE.as_bytes());
    }

    fn map(&mut self) {
        self.0
            .request()
            .set_create()
            .op_newset_do(&header())
            .encode()
            .push_table_bytes(TABLE.as_bytes())
            .push_name_bytes(MAP.as_bytes())
            .push_flags(SetFlags::Map as u32)
            .push_key_type(KEY_TYPE)
            .push_key_len(KEY_BYTES)
            .push_data_type(VALUE_TYPE)
            .push_data_len(VALUE_BYTES)
            .push_id(1);
    }

    /// A chain without a rule, whatever it had.
    fn chain(&mut self, name: &str, (kind, hook, priority): (&std::ffi::CStr, u32, i32)) {
        self.0
            .request()
            .set_create()
            .op_newchain_do(&header())
            .encode()
            .push_table_bytes(TABLE.as_bytes())
            .push_name_bytes(name.as_bytes())
            .nested_hook()
            .push_num(hook)
            .push_priority(priority)
            .end_nested()
            .push_type(kind);
        self.0
            .request()
            .op_delrule_do(&header())
            .encode()
            .push_table_bytes(TABLE.as_bytes())
            .push_chain_bytes(name.as_bytes());
    }

    fn rule(&mut self, chain: &str) -> BatchRule<'_> {
        let request = self.0.request().set_create().set_append().op_newrule_do(&header()).into_encoder();
        RuleText::new(
            request.push_table_bytes(TABLE.as_bytes()).push_chain_bytes(chain.as_bytes()).nested_expressions(),
        )
    }

    fn send(mut self) -> Result<(), ReplyError> {
        self.0.request().op_batch_end_do(&frame());
        let whole = self.0.finalize();
        self.1.request_chained(&whole)?.recv_all()
    }
}

/// The header of the first and last message of a batch: for `nf_tables`.
fn frame() -> Nfgenmsg {
    let mut header = Nfgenmsg::new();
    // NFNL_SUBSYS_NFTABLES
    header.set_res_id(10);
    header
}

fn header() -> Nfgenmsg {
    Nfgenmsg { nfgen_family: IPV4, ..Nfgenmsg::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_read_as_they_are_written() {
        let address = Ipv4Addr::new(172, 26, 64, 9);
        let ports = [PortMapping { host_ip: Ipv4Addr::new(10, 0, 0, 7), host_port: 20_001, port: 8080 }];
        let all = elements(address, &ports);
        assert_eq!(all.keys().map(|key| key.protocol).collect::<Vec<_>>(), PROTOCOLS);
        for (key, target) in &all {
            assert_eq!(PortKey::read(&key.bytes()), Some(*key));
            assert_eq!(PortTarget::read(&target.bytes()), Some(*target));
        }
        assert_eq!(PortKey::read(&[1, 2, 3]), None);
        assert_eq!(mappings_to(&all, address), ports);
        assert!(mappings_to(&all, Ipv4Addr::LOCALHOST).is_empty());
    }
}
