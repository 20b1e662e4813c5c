//! Which networks there are to be on a node, as the caller keeps it over its own end and the node's.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::attachment::{Attachment, PortMapping};
use crate::cni::CniOrder;
use crate::subnet::Subnet;

/// A network that was begun.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkRecord {
    /// Its address on the bridge; none: it is a CNI network's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<Ipv4Addr>,
    /// The node's ports that lead to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortMapping>,
    /// What CNI plugins are asked to make and take back; none: it is on the bridge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cni: Option<CniOrder>,
}

impl NetworkRecord {
    /// What it has on the bridge.
    pub fn attachment(&self) -> Option<Attachment> {
        Some(Attachment { address: self.address?, ports: self.ports.clone() })
    }

    /// The node's ports that lead to it, and its address; none: it has none yet, or not of IPv4.
    pub fn mapped(&self) -> Option<(Ipv4Addr, &[PortMapping])> {
        match &self.cni {
            Some(order) => order.mapped(),
            None => Some((self.address?, &self.ports)),
        }
    }
}

/// The networks of a node, by their ids.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkTable {
    /// The address that was given last: the next ones come first, so that neighbours have forgotten who had one.
    #[serde(skip_serializing_if = "Option::is_none")]
    last: Option<Ipv4Addr>,
    networks: BTreeMap<String, NetworkRecord>,
}

impl NetworkTable {
    /// Begins a network on the bridge: the address that it has, or the next one that no other has. None: all are held.
    pub fn attach(&mut self, id: &str, subnet: Subnet, ports: Vec<PortMapping>) -> Option<Attachment> {
        let known = self.networks.get(id).and_then(|record| record.address).filter(|it| subnet.contains(*it));
        let address = known.or_else(|| self.next_free(subnet))?;
        if known.is_none() {
            self.last = Some(address);
        }
        let record = NetworkRecord { address: Some(address), ports: ports.clone(), cni: None };
        self.networks.insert(id.to_owned(), record);
        Some(Attachment { address, ports })
    }

    /// Learns of a network on the bridge that the kernel has.
    pub fn adopt(&mut self, id: &str, found: &Attachment) {
        let record = || NetworkRecord { address: Some(found.address), ports: found.ports.clone(), cni: None };
        self.networks.entry(id.to_owned()).or_insert_with(record);
    }

    /// Begins a network of CNI plugins.
    pub fn order(&mut self, id: &str, order: CniOrder) {
        let record = NetworkRecord { cni: Some(order), ..NetworkRecord::default() };
        self.networks.insert(id.to_owned(), record);
    }

    fn next_free(&self, subnet: Subnet) -> Option<Ipv4Addr> {
        let held: BTreeSet<Ipv4Addr> = self.networks.values().filter_map(|record| record.address).collect();
        let is_later = |address: &Ipv4Addr| self.last.is_none_or(|last| *address > last);
        let later = subnet.addresses().filter(is_later);
        later.chain(subnet.addresses()).find(|address| !held.contains(address))
    }

    /// The network, if it was begun.
    pub fn find(&self, id: &str) -> Option<&NetworkRecord> {
        self.networks.get(id)
    }

    /// All networks that were begun.
    pub fn records(&self) -> impl Iterator<Item = &NetworkRecord> {
        self.networks.values()
    }

    /// The ids of all networks.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.networks.keys().map(String::as_str)
    }

    /// What is to be on the bridge. A network whose address lies in another subnet is not: it was given before the
    /// configuration changed, and its namespace goes on as it is.
    pub fn attachments(&self, subnet: Subnet) -> BTreeMap<String, Attachment> {
        let of = |(id, record): (&String, &NetworkRecord)| {
            let address = record.address.filter(|address| subnet.contains(*address))?;
            Some((id.clone(), Attachment { address, ports: record.ports.clone() }))
        };
        self.networks.iter().filter_map(of).collect()
    }

    /// The network is taken back. Says what it was.
    pub fn forget(&mut self, id: &str) -> Option<NetworkRecord> {
        self.networks.remove(id)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn subnet() -> Subnet {
        "10.9.0.0/28".parse().expect("a subnet")
    }

    #[test]
    fn an_address_that_was_given_back_comes_last_again() {
        let mut table = NetworkTable::default();
        let take = |table: &mut NetworkTable, id: &str| {
            table.attach(id, subnet(), Vec::new()).map(|it| it.address.octets()[3])
        };
        assert_eq!(["a", "b", "a"].map(|id| take(&mut table, id)), [Some(2), Some(3), Some(2)]);
        assert!(table.forget("a").is_some() && table.forget("a").is_none());
        assert_eq!(take(&mut table, "c"), Some(4));
        for n in 5..=13 {
            assert_eq!(take(&mut table, &format!("n{n}")), Some(n));
        }
        assert_eq!((take(&mut table, "d"), take(&mut table, "e")), (Some(2), None), "all are held");
        let text = serde_json::to_string(&table).expect("text");
        assert_eq!(serde_json::from_str::<NetworkTable>(&text).expect("a table"), table);
    }

    proptest! {
        /// The oracle: a list of who has what, and the rule that a new address is the first free one after the last.
        #[test]
        fn addresses_are_given_as_a_plain_list_would(steps in proptest::collection::vec((0_u8..2, 0_u8..20), 0..200)) {
            let all: Vec<Ipv4Addr> = subnet().addresses().collect();
            let (mut table, mut list, mut next) = (NetworkTable::default(), Vec::<(u8, Ipv4Addr)>::new(), 0);
            for (kind, n) in steps {
                let id = format!("id{n}");
                if kind == 0 {
                    list.retain(|(holder, _)| *holder != n);
                    table.forget(&id);
                    continue;
                }
                let found = table.attach(&id, subnet(), Vec::new()).map(|it| it.address);
                let known = list.iter().find(|(holder, _)| *holder == n).map(|(_, address)| *address);
                let wanted = known.or_else(|| {
                    let tried = (0..all.len()).map(|step| (next + step) % all.len());
                    let place = tried.into_iter().find(|place| list.iter().all(|(_, held)| *held != all[*place]))?;
                    next = place + 1;
                    list.push((n, all[place]));
                    Some(all[place])
                });
                prop_assert_eq!(found, wanted);
            }
        }
    }
}
