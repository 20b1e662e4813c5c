//! What `${…}` stands for on a node: in constraints of the scheduler, and in what a task is given.

use std::collections::BTreeMap;

/// What references to a node are resolved from.
#[derive(Clone, Copy, Debug)]
pub struct NodeReferences<'a> {
    /// Its name, which is its id too.
    pub name: &'a str,
    /// Its datacenter.
    pub datacenter: &'a str,
    /// Its class.
    pub class: &'a str,
    /// Its pool.
    pub pool: &'a str,
    /// Facts about it.
    pub attributes: &'a BTreeMap<String, String>,
    /// Its metadata.
    pub meta: &'a BTreeMap<String, String>,
}

/// The value of a reference, without `${` and `}`; none where the node has no such thing.
#[inline]
pub fn value<'a>(name: &str, node: &NodeReferences<'a>) -> Option<&'a str> {
    match name {
        "node.unique.id" | "node.unique.name" => Some(node.name),
        "node.datacenter" => Some(node.datacenter),
        "node.class" => Some(node.class),
        "node.pool" => Some(node.pool),
        _ => name
            .strip_prefix("attr.")
            .and_then(|key| node.attributes.get(key))
            .or_else(|| name.strip_prefix("meta.").and_then(|key| node.meta.get(key)))
            .map(String::as_str),
    }
}

/// Whether a reference is to the node's attributes or metadata, so that nothing else may stand for it.
pub fn is_of_node(name: &str) -> bool {
    name.starts_with("attr.") || name.starts_with("meta.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reference_has_its_value_and_others_have_none() {
        let map = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
        let (attributes, meta) = (map("kernel.name", "linux"), map("rack", "r1"));
        let (name, datacenter, class, pool) = ("n-1", "dc1", "big", "blue");
        let node = NodeReferences { name, datacenter, class, pool, attributes: &attributes, meta: &meta };
        for (reference, expected) in [
            ("node.unique.id", Some("n-1")),
            ("node.unique.name", Some("n-1")),
            ("node.datacenter", Some("dc1")),
            ("node.class", Some("big")),
            ("node.pool", Some("blue")),
            ("attr.kernel.name", Some("linux")),
            ("meta.rack", Some("r1")),
            ("attr.rack", None),
            ("meta.kernel.name", None),
            ("node.region", None),
            ("kernel.name", None),
            ("", None),
        ] {
            assert_eq!(value(reference, &node), expected, "{reference}");
        }
        assert!(is_of_node("attr.x") && is_of_node("meta.x") && !is_of_node("node.pool"));
    }
}
