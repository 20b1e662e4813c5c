//! Takes drover's finalizers off objects of which nothing is left: allocations whose node is done with them, jobs
//! without allocations.

use std::time::Duration;

use drover_api::client_node::NodePhase;
use drover_api::{Allocation, finalizer};
use drover_core::ids::{AllocKey, JobKey, NodeName};
use drover_store::Key;

use crate::actions::Action;
use crate::keys::key_of;
use crate::shared::{RETRY, Shared};
use crate::timers::Wake;

/// How long a node is down before what was on it counts as gone.
const GONE_AFTER: Duration = Duration::from_mins(10);

/// Removes an allocation's finalizer when nothing of it is left: its agent reported so, or its node is gone for good.
pub(crate) fn settle(shared: &mut Shared, key: &AllocKey) {
    let Some(object) = shared.caches.allocs.get(&key_of(key)).cloned() else { return };
    if !finalizer::is_held(&object.metadata, finalizer::NODE_CLEANUP) {
        let namespace = object.metadata.namespace.clone().unwrap_or_default();
        return free_job(shared, &JobKey::new(namespace, object.spec.job_name.clone()));
    }
    let has_ended = object.status.as_ref().is_some_and(|status| status.ended_at.is_some());
    if has_ended || is_node_gone(shared, &object) {
        shared.outbox.push(Action::Settle(key.clone(), object));
    }
}

fn is_node_gone(shared: &Shared, object: &Allocation) -> bool {
    if !shared.caches.nodes.is_synced() {
        return false;
    }
    let Some(node) = shared.caches.nodes.get(&Key::cluster(object.spec.node_name.as_str())) else { return true };
    let node = node.status.clone().unwrap_or_default();
    let since = node.phase_changed_at.map(|at| shared.clock.now().duration_since(at));
    node.phase == NodePhase::Down
        && since.is_some_and(|since| Duration::try_from(since).is_ok_and(|since| since >= GONE_AFTER))
}

/// Looks at what is on a node again when it has been down for long enough.
pub(crate) fn watch_absence(shared: &mut Shared, node: &NodeName) {
    shared.wake_in(GONE_AFTER + RETRY, Wake::NodeGone(node.clone()));
}

/// Looks at all allocations on a node that is gone, or has been down for long.
pub(crate) fn settle_node(shared: &mut Shared, node: &NodeName) {
    let there: Vec<AllocKey> = shared.view.allocs_on_node(node).map(|alloc| alloc.key.clone()).collect();
    for alloc in there {
        settle(shared, &alloc);
    }
}

/// Removes the finalizer of a job that is being deleted when nothing of it is left.
pub(crate) fn free_job(shared: &mut Shared, key: &JobKey) {
    let Some(object) = shared.job(key).cloned() else { return };
    let held = finalizer::is_held(&object.metadata, finalizer::STOP_ALLOCATIONS);
    let is_busy = !shared.caches.allocs.is_synced() || shared.evaluations.broker.is_busy(key);
    if object.metadata.deletion_timestamp.is_none() || !held || is_busy {
        return;
    }
    if shared.view.allocs_of_job(key).all(|alloc| is_over(shared, &alloc.key)) {
        shared.outbox.push(Action::FreeJob(key.clone(), object));
    }
}

/// Whether nothing of an allocation is left on its node.
fn is_over(shared: &Shared, key: &AllocKey) -> bool {
    let object = shared.caches.allocs.get(&key_of(key));
    object.is_some_and(|object| !finalizer::is_held(&object.metadata, finalizer::NODE_CLEANUP))
}
