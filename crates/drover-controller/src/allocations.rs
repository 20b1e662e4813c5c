//! What changes of allocations mean: the view follows them, their job is evaluated, room becomes free for others.
//!
//! Which evaluations follow is `drover_core::triggers`' decision.

use std::sync::Arc;

use drover_api::Allocation;
use drover_api::allocation::{AllocationStatus, ClientStatus, DesiredStatus, DesiredTransition, FollowUp};
use drover_api::job::EvalTrigger;
use drover_core::ids::{AllocKey, JobKey, NodeName, ObjectKey};
use drover_core::model::Alloc;
use drover_core::triggers::{self, AllocationFacts, Around, Consequences};
use drover_store::{Precondition, StoreError, convert};
use serde_json::json;

use crate::actions::Action;
use crate::cache::Observed;
use crate::finalizers;
use crate::keys::key_of;
use crate::shared::{Notice, RETRY, Shared};
use crate::timers::Wake;

/// Takes in an allocation that is new, changed or gone; what follows for others, where it changed. `is_draining` says
/// it of its node.
pub(crate) fn on_change(
    shared: &mut Shared,
    observed: &Observed<Allocation>,
    is_draining: impl Fn(&NodeName) -> bool,
) -> Consequences {
    shared.recorder.allocation(observed);
    match observed {
        Observed::Now(object, before) => {
            shared.put_stored(object);
            let job = job_of(object);
            touch(shared, &job, object);
            carry_out_stop(shared, &convert::object_key(&object.metadata));
            let consequences = before
                .as_ref()
                .map_or_else(Consequences::default, |before| on_changed(shared, &job, object, before, is_draining));
            finalizers::settle(shared, &convert::object_key(&object.metadata));
            consequences
        }
        Observed::Gone(object) => {
            shared.view.remove_alloc(&convert::object_key(&object.metadata));
            let job = job_of(object);
            touch(shared, &job, object);
            shared.enqueue(&job, EvalTrigger::AllocStop);
            shared.free_node(&node_of(object));
            finalizers::free_job(shared, &job);
            Consequences::default()
        }
    }
}

/// Carries out the stop that a person asked an allocation's agent for: it is to leave its node, which has its job
/// evaluated. Nothing is done where that is so already, or where it has ended or is not wanted anyway.
pub(crate) fn carry_out_stop(shared: &mut Shared, key: &AllocKey) {
    let Some(object) = shared.caches.allocs.get(&key_of(key)).cloned() else { return };
    let Some(known) = shared.view.alloc(key).cloned() else { return };
    let is_asked = object.status.as_ref().is_some_and(|status| status.stop_requested_at.is_some());
    let is_wanted = known.desired == DesiredStatus::Run && !known.is_deleting && !known.is_client_terminal();
    if !is_asked || !is_wanted || known.transition.migrate {
        return;
    }
    let transition = DesiredTransition { migrate: true, reschedule: true, ..known.transition };
    // What was decided stays so until the answer is there.
    shared.view.put_alloc(Alloc { transition, ..(*known).clone() });
    let body = json!({ "spec": { "desiredTransition": transition } });
    shared.outbox.push(Action::Mark(key.clone(), Precondition::same_object(&object.metadata), body));
}

fn touch(shared: &mut Shared, job: &JobKey, object: &Allocation) {
    shared.due.jobs.insert(job.clone());
    shared.due.nodes.insert(node_of(object));
}

fn on_changed(
    shared: &mut Shared,
    job: &JobKey,
    now: &Allocation,
    before: &Allocation,
    is_draining: impl Fn(&NodeName) -> bool,
) -> Consequences {
    let namespace = now.metadata.namespace.clone().unwrap_or_default();
    let deployment = ObjectKey::new(namespace, now.spec.deployment_name.clone());
    let stored = shared.caches.deployments.get(&key_of(&deployment));
    let around = Around {
        is_node_draining: is_draining(&node_of(now)),
        is_rolled_out: stored.and_then(|stored| stored.status.as_ref()).is_some_and(|status| status.phase.is_active()),
        is_update_held_back: shared.evaluations.last.get(job).is_some_and(|last| last.held_back > 0),
    };
    let (old, new) = (status(before), status(now));
    let is_deleting = |object: &Allocation| object.metadata.deletion_timestamp.is_some();
    let consequences = triggers::of_allocation(
        AllocationFacts { spec: &before.spec, status: &old, is_deleting: is_deleting(before) },
        AllocationFacts { spec: &now.spec, status: &new, is_deleting: is_deleting(now) },
        around,
    );
    if consequences.frees_room {
        shared.free_node(&node_of(now));
    }
    if let Some(follow_up) = before.spec.follow_up.as_ref().filter(|_| consequences.is_reconnected) {
        call_off(shared, job, follow_up);
    }
    for trigger in &consequences.triggers {
        shared.enqueue(job, *trigger);
    }
    if consequences.concerns_deployment {
        shared.due.deployments.insert(deployment);
    }
    consequences
}

/// Calls a delayed evaluation off, unless another allocation of its job waits for it too.
fn call_off(shared: &mut Shared, job: &JobKey, follow_up: &FollowUp) {
    let waits =
        |alloc: &Arc<Alloc>| alloc.client == ClientStatus::Unknown && alloc.follow_up.as_ref() == Some(follow_up);
    if !shared.view.allocs_of_job(job).any(waits) {
        shared.evaluations.broker.call_off(job, follow_up);
    }
}

/// Takes in the answer to the end of a finalizer.
pub(crate) fn on_settled(shared: &mut Shared, key: &AllocKey, result: Result<Option<Allocation>, StoreError>) {
    match result {
        Ok(object) => {
            let observed = object.and_then(|object| shared.caches.allocs.update(object));
            shared.notify_all(observed.map(Notice::Allocation));
        }
        Err(StoreError::Conflict(_)) => shared.wake_in(RETRY / 10, Wake::Settle(key.clone())),
        Err(error) => {
            tracing::warn!(allocation = %key, %error, "the finalizer of an allocation could not be removed");
            shared.wake_in(RETRY, Wake::Settle(key.clone()));
        }
    }
}

fn status(object: &Allocation) -> AllocationStatus {
    object.status.clone().unwrap_or_default()
}

fn node_of(object: &Allocation) -> NodeName {
    NodeName::from(object.spec.node_name.as_str())
}

fn job_of(object: &Allocation) -> JobKey {
    JobKey::new(object.metadata.namespace.clone().unwrap_or_default(), object.spec.job_name.clone())
}
