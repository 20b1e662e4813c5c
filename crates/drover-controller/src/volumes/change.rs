//! What changes mean for volumes: claims are wanted, plugins come and go, and what is due is done in its order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drover_api::csi_volume::ClaimState;
use drover_api::{Allocation, CSIVolume, ClientNode};
use drover_core::broker::blocked::Freed;
use drover_core::ids::{AllocKey, JobKey, NodeName, ObjectKey};
use drover_core::model::Node;
use drover_core::triggers::Consequences;
use drover_core::volume::claim::{self, ClaimRequest, Update};
use drover_core::volume::plugin::{Plugin, Plugins};
use drover_core::volume::snapshot::SnapshotRequest;
use drover_core::volume::user_actions;
use drover_store::convert;
use jiff::Timestamp;
use tokio::time::Instant;

use super::state::{Volumes, Waiting};
use crate::cache::Observed;
use crate::nodes::NodeChange;
use crate::shared::Shared;
use crate::timers::Wake;

/// What volumes ask of their plugin.
type Fitness = (bool, bool, bool, i64);

fn fitness(plugin: Option<&Plugin>) -> Option<Fitness> {
    let fitness = |plugin: &Plugin| {
        let (needs_controller, is_of_cluster) = (plugin.is_controller_required(), plugin.is_of_cluster());
        (plugin.is_schedulable(), needs_controller, is_of_cluster, plugin.controllers_healthy())
    };
    plugin.map(fitness)
}

impl Volumes {
    /// A volume that appears, or can be used again, may be what a job waits for.
    pub(crate) fn on_volume(&mut self, shared: &mut Shared, seen: Observed<CSIVolume>) {
        shared.recorder.volume(&seen);
        let elapsed = shared.elapsed();
        // Neither its finalizer nor what people note on it is what a job waits for.
        let may_help = match &seen {
            Observed::Now(now, Some(before)) => now.spec != before.spec || now.status != before.status,
            Observed::Now(_, None) | Observed::Gone(_) => true,
        };
        let id = match seen {
            Observed::Now(object, before) => {
                let id = convert::volume_id(&object);
                self.index.put(&id, &object, before.as_deref());
                shared.due.volumes.extend(self.index.put_handle(&id, &object));
                self.watcher.changed(&id, elapsed);
                shared.due.volumes.insert(id.clone());
                self.end_work_of_freed(shared, &id, &object);
                let request = SnapshotRequest::of(object.metadata.annotations.as_ref());
                if self.providers.snapshots.get(&id).is_some_and(|outcome| request.as_ref() != Some(&outcome.request)) {
                    self.providers.snapshots.remove(&id);
                }
                Self::note_left_nodes(shared, before.as_deref(), Some(&object));
                // What is being written is assumed until the answer.
                if !self.writing.contains_key(&id) {
                    shared.view.put_volume(id.clone(), object);
                }
                id
            }
            Observed::Gone(object) => {
                let id = convert::volume_id(&object);
                shared.view.remove_volume(&id);
                self.forget(&id, &object);
                shared.due.volumes.extend(self.index.handles.remove(&id));
                self.end_work_of(shared, &id);
                Self::note_left_nodes(shared, Some(&object), None);
                id
            }
        };
        if may_help {
            Self::free_volume(shared, &id);
        }
    }

    /// Jobs that wait for a volume are looked at again.
    pub(super) fn free_volume(shared: &mut Shared, id: &ObjectKey) {
        shared.free(Freed::Volume(format!("csi-volume:{}:{}", id.namespace, id.name)));
    }

    /// Does all that is due for volumes now.
    pub(crate) fn advance(&mut self, shared: &mut Shared) {
        let elapsed = shared.elapsed();
        let now = Instant::now();
        while let Some((at, caller)) = self.retries.first().cloned().filter(|(at, _)| *at <= now) {
            self.retries.remove(&(at, caller.clone()));
            if let Some(work) = self.work.get_mut(&caller) {
                work.retry_at = None;
            }
            self.advance_claim(shared, &caller);
        }
        while let Some(volume) = self.watcher.look(elapsed) {
            self.look_at_claims(shared, &volume);
            self.watcher.finish(&volume, elapsed);
        }
        for volume in std::mem::take(&mut self.ready) {
            self.hurry(&volume);
            self.look_at_claims(shared, &volume);
            self.look_at_provider(shared, &volume);
        }
        while let Some(volume) = self.waits.due(elapsed) {
            shared.due.volumes.insert(volume);
        }
        while let Some((volume, updates)) = self.batches.next(elapsed) {
            self.updates.entry(volume.clone()).or_default().extend(updates);
            shared.due.volumes.insert(volume);
        }
        for volume in std::mem::take(&mut shared.due.volumes) {
            let began = shared.begin_look();
            self.refresh_volume(shared, &volume);
            shared.count_look("volume", &began);
        }
    }

    /// Looks at volumes from time to time whose release got stuck.
    pub(crate) fn plan_claim_gc(shared: &mut Shared) {
        shared.wake_in(shared.config.gc.claim_interval(), Wake::ClaimGc);
    }

    pub(crate) fn collect_claims(&mut self, shared: &mut Shared) {
        let elapsed = shared.elapsed();
        for volume in user_actions::stuck(&shared.view, shared.config.gc.claim_threshold(), shared.clock.now()) {
            self.batches.add(&volume, Update::Touch, elapsed);
        }
        Self::plan_claim_gc(shared);
    }

    /// Takes in an allocation that is new or has changed.
    pub(crate) fn on_allocation(&mut self, shared: &mut Shared, object: &Allocation, consequences: &Consequences) {
        self.note_claims(shared, &convert::object_key(&object.metadata));
        if consequences.has_ended {
            let node = NodeName::from(object.spec.node_name.as_str());
            self.end_plugins_of(shared, &node, object.metadata.uid.as_deref().unwrap_or_default());
        }
    }

    /// Takes in a node that is new, changed or gone, and its plugins with it.
    pub(crate) fn on_node(&mut self, shared: &mut Shared, change: &NodeChange) {
        match (&change.before, &change.now) {
            (before, Some((now, object))) => self.note_plugins(shared, before.as_deref(), now, object),
            (Some(before), None) => self.forget_plugins_of(shared, before),
            (None, None) => {}
        }
    }

    /// An allocation is new or has changed: it may want volumes, or need them no longer.
    pub(super) fn note_claims(&mut self, shared: &mut Shared, key: &AllocKey) {
        let Some(alloc) = shared.view.alloc(key).cloned() else { return };
        let wanted = claim::wanted(&shared.view, &alloc);
        for request in wanted {
            let volume = request.volume.clone();
            let place = (alloc.created_at, key.clone());
            if alloc.is_terminal() {
                self.stop_waiting(&volume, &place);
                self.ready.insert(volume);
                continue;
            }
            if !Self::holds(shared, &request) && !alloc.uid.as_str().is_empty() {
                let waiting = self.waiting.entry(volume.clone()).or_default();
                waiting.entry(place).or_insert(Waiting { request, is_reported: false });
                shared.due.volumes.insert(volume);
            }
        }
    }

    /// An allocation is gone: what it held is released.
    pub(crate) fn drop_claims(&mut self, shared: &mut Shared, key: &AllocKey) {
        let Some(alloc) = shared.view.alloc(key).cloned() else { return };
        for request in claim::wanted(&shared.view, &alloc) {
            self.stop_waiting(&request.volume, &(alloc.created_at, key.clone()));
            self.ready.insert(request.volume);
        }
    }

    /// A version of a job is known: now it can be told what its allocations want.
    pub(crate) fn note_claims_of(&mut self, shared: &mut Shared, job: &JobKey) {
        let allocs: Vec<AllocKey> = shared.view.allocs_of_job(job).map(|alloc| alloc.key.clone()).collect();
        for alloc in allocs {
            self.note_claims(shared, &alloc);
        }
    }

    fn holds(shared: &Shared, request: &ClaimRequest) -> bool {
        let Some(status) = shared.view.volume(&request.volume).and_then(|volume| volume.status.as_ref()) else {
            return false;
        };
        let is_it = |claim: &drover_api::csi_volume::Claim| {
            claim.alloc_id == request.alloc_id.as_str()
                && claim.state == ClaimState::Taken
                && claim.mode == request.mode
        };
        status.claims.iter().any(is_it)
    }

    fn stop_waiting(&mut self, volume: &ObjectKey, place: &(Timestamp, AllocKey)) {
        if let Some(waiting) = self.waiting.get_mut(volume) {
            waiting.remove(place);
            if waiting.is_empty() {
                self.waiting.remove(volume);
            }
        }
    }

    /// A node says something else of its plugins, or its phase is another one.
    pub(super) fn note_plugins(&mut self, shared: &mut Shared, before: Option<&Node>, now: &Node, object: &ClientNode) {
        let plugins_before = before.map(|before| &before.csi);
        if plugins_before.is_some_and(|before| *before != now.csi) || (before.is_none() && !now.csi.is_empty()) {
            let ids: BTreeSet<String> =
                plugins_before.into_iter().flat_map(BTreeMap::keys).chain(now.csi.keys()).cloned().collect();
            self.change_plugins(shared, &ids, |plugins| plugins.put_node(now));
        }
        if before.is_none_or(|before| before.phase != now.phase) {
            self.ready_on(&now.name);
        }
        self.take_answers(shared, &now.name, object);
        self.review_calls(shared, &now.name);
    }

    /// A node is gone, and its plugins with it.
    pub(super) fn forget_plugins_of(&mut self, shared: &mut Shared, node: &Node) {
        let ids = node.csi.keys().cloned().collect();
        self.change_plugins(shared, &ids, |plugins| plugins.remove_node(&node.name));
        self.ready_on(&node.name);
        self.review_calls(shared, &node.name);
        self.calls.requests.remove(&node.name);
    }

    /// An allocation has ended that may have run a plugin.
    pub(super) fn end_plugins_of(&mut self, shared: &mut Shared, node: &NodeName, alloc_id: &str) {
        let ids: BTreeSet<String> =
            shared.view.node(node).into_iter().flat_map(|node| node.csi.keys().cloned()).collect();
        if !ids.is_empty() {
            self.change_plugins(shared, &ids, |plugins| plugins.end_alloc(node, alloc_id));
        }
    }

    /// A job may run plugins.
    pub(crate) fn note_plugin_job(&mut self, shared: &mut Shared, key: &JobKey) {
        let (Some(object), Some(job)) = (shared.job(key).cloned(), shared.view.job(key).cloned()) else { return };
        let tasks = job.definition.spec.groups.iter().flat_map(|group| &group.tasks);
        let ids: BTreeSet<String> =
            tasks.filter_map(|task| task.csi_plugin.as_ref()).map(|plugin| plugin.id.clone()).collect();
        if ids.is_empty() {
            self.plugins.remove_job(&job.key);
        } else {
            let summary = object.status.as_ref().map(|status| status.summary.clone()).unwrap_or_default();
            self.change_plugins(shared, &ids, |plugins| plugins.put_job(&job, &summary));
        }
    }

    /// A job is gone.
    pub(crate) fn forget_plugin_job(&mut self, job: &JobKey) {
        self.plugins.remove_job(job);
    }

    /// Changes what is known of plugins. Their volumes are looked at where it matters to them.
    pub(super) fn change_plugins(
        &mut self,
        shared: &mut Shared,
        ids: &BTreeSet<String>,
        change: impl FnOnce(&mut Plugins),
    ) {
        let before: Vec<_> = ids.iter().map(|id| fitness(self.plugins.get(id))).collect();
        change(&mut self.plugins);
        for (id, before) in ids.iter().zip(before) {
            if before != fitness(self.plugins.get(id)) {
                let volumes = self.index.of_plugin(id);
                self.ready.extend(volumes.iter().cloned());
                shared.due.volumes.extend(volumes);
            }
        }
    }

    fn ready_on(&mut self, node: &NodeName) {
        let volumes = self.index.on_node(node);
        self.ready.extend(volumes);
    }
}

/// The claims of an allocation that is about to be made count for other plans at once.
pub(crate) fn assume_claims(shared: &mut Shared, key: &AllocKey) {
    let Some(alloc) = shared.view.alloc(key).cloned() else { return };
    for request in claim::wanted(&shared.view, &alloc) {
        let Some(volume) = shared.view.volume(&request.volume).cloned() else { continue };
        // Where it is held by others the allocation waits for them.
        if let Ok(Some(status)) = claim::take(&shared.view, &request, shared.clock.now()) {
            let assumed = CSIVolume { status: Some(status), ..(*volume).clone() };
            shared.view.put_volume(request.volume, Arc::new(assumed));
        }
    }
}

/// An allocation was not made after all.
pub(crate) fn unassume_claims(shared: &mut Shared, key: &AllocKey) {
    let Some(alloc) = shared.view.alloc(key).cloned() else { return };
    shared.due.volumes.extend(claim::wanted(&shared.view, &alloc).into_iter().map(|request| request.volume));
}
