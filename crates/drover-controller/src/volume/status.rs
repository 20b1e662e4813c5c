//! Writing a volume's status and its finalizer. Of each volume one write is under way at a time; what it tells is kept until it is
//! answered.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_api::csi_volume::{AttachState, CSIVolumeStatus, Claim, ClaimState};
use drover_api::{CSIVolume, annotation, field_manager, finalizer};
use drover_core::ids::{NodeName, ObjectKey};
use drover_core::volume::claim::{self, Attachment, ClaimError, Request, Update};
use drover_core::volume::current::{Current, Facts, current, differs};
use drover_core::volume::operator::{self, Claims};
use serde_json::{Value, json};

use crate::allocation::found;
use crate::term::{Done, RETRY, Term, Wake};
use drover_store::{Key, Object, Ownership, Part, Precondition, Store, StoreError, status_body};

/// What a write tells that nobody else knows.
#[derive(Debug, Default)]
pub(super) struct UnderWay {
    updates: Vec<Update>,
    attachments: Vec<Attachment>,
}

impl<S: Store> Term<S> {
    /// A volume as it is stored, whatever is assumed of it.
    pub(super) fn stored_volume(&self, id: &ObjectKey) -> Option<Arc<CSIVolume>> {
        let name = self.view.volume(id)?.metadata.name.clone()?;
        self.volumes.get(&Key::namespaced(&*id.namespace, name)).cloned()
    }

    /// Writes a volume's finalizer, or its status where it differs.
    pub(super) fn refresh_volume(&mut self, id: &ObjectKey) {
        if self.claims.writing.contains_key(id) {
            return;
        }
        let Some(object) = self.stored_volume(id) else {
            self.claims.batches.written(id);
            return;
        };
        if let Some(body) = self.wanted_metadata(id, &object) {
            self.claims.writing.insert(id.clone(), UnderWay::default());
            let (store, id, key) = (self.store.clone(), id.clone(), object.key());
            let precondition = Precondition::unchanged(&object.metadata);
            self.writes.spawn(async move {
                let result = store.merge::<CSIVolume>(&key, Part::Spec, &precondition, body).await;
                Done::VolumeKept(id, Box::new(found(result)))
            });
            return;
        }
        let Current { status, refused, taken } = self.current_status(id, &object);
        self.tell_of_waiting(id, &refused);
        self.plan_next_try(id, &refused);
        let stored = object.status.clone().unwrap_or_else(unseen);
        let updates = self.claims.updates.remove(id).unwrap_or_default();
        let is_touched = updates.contains(&Update::Touch);
        if !differs(&stored, &status) && !is_touched {
            self.claims.attachments.remove(id);
            self.view.put_volume(id.clone(), object);
            return self.settle_volume(id, &updates);
        }
        for request in &taken {
            tracing::debug!(volume = %id, alloc = %request.alloc, mode = %request.mode, "a claim is taken");
        }
        let attachments = self.claims.attachments.remove(id).unwrap_or_default();
        self.claims.writing.insert(id.clone(), UnderWay { updates, attachments });
        self.write_volume_status(id, &object, status);
    }

    fn write_volume_status(&mut self, id: &ObjectKey, object: &CSIVolume, mut status: CSIVolumeStatus) {
        status.modified_at = Some(self.clock.now());
        let body = status_body(json!(status));
        // A node reads what is stored: nobody is placed for a volume that can be used from this write on before it is.
        status.schedulable &= object.status.as_ref().is_some_and(|stored| stored.schedulable);
        self.view.put_volume(id.clone(), Arc::new(CSIVolume { status: Some(status), ..object.clone() }));
        let (store, id, key) = (self.store.clone(), id.clone(), object.key());
        let precondition = Precondition::unchanged(&object.metadata);
        self.writes.spawn(async move {
            let manager = field_manager::CONTROLLER_VOLUME;
            let result = store.apply(&key, Part::Status, manager, Ownership::Force, &precondition, body).await;
            Done::VolumeStatus(id, Box::new(result))
        });
    }

    fn current_status(&self, id: &ObjectKey, object: &CSIVolume) -> Current {
        let stored = object.status.clone().unwrap_or_else(unseen);
        let waiting = self.claims.waiting.get(id).into_iter().flatten();
        let requests: Vec<Request> = waiting.map(|(_, waiting)| waiting.request.clone()).collect();
        let facts = Facts {
            volume: id,
            spec: &object.spec,
            stored: &stored,
            generation: object.metadata.generation.unwrap_or(0),
            is_deleting: object.metadata.deletion_timestamp.is_some(),
            view: &self.view,
            plugin: self.claims.plugins.get(&object.spec.plugin_id),
            updates: self.claims.updates.get(id).map(Vec::as_slice).unwrap_or_default(),
            attachments: self.claims.attachments.get(id).map(Vec::as_slice).unwrap_or_default(),
            requests: &requests,
            provided: self.claims.provided.get(id),
            snapshots: self.claims.snapshots.get(id),
            provider_error: self.claims.provider_errors.get(id).map_or("", String::as_str),
            stuck: &self.stuck_on(id),
        };
        current(&facts, self.clock.now())
    }

    /// The change of a volume's metadata that is due: its finalizer is set before anybody holds it and taken away when it goes and
    /// nobody does; a person's wish that was carried out is taken away.
    fn wanted_metadata(&self, id: &ObjectKey, object: &CSIVolume) -> Option<Value> {
        let meta = &object.metadata;
        let is_held = finalizer::is_held(meta, finalizer::RELEASE_CLAIMS);
        if meta.deletion_timestamp.is_none() && !is_held {
            let mut finalizers = meta.finalizers.clone().unwrap_or_default();
            finalizers.push(finalizer::RELEASE_CLAIMS.to_owned());
            return Some(json!({ "metadata": { "finalizers": finalizers } }));
        }
        let wish = |name: &str| meta.annotations.as_ref().and_then(|all| all.get(name)).map(String::as_str);
        if meta.deletion_timestamp.is_some() && is_held {
            let is_forced = wish(annotation::DEREGISTER) == Some("force");
            let claims = if is_forced { Claims::MayBeOver } else { Claims::MustBeFree };
            let keeps_data = wish(annotation::DELETE_DATA) != Some("true") || self.claims.deleted.contains(id);
            let may_go = operator::deregister(&self.view, id, claims).is_ok() && keeps_data;
            let body = json!({ "metadata": { "finalizers": finalizer::without(meta, finalizer::RELEASE_CLAIMS) } });
            return may_go.then_some(body);
        }
        if let Some(outcome) = self.claims.snapshots.get(id)
            && object.status.as_ref().is_some_and(|status| outcome.is_told_by(status))
        {
            return Some(json!({ "metadata": { "annotations": { outcome.wish.annotation(): null } } }));
        }
        let nodes = wish(annotation::FORCE_RELEASE)?;
        let is_over =
            |node: &str| operator::detach(&self.view, id, &NodeName::from(node)).is_ok_and(|past| past.is_empty());
        let is_done = annotation::nodes(nodes).all(is_over);
        is_done.then(|| json!({ "metadata": { "annotations": { annotation::FORCE_RELEASE: null } } }))
    }

    /// Who found no free claim tries again after a while, even if nobody sees a change of the volume.
    fn plan_next_try(&mut self, id: &ObjectKey, refused: &[(Request, ClaimError)]) {
        if refused.iter().any(|(_, error)| error.is_retryable()) {
            let elapsed = self.elapsed();
            self.claims.waits.refused(id, elapsed);
        } else {
            self.claims.waits.settled(id);
        }
    }

    /// Says once for each allocation that others hold what it wants.
    fn tell_of_waiting(&mut self, id: &ObjectKey, refused: &[(Request, ClaimError)]) {
        let mut news = Vec::new();
        for waiting in self.claims.waiting.get_mut(id).into_iter().flat_map(BTreeMap::values_mut) {
            let error = refused.iter().find(|(request, _)| *request == waiting.request).map(|(_, error)| error);
            if let Some(error) = error.filter(|_| !waiting.is_told) {
                waiting.is_told = true;
                news.push(format!("allocation {}: {error}", waiting.request.alloc.name));
            }
        }
        for note in news {
            tracing::info!(volume = %id, note, "a claim waits");
            self.report_volume(id, "ClaimConflict", "Claim", &note);
        }
    }

    pub(crate) fn on_volume_status(&mut self, id: &ObjectKey, result: Result<CSIVolume, StoreError>) {
        let under_way = self.claims.writing.remove(id).unwrap_or_default();
        match result {
            Ok(object) => {
                // What came while the write was under way is told by the next one.
                let status = object.status.clone().unwrap_or_default();
                if self.claims.provided.get(id).is_some_and(|provided| provided.is_told_by(&status)) {
                    self.claims.provided.remove(id);
                }
                if let Some(seen) = self.volumes.update(object) {
                    self.on_volume(seen);
                }
                self.claims.dirty.insert(id.clone());
            }
            Err(error) => {
                // What it was to tell is told by the next one.
                let known = self.claims.updates.entry(id.clone()).or_default();
                drop(known.splice(..0, under_way.updates));
                let known = self.claims.attachments.entry(id.clone()).or_default();
                drop(known.splice(..0, under_way.attachments));
                return self.try_volume_again(id, &error);
            }
        }
        self.settle_volume(id, &under_way.updates);
    }

    /// A write of a volume is over, and these updates are stored: its claims go on.
    fn settle_volume(&mut self, id: &ObjectKey, told: &[Update]) {
        self.claims.batches.written(id);
        if let Some(object) = self.stored_volume(id) {
            let is_usable = |volume: &CSIVolume| volume.status.as_ref().is_some_and(|status| status.schedulable);
            let was_usable = self.view.volume(id).is_some_and(|volume| is_usable(volume));
            let is_news = is_usable(&object) && !was_usable;
            self.view.put_volume(id.clone(), object);
            if is_news {
                self.free_volume(id);
            }
        }
        for caller in self.callers_of(id) {
            // After a write that was refused there may be several of one claim.
            let states = told.iter().filter_map(|update| match update {
                Update::Release { alloc_id, state, .. } => (*alloc_id == caller.1).then_some(*state),
                Update::Touch => None,
            });
            let told = states.max();
            // It may have come further while this was written.
            if let Some(work) = self.claims.work.get_mut(&caller)
                && told.is_some_and(|state| state >= work.reached.unwrap_or_default())
            {
                (work.is_told, work.reached) = (false, None);
            }
            self.advance_claim(&caller);
        }
        self.begin_attaching(id);
        self.look_at_provider(id);
        let held = claim::read(&self.view, id).map(|status| status.claims).unwrap_or_default();
        let is_taken = |request: &Request| held.iter().any(|claim| claim.alloc_id == request.alloc_id.as_str());
        if let Some(waiting) = self.claims.waiting.get_mut(id) {
            waiting.retain(|_, waiting| !is_taken(&waiting.request));
            if waiting.is_empty() {
                self.claims.waiting.remove(id);
            }
        }
    }

    /// What was just taken is attached now: the watcher's pace is that of releases.
    fn begin_attaching(&mut self, id: &ObjectKey) {
        let Some(object) = self.stored_volume(id) else { return };
        let is_new = |claim: &Claim| {
            claim.state == ClaimState::Taken
                && claim.attach == AttachState::Pending
                && !self.claims.work.contains_key(&(id.clone(), claim.alloc_id.clone()))
        };
        if object.status.iter().flat_map(|status| &status.claims).any(is_new) {
            self.claims.ready.insert(id.clone());
        }
    }

    fn try_volume_again(&mut self, id: &ObjectKey, error: &StoreError) {
        if let Some(object) = self.stored_volume(id) {
            self.view.put_volume(id.clone(), object);
        }
        match error {
            StoreError::NotFound(_) => {}
            // The watch may have shown the other write while this one was under way, so nothing else asks again.
            StoreError::Conflict(_) => self.wake_in(RETRY / 10, Wake::Volume(id.clone())),
            error => {
                tracing::warn!(volume = %id, %error, "a volume was not written");
                self.wake_in(RETRY, Wake::Volume(id.clone()));
            }
        }
    }

    pub(crate) fn on_volume_kept(&mut self, id: &ObjectKey, result: Result<Option<CSIVolume>, StoreError>) {
        self.claims.writing.remove(id);
        match result {
            Ok(object) => {
                if let Some(seen) = object.and_then(|object| self.volumes.update(object)) {
                    self.on_volume(seen);
                }
                self.claims.dirty.insert(id.clone());
            }
            Err(error) => self.try_volume_again(id, &error),
        }
    }

    pub(crate) fn look_at_volume_again(&mut self, id: &ObjectKey) {
        self.claims.dirty.insert(id.clone());
    }
}

/// The status of a volume at which nobody has looked.
fn unseen() -> CSIVolumeStatus {
    CSIVolumeStatus { observed_generation: -1, ..CSIVolumeStatus::default() }
}
