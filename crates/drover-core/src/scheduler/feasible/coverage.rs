//! Which nodes are in a job's pool and datacenters (`spec/scheduler.md` 4.1).

use crate::definition::Definition;
use crate::model::Node;

/// Whether a node is in the job's pool and datacenters.
pub fn is_covered(node: &Node, definition: &Definition) -> bool {
    is_in_pool(node, definition) && is_in_datacenters(node, definition)
}

/// Whether a node is in the job's pool.
pub fn is_in_pool(node: &Node, definition: &Definition) -> bool {
    is_of_pool(node, &definition.spec.node_pool)
}

/// Whether a node is in a pool; `all` is every pool.
pub fn is_of_pool(node: &Node, pool: &str) -> bool {
    pool == "all" || node.pool == pool
}

fn is_in_datacenters(node: &Node, definition: &Definition) -> bool {
    definition.spec.datacenters.iter().any(|glob| glob_matches(glob.as_bytes(), node.datacenter.as_bytes()))
}

/// `*` matches any text, and nothing else is a wildcard. Linear in the text for each `*`.
fn glob_matches(glob: &[u8], text: &[u8]) -> bool {
    let (mut at_glob, mut at_text) = (0, 0);
    let mut retry = None;
    while at_text < text.len() {
        if at_glob < glob.len() && glob[at_glob] == b'*' {
            retry = Some((at_glob, at_text));
            at_glob += 1;
        } else if at_glob < glob.len() && glob[at_glob] == text[at_text] {
            at_glob += 1;
            at_text += 1;
        } else if let Some((star, from)) = retry {
            at_glob = star + 1;
            at_text = from + 1;
            retry = Some((star, from + 1));
        } else {
            return false;
        }
    }
    glob[at_glob..].iter().all(|c| *c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datacenters_are_globs() {
        for (glob, text, wanted) in [
            ("*", "dc1", true),
            ("*", "", true),
            ("", "", true),
            ("", "dc1", false),
            ("dc1", "dc1", true),
            ("dc1", "dc12", false),
            ("dc1", "DC1", false),
            ("dc*", "dc", true),
            ("dc*", "dc12", true),
            ("dc*", "eu-dc1", false),
            ("*1", "dc1", true),
            ("*1", "dc12", false),
            ("eu-*-1", "eu-west-1", true),
            ("eu-*-1", "eu-west-2", false),
            ("eu-*-1", "eu-1", false),
            ("*a*b*", "xaxxbx", true),
            ("*a*b*", "xbxxax", false),
            ("**", "dc1", true),
            // S-207
            ("dc?", "dc1", false),
            ("dc?", "dc?", true),
            ("dc[12]", "dc1", false),
        ] {
            assert_eq!(glob_matches(glob.as_bytes(), text.as_bytes()), wanted, "{glob} {text}");
        }
    }
}
