//! Attributes of the node: one that is empty is left out.

use drover_api::client_node::Fingerprint;

/// Sets an attribute.
pub(super) fn put(found: &mut Fingerprint, name: &str, value: String) {
    if value.is_empty() {
        found.attributes.remove(name);
    } else {
        found.attributes.insert(name.to_owned(), value);
    }
}
