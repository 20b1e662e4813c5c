//! What is stored of a job, for the writes of a plan.

use std::sync::Arc;

use drover_api::{Allocation, Deployment, Job, JobVersion};
use drover_core::ids::{AllocKey, ObjectKey};
use drover_core::model::Alloc;
use drover_store::Key;

use crate::cache::Caches;
use crate::keys::key_of;

/// What is stored of a job whose plan is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored<'a> {
    /// The job itself, where there is one.
    pub(crate) job: Option<&'a Job>,
    /// All of its allocations.
    pub(crate) siblings: &'a [Arc<Alloc>],
    /// Its versions, oldest first.
    pub(crate) versions: &'a [Arc<JobVersion>],
    /// Everything else.
    pub(crate) caches: &'a Caches,
    /// The evaluation whose plan it is.
    pub(crate) eval_id: &'a str,
}

impl Stored<'_> {
    /// An allocation.
    pub(crate) fn allocation(&self, key: &AllocKey) -> Option<Arc<Allocation>> {
        self.caches.allocs.get(&key_of(key)).cloned()
    }

    /// The slices below which an allocation is found.
    pub(crate) fn slices_of(&self, alloc: &Alloc) -> Vec<Key> {
        let owned = self.caches.slice_index.of_allocation(alloc.uid.as_str());
        owned.cloned().collect()
    }

    /// A deployment.
    pub(crate) fn deployment(&self, key: &ObjectKey) -> Option<Arc<Deployment>> {
        self.caches.deployments.get(&key_of(key)).cloned()
    }
}
