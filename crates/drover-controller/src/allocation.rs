//! What changes of allocations mean: evaluations of their job, room for others, and the end of their finalizer.

use std::sync::Arc;
use std::time::Duration;

use drover_api::allocation::{AllocationStatus, ClientStatus, DesiredStatus, FollowUp};
use drover_api::client_node::NodePhase;
use drover_api::job::EvalTrigger;
use drover_api::{Allocation, finalizer};
use drover_core::broker::blocked::Freed;
use drover_core::ids::{AllocKey, JobKey, NodeName, ObjectKey};
use drover_core::model::{Alloc, Health};
use serde_json::json;

use crate::apply::key_of;
use crate::cache::Seen;
use crate::term::{Done, RETRY, Term, Wake};
use drover_store::convert;
use drover_store::{Part, Precondition, Store, StoreError};

/// How long a node is down before what was on it counts as gone.
const GONE_AFTER: Duration = Duration::from_mins(10);

impl<S: Store> Term<S> {
    pub(super) fn on_alloc(&mut self, seen: Seen<Allocation>) {
        self.numbers.allocation(&seen);
        match seen {
            Seen::Now(object, before) => {
                self.put_stored(&object);
                let key = convert::object_key(&object.metadata);
                let job = job_of(&object);
                self.touch(&job, &object);
                self.note_claims(&key);
                if let Some(before) = before {
                    self.on_alloc_changed(&job, &object, &before);
                }
                self.settle(&key);
            }
            Seen::Gone(object) => {
                let key = convert::object_key(&object.metadata);
                self.drop_claims(&key);
                self.view.remove_alloc(&key);
                let job = job_of(&object);
                self.touch(&job, &object);
                self.enqueue(&job, EvalTrigger::AllocStop);
                self.free_node(&NodeName::from(object.spec.node_name.clone()));
                self.free_job(&job);
            }
        }
    }

    /// Puts a stored allocation into the view, as what was declared of it says.
    pub(super) fn put_stored(&mut self, object: &Allocation) {
        let mut alloc = convert::alloc(object);
        self.view_index = self.view_index.max(alloc.health_index);
        if let Some(name) = &alloc.deployment {
            let key = ObjectKey::new(Arc::clone(&alloc.key.namespace), Arc::clone(name));
            let judged =
                self.view.deployment(&alloc.job, &key).and_then(|known| known.judgements.get(alloc.uid.as_str()));
            if let Some(health) = judged {
                alloc.health = Some(Health { deployment: alloc.deployment.clone(), ..health.clone() });
            }
        }
        // The verdict is as new as its last change, not as the object.
        if let Some(known) = self.view.alloc(&alloc.key)
            && known.uid == alloc.uid
            && known.canary == alloc.canary
            && known.health == alloc.health
            && known.deployment == alloc.deployment
        {
            alloc.health_index = known.health_index;
        }
        self.view.put_alloc(alloc);
    }

    fn touch(&mut self, job: &JobKey, object: &Allocation) {
        self.dirty_jobs.insert(job.clone());
        self.dirty_nodes.insert(NodeName::from(object.spec.node_name.clone()));
    }

    fn on_alloc_changed(&mut self, job: &JobKey, now: &Allocation, before: &Allocation) {
        let (old, new) = (status(before), status(now));
        let has_ended = new.client_status.is_terminal() && !old.client_status.is_terminal();
        if has_ended {
            let node = NodeName::from(now.spec.node_name.as_str());
            self.end_plugins_of(&node, now.metadata.uid.as_deref().unwrap_or_default());
            self.enqueue(job, EvalTrigger::AllocFailure);
        }
        let is_over = new.ended_at.is_some() && old.ended_at.is_none();
        if has_ended || is_over || now.spec.resources != before.spec.resources {
            self.free_node(&NodeName::from(now.spec.node_name.clone()));
        }
        if old.client_status == ClientStatus::Unknown && new.client_status != ClientStatus::Unknown {
            if let Some(follow_up) = &before.spec.follow_up {
                self.call_off(job, follow_up);
            }
            self.enqueue(job, EvalTrigger::Reconnect);
            self.welcome(&NodeName::from(now.spec.node_name.clone()));
        }
        if new.client_status != old.client_status || new.health != old.health {
            self.look_at_drains(job);
        }
        let is_deleted = now.metadata.deletion_timestamp.is_some() && before.metadata.deletion_timestamp.is_none();
        if is_deleted || now.spec.desired_transition != before.spec.desired_transition {
            let is_drained = self.drains.contains_key(&NodeName::from(now.spec.node_name.clone()));
            self.enqueue(job, if is_drained { EvalTrigger::NodeDrain } else { EvalTrigger::AllocStop });
        }
        let is_settled = new.health != old.health || new.client_status != old.client_status;
        if is_settled {
            let namespace = now.metadata.namespace.clone().unwrap_or_default();
            let deployment = ObjectKey::new(namespace, now.spec.deployment_name.clone());
            let is_rolled_out = self
                .deployments
                .get(&key_of(&deployment))
                .is_some_and(|deployment| deployment.status.as_ref().is_some_and(|status| status.phase.is_active()));
            if is_rolled_out {
                self.dirty_deployments.insert(deployment);
            } else if self.known.get(job).is_some_and(|known| known.held_back > 0) {
                self.enqueue(job, EvalTrigger::DeploymentWatcher);
            }
        }
        if now.spec.desired_status == DesiredStatus::Evict && before.spec.desired_status != DesiredStatus::Evict {
            self.enqueue(job, EvalTrigger::Preemption);
        }
    }

    /// Calls a delayed evaluation off, unless another allocation of its job waits for it too.
    fn call_off(&mut self, job: &JobKey, follow_up: &FollowUp) {
        let waits =
            |alloc: &Arc<Alloc>| alloc.client == ClientStatus::Unknown && alloc.follow_up.as_ref() == Some(follow_up);
        if !self.view.allocs_of_job(job).any(waits) {
            self.broker.call_off(job, follow_up);
        }
    }

    /// There is room on a node: the jobs that it may help are evaluated.
    pub(super) fn free_node(&mut self, node: &NodeName) {
        let Some(class) = self.view.node_entry(node).map(|entry| entry.class.to_string()) else { return };
        self.free(Freed::Class(class));
        self.free(Freed::Node(node.clone()));
    }

    /// Something became free, or there: the jobs that it may help are evaluated.
    pub(super) fn free(&mut self, what: Freed) {
        for job in self.blocked.free(what, self.view_index, self.clock.now()) {
            self.enqueue(&job, EvalTrigger::QueuedAllocs);
        }
    }

    /// Removes an allocation's finalizer when nothing of it is left: its agent said so, or its node is gone for good.
    pub(super) fn settle(&mut self, key: &AllocKey) {
        let Some(object) = self.allocs.get(&key_of(key)).cloned() else { return };
        let held = finalizer::is_held(&object.metadata, finalizer::NODE_CLEANUP);
        if !held || !(status(&object).ended_at.is_some() || self.is_node_gone(&object)) {
            if !held {
                self.free_job(&job_of(&object));
            }
            return;
        }
        let (store, key) = (self.store.clone(), key.clone());
        self.writes.spawn(async move {
            let body =
                json!({ "metadata": { "finalizers": finalizer::without(&object.metadata, finalizer::NODE_CLEANUP) } });
            let precondition = Precondition::unchanged(&object.metadata);
            let result = store.merge::<Allocation>(&key_of(&key), Part::Spec, &precondition, body).await;
            Done::Settled(key, Box::new(found(result)))
        });
    }

    fn is_node_gone(&self, object: &Allocation) -> bool {
        if !self.nodes.is_synced() {
            return false;
        }
        let name = NodeName::from(object.spec.node_name.clone());
        let Some(node) = self.nodes.get(&drover_store::Key::cluster(name.as_str())) else { return true };
        let node = node.status.clone().unwrap_or_default();
        let since = node.phase_changed_at.map(|at| self.clock.now().duration_since(at));
        node.phase == NodePhase::Down
            && since.is_some_and(|since| Duration::try_from(since).is_ok_and(|since| since >= GONE_AFTER))
    }

    /// Looks at what is on a node again when it has been down for long enough.
    pub(super) fn watch_absence(&mut self, node: &NodeName) {
        self.wake_in(GONE_AFTER + RETRY, Wake::NodeGone(node.clone()));
    }

    pub(super) fn settle_node(&mut self, node: &NodeName) {
        let there: Vec<AllocKey> = self.view.allocs_on_node(node).map(|alloc| alloc.key.clone()).collect();
        for alloc in there {
            self.settle(&alloc);
        }
    }

    pub(super) fn on_settled(&mut self, key: &AllocKey, result: Result<Option<Allocation>, StoreError>) {
        match result {
            Ok(Some(object)) => {
                if let Some(seen) = self.allocs.update(object) {
                    self.on_alloc(seen);
                }
            }
            Ok(None) => {}
            Err(StoreError::Conflict(_)) => self.wake_in(RETRY / 10, Wake::Settle(key.clone())),
            Err(error) => {
                tracing::warn!(allocation = %key, %error, "the finalizer of an allocation could not be removed");
                self.wake_in(RETRY, Wake::Settle(key.clone()));
            }
        }
    }
}

/// The object, or none where it is gone.
pub(super) fn found<K>(result: Result<K, StoreError>) -> Result<Option<K>, StoreError> {
    match result {
        Ok(object) => Ok(Some(object)),
        Err(StoreError::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn status(object: &Allocation) -> AllocationStatus {
    object.status.clone().unwrap_or_default()
}

/// The job of an allocation.
pub(super) fn job_of(object: &Arc<Allocation>) -> JobKey {
    JobKey::new(object.metadata.namespace.clone().unwrap_or_default(), object.spec.job_name.clone())
}
