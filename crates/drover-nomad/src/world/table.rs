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

/// What has become of an object.
#[derive(Clone, Debug)]
pub struct Turn<K> {
    /// As it was; none: it is new.
    pub before: Option<Arc<K>>,
    /// As it is; none: it is gone.
    pub after: Option<Arc<K>>,
    /// The version with which it came; where nothing says it, the table's index.
    pub version: u64,
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
    /// The same when the newest list began.
    n_steps_before: u64,
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
            n_steps_before: 0,
        }
    }
}

impl<K: Listed> Table<K> {
    /// A list of all objects begins; what is there already stays until it has ended.
    pub fn begin(&mut self) {
        self.list += 1;
        self.index_before = self.index;
        self.n_steps_before = self.n_steps_back;
    }

    /// An object is there, new or changed. None: it is as it was, or an older state of it has come back.
    pub fn put(&mut self, object: K) -> Option<Turn<K>> {
        let (name, meta) = (Name::of(object.meta()), object.meta());
        let version = version(meta);
        let before = self.objects.get(&name).map(|known| Arc::clone(&known.object));
        let known = before.as_ref().map(|it| it.meta()).filter(|known| known.uid == meta.uid);
        let known = known.map_or(0, self::version);
        if known > version {
            // The API server's state is an older one: it was restored from a backup.
            self.step_back(version);
        }
        self.take_out(&name);
        self.index = self.index.max(version);
        if let Some(uid) = &meta.uid {
            self.uids.insert(uid.clone(), name.clone());
        }
        for group in object.groups() {
            self.groups.insert((group, name.clone()));
        }
        let after = Arc::new(object);
        self.objects.insert(name, Seen { object: Arc::clone(&after), in_list: self.list });
        (known < version).then_some(Turn { before, after: Some(after), version })
    }

    /// An object is there that cannot be read: what was known of it stays.
    pub fn keep(&mut self, name: &Name) {
        let list = self.list;
        if let Some(known) = self.objects.get_mut(name) {
            known.in_list = list;
        }
    }

    /// The list has ended: what it did not bring is gone, and is returned unless an older state has come back.
    pub fn end(&mut self) -> Vec<Turn<K>> {
        self.is_complete = true;
        let stale = self.objects.iter().filter(|(_, seen)| seen.in_list < self.list);
        let stale: Vec<Name> = stale.map(|(name, _)| name.clone()).collect();
        // Nothing says which version its end had, but it was a later one than all that were seen: who waits learns of
        // it, and no change that comes has a lower one.
        if !stale.is_empty() && self.index == self.index_before {
            self.index += 1;
        }
        let version = self.index;
        let gone: Vec<Arc<K>> = stale.iter().filter_map(|name| self.take_out(name)).collect();
        if self.n_steps_back != self.n_steps_before {
            return Vec::new();
        }
        gone.into_iter().map(|object| Turn { before: Some(object), after: None, version }).collect()
    }

    /// An object is gone; this was its last state. None: it was not there.
    pub fn remove(&mut self, object: &K) -> Option<Turn<K>> {
        let name = Name::of(object.meta());
        let version = version(object.meta());
        self.index = self.index.max(version);
        if self.objects.get(&name).is_none_or(|known| known.object.meta().uid != object.meta().uid) {
            return None;
        }
        let before = self.take_out(&name);
        if K::DEPARTED > 0 {
            self.departed.push_back(Arc::new(object.clone()));
            while self.departed.len() > K::DEPARTED {
                self.departed.pop_front();
            }
        }
        Some(Turn { before, after: None, version })
    }

    /// The last ones that were deleted, in their last state; after a new start none.
    pub fn departed(&self) -> impl Iterator<Item = &Arc<K>> {
        self.departed.iter()
    }

    fn step_back(&mut self, version: u64) {
        self.index = version;
        self.n_steps_back += 1;
    }

    fn take_out(&mut self, name: &Name) -> Option<Arc<K>> {
        let known = self.objects.remove(name)?;
        if let Some(uid) = &known.object.meta().uid {
            self.uids.remove(uid);
        }
        for group in known.object.groups() {
            self.groups.remove(&(group, name.clone()));
        }
        Some(known.object)
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
    fn what_has_become_of_an_object_is_told_once_and_not_of_an_older_state() {
        let told = |turn: &Turn<ClientNode>| {
            let uid = |it: &Option<Arc<ClientNode>>| it.as_ref().and_then(|it| it.metadata.uid.clone());
            (uid(&turn.before), uid(&turn.after), turn.version)
        };
        let of = |uid: &str| Some(uid.to_owned());
        let mut table = Table::default();
        assert_eq!(table.put(node("a", "1", 5)).as_ref().map(told), Some((None, of("1"), 5)));
        assert!(table.put(node("a", "1", 5)).is_none(), "it is as it was");
        assert_eq!(table.put(node("a", "1", 6)).as_ref().map(told), Some((of("1"), of("1"), 6)));
        assert_eq!(table.put(node("a", "2", 8)).as_ref().map(told), Some((of("1"), of("2"), 8)));
        assert!(table.remove(&node("a", "1", 9)).is_none(), "it is another");
        table.put(node("b", "3", 10));
        table.begin();
        table.put(node("b", "3", 10));
        assert_eq!(table.end().iter().map(told).collect::<Vec<_>>(), [(of("2"), None, 11)]);
        assert_eq!(table.remove(&node("b", "3", 12)).as_ref().map(told), Some((of("3"), None, 12)));
        table.put(node("a", "1", 90));
        table.put(node("b", "2", 95));
        table.begin();
        assert!(table.put(node("a", "1", 40)).is_none());
        assert!(table.end().is_empty(), "it was restored");
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
