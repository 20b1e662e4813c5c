//! All HostVolumes, found by object, by the name that groups use, by node, and by the slots that have them as their
//! own.

use std::sync::Arc;

use drover_api::host_volume::HostVolumeClaim;
use imbl::OrdMap;

use super::known::KnownVolume;
use crate::ids::{JobKey, NodeName, ObjectKey};

type VolumeMap = OrdMap<ObjectKey, Arc<KnownVolume>>;

/// The HostVolumes of a cluster. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct HostVolumeIndex {
    all: VolumeMap,
    by_name: OrdMap<ObjectKey, VolumeMap>,
    /// Those without a node stand below none.
    by_node: OrdMap<Option<NodeName>, VolumeMap>,
    by_claim: OrdMap<HostVolumeClaim, VolumeMap>,
}

impl HostVolumeIndex {
    /// Puts a volume in, or in the place of the one of its object.
    pub fn put(&mut self, volume: KnownVolume) {
        self.remove(&volume.key);
        let volume = Arc::new(volume);
        let key = volume.key.clone();
        self.by_name.entry(volume.asked_as()).or_default().insert(key.clone(), Arc::clone(&volume));
        self.by_node.entry(volume.node.clone()).or_default().insert(key.clone(), Arc::clone(&volume));
        for claim in &volume.claims {
            self.by_claim.entry(claim.clone()).or_default().insert(key.clone(), Arc::clone(&volume));
        }
        self.all.insert(key, volume);
    }

    /// Takes a volume out.
    pub fn remove(&mut self, key: &ObjectKey) -> Option<Arc<KnownVolume>> {
        let gone = self.all.remove(key)?;
        drop_from(&mut self.by_name, &gone.asked_as(), key);
        drop_from(&mut self.by_node, &gone.node, key);
        for claim in &gone.claims {
            drop_from(&mut self.by_claim, claim, key);
        }
        Some(gone)
    }

    /// A volume, by its object.
    pub fn get(&self, key: &ObjectKey) -> Option<&Arc<KnownVolume>> {
        self.all.get(key)
    }

    /// All volumes that groups of a namespace find by a name, by object.
    pub fn named(&self, name: &ObjectKey) -> impl Iterator<Item = &Arc<KnownVolume>> + use<'_> {
        self.by_name.get(name).into_iter().flat_map(OrdMap::values)
    }

    /// All volumes on a node, by object.
    pub fn on_node(&self, node: &NodeName) -> impl Iterator<Item = &Arc<KnownVolume>> + use<'_> {
        self.by_node.get(&Some(node.clone())).into_iter().flat_map(OrdMap::values)
    }

    /// The volumes that a slot has as its own, by object.
    pub fn claimed(&self, claim: &HostVolumeClaim) -> impl Iterator<Item = &Arc<KnownVolume>> + use<'_> {
        self.by_claim.get(claim).into_iter().flat_map(OrdMap::values)
    }

    /// The volumes that slots of a job, and of jobs before it under the name, have as their own.
    pub fn claimed_by_job<'a>(&'a self, job: &'a JobKey) -> impl Iterator<Item = &'a Arc<KnownVolume>> {
        let first = HostVolumeClaim { job_name: job.name.to_string(), index: i64::MIN, ..HostVolumeClaim::default() };
        let of_name = self.by_claim.range(first..).take_while(|(claim, _)| *claim.job_name == *job.name);
        of_name.flat_map(|(_, volumes)| volumes.values()).filter(|volume| volume.key.namespace == job.namespace)
    }

    /// How many volumes a node has.
    pub fn count_on(&self, node: &NodeName) -> usize {
        self.by_node.get(&Some(node.clone())).map_or(0, OrdMap::len)
    }

    /// All volumes that have no node, by object.
    pub fn without_node(&self) -> impl Iterator<Item = &Arc<KnownVolume>> {
        self.by_node.get(&None).into_iter().flat_map(OrdMap::values)
    }
}

fn drop_from<K: Ord + Clone>(index: &mut OrdMap<K, VolumeMap>, at: &K, key: &ObjectKey) {
    if let Some(volumes) = index.get_mut(at) {
        volumes.remove(key);
        if volumes.is_empty() {
            index.remove(at);
        }
    }
}
