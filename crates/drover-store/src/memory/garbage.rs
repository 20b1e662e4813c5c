//! What the controllers of Kubernetes do behind the API server: objects without owners go, and namespaces that are
//! being deleted take everything in them along.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;

use super::change::StoredChange;
use super::kind;
use super::object::Stored;
use super::store::{MemoryStore, State};
use crate::store::Key;
use crate::store::Precondition;

impl MemoryStore {
    /// Whether [`MemoryStore::sweep`] has something to do.
    pub fn has_garbage(&self) -> bool {
        let state = self.lock();
        !state.orphans.is_empty() || !state.going.is_empty()
    }

    /// One turn of garbage collection and of the deletion of namespaces. Says what it changed.
    pub fn sweep(&self, now: Timestamp) -> Vec<StoredChange> {
        let mut state = self.lock();
        let mut changes = Vec::new();
        for (number, key) in std::mem::take(&mut state.orphans) {
            let Some(object) = state.tables[number].objects.get(&key).cloned() else { continue };
            if object.owner_uids().next().is_some() && !state.has_owner(&object) {
                changes.extend(state.collect(&object, now));
            }
        }
        for name in state.going.clone() {
            changes.extend(state.empty_namespace(&name, now));
        }
        changes
    }
}

impl State {
    fn has_owner(&self, object: &Stored) -> bool {
        object.owner_uids().any(|uid| self.uids.contains_key(uid))
    }

    fn collect(&mut self, object: &Arc<Stored>, now: Timestamp) -> Option<StoredChange> {
        if object.is_deleting() {
            return None;
        }
        let same = Precondition { uid: Some(object.uid().to_owned()), resource_version: None };
        self.delete(object.kind, &object.key, &same, now).ok()?.change
    }

    fn empty_namespace(&mut self, name: &str, now: Timestamp) -> Vec<StoredChange> {
        let is_inside = |object: &&Arc<Stored>| object.key.namespace.as_deref() == Some(name);
        let inside: Vec<Arc<Stored>> =
            self.tables.iter().flat_map(|table| table.objects.values().filter(is_inside).cloned()).collect();
        let mut changes: Vec<StoredChange> = inside.iter().filter_map(|object| self.collect(object, now)).collect();
        let is_empty = !self.tables.iter().any(|table| table.objects.values().any(|object| is_inside(&object)));
        let namespace = kind::kind("Namespace").and_then(|kind| {
            let key = Key { namespace: None, name: name.to_owned() };
            self.tables[kind.number].objects.get(&key).cloned()
        });
        if let Some(namespace) = namespace.filter(|_| is_empty) {
            self.going.remove(name);
            changes.extend(self.remove(&namespace, None).change);
        }
        changes
    }

    /// Keeps the indexes of uids and owners.
    pub(crate) fn index_owners(&mut self, before: Option<&Arc<Stored>>, after: Option<&Arc<Stored>>) {
        let uids = |object: Option<&Arc<Stored>>| -> BTreeSet<String> {
            object.into_iter().flat_map(|object| object.owner_uids().map(str::to_owned)).collect()
        };
        let Some(place) = before.or(after).map(|object| (object.kind.number, object.key.clone())) else { return };
        if let (Some(before), Some(after)) = (before, after)
            && before.value["metadata"]["ownerReferences"] == after.value["metadata"]["ownerReferences"]
        {
            return;
        }
        let (old, new) = (uids(before), uids(after));
        for uid in old.difference(&new) {
            if let Some(owned) = self.owned.get_mut(uid) {
                owned.remove(&place);
                if owned.is_empty() {
                    self.owned.remove(uid);
                }
            }
        }
        for uid in new.difference(&old) {
            self.owned.entry(uid.clone()).or_default().insert(place.clone());
        }
        match (before, after) {
            (None, Some(object)) => {
                self.uids.insert(object.uid().to_owned(), place.clone());
                if !new.is_empty() && !self.has_owner(object) {
                    self.orphans.insert(place);
                }
            }
            (Some(object), None) => {
                self.uids.remove(object.uid());
                self.orphans.remove(&place);
                self.orphans.extend(self.owned.get(object.uid()).into_iter().flatten().cloned());
            }
            (Some(_), Some(_)) | (None, None) => {}
        }
    }
}
