//! The class of a node: nodes of one class are alike to every constraint that does not name something unique
//! (`spec/scheduler.md` 4.6). Computed here and not taken from agents, because operators overlay what agents find.

use std::collections::HashMap;
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
        let mut part = |text: &str| {
            hash.update(text.len().to_le_bytes());
            hash.update(text.as_bytes());
        };
        for text in [&node.datacenter, &node.class, &node.pool] {
            part(text);
        }
        for map in [&node.attributes, &node.meta] {
            for (key, value) in map.iter().filter(|(key, _)| !is_unique(key)) {
                part(key);
                part(value);
            }
            part("");
        }
        for group in &node.devices {
            for text in [&group.vendor, &group.r#type, &group.name] {
                part(text);
            }
            for (key, value) in group.attributes.iter().filter(|(key, _)| !is_unique(key)) {
                part(key);
                part(value);
            }
        }
        let digest = hash.finalize();
        let mut short = [0; 8];
        short.copy_from_slice(&digest[..8]);
        Self(u64::from_be_bytes(short))
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
