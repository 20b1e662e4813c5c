//! Deletes what nobody needs any more: ended allocations, finished deployments, nodes that stay down, ended launches and dispatches.
//!
//! What goes is `drover_core::gc`'s decision. Each delete names the object's uid, so that a second leader, or a new object of the
//! same name, loses nothing.

use drover_api::{Allocation, ClientNode, Deployment, Job};
use drover_core::gc;
use drover_core::ids::{JobKey, NodeName};
use jiff::Timestamp;
use tokio::time::Instant;

use crate::apply::key_of;
use crate::term::{Done, Term, Wake};
use drover_store::convert;
use drover_store::{Object, Precondition, Store};

impl<S: Store> Term<S> {
    /// Looks at everything, and again after a while.
    pub(super) fn collect_garbage(&mut self) {
        let (now, limits) = (self.clock.now(), self.config.gc.thresholds());
        let jobs: Vec<JobKey> = self.view.jobs_of_allocs().cloned().collect();
        for job in &jobs {
            for key in gc::allocations(&self.view, job, &limits, now) {
                if let Some(object) = self.allocs.get(&key_of(&key)).cloned() {
                    self.collect::<Allocation>(&object);
                }
            }
        }
        let mut rolled_out: Vec<JobKey> = self.view.deployments().map(|deployment| deployment.job.clone()).collect();
        rolled_out.dedup();
        for job in &rolled_out {
            for key in gc::deployments(&self.view, job, &limits, now) {
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
            let age = |since| now.duration_since(since);
            let is_over = |since| gc::is_node_over(&self.view, &name, status.phase, age(since), &limits);
            if status.phase_changed_at.is_some_and(is_over) {
                self.collect::<ClientNode>(&object);
            }
        }
        let mut over: Vec<_> = self.jobs.values().filter(|job| self.is_launch_over(job, now)).cloned().collect();
        over.sort_by_key(|job| job.key());
        for object in over {
            self.collect::<Job>(&object);
        }
        self.plan_garbage();
    }

    /// Looks again after a while, however often that was planned before.
    pub(super) fn plan_garbage(&mut self) {
        if let Some(earlier) = self.garbage_wake.take() {
            self.wakes.remove(&earlier);
        }
        self.garbage_wake = Some(self.wake_at(Instant::now() + self.config.gc.interval(), Wake::Garbage));
    }

    fn is_launch_over(&self, job: &Job, now: Timestamp) -> bool {
        let Some(status) = &job.status else { return false };
        // It ended when the last thing about it changed.
        let changed = status.conditions.iter().map(|condition| condition.last_transition_time).max();
        let age = now.duration_since(changed.unwrap_or(now));
        let limits = self.config.gc.thresholds();
        let is_owned = self.families.parent(&convert::object_key(&job.metadata)).is_some();
        is_owned && gc::is_launch_over(&job.spec.id, status.phase, age, &limits)
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
