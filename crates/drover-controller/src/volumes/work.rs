//! Claims on their way: attached when they are taken, released step by step when their allocations are over.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use drover_api::csi_volume::{AttachState, Claim, ClaimState};
use drover_api::{CSIVolume, message};
use drover_core::ids::{AllocKey, ObjectKey};
use drover_core::volume::attach;
use drover_core::volume::batch::{TOLD_WITHIN, WINDOW};
use drover_core::volume::claim::{self, Attachment, Update};
use drover_core::volume::plugin_lock::Caller;
use drover_core::volume::release::{self, Force, ReleaseError, ReleaseStep, Unmount};
use drover_core::volume::wait;
use drover_store::events::{Happening, Severity};
use tokio::time::Instant;

use super::request::{Asked, Claimed};
use super::state::Volumes;
use crate::keys::key_of;
use crate::shared::Shared;

/// So many failures call for a person.
const STUCK_AFTER: u32 = 10;

impl Volumes {
    /// Looks at the claims of a volume: those that are past go on being released, those that are taken are attached.
    pub(super) fn look_at_claims(&mut self, shared: &mut Shared, volume: &ObjectKey) {
        let Some(status) = claim::read(&shared.view, volume) else { return };
        let needs_work = |claim: &&Claim| match claim.state {
            ClaimState::Taken => claim.attach == AttachState::Pending,
            ClaimState::Unpublishing
            | ClaimState::NodeDetached
            | ClaimState::ControllerDetached
            | ClaimState::ReadyToFree => true,
        };
        let callers: Vec<Caller> = status
            .claims
            .iter()
            .filter(needs_work)
            .filter(|claim| !claim.alloc_id.is_empty())
            .map(|claim| (volume.clone(), claim.alloc_id.clone()))
            .collect();
        for caller in callers {
            self.work.entry(caller.clone()).or_default();
            self.advance_claim(shared, &caller);
        }
    }

    /// What failed for a volume need not wait for its next try: something has changed for it, and who calls this looks
    /// at its claims and at its provider next.
    pub(super) fn hurry(&mut self, volume: &ObjectKey) {
        for caller in self.callers_of(volume) {
            let Some(work) = self.work.get_mut(&caller) else { continue };
            work.tried.clear();
            if let Some(at) = work.retry_at.take() {
                self.retries.remove(&(at, caller));
            }
        }
    }

    /// The claims of a volume that are on their way.
    pub(super) fn callers_of(&self, volume: &ObjectKey) -> Vec<Caller> {
        self.on_their_way(volume).cloned().collect()
    }

    fn on_their_way(&self, volume: &ObjectKey) -> impl Iterator<Item = &Caller> {
        let first = (volume.clone(), String::new());
        self.work.range(first..).map(|(caller, _)| caller).take_while(move |(of, _)| of == volume)
    }

    /// The allocations whose claims on a volume could not be released for so often that a person is needed.
    pub(super) fn stuck_on(&self, volume: &ObjectKey) -> BTreeSet<String> {
        let is_stuck = |caller: &Caller| self.work.get(caller).is_some_and(|work| work.n_failed > STUCK_AFTER);
        self.callers_of(volume).into_iter().filter(is_stuck).map(|(_, alloc_id)| alloc_id).collect()
    }

    /// A volume is gone, and what was done for it ends.
    pub(super) fn end_work_of(&mut self, shared: &mut Shared, volume: &ObjectKey) {
        for caller in self.callers_of(volume) {
            self.end_work(shared, &caller);
        }
    }

    /// Claims that are not listed any more, because another leader has freed them, need nothing: who waits for a
    /// plugin's turn need not wait for the answers.
    pub(super) fn end_work_of_freed(&mut self, shared: &mut Shared, volume: &ObjectKey, object: &CSIVolume) {
        let claims = object.status.as_ref().map(|status| &status.claims[..]).unwrap_or_default();
        for caller in self.callers_of(volume) {
            if !caller.1.is_empty() && !claims.iter().any(|claim| claim.alloc_id == caller.1) {
                self.end_work(shared, &caller);
            }
        }
    }

    pub(super) fn end_work(&mut self, shared: &mut Shared, caller: &Caller) {
        let Some(work) = self.work.remove(caller) else { return };
        if let Some(began) = work.step_began.filter(|_| work.reached == Some(ClaimState::ReadyToFree)) {
            shared.recorder.reaped("free", began.elapsed());
        }
        if let Some(at) = work.retry_at {
            self.retries.remove(&(at, caller.clone()));
        }
        if let Some(request) = work.call {
            self.drop_call(shared, &request);
        } else if let Some(plugin) = work.turn {
            self.end_turn(&plugin, caller);
        }
    }

    /// Takes a claim as far as it goes now. Nothing is done while a write of its volume, or a call for it, is under
    /// way.
    pub(super) fn advance_claim(&mut self, shared: &mut Shared, caller: &Caller) {
        let is_writing = self.writing.contains_key(&caller.0);
        let Some(work) = self.work.get_mut(caller) else { return };
        if work.is_told || work.call.is_some() || work.retry_at.is_some() || is_writing {
            return;
        }
        let turn = work.turn.take();
        self.take_next_step(shared, caller);
        let has_turn = self.work.get(caller).is_some_and(|work| work.turn.is_some());
        if let Some(plugin) = turn.filter(|_| !has_turn) {
            self.end_turn(&plugin, caller);
        }
    }

    fn take_next_step(&mut self, shared: &mut Shared, caller: &Caller) {
        let (volume, alloc_id) = caller;
        let Some(object) = Self::stored_volume(shared, volume) else { return self.end_work(shared, caller) };
        if alloc_id.is_empty() {
            return self.take_provider_step(shared, caller, &object);
        }
        let status = object.status.clone().unwrap_or_default();
        let Some(claim) = status.claims.iter().find(|claim| claim.alloc_id == *alloc_id).cloned() else {
            return self.end_work(shared, caller);
        };
        if claim.state == ClaimState::Taken && !claim::is_over(&shared.view, volume, &claim) {
            self.attach(shared, caller, Claimed { volume: &object, status: &status, claim: &claim });
        } else {
            self.release(shared, caller, Claimed { volume: &object, status: &status, claim: &claim });
        }
    }

    fn attach(&mut self, shared: &mut Shared, caller: &Caller, claimed: Claimed<'_>) {
        let Claimed { volume: object, status, claim } = claimed;
        let step = {
            let tried = self.work.get(caller).map_or(&[][..], |work| &work.tried[..]);
            let plugin = self.plugins.get(&object.spec.plugin_id);
            let (volume, spec, view) = (&caller.0, &object.spec, &shared.view);
            attach::step(&attach::AttachFacts { volume, spec, status, view, plugin, tried }, claim)
        };
        match step {
            attach::AttachStep::Settled => self.end_work(shared, caller),
            // The status is written with it.
            attach::AttachStep::Attached => {
                shared.due.volumes.insert(caller.0.clone());
                self.end_work(shared, caller);
            }
            attach::AttachStep::Controller(call) => self.ask(shared, caller, claimed.about(), Asked::Publish(call)),
            attach::AttachStep::Cluster => self.attach_by_cluster(shared, caller, claimed),
            attach::AttachStep::Wait(why) => self.note_attachment(shared, caller, claim, &why),
        }
    }

    /// Notes why a volume is not attached yet, and tries again later.
    pub(super) fn note_attachment(&mut self, shared: &mut Shared, caller: &Caller, claim: &Claim, why: &str) {
        if claim.error != message::cut(why) {
            let context = claim.publish_context.clone();
            let state = AttachState::Pending;
            let said = Attachment { alloc_id: caller.1.clone(), state, context, error: message::cut(why) };
            self.attachments.entry(caller.0.clone()).or_default().push(said);
            shared.due.volumes.insert(caller.0.clone());
        }
        if let Some(work) = self.work.get_mut(caller) {
            work.n_failed += 1;
        }
        self.pause(caller);
    }

    fn release(&mut self, shared: &mut Shared, caller: &Caller, claimed: Claimed<'_>) {
        let Claimed { volume: object, claim, .. } = claimed;
        let mut status = claimed.status.clone();
        let now = shared.clock.now();
        if let Some(work) = self.work.get_mut(caller) {
            work.step_began.get_or_insert_with(Instant::now);
        }
        loop {
            let reached = self.work.get(caller).and_then(|work| work.reached);
            if let Some(state) = reached {
                let update = Update::Release { alloc_id: caller.1.clone(), state, error: String::new() };
                status = claim::updated(&status, &[update], now);
            }
            if reached == Some(ClaimState::ReadyToFree) {
                self.tell(shared, caller, String::new());
                // Whoever waits for the volume need not wait for releases that there are not.
                if self.on_their_way(&caller.0).take(2).count() == 1 {
                    let elapsed = shared.elapsed();
                    self.batches.close(&caller.0, elapsed);
                }
                return;
            }
            let step = self.release_step(shared, caller, Claimed { status: &status, ..claimed });
            if reached.is_some() && matches!(step, Ok(ReleaseStep::Node(_) | ReleaseStep::Cluster)) {
                self.record(shared, caller, String::new(), WINDOW);
            }
            match step {
                Ok(ReleaseStep::Checkpoint(state)) => self.reach(shared, caller, state),
                // Its agent unmounts what its allocation has used, and tells so.
                Ok(ReleaseStep::Node(call)) if Self::is_agents_own(shared, &caller.0, claim) => {
                    return tracing::debug!(volume = %call.volume, alloc = call.alloc_id, node = %call.node, "the agent unmounts");
                }
                Ok(ReleaseStep::Node(call)) => return self.ask(shared, caller, claimed.about(), Asked::Node(call)),
                Ok(ReleaseStep::Controller(call)) => {
                    self.ask(shared, caller, claimed.about(), Asked::Unpublish(call));
                    let is_asked = self.work.get(caller).is_some_and(|work| work.call.is_some());
                    if reached.is_some() {
                        self.record(shared, caller, String::new(), if is_asked { WINDOW } else { TOLD_WITHIN });
                    }
                    return;
                }
                Ok(ReleaseStep::Cluster) => {
                    if !self.is_detached_by_cluster(shared, caller, object, claim) {
                        return;
                    }
                    self.reach(shared, caller, ClaimState::ReadyToFree);
                }
                Ok(ReleaseStep::Wait(fence)) => return self.wait(shared, caller, claim, &fence.to_string()),
                Ok(ReleaseStep::Freed | ReleaseStep::InUse) => return self.end_work(shared, caller),
                Err(error) => return self.fail(shared, caller, claim, &error),
            }
        }
    }

    /// A release has come this far.
    pub(super) fn reach(&mut self, shared: &mut Shared, caller: &Caller, state: ClaimState) {
        let Some(work) = self.work.get_mut(caller) else { return };
        work.reached = Some(state);
        let step = match state {
            ClaimState::Taken | ClaimState::Unpublishing => return,
            ClaimState::NodeDetached => "node",
            ClaimState::ControllerDetached | ClaimState::ReadyToFree => "controller",
        };
        if let Some(began) = work.step_began.replace(Instant::now()) {
            shared.recorder.reaped(step, began.elapsed());
        }
    }

    fn release_step(
        &self,
        shared: &Shared,
        caller: &Caller,
        claimed: Claimed<'_>,
    ) -> Result<ReleaseStep, ReleaseError> {
        let Claimed { volume: object, status, claim } = claimed;
        let is_unmounted = claim::is_unmounted(&shared.view, &caller.0, claim);
        release::step(&release::ReleaseFacts {
            volume: &caller.0,
            spec: &object.spec,
            status,
            alloc_id: &caller.1,
            view: &shared.view,
            plugin: self.plugins.get(&object.spec.plugin_id),
            unmount: if is_unmounted { Unmount::Reported } else { Unmount::Unknown },
            force: if is_forced(object, &claim.node_name) { Force::ByOperator } else { Force::No },
            tried: self.work.get(caller).map_or(&[][..], |work| &work.tried[..]),
            attached: self.attached_by(shared, object, &claim.node_name),
        })
    }

    /// Whether an agent that has the allocation unmounts its volumes without being asked.
    fn is_agents_own(shared: &Shared, volume: &ObjectKey, claim: &Claim) -> bool {
        let key = AllocKey::new(Arc::clone(&volume.namespace), claim.allocation.as_str());
        shared
            .caches
            .allocs
            .get(&key_of(&key))
            .is_some_and(|alloc| alloc.metadata.uid.as_deref() == Some(&*claim.alloc_id))
    }

    /// Has it written how far a claim has come; nothing further is done before.
    fn tell(&mut self, shared: &mut Shared, caller: &Caller, error: String) {
        if let Some(work) = self.work.get_mut(caller) {
            work.is_told = true;
            self.record(shared, caller, error, WINDOW);
        }
    }

    /// Has it written how far a claim has come, while the next step goes on: what comes of that soon is the same write.
    /// Until it is written the claim counts as taken, and a new leader finds the same steps done that this one has
    /// found.
    fn record(&mut self, shared: &mut Shared, caller: &Caller, error: String, within: Duration) {
        let elapsed = shared.elapsed();
        let Some(work) = self.work.get(caller) else { return };
        let state = work.reached.unwrap_or_default();
        let update = Update::Release { alloc_id: caller.1.clone(), state, error };
        tracing::debug!(volume = %caller.0, alloc = caller.1, %state, "a release goes on");
        self.batches.add_within(&caller.0, update, within, elapsed);
    }

    /// A release that waits for something else than time; what it waits for is written.
    fn wait(&mut self, shared: &mut Shared, caller: &Caller, claim: &Claim, why: &str) {
        let has_moved = self.work.get(caller).is_some_and(|work| work.reached.is_some());
        if has_moved || claim.error != message::cut(why) {
            self.tell(shared, caller, message::cut(why));
            Self::report_volume(shared, &caller.0, "DetachFailed", "Release", why);
        }
    }

    /// A release goes no further now; it is tried again later, and at once when something changes for it.
    pub(super) fn fail(&mut self, shared: &mut Shared, caller: &Caller, claim: &Claim, error: &ReleaseError) {
        let text = error.to_string();
        let Some(work) = self.work.get_mut(caller) else { return };
        work.n_failed += 1;
        let is_stuck = work.n_failed == STUCK_AFTER + 1;
        tracing::warn!(volume = %caller.0, alloc = caller.1, node = claim.node_name, error = text, "a claim is not released");
        if claim.error != message::cut(&text) || work.reached.is_some() {
            Self::report_volume(shared, &caller.0, "DetachFailed", "Release", &text);
            self.tell(shared, caller, message::cut(&text));
        }
        if is_stuck {
            shared.due.volumes.insert(caller.0.clone());
        }
        self.pause(caller);
    }

    /// Tries again after a while, ever later.
    pub(super) fn pause(&mut self, caller: &Caller) {
        let Some(work) = self.work.get_mut(caller) else { return };
        work.tried.clear();
        let at = Instant::now() + wait::pause(work.n_failed);
        self.retry_at(caller, at);
    }

    /// Tries again then, unless something happens before.
    pub(super) fn retry_at(&mut self, caller: &Caller, at: Instant) {
        let Some(work) = self.work.get_mut(caller) else { return };
        if let Some(before) = work.retry_at.replace(at) {
            self.retries.remove(&(before, caller.clone()));
        }
        self.retries.insert((at, caller.clone()));
    }

    /// Tells people what is wrong with a volume; the same thing once.
    pub(super) fn report_volume(
        shared: &mut Shared,
        volume: &ObjectKey,
        reason: &'static str,
        action: &'static str,
        note: &str,
    ) {
        let Some(object) = Self::stored_volume(shared, volume) else { return };
        let happening =
            Happening { severity: Severity::Warning, reason, action, note: note.to_owned(), occasion: note };
        shared.report(&*object, &happening);
    }
}

/// Whether a person answers for it that a node does not use a volume any more.
fn is_forced(volume: &CSIVolume, node: &str) -> bool {
    let named =
        volume.metadata.annotations.iter().flatten().find(|(name, _)| *name == drover_api::annotation::FORCE_RELEASE);
    named.is_some_and(|(_, nodes)| drover_api::annotation::nodes(nodes).any(|named| named == node))
}
