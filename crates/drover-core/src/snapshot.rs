//! The scheduler's picture of the cluster: immutable to its readers, indexed, and cheap to clone (the maps share
//! structure), so that a plan is made on one state while the next one is being built.
//!
//! The owner puts objects in as they change; an object that was just written and is not yet back from the watch is put
//! in like any other, so that no plan gives its room away again. What is in use on each node is kept up to date with
//! every change, so that a plan costs the same on a full cluster as on an empty one.

use std::sync::Arc;

use drover_api::CSIVolume;
use imbl::OrdMap;

use crate::definition::Definition;
use crate::deployment::newest;
use crate::host_volume::index::HostVolumeIndex;
use crate::ids::{AllocKey, JobKey, NodeName, ObjectKey, Uid};
use crate::model::{Alloc, Amounts, Deployment, Job, Node};
use crate::scheduler::class::{NodeClass, NodeShape};
use crate::settings::Settings;
use crate::usage::Usage;

/// A node with what is in use on it.
#[derive(Clone, Debug)]
pub struct NodeEntry {
    /// The node.
    pub node: Arc<Node>,
    /// Its class.
    pub class: NodeClass,
    /// Its shape.
    pub shape: NodeShape,
    /// Whether new allocations may be placed on it now. What is needed of every node for each plan lies here together,
    /// so that no more than one place in memory is read for each.
    pub is_ready: bool,
    /// What allocations can be given.
    pub allocatable: Amounts,
    /// Most allocations on it.
    pub max_allocs: i64,
    /// Whether its operator named its class.
    pub has_class_name: bool,
    /// What allocations hold there.
    pub usage: Usage,
}

type AllocMap = OrdMap<AllocKey, Arc<Alloc>>;

/// The state of the cluster, as one leader knows it.
#[derive(Clone, Debug, Default)]
pub struct ClusterView {
    settings: Arc<Settings>,
    nodes: OrdMap<NodeName, Arc<NodeEntry>>,
    jobs: OrdMap<JobKey, Arc<Job>>,
    versions: OrdMap<(JobKey, Uid, i64), Arc<Definition>>,
    allocs: AllocMap,
    by_job: OrdMap<JobKey, AllocMap>,
    by_node: OrdMap<NodeName, AllocMap>,
    /// The successor of an allocation, by the key of that allocation.
    next: OrdMap<AllocKey, AllocKey>,
    deployments: OrdMap<JobKey, OrdMap<ObjectKey, Arc<Deployment>>>,
    volumes: OrdMap<ObjectKey, Arc<CSIVolume>>,
    host_volumes: HostVolumeIndex,
}

impl ClusterView {
    /// Sets the scheduler's configuration.
    pub fn set_settings(&mut self, settings: Settings) {
        self.settings = Arc::new(settings);
    }

    /// The scheduler's configuration.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Puts a node in, or in the place of the one of its name. O(its allocations) for a new one.
    pub fn put_node(&mut self, node: Node) {
        let (name, class) = (node.name.clone(), NodeClass::of(&node));
        let usage = self.nodes.get(&name).map_or_else(|| self.usage_on(&name), |entry| entry.usage.clone());
        let entry = NodeEntry {
            class,
            shape: NodeShape::of(&node, class),
            is_ready: node.is_ready(),
            allocatable: node.allocatable,
            max_allocs: node.max_allocs.unwrap_or(i64::MAX),
            has_class_name: !node.class.is_empty(),
            node: Arc::new(node),
            usage,
        };
        self.nodes.insert(name, Arc::new(entry));
    }

    /// Takes a node out.
    pub fn remove_node(&mut self, name: &NodeName) -> Option<Arc<Node>> {
        self.nodes.remove(name).map(|entry| Arc::clone(&entry.node))
    }

    /// Puts a job in, or in the place of the one of its key.
    pub fn put_job(&mut self, job: Job) {
        self.jobs.insert(job.key.clone(), Arc::new(job));
    }

    /// Takes a job out.
    pub fn remove_job(&mut self, key: &JobKey) -> Option<Arc<Job>> {
        self.jobs.remove(key)
    }

    /// Puts a version of a job in. O(allocations of the job): what they hold depends on it.
    pub fn put_version(&mut self, job: JobKey, uid: Uid, version: i64, definition: Arc<Definition>) {
        let of_version = |alloc: &&Arc<Alloc>| alloc.job_uid == uid && alloc.job_version == version;
        let nodes: std::collections::BTreeSet<NodeName> =
            self.allocs_of_job(&job).filter(of_version).map(|alloc| alloc.node.clone()).collect();
        self.versions.insert((job, uid, version), definition);
        for node in nodes {
            self.recount(&node);
        }
    }

    /// Takes a version of a job out.
    pub fn remove_version(&mut self, job: &JobKey, uid: &Uid, version: i64) {
        self.versions.remove(&(job.clone(), uid.clone(), version));
    }

    /// Puts an allocation in, or in the place of the one of its key.
    pub fn put_alloc(&mut self, alloc: Alloc) {
        let alloc = Arc::new(alloc);
        let key = alloc.key.clone();
        let before = self.allocs.insert(key.clone(), Arc::clone(&alloc));
        if let Some(before) = &before {
            self.unlink(before, &alloc);
        }
        self.by_job.entry(alloc.job.clone()).or_default().insert(key.clone(), Arc::clone(&alloc));
        self.by_node.entry(alloc.node.clone()).or_default().insert(key.clone(), Arc::clone(&alloc));
        if let Some(previous) = &alloc.previous {
            self.next.insert(AllocKey::new(Arc::clone(&key.namespace), Arc::clone(previous)), key);
        }
        match before {
            Some(before) if holds_the_same(&before, &alloc) => {}
            Some(before) if before.holds_room() => {
                self.recount(&before.node);
                self.recount(&alloc.node);
            }
            _ if alloc.holds_room() => {
                let held = self.held_by(&alloc);
                self.with_usage(&alloc.node, |usage| usage.add(&held));
            }
            _ => {}
        }
    }

    /// Takes an allocation out.
    pub fn remove_alloc(&mut self, key: &AllocKey) -> Option<Arc<Alloc>> {
        let gone = self.allocs.remove(key)?;
        unindex(&mut self.by_job, &gone.job, key);
        unindex(&mut self.by_node, &gone.node, key);
        self.unlink_previous(&gone);
        if gone.holds_room() {
            self.recount(&gone.node);
        }
        Some(gone)
    }

    /// Puts a deployment in, or in the place of the one of its key.
    pub fn put_deployment(&mut self, deployment: Deployment) {
        let of_job = self.deployments.entry(deployment.job.clone()).or_default();
        of_job.insert(deployment.key.clone(), Arc::new(deployment));
    }

    /// Takes a deployment of a job out.
    pub fn remove_deployment(&mut self, job: &JobKey, key: &ObjectKey) {
        if let Some(of_job) = self.deployments.get_mut(job) {
            of_job.remove(key);
            if of_job.is_empty() {
                self.deployments.remove(job);
            }
        }
    }

    /// Puts a volume in, by its namespace and its id.
    pub fn put_volume(&mut self, id: ObjectKey, volume: Arc<CSIVolume>) {
        self.volumes.insert(id, volume);
    }

    /// Takes a volume out.
    pub fn remove_volume(&mut self, id: &ObjectKey) {
        self.volumes.remove(id);
    }

    /// A node.
    pub fn node(&self, name: &NodeName) -> Option<&Arc<Node>> {
        self.nodes.get(name).map(|entry| &entry.node)
    }

    /// A node with what is in use on it.
    pub fn node_entry(&self, name: &NodeName) -> Option<&Arc<NodeEntry>> {
        self.nodes.get(name)
    }

    /// All nodes, by name.
    pub fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.nodes.values().map(|entry| &entry.node)
    }

    /// All nodes with what is in use on them, by name.
    pub fn node_entries(&self) -> impl Iterator<Item = &Arc<NodeEntry>> {
        self.nodes.values()
    }

    /// A job.
    pub fn job(&self, key: &JobKey) -> Option<&Arc<Job>> {
        self.jobs.get(key)
    }

    /// All jobs, by key.
    pub fn jobs(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.jobs.values()
    }

    /// A version of a job.
    pub fn version(&self, job: &JobKey, uid: &Uid, version: i64) -> Option<&Arc<Definition>> {
        self.versions.get(&(job.clone(), uid.clone(), version))
    }

    /// The definition that an allocation runs, if it is known.
    pub fn definition_of(&self, alloc: &Alloc) -> Option<&Arc<Definition>> {
        self.version(&alloc.job, &alloc.job_uid, alloc.job_version)
    }

    /// The priority of an allocation's job: that of its version, else of the job as it is, else the default.
    pub fn priority_of(&self, alloc: &Alloc) -> i64 {
        let job = || self.job(&alloc.job).map(|job| &job.definition);
        self.definition_of(alloc).or_else(job).map_or(crate::model::DEFAULT_PRIORITY, |known| known.spec.priority)
    }

    /// An allocation.
    pub fn alloc(&self, key: &AllocKey) -> Option<&Arc<Alloc>> {
        self.allocs.get(key)
    }

    /// All allocations, by key.
    pub fn allocs(&self) -> impl Iterator<Item = &Arc<Alloc>> {
        self.allocs.values()
    }

    /// All allocations of a job, by key. O(their number).
    pub fn allocs_of_job(&self, job: &JobKey) -> impl Iterator<Item = &Arc<Alloc>> {
        self.by_job.get(job).into_iter().flat_map(OrdMap::values)
    }

    /// All allocations on a node, by key. O(their number).
    pub fn allocs_on_node(&self, node: &NodeName) -> impl Iterator<Item = &Arc<Alloc>> {
        self.by_node.get(node).into_iter().flat_map(OrdMap::values)
    }

    /// Jobs that allocations name, whether they exist or not.
    pub fn jobs_of_allocs(&self) -> impl Iterator<Item = &JobKey> {
        self.by_job.keys()
    }

    /// The allocation that was placed in the stead of this one.
    pub fn next_of(&self, alloc: &Alloc) -> Option<&Arc<Alloc>> {
        self.next.get(&alloc.key).and_then(|next| self.allocs.get(next))
    }

    /// A deployment of a job.
    pub fn deployment(&self, job: &JobKey, key: &ObjectKey) -> Option<&Arc<Deployment>> {
        self.deployments.get(job)?.get(key)
    }

    /// All deployments of a job, by key.
    pub fn deployments_of_job(&self, job: &JobKey) -> impl Iterator<Item = &Arc<Deployment>> {
        self.deployments.get(job).into_iter().flat_map(OrdMap::values)
    }

    /// All deployments.
    pub fn deployments(&self) -> impl Iterator<Item = &Arc<Deployment>> {
        self.deployments.values().flat_map(OrdMap::values)
    }

    /// The newest deployment of a job.
    pub fn latest_deployment(&self, job: &JobKey) -> Option<&Arc<Deployment>> {
        newest(self.deployments_of_job(job))
    }

    /// A volume, by its namespace and its id.
    pub fn volume(&self, id: &ObjectKey) -> Option<&Arc<CSIVolume>> {
        self.volumes.get(id)
    }

    /// All volumes, by namespace and id.
    pub fn volumes(&self) -> impl Iterator<Item = (&ObjectKey, &Arc<CSIVolume>)> {
        self.volumes.iter()
    }

    /// All HostVolumes.
    pub fn host_volumes(&self) -> &HostVolumeIndex {
        &self.host_volumes
    }

    /// All HostVolumes, to be changed.
    pub fn host_volumes_mut(&mut self) -> &mut HostVolumeIndex {
        &mut self.host_volumes
    }

    /// What an allocation holds on its node.
    pub fn held_by(&self, alloc: &Alloc) -> Usage {
        let group = self.definition_of(alloc).and_then(|definition| definition.group(&alloc.group));
        Usage::of(&alloc.resources, group)
    }

    fn usage_on(&self, node: &NodeName) -> Usage {
        let mut usage = Usage::default();
        for alloc in self.allocs_on_node(node).filter(|alloc| alloc.holds_room()) {
            usage.add(&self.held_by(alloc));
        }
        usage
    }

    fn recount(&mut self, node: &NodeName) {
        let counted = self.usage_on(node);
        self.with_usage(node, |usage| *usage = counted);
    }

    fn with_usage(&mut self, node: &NodeName, change: impl FnOnce(&mut Usage)) {
        if let Some(entry) = self.nodes.get_mut(node) {
            change(&mut Arc::make_mut(entry).usage);
        }
    }

    /// Takes an allocation out of the indexes in which its successor stands elsewhere.
    fn unlink(&mut self, before: &Alloc, after: &Alloc) {
        if before.job != after.job {
            unindex(&mut self.by_job, &before.job, &before.key);
        }
        if before.node != after.node {
            unindex(&mut self.by_node, &before.node, &before.key);
        }
        if before.previous != after.previous {
            self.unlink_previous(before);
        }
    }

    fn unlink_previous(&mut self, alloc: &Alloc) {
        let Some(previous) = &alloc.previous else { return };
        let previous = AllocKey::new(Arc::clone(&alloc.key.namespace), Arc::clone(previous));
        if self.next.get(&previous) == Some(&alloc.key) {
            self.next.remove(&previous);
        }
    }
}

/// Whether two states of an allocation take the same room on the same node.
fn holds_the_same(before: &Alloc, after: &Alloc) -> bool {
    before.holds_room() == after.holds_room()
        && before.node == after.node
        && (!after.holds_room() || (before.resources == after.resources && before.job_version == after.job_version))
}

fn unindex<K: Ord + Clone>(index: &mut OrdMap<K, AllocMap>, at: &K, key: &AllocKey) {
    if let Some(set) = index.get_mut(at) {
        set.remove(key);
        if set.is_empty() {
            index.remove(at);
        }
    }
}

#[cfg(test)]
mod tests;
