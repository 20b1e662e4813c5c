//! Deletes what is no longer needed: ended allocations, finished deployments, nodes that stay down, ended launches
//! and dispatches.
//!
//! What goes is `drover_core::gc`'s decision. Each delete names the object's uid, so that a second leader, or a new
//! object of the same name, loses nothing.

use drover_api::Job;
use drover_core::gc;
use drover_core::ids::{JobKey, NodeName};
use drover_store::{Object, Precondition, convert};
use jiff::Timestamp;
use tokio::time::Instant;

use crate::actions::{Action, GarbageKind as Kind};
use crate::keys::key_of;
use crate::shared::Shared;
use crate::timers::{TimerId, Wake};

/// The collection of garbage.
#[derive(Debug, Default)]
pub(crate) struct GarbageCollector {
    /// When it is looked for next.
    timer: Option<TimerId>,
}

impl GarbageCollector {
    /// Looks at everything, and again after a while.
    pub(crate) fn collect(&mut self, shared: &mut Shared) {
        let (now, limits) = (shared.clock.now(), shared.config.gc.thresholds());
        let jobs: Vec<JobKey> = shared.view.jobs_of_allocs().cloned().collect();
        for job in &jobs {
            for key in gc::allocations(&shared.view, job, &limits, now) {
                if let Some(object) = shared.caches.allocs.get(&key_of(&key)).cloned() {
                    collect(shared, Kind::Allocation, &*object);
                }
            }
        }
        let mut rolled_out: Vec<JobKey> = shared.view.deployments().map(|deployment| deployment.job.clone()).collect();
        rolled_out.dedup();
        for job in &rolled_out {
            for key in gc::deployments(&shared.view, job, &limits, now) {
                if let Some(object) = shared.caches.deployments.get(&key_of(&key)).cloned() {
                    collect(shared, Kind::Deployment, &*object);
                }
            }
        }
        let mut nodes: Vec<_> = shared.caches.nodes.values().cloned().collect();
        nodes.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        for object in nodes {
            let status = object.status.clone().unwrap_or_default();
            let name = NodeName::from(object.metadata.name.clone().unwrap_or_default());
            let age = |since| now.duration_since(since);
            let is_over = |since| gc::is_node_over(&shared.view, &name, status.phase, age(since), &limits);
            if status.phase_changed_at.is_some_and(is_over) {
                collect(shared, Kind::Node, &*object);
            }
        }
        let mut over: Vec<_> =
            shared.caches.jobs.values().filter(|job| Self::is_launch_over(shared, job, now)).cloned().collect();
        over.sort_by_key(|job| job.key());
        for object in over {
            collect(shared, Kind::Job, &*object);
        }
        self.plan(shared);
    }

    /// Looks again after a while, however often that was planned before.
    pub(crate) fn plan(&mut self, shared: &mut Shared) {
        if let Some(earlier) = self.timer.take() {
            shared.timers.cancel(&earlier);
        }
        self.timer = Some(shared.wake_at(Instant::now() + shared.config.gc.interval(), Wake::Garbage));
    }

    fn is_launch_over(shared: &Shared, job: &Job, now: Timestamp) -> bool {
        let Some(status) = &job.status else { return false };
        // It ended when the last thing about it changed.
        let changed = status.conditions.iter().map(|condition| condition.last_transition_time).max();
        let age = now.duration_since(changed.unwrap_or(now));
        let limits = shared.config.gc.thresholds();
        let is_owned = shared.caches.children.parent(&convert::object_key(&job.metadata)).is_some();
        is_owned && gc::is_launch_over(&job.spec.id, status.phase, age, &limits)
    }
}

fn collect<K: Object>(shared: &mut Shared, kind: Kind, object: &K) {
    if object.meta().deletion_timestamp.is_some() {
        return;
    }
    let (key, precondition) = (object.key(), Precondition::same_object(object.meta()));
    tracing::debug!(kind = %K::kind(&()), key = %key, uid = %convert::uid(object.meta()), "it is not needed any more");
    shared.outbox.push(Action::Collect(kind, key, precondition));
}
