//! What a leader knows of volumes besides their objects. Nothing is kept of a volume to which nothing happens.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use drover_api::client_node::CsiRequest;
use drover_api::csi_volume::ClaimState;
use drover_api::{CSIVolume, ClientNode};
use drover_core::ids::{AllocKey, NodeName, ObjectKey};
use drover_core::volume::batch::Batches;
use drover_core::volume::claim::{Attachment, ClaimRequest, Update};
use drover_core::volume::current::Provided;
use drover_core::volume::expand::{Expand, Mount};
use drover_core::volume::plugin::{Plugins, Skipped};
use drover_core::volume::plugin_lock::Caller;
use drover_core::volume::snapshot::SnapshotOutcome;
use drover_core::volume::wait::Waits;
use drover_core::volume::watcher::{Pace, Watcher};
use jiff::Timestamp;
use tokio::time::Instant;

use super::index::Index;
use super::request::Calls;
use crate::shared::Shared;

/// What a leader knows of volumes besides their objects.
#[derive(Debug)]
pub(crate) struct Volumes {
    pub(super) plugins: Plugins,
    pub(super) watcher: Watcher,
    pub(super) batches: Batches,
    /// Volumes whose claims or providers may have a next step, whenever they were looked at last.
    pub(super) ready: BTreeSet<ObjectKey>,
    /// Claims that are wanted and not taken, by volume and then by the age of their allocations.
    pub(super) waiting: BTreeMap<ObjectKey, BTreeMap<(Timestamp, AllocKey), Waiting>>,
    /// When those that are not free are tried again.
    pub(super) waits: Waits,
    /// Updates whose time to be written has come.
    pub(super) updates: BTreeMap<ObjectKey, Vec<Update>>,
    pub(super) attachments: BTreeMap<ObjectKey, Vec<Attachment>>,
    /// Writes that are under way, with what they tell.
    pub(super) writing: BTreeMap<ObjectKey, UnderWay>,
    /// Claims that are being attached or released.
    pub(super) work: BTreeMap<Caller, Work>,
    /// When such a one is tried again.
    pub(super) retries: BTreeSet<(Instant, Caller)>,
    /// What agents are asked for.
    pub(super) calls: Calls,
    /// What providers have answered.
    pub(super) providers: Providers,
    /// Objects that are being made, and those that were deleted and may be shown as if they were not.
    pub(super) objects: Objects,
    /// Where volumes are, and which name the same.
    pub(super) index: Index,
}

/// A claim that is wanted.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) request: ClaimRequest,
    /// Whether it was reported that it waits.
    pub(super) is_reported: bool,
}

impl Default for Volumes {
    fn default() -> Self {
        Self {
            plugins: Plugins::default(),
            watcher: Watcher::new(Pace::default()),
            batches: Batches::default(),
            ready: BTreeSet::new(),
            waiting: BTreeMap::new(),
            waits: Waits::default(),
            updates: BTreeMap::new(),
            attachments: BTreeMap::new(),
            writing: BTreeMap::new(),
            work: BTreeMap::new(),
            retries: BTreeSet::new(),
            calls: Calls::default(),
            providers: Providers::default(),
            objects: Objects::default(),
            index: Index::default(),
        }
    }
}

impl Volumes {
    /// What an agent is asked for now.
    pub(crate) fn requests_to(&self, node: &NodeName) -> BTreeMap<String, CsiRequest> {
        self.calls.requests.get(node).cloned().unwrap_or_default()
    }

    /// Whether what an agent is asked for does not stand where it reads it.
    pub(crate) fn are_overwritten(&self, node: &NodeName, object: &ClientNode) -> bool {
        let there = object.status.as_ref().map(|status| &status.csi_requests);
        self.calls.requests.get(node).is_some_and(|wanted| there != Some(wanted))
    }

    /// How much is kept for volumes to which something happens: those that are watched, claims that wait for others,
    /// claims that are being attached or released, and calls that agents were asked for.
    pub(crate) fn under_way(&self) -> [(&'static str, usize); 4] {
        [
            ("watched", self.watcher.n_active()),
            ("waiting", self.waiting.values().map(BTreeMap::len).sum()),
            ("moving", self.work.len()),
            ("called", self.calls.n_under_way()),
        ]
    }

    /// When there is something to do next, as time since the term began and as a moment.
    pub(crate) fn wake_at(&self, shared: &Shared) -> Option<Instant> {
        let (began, is_due) = (shared.began, !shared.due.volumes.is_empty());
        if is_due || !self.ready.is_empty() {
            return Some(began);
        }
        let spans = [self.watcher.wake_at(), self.batches.wake_at(), self.waits.wake_at()];
        let moments = spans.into_iter().flatten().map(|span| began + span);
        moments.chain(self.retries.first().map(|(at, _)| *at)).min()
    }

    pub(super) fn forget(&mut self, id: &ObjectKey, volume: &CSIVolume) {
        self.index.remove(id, volume);
        self.watcher.gone(id);
        self.batches.forget(id);
        self.waits.settled(id);
        self.providers.forget(id);
        self.ready.remove(id);
        self.updates.remove(id);
        self.attachments.remove(id);
    }
}

/// A claim that is being attached or released.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// The controllers that were asked in this round and let others try.
    pub(super) tried: Vec<Skipped>,
    /// How far it has come, or why it goes no further, is on its way into the status; until then nothing further is
    /// done.
    pub(super) is_told: bool,
    /// How far it has come without its being written.
    pub(super) reached: Option<ClaimState>,
    /// Since when this leader has been at the step of its release that is due.
    pub(super) step_began: Option<Instant>,
    pub(super) n_failed: u32,
    pub(super) retry_at: Option<Instant>,
    /// The request that an agent carries out.
    pub(super) call: Option<String>,
    /// The plugin whose turn it has or waits for.
    pub(super) turn: Option<String>,
    /// Since when the cluster's attacher is waited for.
    pub(super) attacher_asked: Option<Instant>,
    /// The volume was made larger, and mounts have to follow before it counts as that.
    pub(super) following: Option<Following>,
}

/// What providers have answered, until it is stored.
#[derive(Debug, Default)]
pub(super) struct Providers {
    /// What they have made and is not stored yet.
    pub(super) provided: BTreeMap<ObjectKey, Provided>,
    /// What became of requests about snapshots, until the requests are taken away.
    pub(super) snapshots: BTreeMap<ObjectKey, SnapshotOutcome>,
    /// Why they have not done what is wanted.
    pub(super) errors: BTreeMap<ObjectKey, String>,
    /// Volumes that they have deleted.
    pub(super) deleted: BTreeSet<ObjectKey>,
}

impl Providers {
    /// A volume is gone.
    pub(super) fn forget(&mut self, id: &ObjectKey) {
        self.provided.remove(id);
        self.snapshots.remove(id);
        self.errors.remove(id);
        self.deleted.remove(id);
    }
}

/// Mounts that have to follow a volume which was made larger. Another leader has it made as large again, and finds them
/// again.
#[derive(Debug)]
pub(super) struct Following {
    pub(super) provided: Provided,
    pub(super) expand: Expand,
    /// The first one is asked for now.
    pub(super) mounts: VecDeque<Mount>,
}

/// Objects whose last write the watch may not have shown yet.
#[derive(Debug, Default)]
pub(super) struct Objects {
    /// Those that are being made.
    pub(super) making: BTreeSet<String>,
    /// Those that were deleted, until they are gone: no allocation gets these as attached.
    pub(super) deleting: BTreeSet<String>,
}

/// What only the answer to a write tells.
#[derive(Debug, Default)]
pub(super) struct UnderWay {
    pub(super) updates: Vec<Update>,
    pub(super) attachments: Vec<Attachment>,
}
