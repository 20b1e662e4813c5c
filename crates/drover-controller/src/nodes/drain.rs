//! Drains: an operator's request becomes marks on allocations, progress in the node's status, and at the end a cleared
//! request.
//!
//! Crash-safe by its order: the node becomes ineligible before anything is marked, allocations are marked before the
//! request is cleared, and each leader finds from the objects alone where the last one stood.

use std::time::Duration;

use drover_api::client_node::{DrainState, DrainStatus, Eligibility};
use drover_api::{Allocation, ClientNode};
use drover_core::ids::{AllocKey, JobKey, NodeName};
use drover_core::node::drain::{self, DrainMark, Leaving};
use drover_store::events::{Happening, Severity};
use drover_store::{Key, Precondition, StoreError};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::state::Nodes;
use crate::actions::Action;
use crate::keys::key_of;
use crate::shared::{Notice, RETRY, Shared};
use crate::timers::Wake;

/// Changes of allocations are looked at together after this long.
const BATCH: Duration = Duration::from_secs(1);

impl Nodes {
    /// Takes in what an operator requestes of a node.
    pub(crate) fn note_drain(&mut self, shared: &mut Shared, name: &NodeName, object: &ClientNode) {
        let Some(request) = object.spec.drain.clone() else { return self.end_drain(shared, name) };
        let now = shared.clock.now();
        let observed = object.status.as_ref().map_or(-1, |status| status.observed_generation);
        let Some(known) = self.known.get_mut(name) else { return };
        let under_way = known.drain.clone().filter(|state| state.status == DrainStatus::Draining);
        let is_adopted = known.drain_request.is_none() && Some(observed) == object.metadata.generation;
        let mut leaving = Leaving::begun(&request, now);
        let is_same_request = known.drain_request.as_ref() == Some(&request) || is_adopted;
        if let Some(state) = under_way.as_ref().filter(|_| is_same_request) {
            leaving.force_deadline = state.force_deadline;
        }
        let started_at = under_way.as_ref().map_or(now, |state| state.started_at);
        let remaining = under_way.as_ref().map_or(0, |state| state.remaining);
        let force_deadline = leaving.force_deadline;
        known.drain = Some(DrainState { started_at, force_deadline, remaining, status: DrainStatus::Draining });
        known.drain_request = Some(request);
        if under_way.is_none() {
            self.note_event(shared, name, "Drain", "drain started".to_owned());
            Self::report_drain(shared, object, "DrainStarted", "allocations leave the node");
        }
        if self.drains.under_way.insert(name.clone(), leaving) != Some(leaving) {
            self.drains.is_due = true;
        }
        self.note_left(name, object);
        if object.spec.eligibility == Eligibility::Eligible {
            Self::write_node_spec(shared, name, object, json!({ "spec": { "eligibility": Eligibility::Ineligible } }));
        }
    }

    /// The request is gone: an operator took it back, or all is done.
    pub(super) fn end_drain(&mut self, shared: &mut Shared, name: &NodeName) {
        self.drains.under_way.remove(name);
        let Some(known) = self.known.get_mut(name) else { return };
        known.drain_request = None;
        let Some(state) = known.drain.as_mut().filter(|state| state.status == DrainStatus::Draining) else { return };
        let (status, message) = if state.remaining == 0 {
            (DrainStatus::Complete, "drain complete")
        } else {
            (DrainStatus::Canceled, "drain canceled")
        };
        state.status = status;
        self.note_event(shared, name, "Drain", message.to_owned());
    }

    /// Looks at all drains soon, if this job has to do with one.
    pub(crate) fn look_at_drains(&mut self, shared: &mut Shared, job: &JobKey) {
        if self.drains.under_way.is_empty() || self.drains.wake_at.is_some_and(|at| at <= Instant::now() + BATCH) {
            return;
        }
        if shared.view.allocs_of_job(job).any(|alloc| self.drains.under_way.contains_key(&alloc.node)) {
            self.wake_for_drains(shared, Instant::now() + BATCH);
        }
    }

    pub(super) fn wake_for_drains(&mut self, shared: &mut Shared, at: Instant) {
        if self.drains.wake_at.is_none_or(|planned| at < planned) {
            self.drains.wake_at = Some(at);
            shared.wake_at(at, Wake::Drains);
        }
    }

    /// Does what all drains need now.
    pub(crate) fn advance_drains(&mut self, shared: &mut Shared) {
        if !std::mem::take(&mut self.drains.is_due) {
            return;
        }
        self.drains.wake_at = None;
        let now = shared.clock.now();
        let mut step = drain::step(&shared.view, &self.drains.under_way, now);
        // A new leader has not evaluated each job yet: how many of such a one may leave is not known.
        let is_known = |mark: &DrainMark| {
            let is_over = |leaving: &Leaving| leaving.is_forced || leaving.force_deadline.is_some_and(|at| at <= now);
            let (job, node) = (&mark.alloc.job, &mark.alloc.node);
            let is_evaluated = shared.view.job(job).is_some() || shared.job(job).is_none();
            is_evaluated || self.drains.under_way.get(node).is_some_and(is_over)
        };
        let n_marks = step.marks.len();
        step.marks.retain(is_known);
        if step.marks.len() < n_marks {
            self.wake_for_drains(shared, Instant::now() + BATCH);
        }
        for (node, remaining) in &step.remaining {
            if let Some(state) = self.known.get_mut(node).and_then(|known| known.drain.as_mut()) {
                state.remaining = *remaining;
                shared.due.nodes.insert(node.clone());
            }
        }
        for mark in &step.marks {
            Self::mark_leaving(shared, mark);
        }
        for node in &step.done {
            Self::finish_drain(shared, node);
        }
        if let Some(at) = step.wake_at {
            let at = shared.instant_of(at);
            self.wake_for_drains(shared, at);
        }
    }

    pub(super) fn mark_leaving(shared: &mut Shared, mark: &DrainMark) {
        let key = mark.alloc.key.clone();
        let Some(object) = shared.caches.allocs.get(&key_of(&key)).cloned() else { return };
        // What was decided stays so until the answer is there.
        let mut assumed = (*mark.alloc).clone();
        assumed.transition = mark.transition;
        shared.view.put_alloc(assumed);
        let body = json!({ "spec": { "desiredTransition": mark.transition } });
        shared.outbox.push(Action::Mark(key, Precondition::same_object(&object.metadata), body));
    }

    pub(crate) fn on_marked(&mut self, shared: &mut Shared, key: &AllocKey, result: Result<Allocation, StoreError>) {
        match result {
            Ok(object) => {
                let observed = shared.caches.allocs.update(object);
                shared.notify_all(observed.map(Notice::Allocation));
            }
            Err(StoreError::NotFound(_)) => self.wake_for_drains(shared, Instant::now() + BATCH),
            Err(error) => {
                tracing::warn!(allocation = %key, %error, "an allocation that is to leave its node was not marked");
                if let Some(stored) = shared.caches.allocs.get(&key_of(key)).cloned() {
                    shared.put_stored(&stored);
                }
                self.wake_for_drains(shared, Instant::now() + RETRY);
                shared.wake_in(RETRY, Wake::StopAlloc(key.clone()));
            }
        }
    }

    /// Everything has left: the request is cleared, and the node stays ineligible. That nothing is left stands in the
    /// node's status before: a leader that finds the request gone knows by it that the drain was not canceled.
    pub(super) fn finish_drain(shared: &mut Shared, name: &NodeName) {
        let Some(object) = shared.caches.nodes.get(&Key::cluster(name.as_str())).cloned() else { return };
        if !has_left(object.status.as_ref().and_then(|status| status.drain.as_ref())) {
            shared.due.nodes.insert(name.clone());
            return;
        }
        Self::report_drain(shared, &object, "DrainComplete", "all allocations have left the node");
        Self::write_node_spec(shared, name, &object, json!({ "spec": { "drain": null } }));
    }

    pub(super) fn write_node_spec(shared: &mut Shared, name: &NodeName, object: &ClientNode, body: Value) {
        let precondition = Precondition::unchanged(&object.metadata);
        shared.outbox.push(Action::NodeSpec(name.clone(), precondition, body));
    }

    pub(crate) fn on_node_spec(shared: &mut Shared, name: &NodeName, result: Result<ClientNode, StoreError>) {
        match result {
            Ok(object) => {
                let observed = shared.caches.nodes.update(object);
                shared.notify_all(observed.map(Notice::Node));
            }
            Err(StoreError::NotFound(_)) => {}
            Err(error) => {
                tracing::debug!(node = %name, %error, "a node's spec was not written; it is looked at again");
                shared.wake_in(RETRY, Wake::Drain(name.clone()));
            }
        }
    }

    /// Looks at a node's drain again after a write of its spec that did not happen.
    pub(crate) fn retry_drain(&mut self, shared: &mut Shared, name: &NodeName) {
        if let Some(object) = shared.caches.nodes.get(&Key::cluster(name.as_str())).cloned() {
            self.note_drain(shared, name, &object);
            self.drains.is_due = true;
        }
    }

    /// The time has come to look at all drains.
    pub(crate) fn drains_are_due(&mut self) {
        self.drains.is_due = true;
    }

    /// That nothing is left on a node is stored: its drain can be finished.
    fn note_left(&mut self, name: &NodeName, object: &ClientNode) {
        let known = self.known.get(name).and_then(|known| known.drain.as_ref());
        let stored = object.status.as_ref().and_then(|status| status.drain.as_ref());
        self.drains.is_due |= has_left(known) && has_left(stored);
    }

    pub(super) fn report_drain(shared: &mut Shared, object: &ClientNode, reason: &'static str, note: &str) {
        let occasion = object.metadata.generation.unwrap_or(0).to_string();
        let note = note.to_owned();
        let happening = Happening { severity: Severity::Normal, reason, action: "Drain", note, occasion: &occasion };
        shared.report(object, &happening);
    }
}

/// Whether nothing is left on a node whose drain is under way.
fn has_left(drain: Option<&DrainState>) -> bool {
    drain.is_some_and(|drain| drain.status == DrainStatus::Draining && drain.remaining == 0)
}
