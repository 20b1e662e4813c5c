//! What the kernel has against what there is to be.

use std::collections::{BTreeMap, BTreeSet};

use crate::attachment::Attachment;
use crate::mac;
use crate::port_table::{PortElements, elements};

/// What the kernel has of our networks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SeenNetworks {
    /// Names of devices that are ours by their name.
    pub(crate) devices: BTreeSet<String>,
    /// Files of namespaces, and whether each pins one.
    pub(crate) namespaces: BTreeMap<String, bool>,
    /// Mapped ports.
    pub(crate) elements: PortElements,
}

/// What has to be done until the kernel has what there is to be, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// Devices of no network.
    pub(crate) devices: BTreeSet<String>,
    /// Namespaces of no network.
    pub(crate) namespaces: BTreeSet<String>,
    /// Ports that lead to no network, or elsewhere than they should.
    pub(crate) elements: PortElements,
    /// Networks of which something is missing.
    pub(crate) incomplete: BTreeSet<String>,
}

impl Differences {
    /// Compares. Namespaces of `others` are no business of the bridge and stay.
    pub(crate) fn between(
        wanted: &BTreeMap<String, Attachment>,
        others: &BTreeSet<String>,
        seen: &SeenNetworks,
    ) -> Self {
        let devices: BTreeMap<String, &String> = wanted.keys().map(|id| (mac::device(id), id)).collect();
        let ports: PortElements =
            wanted.values().flat_map(|attachment| elements(attachment.address, &attachment.ports)).collect();
        let is_whole = |id: &String, attachment: &Attachment| {
            seen.namespaces.get(id) == Some(&true)
                && seen.devices.contains(&mac::device(id))
                && elements(attachment.address, &attachment.ports)
                    .iter()
                    .all(|(key, target)| seen.elements.get(key) == Some(target))
        };
        let is_stray = |id: &&String| !wanted.contains_key(*id) && !others.contains(*id);
        Self {
            devices: seen.devices.iter().filter(|name| !devices.contains_key(*name)).cloned().collect(),
            namespaces: seen.namespaces.keys().filter(is_stray).cloned().collect(),
            elements: seen
                .elements
                .iter()
                .filter(|(key, target)| ports.get(key) != Some(target))
                .map(|(key, target)| (*key, *target))
                .collect(),
            incomplete: wanted.iter().filter(|(id, it)| !is_whole(id, it)).map(|(id, _)| id.clone()).collect(),
        }
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// How many devices, namespaces and ports are of no network, and how many networks are incomplete.
    pub fn counts(&self) -> [usize; 4] {
        [self.devices.len(), self.namespaces.len(), self.elements.len(), self.incomplete.len()]
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;
    use crate::attachment::PortMapping;
    use crate::port_table::{PortKey, PortTarget};

    fn attachment(n: u8) -> Attachment {
        let port = PortMapping { host_ip: Ipv4Addr::LOCALHOST, host_port: 20_000 + u16::from(n), port: 80 };
        Attachment { address: Ipv4Addr::new(10, 9, 0, n), ports: vec![port] }
    }

    fn wanted(ids: &[u8]) -> BTreeMap<String, Attachment> {
        ids.iter().map(|n| (format!("id{n}"), attachment(*n))).collect()
    }

    /// What the kernel would have.
    fn whole(wanted: &BTreeMap<String, Attachment>) -> SeenNetworks {
        SeenNetworks {
            devices: wanted.keys().map(|id| mac::device(id)).collect(),
            namespaces: wanted.keys().map(|id| (id.clone(), true)).collect(),
            elements: wanted.values().flat_map(|it| elements(it.address, &it.ports)).collect(),
        }
    }

    /// The oracle: does what the differences say to a kernel of sets.
    fn repair(seen: &mut SeenNetworks, wanted: &BTreeMap<String, Attachment>, todo: &Differences) {
        seen.devices.retain(|name| !todo.devices.contains(name));
        seen.namespaces.retain(|id, _| !todo.namespaces.contains(id));
        seen.elements.retain(|key, _| !todo.elements.contains_key(key));
        for id in &todo.incomplete {
            let one = whole(&[(id.clone(), wanted[id].clone())].into());
            seen.devices.extend(one.devices);
            seen.namespaces.extend(one.namespaces);
            seen.elements.extend(one.elements);
        }
    }

    #[test]
    fn each_kind_of_difference_is_named() {
        let wanted = wanted(&[1, 2]);
        let mut seen = whole(&wanted);
        assert!(Differences::between(&wanted, &BTreeSet::new(), &seen).is_empty());
        seen.devices.insert("drv0".to_owned());
        seen.namespaces.insert("gone".to_owned(), true);
        seen.namespaces.insert("of-cni".to_owned(), true);
        seen.namespaces.insert("id2".to_owned(), false);
        let key = PortKey { address: Ipv4Addr::LOCALHOST, protocol: 6, port: 20_001 };
        seen.elements.insert(key, PortTarget { address: Ipv4Addr::new(10, 9, 0, 77), port: 80 });
        let found = Differences::between(&wanted, &["of-cni".to_owned()].into(), &seen);
        assert_eq!(found.counts(), [1, 1, 1, 2], "{found:?}");
        assert!(found.incomplete.contains("id1") && found.incomplete.contains("id2"));
    }

    proptest! {
        #[test]
        fn what_the_differences_say_makes_the_kernel_as_it_is_to_be(
            ids in proptest::collection::btree_set(0_u8..12, 0..8),
            had in proptest::collection::btree_set(0_u8..12, 0..8),
            lost in proptest::collection::vec((0_u8..3, 0_usize..30), 0..12),
        ) {
            let wanted = wanted(&ids.into_iter().collect::<Vec<_>>());
            let mut seen = whole(&self::wanted(&had.into_iter().collect::<Vec<_>>()));
            for (kind, place) in lost {
                match kind {
                    0 => { if let Some(name) = seen.devices.iter().nth(place).cloned() { seen.devices.remove(&name); } }
                    1 => { if let Some(pinned) = seen.namespaces.values_mut().nth(place) { *pinned = false; } }
                    _ => { if let Some(key) = seen.elements.keys().nth(place).copied() { seen.elements.remove(&key); } }
                }
            }
            let todo = Differences::between(&wanted, &BTreeSet::new(), &seen);
            repair(&mut seen, &wanted, &todo);
            prop_assert_eq!(&seen, &whole(&wanted));
            prop_assert!(Differences::between(&wanted, &BTreeSet::new(), &seen).is_empty());
        }
    }
}
