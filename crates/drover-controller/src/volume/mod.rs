//! Volumes: claims are taken for what is placed, attached, and released when their allocations are over.
//!
//! Input: changes of volumes, allocations, nodes and jobs, and the answers of agents. Output: the status of each `CSIVolume`, written as a
//! whole by this leader alone, and what agents are asked for, in the status of their `ClientNode`s. Every decision is
//! `drover_core::volume`'s. Nothing is kept of a volume to which nothing happens.
//!
//! `work` carries claims from step to step, `call` asks agents and takes their answers, `cluster` has volumes of the cluster's own drivers
//! attached by `VolumeAttachment`s, `provider` has volumes made, enlarged,
//! copied to snapshots and deleted, `status` writes.

mod call;
mod cluster;
mod provider;
mod status;
mod work;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use drover_api::client_node::CsiRequest;
use drover_api::csi_volume::ClaimState;
use drover_api::{CSIVolume, ClientNode, Job};
use drover_core::broker::blocked::Freed;
use drover_core::ids::{AllocKey, JobKey, NodeName, ObjectKey};
use drover_core::model::{self, Node};
use drover_core::volume::batch::Batches;
use drover_core::volume::claim::{self, Attachment, Request, Update};
use drover_core::volume::current::Provided;
use drover_core::volume::operator;
use drover_core::volume::plugin::{Plugin, Plugins};
use drover_core::volume::snapshot::{Outcome, Wish};
use drover_core::volume::turn::{Caller, Turns};
use drover_core::volume::wait::Waits;
use drover_core::volume::watcher::{Pace, Watcher};
use jiff::Timestamp;
use tokio::time::Instant;

use crate::cache::Seen;
use crate::term::{Term, Wake};
use drover_store::Store;
use drover_store::convert;

use call::Call;
use cluster::Objects;
use status::UnderWay;
use work::Work;

/// What a leader knows of volumes besides their objects.
#[derive(Debug)]
pub(super) struct Volumes {
    plugins: Plugins,
    watcher: Watcher,
    batches: Batches,
    turns: Turns,
    /// Volumes whose status may differ from what it should be.
    dirty: BTreeSet<ObjectKey>,
    /// Volumes whose claims may have a next step, whenever they were looked at last.
    ready: BTreeSet<ObjectKey>,
    /// Claims that are wanted and not taken, by volume and then by the age of their allocations.
    waiting: BTreeMap<ObjectKey, BTreeMap<(Timestamp, AllocKey), Waiting>>,
    /// When those that are not free are tried again.
    waits: Waits,
    /// Updates whose time to be written has come.
    updates: BTreeMap<ObjectKey, Vec<Update>>,
    attachments: BTreeMap<ObjectKey, Vec<Attachment>>,
    /// Writes that are under way, with what they tell.
    writing: BTreeMap<ObjectKey, UnderWay>,
    /// Claims that are being attached or released.
    work: BTreeMap<Caller, Work>,
    /// When such a one is tried again.
    retries: BTreeSet<(Instant, Caller)>,
    /// What agents are asked for, by the name of the request.
    calls: BTreeMap<String, Call>,
    n_calls: u64,
    /// The same, as the agents read it.
    requests: HashMap<NodeName, BTreeMap<String, CsiRequest>>,
    /// What providers have made and nobody has stored yet.
    provided: BTreeMap<ObjectKey, Provided>,
    /// What became of wishes about snapshots, until the wishes are taken away.
    snapshots: BTreeMap<ObjectKey, Outcome>,
    /// Why providers have not done what is wanted.
    provider_errors: BTreeMap<ObjectKey, String>,
    /// Volumes that their providers have deleted.
    deleted: BTreeSet<ObjectKey>,
    /// Objects that are being made, and those that were deleted and may be shown as if they were not.
    objects: Objects,
    by_plugin: HashMap<String, BTreeSet<ObjectKey>>,
    /// Volumes with claims of allocations on a node.
    by_node: HashMap<NodeName, BTreeSet<ObjectKey>>,
}

/// A claim that is wanted.
#[derive(Clone, Debug)]
struct Waiting {
    request: Request,
    /// People were told that it waits.
    is_told: bool,
}

impl Default for Volumes {
    fn default() -> Self {
        Self {
            plugins: Plugins::default(),
            watcher: Watcher::new(Pace::default()),
            batches: Batches::default(),
            turns: Turns::default(),
            dirty: BTreeSet::new(),
            ready: BTreeSet::new(),
            waiting: BTreeMap::new(),
            waits: Waits::default(),
            updates: BTreeMap::new(),
            attachments: BTreeMap::new(),
            writing: BTreeMap::new(),
            work: BTreeMap::new(),
            retries: BTreeSet::new(),
            calls: BTreeMap::new(),
            n_calls: 0,
            requests: HashMap::new(),
            provided: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            provider_errors: BTreeMap::new(),
            deleted: BTreeSet::new(),
            objects: Objects::default(),
            by_plugin: HashMap::new(),
            by_node: HashMap::new(),
        }
    }
}

impl Volumes {
    /// What an agent is asked for now.
    pub(super) fn requests_to(&self, node: &NodeName) -> BTreeMap<String, CsiRequest> {
        self.requests.get(node).cloned().unwrap_or_default()
    }

    /// Whether what an agent is asked for does not stand where it reads it.
    pub(super) fn are_overwritten(&self, node: &NodeName, object: &ClientNode) -> bool {
        let there = object.status.as_ref().map(|status| &status.csi_requests);
        self.requests.get(node).is_some_and(|wanted| there != Some(wanted))
    }

    /// How much is kept for volumes to which something happens: those that are watched, claims that wait for others, claims that are being
    /// attached or released, and calls that agents were asked for.
    pub(super) fn under_way(&self) -> [(&'static str, usize); 4] {
        [
            ("watched", self.watcher.n_active()),
            ("waiting", self.waiting.values().map(BTreeMap::len).sum()),
            ("moving", self.work.len()),
            ("called", self.calls.len()),
        ]
    }

    /// When there is something to do next, as time since the term began and as a moment.
    fn wake_at(&self, began: Instant) -> Option<Instant> {
        if !self.dirty.is_empty() || !self.ready.is_empty() {
            return Some(began);
        }
        let spans = [self.watcher.wake_at(), self.batches.wake_at(), self.waits.wake_at()];
        let moments = spans.into_iter().flatten().map(|span| began + span);
        moments.chain(self.retries.first().map(|(at, _)| *at)).min()
    }

    /// Notes where a volume's claims and its plugin are.
    fn index(&mut self, id: &ObjectKey, volume: &CSIVolume, before: Option<&CSIVolume>) {
        if let Some(before) = before {
            // Most changes leave a volume where it is.
            if before.spec.plugin_id == volume.spec.plugin_id && node_names(before).eq(node_names(volume)) {
                return;
            }
            unindex(&mut self.by_plugin, &before.spec.plugin_id, id);
            nodes_of(before).for_each(|node| unindex(&mut self.by_node, &node, id));
        }
        self.by_plugin.entry(volume.spec.plugin_id.clone()).or_default().insert(id.clone());
        for node in nodes_of(volume) {
            self.by_node.entry(node).or_default().insert(id.clone());
        }
    }

    fn forget(&mut self, id: &ObjectKey, volume: &CSIVolume) {
        unindex(&mut self.by_plugin, &volume.spec.plugin_id, id);
        nodes_of(volume).for_each(|node| unindex(&mut self.by_node, &node, id));
        self.watcher.gone(id);
        self.batches.forget(id);
        self.waits.settled(id);
        self.provided.remove(id);
        self.snapshots.remove(id);
        self.provider_errors.remove(id);
        for set in [&mut self.dirty, &mut self.ready, &mut self.deleted] {
            set.remove(id);
        }
        self.updates.remove(id);
        self.attachments.remove(id);
    }
}

/// Where its claims are, by claim.
fn node_names(volume: &CSIVolume) -> impl Iterator<Item = &str> {
    let claims = volume.status.iter().flat_map(|status| &status.claims);
    claims.map(|claim| claim.node_name.as_str())
}

fn nodes_of(volume: &CSIVolume) -> impl Iterator<Item = NodeName> {
    node_names(volume).map(NodeName::from)
}

fn unindex<K: std::hash::Hash + Eq + Clone>(index: &mut HashMap<K, BTreeSet<ObjectKey>>, at: &K, id: &ObjectKey) {
    if let Some(set) = index.get_mut(at) {
        set.remove(id);
        if set.is_empty() {
            index.remove(at);
        }
    }
}

/// What volumes ask of their plugin.
type Fitness = (bool, bool, bool, i64);

fn fitness(plugin: Option<&Plugin>) -> Option<Fitness> {
    let fitness = |plugin: &Plugin| {
        let (needs_controller, is_of_cluster) = (plugin.is_controller_required(), plugin.is_of_cluster());
        (plugin.is_schedulable(), needs_controller, is_of_cluster, plugin.controllers_healthy())
    };
    plugin.map(fitness)
}

impl<S: Store> Term<S> {
    /// A volume that appears, or can be used again, may be what a job waits for.
    pub(super) fn on_volume(&mut self, seen: Seen<CSIVolume>) {
        self.numbers.volume(&seen);
        let elapsed = self.elapsed();
        // Neither its finalizer nor what people note on it is what a job waits for.
        let may_help = match &seen {
            Seen::Now(now, Some(before)) => now.spec != before.spec || now.status != before.status,
            Seen::Now(_, None) | Seen::Gone(_) => true,
        };
        let id = match seen {
            Seen::Now(object, before) => {
                let id = convert::volume_id(&object);
                self.claims.index(&id, &object, before.as_deref());
                self.claims.watcher.changed(&id, elapsed);
                self.claims.dirty.insert(id.clone());
                self.end_work_of_freed(&id, &object);
                let wish = Wish::of(object.metadata.annotations.as_ref());
                if self.claims.snapshots.get(&id).is_some_and(|outcome| wish.as_ref() != Some(&outcome.wish)) {
                    self.claims.snapshots.remove(&id);
                }
                self.note_left_nodes(before.as_deref(), Some(&object));
                // What is being written is assumed until the answer.
                if !self.claims.writing.contains_key(&id) {
                    self.view.put_volume(id.clone(), object);
                }
                id
            }
            Seen::Gone(object) => {
                let id = convert::volume_id(&object);
                self.view.remove_volume(&id);
                self.claims.forget(&id, &object);
                self.end_work_of(&id);
                self.note_left_nodes(Some(&object), None);
                id
            }
        };
        if may_help {
            self.free_volume(&id);
        }
    }

    /// Jobs that wait for a volume are looked at again.
    fn free_volume(&mut self, id: &ObjectKey) {
        self.free(Freed::Volume(format!("csi-volume:{}:{}", id.namespace, id.name)));
    }

    /// Does all that is due for volumes now.
    pub(super) fn advance_volumes(&mut self) {
        let elapsed = self.elapsed();
        let now = Instant::now();
        while let Some((at, caller)) = self.claims.retries.first().cloned().filter(|(at, _)| *at <= now) {
            self.claims.retries.remove(&(at, caller.clone()));
            if let Some(work) = self.claims.work.get_mut(&caller) {
                work.retry_at = None;
            }
            self.advance_claim(&caller);
        }
        while let Some(volume) = self.claims.watcher.look(elapsed) {
            self.look_at_claims(&volume);
            self.claims.watcher.finish(&volume, elapsed);
        }
        for volume in std::mem::take(&mut self.claims.ready) {
            self.hurry(&volume);
            self.look_at_claims(&volume);
        }
        while let Some(volume) = self.claims.waits.due(elapsed) {
            self.claims.dirty.insert(volume);
        }
        while let Some((volume, updates)) = self.claims.batches.next(elapsed) {
            self.claims.updates.entry(volume.clone()).or_default().extend(updates);
            self.claims.dirty.insert(volume);
        }
        for volume in std::mem::take(&mut self.claims.dirty) {
            let began = self.begin_look();
            self.refresh_volume(&volume);
            self.count_look("volume", &began);
        }
    }

    /// When there is something to do for volumes next.
    pub(super) fn volumes_wake_at(&self) -> Option<Instant> {
        self.claims.wake_at(self.began)
    }

    /// Looks at volumes from time to time whose release got stuck.
    pub(super) fn plan_claim_gc(&mut self) {
        self.wake_in(self.config.gc.claim_interval(), Wake::ClaimGc);
    }

    pub(super) fn collect_claims(&mut self) {
        let elapsed = self.elapsed();
        for volume in operator::stuck(&self.view, self.config.gc.claim_threshold(), self.clock.now()) {
            self.claims.batches.add(&volume, Update::Touch, elapsed);
        }
        self.plan_claim_gc();
    }

    /// An allocation is new or has changed: it may want volumes, or need them no longer.
    pub(super) fn note_claims(&mut self, key: &AllocKey) {
        let Some(alloc) = self.view.alloc(key).cloned() else { return };
        let wanted = claim::wanted(&self.view, &alloc);
        for request in wanted {
            let volume = request.volume.clone();
            let place = (alloc.created_at, key.clone());
            if alloc.is_terminal() {
                self.stop_waiting(&volume, &place);
                self.claims.ready.insert(volume);
                continue;
            }
            if !self.holds(&request) && !alloc.uid.as_str().is_empty() {
                let waiting = self.claims.waiting.entry(volume.clone()).or_default();
                waiting.entry(place).or_insert(Waiting { request, is_told: false });
                self.claims.dirty.insert(volume);
            }
        }
    }

    /// An allocation is gone: what it held is released.
    pub(super) fn drop_claims(&mut self, key: &AllocKey) {
        let Some(alloc) = self.view.alloc(key).cloned() else { return };
        for request in claim::wanted(&self.view, &alloc) {
            self.stop_waiting(&request.volume, &(alloc.created_at, key.clone()));
            self.claims.ready.insert(request.volume);
        }
    }

    /// A version of a job is known: now it can be told what its allocations want.
    pub(super) fn note_claims_of(&mut self, job: &JobKey) {
        let allocs: Vec<AllocKey> = self.view.allocs_of_job(job).map(|alloc| alloc.key.clone()).collect();
        for alloc in allocs {
            self.note_claims(&alloc);
        }
    }

    /// The claims of an allocation that is about to be made count for other plans at once.
    pub(super) fn assume_claims(&mut self, key: &AllocKey) {
        let Some(alloc) = self.view.alloc(key).cloned() else { return };
        for request in claim::wanted(&self.view, &alloc) {
            let Some(volume) = self.view.volume(&request.volume).cloned() else { continue };
            // Where it is held by others the allocation waits for them.
            if let Ok(Some(status)) = claim::take(&self.view, &request, self.clock.now()) {
                let assumed = CSIVolume { status: Some(status), ..(*volume).clone() };
                self.view.put_volume(request.volume, Arc::new(assumed));
            }
        }
    }

    /// An allocation was not made after all.
    pub(super) fn unassume_claims(&mut self, key: &AllocKey) {
        let Some(alloc) = self.view.alloc(key).cloned() else { return };
        self.claims.dirty.extend(claim::wanted(&self.view, &alloc).into_iter().map(|request| request.volume));
    }

    fn holds(&self, request: &Request) -> bool {
        let Some(status) = self.view.volume(&request.volume).and_then(|volume| volume.status.as_ref()) else {
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
        if let Some(waiting) = self.claims.waiting.get_mut(volume) {
            waiting.remove(place);
            if waiting.is_empty() {
                self.claims.waiting.remove(volume);
            }
        }
    }

    /// A node says something else of its plugins, or its phase is another one.
    pub(super) fn note_plugins(&mut self, before: Option<&Node>, now: &Node, object: &ClientNode) {
        let plugins_before = before.map(|before| &before.csi);
        if plugins_before.is_some_and(|before| *before != now.csi) || (before.is_none() && !now.csi.is_empty()) {
            let ids: BTreeSet<String> =
                plugins_before.into_iter().flat_map(BTreeMap::keys).chain(now.csi.keys()).cloned().collect();
            self.change_plugins(&ids, |plugins| plugins.put_node(now));
        }
        if before.is_none_or(|before| before.phase != now.phase) {
            self.ready_on(&now.name);
        }
        self.take_answers(&now.name, object);
        self.review_calls(&now.name);
    }

    /// A node is gone, and its plugins with it.
    pub(super) fn forget_plugins_of(&mut self, node: &Node) {
        let ids = node.csi.keys().cloned().collect();
        self.change_plugins(&ids, |plugins| plugins.remove_node(&node.name));
        self.ready_on(&node.name);
        self.review_calls(&node.name);
        self.claims.requests.remove(&node.name);
    }

    /// An allocation has ended that may have run a plugin.
    pub(super) fn end_plugins_of(&mut self, node: &NodeName, alloc_id: &str) {
        let ids: BTreeSet<String> =
            self.view.node(node).into_iter().flat_map(|node| node.csi.keys().cloned()).collect();
        if !ids.is_empty() {
            self.change_plugins(&ids, |plugins| plugins.end_alloc(node, alloc_id));
        }
    }

    /// A job may run plugins.
    pub(super) fn note_plugin_job(&mut self, job: &model::Job, object: &Job) {
        let tasks = job.definition.spec.groups.iter().flat_map(|group| &group.tasks);
        let ids: BTreeSet<String> =
            tasks.filter_map(|task| task.csi_plugin.as_ref()).map(|plugin| plugin.id.clone()).collect();
        if ids.is_empty() {
            self.claims.plugins.remove_job(&job.key);
        } else {
            let summary = object.status.as_ref().map(|status| status.summary.clone()).unwrap_or_default();
            self.change_plugins(&ids, |plugins| plugins.put_job(job, &summary));
        }
    }

    /// A job is gone.
    pub(super) fn forget_plugin_job(&mut self, job: &JobKey) {
        self.claims.plugins.remove_job(job);
    }

    /// Changes what is known of plugins. Their volumes are looked at where it matters to them.
    fn change_plugins(&mut self, ids: &BTreeSet<String>, change: impl FnOnce(&mut Plugins)) {
        let before: Vec<_> = ids.iter().map(|id| fitness(self.claims.plugins.get(id))).collect();
        change(&mut self.claims.plugins);
        for (id, before) in ids.iter().zip(before) {
            if before != fitness(self.claims.plugins.get(id)) {
                let volumes = self.claims.by_plugin.get(id).cloned().unwrap_or_default();
                self.claims.ready.extend(volumes.iter().cloned());
                self.claims.dirty.extend(volumes);
            }
        }
    }

    fn ready_on(&mut self, node: &NodeName) {
        let volumes = self.claims.by_node.get(node).cloned().unwrap_or_default();
        self.claims.ready.extend(volumes);
    }
}
