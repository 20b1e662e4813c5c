//! What a target of a constraint, affinity or spread stands for on a node (`spec/scheduler.md` 4.2).

use crate::model::Node;
use crate::node::reference::{self, NodeReferences};

/// The value of a target on a node; text that is no `${…}` stands for itself, an unknown one is not found.
pub fn resolve<'a>(target: &'a str, node: &'a Node) -> Option<&'a str> {
    if !target.starts_with("${") {
        return Some(target);
    }
    let name = target.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'))?;
    let of = NodeReferences {
        name: node.name.as_str(),
        datacenter: &node.datacenter,
        class: &node.class,
        pool: &node.pool,
        attributes: &node.attributes,
        meta: &node.meta,
    };
    reference::value(name, &of)
}

/// A right side that is the same for every node.
pub(super) fn literal(text: &str) -> Option<&str> {
    (!text.starts_with("${")).then_some(text)
}

/// The alias of the host network that a port asks for.
pub(crate) fn host_network<'a>(asked: Option<&'a str>, node: &'a Node) -> &'a str {
    match asked {
        None | Some("") => "default",
        Some(text) => resolve(text, node).unwrap_or(text),
    }
}
