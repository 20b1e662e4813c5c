//! What the watches showed: the newest known state of every object of a kind.
//!
//! Answers to the leader's own writes enter like watch events; whichever is newer stays (resourceVersions of one etcd
//! are ordered). Knows nothing of what the objects mean.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use drover_api::metric::{AllocMetric, NodeScore};
use drover_api::{Allocation, CSIVolume, ClientNode, Deployment, HostVolume, Job, JobVersion};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, NodeStatus, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, VolumeAttachment};

use drover_core::ids::JobKey;
use drover_store::{Change, Key, Object, convert};

use crate::jobs::ChildJobs;
use crate::services::SliceIndex;

/// A kind that a leader knows all objects of.
pub(crate) trait Kept: Object {
    /// Drops what a leader never asks for: there is one for every allocation of the cluster.
    fn lighten(&mut self) {}
}

impl Kept for Job {}
impl Kept for JobVersion {}
impl Kept for ClientNode {}
impl Kept for Deployment {}
impl Kept for CSIVolume {}
impl Kept for HostVolume {}
impl Kept for Lease {}
impl Kept for Namespace {}
impl Kept for ConfigMap {}
impl Kept for CSIDriver {}
impl Kept for CSINode {}
impl Kept for VolumeAttachment {}
impl Kept for Service {}
impl Kept for EndpointSlice {}

impl Kept for Node {
    /// Only its addresses are asked for.
    fn lighten(&mut self) {
        self.spec = None;
        let addresses = self.status.take().and_then(|status| status.addresses);
        self.status = Some(NodeStatus { addresses, ..NodeStatus::default() });
        (self.metadata.labels, self.metadata.annotations) = (None, None);
    }
}

impl Kept for Allocation {
    /// How it came to its node is told to people; only its best score is weighed again.
    fn lighten(&mut self) {
        let Some(metrics) = &mut self.spec.metrics else { return };
        let best = metrics.score_meta_data.first().map(|best| best.norm_score);
        let best = best.map(|norm_score| NodeScore { norm_score, ..NodeScore::default() });
        *metrics = AllocMetric { score_meta_data: best.into_iter().collect(), ..AllocMetric::default() };
    }
}

/// The newest known objects of a kind.
#[derive(Debug)]
pub(crate) struct Cache<K> {
    objects: HashMap<Key, Entry<K>>,
    /// Counts lists: an entry that the newest list did not bring is gone.
    list: u64,
    is_synced: bool,
    /// There was a list, or a refusal.
    is_answered: bool,
}

#[derive(Debug)]
struct Entry<K> {
    object: Arc<K>,
    seen_in: u64,
}

impl<K> Default for Cache<K> {
    fn default() -> Self {
        Self { objects: HashMap::new(), list: 0, is_synced: false, is_answered: false }
    }
}

/// What the watches showed, by kind.
#[derive(Debug, Default)]
pub(crate) struct Caches {
    pub(crate) jobs: Cache<Job>,
    pub(crate) versions: Cache<JobVersion>,
    pub(crate) allocs: Cache<Allocation>,
    pub(crate) nodes: Cache<ClientNode>,
    pub(crate) leases: Cache<Lease>,
    pub(crate) namespaces: Cache<Namespace>,
    pub(crate) deployments: Cache<Deployment>,
    pub(crate) volumes: Cache<CSIVolume>,
    pub(crate) host_volumes: Cache<HostVolume>,
    pub(crate) configs: Cache<ConfigMap>,
    /// Those of drover. Nothing but volumes of drivers of the cluster waits for them, and for the drivers.
    pub(crate) attachments: Cache<VolumeAttachment>,
    pub(crate) drivers: Cache<CSIDriver>,
    /// What the kubelets say of the drivers of the cluster.
    pub(crate) csi_nodes: Cache<CSINode>,
    /// Those of drover. Nothing but services waits for them and the two below.
    pub(crate) services: Cache<Service>,
    pub(crate) slices: Cache<EndpointSlice>,
    /// The nodes of the cluster, for their addresses.
    pub(crate) core_nodes: Cache<Node>,
    /// Names of the versions of each job.
    pub(crate) version_keys: HashMap<JobKey, BTreeSet<Key>>,
    /// Which slices belong together.
    pub(crate) slice_index: SliceIndex,
    /// Jobs that were made from others.
    pub(crate) children: ChildJobs,
}

impl Caches {
    /// Whether all objects that decisions need have come.
    pub(crate) const fn are_synced(&self) -> bool {
        self.jobs.is_synced()
            && self.versions.is_synced()
            && self.allocs.is_synced()
            && self.nodes.is_synced()
            && self.leases.is_synced()
            && self.namespaces.is_synced()
            && self.deployments.is_synced()
            && self.volumes.is_synced()
            && self.configs.is_synced()
            // A cluster whose definitions are older than this kind goes on without.
            && self.host_volumes.is_answered
    }

    /// Whether it is known which drivers the cluster has, and where, as far as that can be: who may not list them goes
    /// on without.
    pub(crate) const fn have_asked_for_drivers(&self) -> bool {
        self.drivers.is_answered && self.csi_nodes.is_answered
    }
}

/// What a change of a watch means.
#[derive(Debug)]
pub(crate) enum Observed<K> {
    /// An object is new or newer; with its last known state.
    Now(Arc<K>, Option<Arc<K>>),
    /// An object is gone; this was its last known state.
    Gone(Arc<K>),
}

impl<K: Kept> Cache<K> {
    /// Takes a change in, and says what is different now.
    pub(crate) fn take(&mut self, change: Change<K>) -> Vec<Observed<K>> {
        match change {
            Change::Restarted => {
                self.list += 1;
                Vec::new()
            }
            Change::Present(object) => self.observe(*object).into_iter().collect(),
            Change::InSync => {
                (self.is_synced, self.is_answered) = (true, true);
                let current = self.list;
                let mut stale: Vec<Key> = self
                    .objects
                    .iter()
                    .filter(|(_, entry)| entry.seen_in < current)
                    .map(|(key, _)| key.clone())
                    .collect();
                stale.sort();
                stale
                    .iter()
                    .filter_map(|key| self.objects.remove(key))
                    .map(|entry| Observed::Gone(entry.object))
                    .collect()
            }
            Change::Gone(object) => self.remove(&object).into_iter().collect(),
            Change::Malformed(key, reason) => {
                tracing::error!(kind = %K::kind(&()), %key, reason, "an object cannot be read and is left as it was; correct or delete it");
                if let Some(entry) = self.objects.get_mut(&key) {
                    entry.seen_in = self.list;
                }
                Vec::new()
            }
            Change::Interrupted(reason) => {
                self.is_answered = true;
                tracing::warn!(kind = %K::kind(&()), reason, "the watch broke and restarts");
                Vec::new()
            }
        }
    }

    /// Takes an object in, from the watch or from the answer to a write, if it is newer than what is known.
    pub(crate) fn observe(&mut self, mut object: K) -> Option<Observed<K>> {
        let key = object.key();
        let (list, version) = (self.list, convert::version_of(object.meta()));
        if let Some(entry) = self.objects.get_mut(&key) {
            entry.seen_in = list;
            if entry.object.meta().uid == object.meta().uid && convert::version_of(entry.object.meta()) >= version {
                return None;
            }
        }
        object.lighten();
        let object = Arc::new(object);
        let before =
            self.objects.insert(key, Entry { object: Arc::clone(&object), seen_in: list }).map(|entry| entry.object);
        Some(Observed::Now(object, before))
    }

    /// Takes the answer to a change of an object in, if the object is still known. The answer to a write may come after
    /// the watch showed the object's end; it must not bring it back.
    pub(crate) fn update(&mut self, object: K) -> Option<Observed<K>> {
        let known = self.objects.get(&object.key())?;
        let is_over =
            object.meta().deletion_timestamp.is_some() && object.meta().finalizers.iter().flatten().next().is_none();
        if is_over || known.object.meta().uid != object.meta().uid {
            return None;
        }
        self.observe(object)
    }

    fn remove(&mut self, object: &K) -> Option<Observed<K>> {
        let key = object.key();
        let is_newer = self.objects.get(&key)?.object.meta().uid != object.meta().uid;
        if is_newer {
            return None;
        }
        self.objects.remove(&key).map(|entry| Observed::Gone(entry.object))
    }

    /// Forgets an object that a write found gone.
    pub(crate) fn forget(&mut self, key: &Key) -> Option<Arc<K>> {
        self.objects.remove(key).map(|entry| entry.object)
    }

    /// An object.
    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<K>> {
        self.objects.get(key).map(|entry| &entry.object)
    }

    /// All objects, in no order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Arc<K>> {
        self.objects.values().map(|entry| &entry.object)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether a whole list has come since the start.
    pub(crate) const fn is_synced(&self) -> bool {
        self.is_synced
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_why_an_allocation_is_on_its_node_only_the_best_score_is_kept() {
        let mut alloc = Allocation::new("web-g-0-00000000", drover_api::AllocationSpec::default());
        let score = |node: &str, norm_score| NodeScore { node: node.to_owned(), norm_score, ..NodeScore::default() };
        alloc.spec.metrics = Some(AllocMetric {
            nodes_evaluated: 7,
            score_meta_data: vec![score("n-1", 0.75), score("n-2", 0.5)],
            ..AllocMetric::default()
        });
        let mut cache = Cache::default();
        let Some(Observed::Now(kept, None)) = cache.observe(alloc) else { panic!("it is new") };
        let kept = kept.spec.metrics.as_ref().expect("metrics");
        assert_eq!(*kept, AllocMetric { score_meta_data: vec![score("", 0.75)], ..AllocMetric::default() });
    }

    fn node(name: &str, uid: &str, version: u64) -> ClientNode {
        let mut node = ClientNode::new(name, drover_api::ClientNodeSpec::default());
        node.metadata.uid = Some(uid.to_owned());
        node.metadata.resource_version = Some(version.to_string());
        node
    }

    fn present(name: &str, uid: &str, version: u64) -> Change<ClientNode> {
        Change::Present(Box::new(node(name, uid, version)))
    }

    #[test]
    fn an_older_state_of_the_same_object_changes_nothing() {
        let mut cache = Cache::default();
        assert_eq!(cache.take(present("a", "1", 10)).len(), 1);
        assert_eq!(cache.take(present("a", "1", 9)).len(), 0);
        assert_eq!(cache.take(present("a", "1", 11)).len(), 1);
        assert_eq!(cache.take(present("a", "2", 5)).len(), 1, "another incarnation counts as newer");
    }

    #[test]
    fn what_a_new_list_does_not_bring_is_gone() {
        let mut cache = Cache::default();
        drop(cache.take(Change::Restarted));
        drop(cache.take(present("a", "1", 1)));
        drop(cache.take(present("b", "2", 2)));
        drop(cache.take(Change::InSync));
        drop(cache.take(Change::Restarted));
        drop(cache.take(present("b", "2", 2)));
        let gone = cache.take(Change::InSync);
        assert!(matches!(&gone[..], [Observed::Gone(node)] if node.metadata.name.as_deref() == Some("a")));
    }

    #[test]
    fn the_answer_to_a_write_does_not_bring_back_what_is_gone() {
        let mut cache = Cache::default();
        drop(cache.take(present("a", "1", 5)));
        assert!(cache.update(node("a", "1", 6)).is_some());
        drop(cache.take(Change::Gone(Box::new(node("a", "1", 7)))));
        assert!(cache.update(node("a", "1", 6)).is_none());
        drop(cache.take(present("a", "2", 8)));
        assert!(cache.update(node("a", "1", 9)).is_none(), "another incarnation");
    }

    #[test]
    fn the_end_of_an_older_incarnation_does_not_remove_the_newer() {
        let mut cache = Cache::default();
        drop(cache.take(present("a", "2", 5)));
        assert_eq!(cache.take(Change::Gone(Box::new(node("a", "1", 9)))).len(), 0);
        assert_eq!(cache.len(), 1);
    }
}
