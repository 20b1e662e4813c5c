//! The class of a node: nodes of one class are alike to every constraint that does not name something unique
//! (`spec/scheduler.md` 4.6). Computed here and not taken from agents, because operators overlay what agents find.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use sha2::{Digest, Sha256};

use crate::model::Node;

/// A class, by the hash of what its nodes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeClass(u64);

impl fmt::Display for NodeClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v1:{:016x}", self.0)
    }
}

impl NodeClass {
    /// The class of a node.
    pub fn of(node: &Node) -> Self {
        let mut hash = Sha256::new();
        for text in [&node.datacenter, &node.class, &node.pool] {
            add(&mut hash, text);
        }
        for map in [&node.attributes, &node.meta] {
            add_shared(&mut hash, map);
        }
        for group in &node.devices {
            for text in [&group.vendor, &group.r#type, &group.name] {
                add(&mut hash, text);
            }
            add_shared(&mut hash, &group.attributes);
        }
        let digest = hash.finalize();
        let mut short = [0; 8];
        short.copy_from_slice(&digest[..8]);
        Self(u64::from_be_bytes(short))
    }
}

fn add(hash: &mut Sha256, text: &str) {
    hash.update(text.len().to_le_bytes());
    hash.update(text.as_bytes());
}

/// Adds the pairs that are not one node's alone, their number first: a text between them and what follows could be a
/// key.
fn add_shared(hash: &mut Sha256, map: &BTreeMap<String, String>) {
    let shared = || map.iter().filter(|(key, _)| !is_unique(key));
    hash.update(shared().count().to_le_bytes());
    for (key, value) in shared() {
        add(hash, key);
        add(hash, value);
    }
}

/// Whether a key of attributes or meta is one node's alone.
fn is_unique(key: &str) -> bool {
    key.starts_with("unique.")
}

/// Whether a target names something that is one node's alone, so that an answer for it does not hold for a class.
pub fn escapes(target: &str) -> bool {
    ["${unique.", "${node.unique.", "${attr.unique.", "${meta.unique."].iter().any(|start| target.starts_with(start))
}

/// All that rules without a unique target can see of a node, what it runs included: two nodes of one shape get the same
/// answer. Finer than the class, and within one process only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeShape(u64);

impl NodeShape {
    /// The shape of a node of a class.
    pub fn of(node: &Node, class: NodeClass) -> Self {
        let mut hasher = std::hash::DefaultHasher::new();
        class.hash(&mut hasher);
        for (name, state) in &node.drivers {
            (name, *state as u8).hash(&mut hasher);
        }
        node.network_modes.hash(&mut hasher);
        for address in &node.host_networks {
            address.alias.hash(&mut hasher);
        }
        for group in &node.devices {
            (&group.vendor, &group.r#type, &group.name).hash(&mut hasher);
            group.attributes.hash(&mut hasher);
            for instance in &group.instances {
                (&instance.id, instance.healthy).hash(&mut hasher);
            }
        }
        Self(hasher.finish())
    }
}

impl Hash for NodeShape {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0);
    }
}

/// A map by shape: the keys are hashes already.
pub type ByShape<T> = HashMap<NodeShape, T, BuildHasherDefault<Passed>>;

/// Passes a hash on as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Passed(u64);

impl Hasher for Passed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::DriverState;
    use crate::scheduler::tests::node;

    type Change = fn(&mut Node);

    fn class(change: impl FnOnce(&mut Node)) -> NodeClass {
        let mut node = node("n-1");
        node.devices = serde_json::from_value(json!([{
            "vendor": "nvidia", "type": "gpu", "name": "a100", "attributes": { "memory": "11 GiB" }, "instances": []
        }]))
        .expect("a device");
        change(&mut node);
        NodeClass::of(&node)
    }

    #[test]
    fn a_015_a_016_a_017_nodes_of_a_class_differ_only_in_what_is_unique() {
        let plain = class(|_| {});
        let put = |key: &str| (key.to_owned(), "1".to_owned());
        let same: [(&str, Change); 4] = [
            ("its name", |node| node.name = "n-2".into()),
            ("its phase", |node| node.is_eligible = !node.is_eligible),
            ("what it has room for", |node| node.allocatable.cpu += 1),
            ("a unique attribute", |node| drop(node.attributes.insert("unique.hostname".into(), "n-2".into()))),
        ];
        for (what, change) in same {
            assert_eq!(class(change), plain, "{what}");
        }
        assert_eq!(class(|node| node.meta.extend([put("unique.rack")])), plain, "A-017");
        let other: [(&str, Change); 7] = [
            ("its datacenter", |node| node.datacenter = "dc2".into()),
            ("its pool", |node| node.pool = "gpu".into()),
            ("its class", |node| node.class = "large".into()),
            ("an attribute", |node| drop(node.attributes.insert("kernel.name".into(), "plan9".into()))),
            ("metadata", |node| drop(node.meta.insert("rack".into(), "r1".into()))),
            ("a device", |node| node.devices.clear()),
            ("A-016: an attribute of a device", |node| {
                node.devices[0].attributes.insert("memory".into(), "12 GiB".into());
            }),
        ];
        for (what, change) in other {
            assert_ne!(class(change), plain, "{what}");
        }
    }

    #[test]
    fn text_that_moves_from_one_field_to_the_next_makes_another_class() {
        let with = |datacenter: &str, class_name: &str| {
            class(|node| {
                datacenter.clone_into(&mut node.datacenter);
                class_name.clone_into(&mut node.class);
            })
        };
        assert_ne!(with("ab", "c"), with("a", "bc"));
        let key = |key: &str, value: &str| class(|node| drop(node.meta.insert(key.into(), value.into())));
        assert_ne!(key("ab", "c"), key("a", "bc"));
        let of = |is_meta: bool| {
            class(|node| if is_meta { &mut node.meta } else { &mut node.attributes }.extend([("z".into(), "1".into())]))
        };
        assert_ne!(of(true), of(false), "metadata is not an attribute");
    }

    #[test]
    fn a_target_escapes_its_class_when_it_names_something_unique() {
        for target in ["${unique.x}", "${node.unique.id}", "${attr.unique.hostname}", "${meta.unique.rack}"] {
            assert!(escapes(target), "{target}");
        }
        for target in
            ["${attr.kernel.name}", "${meta.rack}", "${node.class}", "unique.x", "${attr.kernel.unique.x}", ""]
        {
            assert!(!escapes(target), "{target}");
        }
    }

    #[test]
    fn a_shape_sees_what_runs_on_a_node_and_the_class_does_not() {
        let of = |change: fn(&mut Node)| {
            let mut node = node("n-1");
            change(&mut node);
            NodeShape::of(&node, NodeClass::of(&node))
        };
        let plain = of(|_| {});
        assert_eq!(of(|node| node.name = "n-2".into()), plain);
        assert_ne!(of(|node| node.drivers.extend([("exec".into(), DriverState::Unhealthy)])), plain);
        assert_ne!(of(|node| node.network_modes.extend(["cni/mesh".into()])), plain);
    }

    #[test]
    fn a_class_is_written_with_its_version_and_sixteen_digits() {
        assert_eq!(NodeClass(0xab).to_string(), "v1:00000000000000ab");
        assert_eq!(NodeClass(u64::MAX).to_string(), "v1:ffffffffffffffff");
    }

    #[test]
    fn a_map_by_shape_takes_the_shape_for_its_hash() {
        use std::hash::BuildHasher;

        let hasher = BuildHasherDefault::<Passed>::new();
        for shape in [0, 1, 7, u64::MAX] {
            assert_eq!(hasher.hash_one(NodeShape(shape)), shape);
        }
        let of_text = |text: &[u8]| {
            let mut hasher = hasher.build_hasher();
            hasher.write(text);
            hasher.finish()
        };
        assert_ne!(of_text(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff"), of_text(b"\xff\xff\xff\xff\xff\xff\xff\xff\0"));
    }
}
