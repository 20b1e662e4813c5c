//! Where the objects that core names are in the store.

use drover_core::ids::ObjectKey;
use drover_store::Key;

/// The store's key of a namespaced object.
pub(crate) fn key_of(key: &ObjectKey) -> Key {
    Key::namespaced(&*key.namespace, &*key.name)
}
