//! The newest known objects of a kind.
//!
//! Input: what a watch shows. Invariants: the index never decreases but when the API server itself went back to an
//! older state, which is counted; whatever is in an index is in the table.

use std::sync::Arc;

use imbl::{OrdMap, OrdSet, Vector};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;

/// Namespace and name of an object; the namespace of one of the whole cluster is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Name {
    /// An object's.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// That of these metadata.
    pub fn of(meta: &ObjectMeta) -> Self {
        Self::new(meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
    }
}

/// A kind that a [`Table`] holds.
pub trait Listed: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Send + Sync + 'static {
    /// How many of those that were deleted last are remembered.
    const DEPARTED: usize = 0;

    /// The groups of objects in which it is found, beside its name and uid.
    fn groups(&self) -> Vec<String>;
}

/// The newest known objects of a kind.
#[derive(Clone, Debug)]
pub struct Table<K: Listed> {
    objects: OrdMap<Name, Seen<K>>,
    uids: OrdMap<String, Name>,
    groups: OrdSet<(String, Name)>,
    /// The last ones that were deleted, oldest first.
    departed: Vector<Arc<K>>,
    index: u64,
    /// The index when the newest list began.
    index_before: u64,
    list: u64,
    is_complete: bool,
    n_steps_back: u64,
}

#[derive(Clone, Debug)]
struct Seen<K> {
    object: Arc<K>,
    in_list: u64,
}

impl<K: Listed> Default for Table<K> {
    fn default() -> Self {
        Self {
            objects: OrdMap::new(),
            uids: OrdMap::new(),
            groups: OrdSet::new(),
            departed: Vector::new(),
            index: 0,
            index_before: 0,
            list: 0,
            is_complete: false,
            n_steps_back: 0,
        }
    }
}

impl<K: Listed> Table<K> {
    /// A list of all objects begins; what is there already stays until it has ended.
    pub fn begin(&mut self) {
        self.list += 1;
        self.index_before = self.index;
    }

    /// An object is there, new or changed.
    pub fn put(&mut self, object: K) {
        let (name, meta) = (Name::of(object.meta()), object.meta());
        let version = version(meta);
        if let Some(known) = self.objects.get(&name) {
            let before = known.object.meta();
            if before.uid == meta.uid && self::version(before) > version {
                // The API server's state is an older one: it was restored from a backup.
                self.step_back(version);
            }
        }
        self.take_out(&name);
        self.index = self.index.max(version);
        if let Some(uid) = &meta.uid {
            self.uids.insert(uid.clone(), name.clone());
        }
        for group in object.groups() {
            self.groups.insert((group, name.clone()));
        }
        self.objects.insert(name, Seen { object: Arc::new(object), in_list: self.list });
    }

    /// An object is there that cannot be read: what was known of it stays.
    pub fn keep(&mut self, name: &Name) {
        let list = self.list;
        if let Some(known) = self.objects.get_mut(name) {
            known.in_list = list;
        }
    }

    /// The list has ended: what it did not bring is gone.
    pub fn end(&mut self) {
        self.is_complete = true;
        let stale = self.objects.iter().filter(|(_, seen)| seen.in_list < self.list);
        let stale: Vec<Name> = stale.map(|(name, _)| name.clone()).collect();
        // Nothing says which version its end had, but it was a later one than all that were seen: who waits learns of
        // it, and no change that comes has a lower one.
        if !stale.is_empty() && self.index == self.index_before {
            self.index += 1;
        }
        for name in stale {
            self.take_out(&name);
        }
    }

    /// An object is gone; this was its last state.
    pub fn remove(&mut self, object: &K) {
        let name = Name::of(object.meta());
        self.index = self.index.max(version(object.meta()));
        if self.objects.get(&name).is_some_and(|known| known.object.meta().uid == object.meta().uid) {
            self.take_out(&name);
            self.departed.push_back(Arc::new(object.clone()));
            while self.departed.len() > K::DEPARTED {
                self.departed.pop_front();
            }
        }
    }

    /// The last ones that were deleted, in their last state; after a new start none.
    pub fn departed(&self) -> impl Iterator<Item = &Arc<K>> {
        self.departed.iter()
    }

    fn step_back(&mut self, version: u64) {
        self.index = version;
        self.n_steps_back += 1;
    }

    fn take_out(&mut self, name: &Name) {
        let Some(known) = self.objects.remove(name) else { return };
        if let Some(uid) = &known.object.meta().uid {
            self.uids.remove(uid);
        }
        for group in known.object.groups() {
            self.groups.remove(&(group, name.clone()));
        }
    }

    /// The highest resourceVersion that was seen of this kind.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// How often the API server went back to an older state: readers that wait for a newer one are woken.
    pub fn n_steps_back(&self) -> u64 {
        self.n_steps_back
    }

    /// Whether a whole list has come since the start.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// All objects, by namespace and name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<K>> {
        self.objects.iter().map(|(_, seen)| &seen.object)
    }

    /// The objects of a namespace, by name.
    pub fn of_namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Arc<K>> {
        let from = Name::new(namespace, "");
        let of = self.objects.range(from..).take_while(move |(name, _)| name.namespace == namespace);
        of.map(|(_, seen)| &seen.object)
    }

    /// An object by its name.
    pub fn named(&self, namespace: &str, name: &str) -> Option<&Arc<K>> {
        self.objects.get(&Name::new(namespace, name)).map(|seen| &seen.object)
    }

    /// An object by its metadata.uid.
    pub fn with_uid(&self, uid: &str) -> Option<&Arc<K>> {
        self.objects.get(self.uids.get(uid)?).map(|seen| &seen.object)
    }

    /// The objects of a group, by namespace and name.
    pub fn of_group(&self, group: String) -> impl Iterator<Item = &Arc<K>> {
        let from = (group.clone(), Name::default());
        let of = self.groups.range(from..).take_while(move |(of, _)| *of == group);
        of.filter_map(|(_, name)| self.objects.get(name).map(|seen| &seen.object))
    }

    /// The namespaces that hold an object of this kind.
    pub fn namespaces(&self) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        let mut next = self.objects.iter().next().map(|(name, _)| name.namespace.clone());
        while let Some(namespace) = next {
            // From one namespace to the next, whatever they hold.
            let after = Name::new(format!("{namespace}\0"), "");
            next = self.objects.range(after..).next().map(|(name, _)| name.namespace.clone());
            found.push(namespace);
        }
        found
    }
}

/// The resourceVersion as a number; those of one cluster are ordered.
pub(crate) fn version(meta: &ObjectMeta) -> u64 {
    meta.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use drover_api::ClientNode;

    use super::*;

    fn node(name: &str, uid: &str, version: u64) -> ClientNode {
        let mut node = ClientNode::new(name, drover_api::ClientNodeSpec::default());
        node.metadata.uid = Some(uid.to_owned());
        node.metadata.resource_version = Some(version.to_string());
        node
    }

    fn names(table: &Table<ClientNode>) -> Vec<String> {
        table.iter().filter_map(|node| node.metadata.name.clone()).collect()
    }

    #[test]
    fn what_a_new_list_does_not_bring_is_gone_and_the_index_tells_of_it() {
        let mut table = Table::default();
        table.begin();
        table.put(node("a", "1", 5));
        table.put(node("b", "2", 7));
        assert!(!table.is_complete());
        table.end();
        assert_eq!((names(&table), table.index(), table.is_complete()), (vec!["a".into(), "b".into()], 7, true));
        table.begin();
        table.put(node("a", "1", 5));
        table.end();
        assert_eq!((names(&table), table.index()), (vec!["a".to_owned()], 8));
        assert!(table.with_uid("2").is_none() && table.with_uid("1").is_some());
    }

    #[test]
    fn an_end_of_an_older_incarnation_takes_nothing_and_its_index_counts() {
        let mut table = Table::default();
        table.put(node("a", "2", 9));
        table.remove(&node("a", "1", 12));
        assert_eq!((table.len(), table.index()), (1, 12));
        table.remove(&node("a", "2", 13));
        assert!(table.is_empty() && table.with_uid("2").is_none());
        assert_eq!(table.index(), 13);
    }

    #[test]
    fn a_state_of_before_is_noticed_and_the_index_goes_back_with_it() {
        let mut table = Table::default();
        table.put(node("a", "1", 90));
        assert_eq!(table.n_steps_back(), 0);
        table.begin();
        table.put(node("a", "1", 40));
        table.end();
        assert_eq!((table.n_steps_back(), table.index()), (1, 40));
    }

    #[test]
    fn namespaces_are_found_whatever_they_hold() {
        let mut table = Table::default();
        for (namespace, name) in [("a", "x"), ("a", "y"), ("a-b", "x"), ("b", "x")] {
            let mut job = drover_api::Job::new(name, drover_api::JobSpec::default());
            job.metadata.namespace = Some(namespace.to_owned());
            table.put(job);
        }
        assert_eq!(table.namespaces(), ["a", "a-b", "b"]);
        assert_eq!(table.of_namespace("a").count(), 2);
    }
}
