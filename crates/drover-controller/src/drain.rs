//! Drains: an operator's wish becomes marks on allocations, progress in the node's status, and at the end a cleared wish.
//!
//! Crash-safe by its order: the node becomes ineligible before anything is marked, allocations are marked before the wish is
//! cleared, and each leader finds from the objects alone where the last one stood.

use std::time::Duration;

use drover_api::client_node::{DrainState, DrainStatus, Eligibility};
use drover_api::{Allocation, ClientNode};
use drover_core::ids::{AllocKey, JobKey, NodeName};
use drover_core::node::drain::{self, Leaving, Mark};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::apply::key_of;
use crate::term::{Done, RETRY, Term, Wake};
use drover_store::events::{Happening, Severity};
use drover_store::{Key, Part, Precondition, Store, StoreError};

/// Changes of allocations are looked at together after this long.
const BATCH: Duration = Duration::from_secs(1);

impl<S: Store> Term<S> {
    /// Takes in what an operator wishes of a node.
    pub(super) fn note_drain(&mut self, name: &NodeName, object: &ClientNode) {
        let Some(wish) = object.spec.drain.clone() else { return self.end_drain(name) };
        let now = self.clock.now();
        let observed = object.status.as_ref().map_or(-1, |status| status.observed_generation);
        let Some(known) = self.known_nodes.get_mut(name) else { return };
        let under_way = known.drain.clone().filter(|state| state.status == DrainStatus::Draining);
        let is_adopted = known.drain_wish.is_none() && Some(observed) == object.metadata.generation;
        let mut leaving = Leaving::begun(&wish, now);
        let is_same_wish = known.drain_wish.as_ref() == Some(&wish) || is_adopted;
        if let Some(state) = under_way.as_ref().filter(|_| is_same_wish) {
            leaving.force_deadline = state.force_deadline;
        }
        let started_at = under_way.as_ref().map_or(now, |state| state.started_at);
        let remaining = under_way.as_ref().map_or(0, |state| state.remaining);
        let force_deadline = leaving.force_deadline;
        known.drain = Some(DrainState { started_at, force_deadline, remaining, status: DrainStatus::Draining });
        known.drain_wish = Some(wish);
        if under_way.is_none() {
            self.note_event(name, "Drain", "drain started".to_owned());
            self.report_drain(object, "DrainStarted", "allocations leave the node");
        }
        if self.drains.insert(name.clone(), leaving) != Some(leaving) {
            self.is_drain_due = true;
        }
        if object.spec.eligibility == Eligibility::Eligible {
            self.write_node_spec(name, object, json!({ "spec": { "eligibility": Eligibility::Ineligible } }));
        }
    }

    /// The wish is gone: an operator took it back, or all is done.
    fn end_drain(&mut self, name: &NodeName) {
        self.drains.remove(name);
        let Some(known) = self.known_nodes.get_mut(name) else { return };
        known.drain_wish = None;
        let Some(state) = known.drain.as_mut().filter(|state| state.status == DrainStatus::Draining) else { return };
        let (status, message) = if state.remaining == 0 {
            (DrainStatus::Complete, "drain complete")
        } else {
            (DrainStatus::Canceled, "drain canceled")
        };
        state.status = status;
        self.note_event(name, "Drain", message.to_owned());
    }

    /// Looks at all drains soon, if this job has to do with one.
    pub(super) fn look_at_drains(&mut self, job: &JobKey) {
        if self.drains.is_empty() || self.drains_wake.is_some_and(|at| at <= Instant::now() + BATCH) {
            return;
        }
        if self.view.allocs_of_job(job).any(|alloc| self.drains.contains_key(&alloc.node)) {
            self.wake_for_drains(Instant::now() + BATCH);
        }
    }

    fn wake_for_drains(&mut self, at: Instant) {
        if self.drains_wake.is_none_or(|planned| at < planned) {
            self.drains_wake = Some(at);
            self.wake_at(at, Wake::Drains);
        }
    }

    /// Does what all drains need now.
    pub(super) fn advance_drains(&mut self) {
        if !std::mem::take(&mut self.is_drain_due) {
            return;
        }
        self.drains_wake = None;
        let step = drain::step(&self.view, &self.drains, self.clock.now());
        for (node, remaining) in &step.remaining {
            if let Some(state) = self.known_nodes.get_mut(node).and_then(|known| known.drain.as_mut()) {
                state.remaining = *remaining;
                self.dirty_nodes.insert(node.clone());
            }
        }
        for mark in &step.marks {
            self.mark_leaving(mark);
        }
        for node in &step.done {
            self.finish_drain(node);
        }
        if let Some(at) = step.wake_at {
            let at = self.instant_of(at);
            self.wake_for_drains(at);
        }
    }

    fn mark_leaving(&mut self, mark: &Mark) {
        let key = mark.alloc.key.clone();
        let Some(object) = self.allocs.get(&key_of(&key)).cloned() else { return };
        // What was decided stays so until the answer is there.
        let mut assumed = (*mark.alloc).clone();
        assumed.transition = mark.transition;
        self.view.put_alloc(assumed);
        let (store, body) = (self.store.clone(), json!({ "spec": { "desiredTransition": mark.transition } }));
        self.writes.spawn(async move {
            let precondition = Precondition::same_object(&object.metadata);
            let result = store.merge::<Allocation>(&key_of(&key), Part::Spec, &precondition, body).await;
            Done::Marked(key, Box::new(result))
        });
    }

    pub(super) fn on_marked(&mut self, key: &AllocKey, result: Result<Allocation, StoreError>) {
        match result {
            Ok(object) => {
                if let Some(seen) = self.allocs.update(object) {
                    self.on_alloc(seen);
                }
            }
            Err(StoreError::NotFound(_)) => self.wake_for_drains(Instant::now() + BATCH),
            Err(error) => {
                tracing::warn!(allocation = %key, %error, "an allocation on a node that is being drained was not marked");
                if let Some(stored) = self.allocs.get(&key_of(key)).cloned() {
                    self.put_stored(&stored);
                }
                self.wake_for_drains(Instant::now() + RETRY);
            }
        }
    }

    /// Everything has left: the wish is cleared, and the node stays ineligible.
    fn finish_drain(&mut self, name: &NodeName) {
        let Some(object) = self.nodes.get(&Key::cluster(name.as_str())).cloned() else { return };
        self.report_drain(&object, "DrainComplete", "all allocations have left the node");
        self.write_node_spec(name, &object, json!({ "spec": { "drain": null } }));
    }

    fn write_node_spec(&mut self, name: &NodeName, object: &ClientNode, body: Value) {
        let (store, name) = (self.store.clone(), name.clone());
        let precondition = Precondition::unchanged(&object.metadata);
        self.writes.spawn(async move {
            let key = Key::cluster(name.as_str());
            let result = store.merge::<ClientNode>(&key, Part::Spec, &precondition, body).await;
            Done::NodeSpec(name, Box::new(result))
        });
    }

    pub(super) fn on_node_spec(&mut self, name: &NodeName, result: Result<ClientNode, StoreError>) {
        match result {
            Ok(object) => {
                if let Some(seen) = self.nodes.update(object) {
                    self.on_node(seen);
                }
            }
            Err(StoreError::NotFound(_)) => {}
            Err(error) => {
                tracing::debug!(node = %name, %error, "a node's spec was not written; it is looked at again");
                self.wake_in(RETRY, Wake::Drain(name.clone()));
            }
        }
    }

    /// Looks at a node's drain again after a write of its spec that did not happen.
    pub(super) fn retry_drain(&mut self, name: &NodeName) {
        if let Some(object) = self.nodes.get(&Key::cluster(name.as_str())).cloned() {
            self.note_drain(name, &object);
            self.is_drain_due = true;
        }
    }

    fn report_drain(&mut self, object: &ClientNode, reason: &'static str, note: &str) {
        let occasion = object.metadata.generation.unwrap_or(0).to_string();
        let note = note.to_owned();
        let happening = Happening { severity: Severity::Normal, reason, action: "Drain", note, occasion: &occasion };
        self.report(object, &happening);
    }
}
