//! Writing a volume's status and its finalizer. Of each volume one write is under way at a time; what it tells is kept
//! until it is answered.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_api::csi_volume::{AttachState, CSIVolumeStatus, Claim, ClaimState};
use drover_api::{CSIVolume, annotation, finalizer, names};
use drover_core::ids::{NodeName, ObjectKey};
use drover_core::volume::claim::{self, ClaimError, ClaimRequest, Update};
use drover_core::volume::current::{Current, ObjectFacts, VolumeFacts, current, differs};
use drover_core::volume::provision::Nameless;
use drover_core::volume::user_actions::{self, Claims};
use drover_store::{Key, Object, Precondition, StoreError, status_body};
use serde_json::{Value, json};

use super::state::{UnderWay, Volumes};
use crate::actions::Action;
use crate::shared::{RETRY, Shared};
use crate::timers::Wake;

impl Volumes {
    /// A volume as it is stored, whatever is assumed of it.
    pub(super) fn stored_volume(shared: &Shared, id: &ObjectKey) -> Option<Arc<CSIVolume>> {
        let name = shared.view.volume(id)?.metadata.name.clone()?;
        shared.caches.volumes.get(&Key::namespaced(&*id.namespace, name)).cloned()
    }

    /// Writes a volume's finalizer, or its status where it differs.
    pub(super) fn refresh_volume(&mut self, shared: &mut Shared, id: &ObjectKey) {
        if self.writing.contains_key(id) {
            return;
        }
        let Some(object) = Self::stored_volume(shared, id) else {
            self.batches.written(id);
            return;
        };
        if let Some(body) = self.wanted_metadata(shared, id, &object) {
            self.writing.insert(id.clone(), UnderWay::default());
            let precondition = Precondition::unchanged(&object.metadata);
            return shared.outbox.push(Action::VolumeSpec(id.clone(), object.key(), precondition, body));
        }
        let Current { status, refused, taken } = self.current_status(shared, id, &object);
        self.tell_of_waiting(shared, id, &refused);
        self.plan_next_try(shared, id, &refused);
        let stored = object.status.clone().unwrap_or_else(unseen);
        let updates = self.updates.remove(id).unwrap_or_default();
        let is_touched = updates.contains(&Update::Touch);
        if !differs(&stored, &status) && !is_touched {
            self.attachments.remove(id);
            shared.view.put_volume(id.clone(), object);
            return self.settle_volume(shared, id, &updates);
        }
        for request in &taken {
            tracing::debug!(volume = %id, alloc = %request.alloc, mode = %request.mode, "a claim is taken");
        }
        let attachments = self.attachments.remove(id).unwrap_or_default();
        self.writing.insert(id.clone(), UnderWay { updates, attachments });
        Self::write_volume_status(shared, id, &object, status);
    }

    fn write_volume_status(shared: &mut Shared, id: &ObjectKey, object: &CSIVolume, mut status: CSIVolumeStatus) {
        status.modified_at = Some(shared.clock.now());
        let body = status_body(json!(status));
        // A node reads what is stored: nobody is placed for a volume that can be used from this write on before it is.
        status.schedulable &= object.status.as_ref().is_some_and(|stored| stored.schedulable);
        shared.view.put_volume(id.clone(), Arc::new(CSIVolume { status: Some(status), ..object.clone() }));
        let precondition = Precondition::unchanged(&object.metadata);
        shared.outbox.push(Action::VolumeStatus(id.clone(), object.key(), precondition, body));
    }

    fn current_status(&self, shared: &Shared, id: &ObjectKey, object: &CSIVolume) -> Current {
        let stored = object.status.clone().unwrap_or_else(unseen);
        let waiting = self.waiting.get(id).into_iter().flatten();
        let requests: Vec<ClaimRequest> = waiting.map(|(_, waiting)| waiting.request.clone()).collect();
        let facts = VolumeFacts {
            volume: id,
            spec: &object.spec,
            stored: &stored,
            object: ObjectFacts {
                generation: object.metadata.generation.unwrap_or(0),
                is_deleting: object.metadata.deletion_timestamp.is_some(),
                provider_name: &names::provider_name(
                    &object.spec.name,
                    object.metadata.uid.as_deref().unwrap_or_default(),
                ),
            },
            before: self.before(id, object),
            view: &shared.view,
            plugin: self.plugins.get(&object.spec.plugin_id),
            updates: self.updates.get(id).map(Vec::as_slice).unwrap_or_default(),
            attachments: self.attachments.get(id).map(Vec::as_slice).unwrap_or_default(),
            requests: &requests,
            provided: self.providers.provided.get(id),
            snapshots: self.providers.snapshots.get(id),
            provider_error: self.providers.errors.get(id).map_or("", String::as_str),
            stuck: &self.stuck_on(id),
        };
        current(&facts, shared.clock.now())
    }

    /// The volume that may be used in the place of this one, because it names the same volume of the provider.
    pub(super) fn before(&self, id: &ObjectKey, object: &CSIVolume) -> Option<&ObjectKey> {
        self.index.handles.before(id, Nameless::with(self.plugins.get(&object.spec.plugin_id)))
    }

    /// The change of a volume's metadata that is due: its finalizer is set before anybody holds it and taken away when
    /// it goes and no operator does; a person's request that was carried out is taken away.
    fn wanted_metadata(&self, shared: &Shared, id: &ObjectKey, object: &CSIVolume) -> Option<Value> {
        let meta = &object.metadata;
        let is_held = finalizer::is_held(meta, finalizer::RELEASE_CLAIMS);
        if meta.deletion_timestamp.is_none() && !is_held {
            let mut finalizers = meta.finalizers.clone().unwrap_or_default();
            finalizers.push(finalizer::RELEASE_CLAIMS.to_owned());
            return Some(json!({ "metadata": { "finalizers": finalizers } }));
        }
        let request = |name: &str| meta.annotations.as_ref().and_then(|all| all.get(name)).map(String::as_str);
        if meta.deletion_timestamp.is_some() && is_held {
            let is_forced = request(annotation::DEREGISTER) == Some("force");
            let claims = if is_forced { Claims::MayBeOver } else { Claims::MustBeFree };
            let keeps_data = request(annotation::DELETE_DATA) != Some("true") || self.providers.deleted.contains(id);
            let may_go = user_actions::deregister(&shared.view, id, claims).is_ok() && keeps_data;
            let body = json!({ "metadata": { "finalizers": finalizer::without(meta, finalizer::RELEASE_CLAIMS) } });
            return may_go.then_some(body);
        }
        if let Some(outcome) = self.providers.snapshots.get(id)
            && object.status.as_ref().is_some_and(|status| outcome.is_told_by(status))
        {
            return Some(json!({ "metadata": { "annotations": { outcome.request.annotation(): null } } }));
        }
        let nodes = request(annotation::FORCE_RELEASE)?;
        let is_over = |node: &str| {
            user_actions::detach(&shared.view, id, &NodeName::from(node)).is_ok_and(|past| past.is_empty())
        };
        let is_done = annotation::nodes(nodes).all(is_over);
        is_done.then(|| json!({ "metadata": { "annotations": { annotation::FORCE_RELEASE: null } } }))
    }

    /// Who found no free claim tries again after a while, even without a change of the volume.
    fn plan_next_try(&mut self, shared: &mut Shared, id: &ObjectKey, refused: &[(ClaimRequest, ClaimError)]) {
        if refused.iter().any(|(_, error)| error.is_retryable()) {
            let elapsed = shared.elapsed();
            self.waits.refused(id, elapsed);
        } else {
            self.waits.settled(id);
        }
    }

    /// Says once for each allocation that others hold what it wants.
    fn tell_of_waiting(&mut self, shared: &mut Shared, id: &ObjectKey, refused: &[(ClaimRequest, ClaimError)]) {
        let mut news = Vec::new();
        for waiting in self.waiting.get_mut(id).into_iter().flat_map(BTreeMap::values_mut) {
            let error = refused.iter().find(|(request, _)| *request == waiting.request).map(|(_, error)| error);
            if let Some(error) = error.filter(|_| !waiting.is_reported) {
                waiting.is_reported = true;
                news.push(format!("allocation {}: {error}", waiting.request.alloc.name));
            }
        }
        for note in news {
            tracing::info!(volume = %id, note, "a claim waits");
            Self::report_volume(shared, id, "ClaimConflict", "Claim", &note);
        }
    }

    pub(crate) fn on_volume_status(
        &mut self,
        shared: &mut Shared,
        id: &ObjectKey,
        result: Result<CSIVolume, StoreError>,
    ) {
        let under_way = self.writing.remove(id).unwrap_or_default();
        match result {
            Ok(object) => {
                // What came while the write was under way is told by the next one.
                let status = object.status.clone().unwrap_or_default();
                if self.providers.provided.get(id).is_some_and(|provided| provided.is_told_by(&status)) {
                    self.providers.provided.remove(id);
                }
                if let Some(seen) = shared.caches.volumes.update(object) {
                    self.on_volume(shared, seen);
                }
                shared.due.volumes.insert(id.clone());
            }
            Err(error) => {
                // What it was to tell is told by the next one.
                let known = self.updates.entry(id.clone()).or_default();
                drop(known.splice(..0, under_way.updates));
                let known = self.attachments.entry(id.clone()).or_default();
                drop(known.splice(..0, under_way.attachments));
                return Self::try_volume_again(shared, id, &error);
            }
        }
        self.settle_volume(shared, id, &under_way.updates);
    }

    /// A write of a volume is over, and these updates are stored: its claims go on.
    fn settle_volume(&mut self, shared: &mut Shared, id: &ObjectKey, told: &[Update]) {
        self.batches.written(id);
        if let Some(object) = Self::stored_volume(shared, id) {
            let is_usable = |volume: &CSIVolume| volume.status.as_ref().is_some_and(|status| status.schedulable);
            let was_usable = shared.view.volume(id).is_some_and(|volume| is_usable(volume));
            let is_news = is_usable(&object) && !was_usable;
            shared.view.put_volume(id.clone(), object);
            if is_news {
                Self::free_volume(shared, id);
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
            if let Some(work) = self.work.get_mut(&caller)
                && told.is_some_and(|state| state >= work.reached.unwrap_or_default())
            {
                (work.is_told, work.reached) = (false, None);
            }
            self.advance_claim(shared, &caller);
        }
        self.begin_attaching(shared, id);
        self.look_at_provider(shared, id);
        let held = claim::read(&shared.view, id).map(|status| status.claims).unwrap_or_default();
        let is_taken = |request: &ClaimRequest| held.iter().any(|claim| claim.alloc_id == request.alloc_id.as_str());
        if let Some(waiting) = self.waiting.get_mut(id) {
            waiting.retain(|_, waiting| !is_taken(&waiting.request));
            if waiting.is_empty() {
                self.waiting.remove(id);
            }
        }
    }

    /// What was just taken is attached now: the watcher's pace is that of releases.
    fn begin_attaching(&mut self, shared: &mut Shared, id: &ObjectKey) {
        let Some(object) = Self::stored_volume(shared, id) else { return };
        let is_new = |claim: &Claim| {
            claim.state == ClaimState::Taken
                && claim.attach == AttachState::Pending
                && !self.work.contains_key(&(id.clone(), claim.alloc_id.clone()))
        };
        if object.status.iter().flat_map(|status| &status.claims).any(is_new) {
            self.ready.insert(id.clone());
        }
    }

    fn try_volume_again(shared: &mut Shared, id: &ObjectKey, error: &StoreError) {
        if let Some(object) = Self::stored_volume(shared, id) {
            shared.view.put_volume(id.clone(), object);
        }
        match error {
            StoreError::NotFound(_) => {}
            // The watch may have shown the other write while this one was under way, so nothing else asks again.
            StoreError::Conflict(_) => shared.wake_in(RETRY / 10, Wake::Volume(id.clone())),
            error => {
                tracing::warn!(volume = %id, %error, "a volume was not written");
                shared.wake_in(RETRY, Wake::Volume(id.clone()));
            }
        }
    }

    pub(crate) fn on_volume_spec(
        &mut self,
        shared: &mut Shared,
        id: &ObjectKey,
        result: Result<Option<CSIVolume>, StoreError>,
    ) {
        self.writing.remove(id);
        match result {
            Ok(object) => {
                if let Some(seen) = object.and_then(|object| shared.caches.volumes.update(object)) {
                    self.on_volume(shared, seen);
                }
                shared.due.volumes.insert(id.clone());
            }
            Err(error) => Self::try_volume_again(shared, id, &error),
        }
    }
}

/// The status of a volume that was never reconciled.
fn unseen() -> CSIVolumeStatus {
    CSIVolumeStatus { observed_generation: -1, ..CSIVolumeStatus::default() }
}
