//! Which slices belong together: those of one allocation, and those below one Service. With it a change of either looks
//! at its own slices, whatever number of others there is.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use drover_store::{Key, Object};
use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::objects;

/// Drover's slices by owner and by Service.
#[derive(Debug, Default)]
pub(crate) struct SliceIndex {
    by_owner: HashMap<String, BTreeSet<Key>>,
    by_service: HashMap<Key, BTreeSet<Key>>,
}

impl SliceIndex {
    /// Takes in a change of a slice: as it was, and as it is.
    pub(super) fn note(&mut self, before: Option<&EndpointSlice>, now: Option<&EndpointSlice>) {
        if let Some(slice) = before {
            remove(&mut self.by_owner, owner(slice), &slice.key());
            remove(&mut self.by_service, objects::service_of(slice), &slice.key());
        }
        if let Some(slice) = now {
            insert(&mut self.by_owner, owner(slice), slice.key());
            insert(&mut self.by_service, objects::service_of(slice), slice.key());
        }
    }

    /// The slices of an allocation, by its uid.
    pub(crate) fn of_allocation(&self, uid: &str) -> impl Iterator<Item = &Key> {
        self.by_owner.get(uid).into_iter().flatten()
    }

    /// Whether an allocation has a slice.
    pub(super) fn has_some(&self, uid: &str) -> bool {
        self.by_owner.contains_key(uid)
    }

    /// The slices below a Service.
    pub(super) fn below(&self, service: &Key) -> impl Iterator<Item = &Key> {
        self.by_service.get(service).into_iter().flatten()
    }
}

fn owner(slice: &EndpointSlice) -> Option<String> {
    objects::owner(slice).map(|owner| owner.uid.clone())
}

fn insert<K: Eq + Hash>(index: &mut HashMap<K, BTreeSet<Key>>, of: Option<K>, slice: Key) {
    if let Some(of) = of {
        index.entry(of).or_default().insert(slice);
    }
}

fn remove<K: Eq + Hash>(index: &mut HashMap<K, BTreeSet<Key>>, of: Option<K>, slice: &Key) {
    let Some(of) = of else { return };
    if let Some(known) = index.get_mut(&of) {
        known.remove(slice);
        if known.is_empty() {
            index.remove(&of);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn slice(name: &str, uid: &str, service: &str) -> EndpointSlice {
        let slice = json!({ "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "endpoints": [], "metadata": { "name": name, "namespace": "shop",
                "labels": { "kubernetes.io/service-name": service },
                "ownerReferences": [{ "apiVersion": "drover.dev/v1alpha1", "kind": "Allocation", "name": uid, "uid": uid }] } });
        serde_json::from_value(slice).unwrap()
    }

    #[test]
    fn a_slice_is_found_by_its_allocation_and_by_its_service_as_long_as_it_is_theirs() {
        let mut it = SliceIndex::default();
        let (a, b, moved) = (slice("a", "u-1", "api"), slice("b", "u-2", "api"), slice("b", "u-2", "web"));
        let below = |it: &SliceIndex, name: &str| -> Vec<String> {
            it.below(&Key::namespaced("shop", name)).map(|key| key.name.clone()).collect()
        };
        it.note(None, Some(&a));
        it.note(None, Some(&b));
        assert_eq!(below(&it, "api"), ["a", "b"]);
        assert_eq!(it.of_allocation("u-1").collect::<Vec<_>>(), [&Key::namespaced("shop", "a")]);
        it.note(Some(&b), Some(&moved));
        assert_eq!((below(&it, "api"), below(&it, "web")), (vec!["a".to_owned()], vec!["b".to_owned()]));
        it.note(Some(&a), None);
        it.note(Some(&moved), None);
        assert!(!it.has_some("u-1") && !it.has_some("u-2") && it.by_owner.is_empty() && it.by_service.is_empty());
    }
}
