//! Gathers the updates of a volume's claims for a short while, so that many allocations that end together are few writes
//! (`spec/volumes.md` 4): a window of at most 250 ms, and at most 100 claims in one write.
//!
//! Time is that of one process's monotonic clock, as a duration since its start. One write of a volume is under way at a time: the next
//! one needs its answer. What waits is bounded by the volume's claims. Must never know how a status is written.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_api::csi_volume::ClaimState;

use super::claim::Update;
use crate::ids::ObjectKey;

/// How long updates wait for others.
pub const WINDOW: Duration = Duration::from_millis(250);
/// Most claims that one write changes.
pub const MOST_CHANGES: usize = 100;

/// The updates that wait, by volume; volumes without any are not in it.
#[derive(Clone, Debug, Default)]
pub struct Batches {
    waiting: BTreeMap<ObjectKey, Batch>,
}

#[derive(Clone, Debug, Default)]
struct Batch {
    /// When the oldest update came.
    since: Duration,
    is_writing: bool,
    is_touched: bool,
    /// By the allocation's id.
    claims: BTreeMap<String, (ClaimState, String)>,
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.claims.is_empty() && !self.is_touched
    }

    /// When it may be written.
    fn due(&self) -> Option<Duration> {
        let at = if self.claims.len() >= MOST_CHANGES { self.since } else { self.since + WINDOW };
        (!self.is_writing && !self.is_empty()).then_some(at)
    }

    fn take(&mut self) -> Vec<Update> {
        let rest = match self.claims.keys().nth(MOST_CHANGES).cloned() {
            Some(first_of_rest) => self.claims.split_off(&first_of_rest),
            None => BTreeMap::new(),
        };
        let now = std::mem::replace(&mut self.claims, rest);
        let touch = std::mem::take(&mut self.is_touched).then_some(Update::Touch);
        let claims = now.into_iter().map(|(alloc_id, (state, error))| Update::Release { alloc_id, state, error });
        claims.chain(touch).collect()
    }
}

impl Batches {
    /// Adds an update. Of one claim the furthest state is written.
    pub fn add(&mut self, volume: &ObjectKey, update: Update, now: Duration) {
        let batch = self.waiting.entry(volume.clone()).or_default();
        if batch.is_empty() {
            batch.since = now;
        }
        match update {
            Update::Touch => batch.is_touched = true,
            Update::Release { alloc_id, state, error } => {
                let known = batch.claims.entry(alloc_id).or_insert((state, String::new()));
                *known = (known.0.max(state), error);
            }
        }
    }

    /// The next write: a volume and its updates. It is under way until [`Batches::written`].
    pub fn next(&mut self, now: Duration) -> Option<(ObjectKey, Vec<Update>)> {
        let is_due = |batch: &Batch| batch.due().is_some_and(|at| at <= now);
        let (volume, batch) = self.waiting.iter_mut().find(|(_, batch)| is_due(batch))?;
        batch.is_writing = true;
        Some((volume.clone(), batch.take()))
    }

    /// The write of a volume was answered.
    pub fn written(&mut self, volume: &ObjectKey) {
        let Some(batch) = self.waiting.get_mut(volume) else { return };
        batch.is_writing = false;
        if batch.is_empty() {
            self.waiting.remove(volume);
        }
    }

    /// When the next write is due.
    pub fn wake_at(&self) -> Option<Duration> {
        self.waiting.values().filter_map(Batch::due).min()
    }

    /// How many volumes have updates that wait, or a write under way.
    pub fn n_waiting(&self) -> usize {
        self.waiting.len()
    }
}
