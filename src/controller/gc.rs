//! Deletes what nobody needs any more: ended allocations, finished deployments, nodes that stay down.
//!
//! What goes is `drover_core::gc`'s decision. Each delete names the object's uid, so that a second leader, or a new object of the
//! same name, loses nothing.

use drover_api::{Allocation, ClientNode, Deployment};
use drover_core::gc;
use drover_core::ids::{JobKey, NodeName};

use crate::controller::apply::key_of;
use crate::controller::term::{Done, Term, Wake};
use crate::convert;
use crate::store::{Object, Precondition, Store};

impl<S: Store> Term<S> {
    /// Looks at everything, and again after a while.
    pub(super) fn collect_garbage(&mut self) {
        let now = self.clock.now();
        let jobs: Vec<JobKey> = self.view.jobs_of_allocs().cloned().collect();
        for job in &jobs {
            for key in gc::allocations(&self.view, job, now) {
                if let Some(object) = self.allocs.get(&key_of(&key)).cloned() {
                    self.collect::<Allocation>(&object);
                }
            }
        }
        let mut rolled_out: Vec<JobKey> = self.view.deployments().map(|deployment| deployment.job.clone()).collect();
        rolled_out.dedup();
        for job in &rolled_out {
            for key in gc::deployments(&self.view, job, now) {
                if let Some(object) = self.deployments.get(&key_of(&key)).cloned() {
                    self.collect::<Deployment>(&object);
                }
            }
        }
        let mut nodes: Vec<_> = self.nodes.values().cloned().collect();
        nodes.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        for object in nodes {
            let status = object.status.clone().unwrap_or_default();
            let name = NodeName::from(object.metadata.name.clone().unwrap_or_default());
            let is_over = |since| gc::is_node_over(&self.view, &name, status.phase, since, now);
            if status.phase_changed_at.is_some_and(is_over) {
                self.collect::<ClientNode>(&object);
            }
        }
        self.wake_in(gc::PERIOD, Wake::Garbage);
    }

    fn collect<K: Object>(&mut self, object: &K) {
        if object.meta().deletion_timestamp.is_some() {
            return;
        }
        let (store, key) = (self.store.clone(), object.key());
        let precondition = Precondition::same_object(object.meta());
        tracing::debug!(kind = %K::kind(&()), key = %key, uid = %convert::uid(object.meta()), "it is not needed any more");
        self.writes.spawn(async move { Done::Other("garbage", store.delete::<K>(&key, &precondition).await) });
    }
}
