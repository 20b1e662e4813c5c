//! The scheduler's picture of the cluster: immutable to its readers, indexed, and cheap to clone (the maps share structure), so
//! that a plan is made on one state while the next one is being built.
//!
//! The owner puts objects in as they change; an object that was just written and is not yet back from the watch is put in like
//! any other, so that no plan gives its room away again.

use std::sync::Arc;

use imbl::{OrdMap, OrdSet};

use crate::definition::Definition;
use crate::ids::{AllocKey, JobKey, NodeName, Uid};
use crate::model::{Alloc, Job, Node};

/// The state of the cluster, as one leader knows it.
#[derive(Clone, Debug, Default)]
pub struct ClusterView {
    nodes: OrdMap<NodeName, Arc<Node>>,
    jobs: OrdMap<JobKey, Arc<Job>>,
    versions: OrdMap<(JobKey, Uid, i64), Arc<Definition>>,
    allocs: OrdMap<AllocKey, Arc<Alloc>>,
    by_job: OrdMap<JobKey, OrdSet<AllocKey>>,
    by_node: OrdMap<NodeName, OrdSet<AllocKey>>,
}

impl ClusterView {
    /// Puts a node in, or in the place of the one of its name.
    pub fn put_node(&mut self, node: Node) {
        self.nodes.insert(node.name.clone(), Arc::new(node));
    }

    /// Takes a node out.
    pub fn remove_node(&mut self, name: &NodeName) -> Option<Arc<Node>> {
        self.nodes.remove(name)
    }

    /// Puts a job in, or in the place of the one of its key.
    pub fn put_job(&mut self, job: Job) {
        self.jobs.insert(job.key.clone(), Arc::new(job));
    }

    /// Takes a job out.
    pub fn remove_job(&mut self, key: &JobKey) -> Option<Arc<Job>> {
        self.jobs.remove(key)
    }

    /// Puts a version of a job in.
    pub fn put_version(&mut self, job: JobKey, uid: Uid, version: i64, definition: Arc<Definition>) {
        self.versions.insert((job, uid, version), definition);
    }

    /// Takes a version of a job out.
    pub fn remove_version(&mut self, job: &JobKey, uid: &Uid, version: i64) {
        self.versions.remove(&(job.clone(), uid.clone(), version));
    }

    /// Puts an allocation in, or in the place of the one of its key.
    pub fn put_alloc(&mut self, alloc: Alloc) {
        self.remove_alloc(&alloc.key);
        self.by_job.entry(alloc.job.clone()).or_default().insert(alloc.key.clone());
        self.by_node.entry(alloc.node.clone()).or_default().insert(alloc.key.clone());
        self.allocs.insert(alloc.key.clone(), Arc::new(alloc));
    }

    /// Takes an allocation out.
    pub fn remove_alloc(&mut self, key: &AllocKey) -> Option<Arc<Alloc>> {
        let gone = self.allocs.remove(key)?;
        unindex(&mut self.by_job, &gone.job, key);
        unindex(&mut self.by_node, &gone.node, key);
        Some(gone)
    }

    /// A node.
    pub fn node(&self, name: &NodeName) -> Option<&Arc<Node>> {
        self.nodes.get(name)
    }

    /// All nodes, by name.
    pub fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
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

    /// An allocation.
    pub fn alloc(&self, key: &AllocKey) -> Option<&Arc<Alloc>> {
        self.allocs.get(key)
    }

    /// All allocations of a job, by key. O(their number).
    pub fn allocs_of_job(&self, job: &JobKey) -> impl Iterator<Item = &Arc<Alloc>> {
        self.by_job.get(job).into_iter().flatten().filter_map(|key| self.allocs.get(key))
    }

    /// All allocations on a node, by key. O(their number).
    pub fn allocs_on_node(&self, node: &NodeName) -> impl Iterator<Item = &Arc<Alloc>> {
        self.by_node.get(node).into_iter().flatten().filter_map(|key| self.allocs.get(key))
    }

    /// Jobs that allocations name, whether they exist or not.
    pub fn jobs_of_allocs(&self) -> impl Iterator<Item = &JobKey> {
        self.by_job.keys()
    }
}

fn unindex<K: Ord + Clone>(index: &mut OrdMap<K, OrdSet<AllocKey>>, at: &K, key: &AllocKey) {
    if let Some(set) = index.get_mut(at) {
        set.remove(key);
        if set.is_empty() {
            index.remove(at);
        }
    }
}
