//! Gathers the updates of a volume's claims for a short while, so that many allocations that end together are few
//! writes (`spec/volumes.md` 4): a window of at most 250 ms, and at most 100 claims in one write.
//!
//! Time is that of one process's monotonic clock, as a duration since its start. One write of a volume is under way at
//! a time: the next one needs its answer. What waits is bounded by the volume's claims. Must never know how a status is
//! written.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use drover_api::csi_volume::ClaimState;

use super::claim::Update;
use crate::ids::ObjectKey;

/// How long updates wait for others.
pub const WINDOW: Duration = Duration::from_millis(250);
/// How long people do not see that a release waits for its turn: most have theirs sooner, and are one write then.
pub const TOLD_WITHIN: Duration = Duration::from_mins(1);
/// Most claims that one write changes.
pub const MOST_CHANGES: usize = 100;

/// The updates that wait, by volume; volumes without any are not in it.
#[derive(Clone, Debug, Default)]
pub struct Batches {
    waiting: BTreeMap<ObjectKey, Batch>,
    /// Those that can be written, by the time at which they are.
    due: BTreeSet<(Duration, ObjectKey)>,
}

#[derive(Clone, Debug, Default)]
struct Batch {
    /// When the first of its updates has to be written.
    due_at: Duration,
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
        (!self.is_writing && !self.is_empty()).then_some(self.due_at)
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
    /// Adds an update, to be written within [`WINDOW`]. Of one claim the furthest state is written.
    pub fn add(&mut self, volume: &ObjectKey, update: Update, now: Duration) {
        self.add_within(volume, update, WINDOW, now);
    }

    /// Adds an update that may wait longer for others.
    pub fn add_within(&mut self, volume: &ObjectKey, update: Update, within: Duration, now: Duration) {
        self.waiting.entry(volume.clone()).or_default();
        self.change(volume, |batch| {
            let due_at = now + within;
            batch.due_at = if batch.is_empty() { due_at } else { batch.due_at.min(due_at) };
            match update {
                Update::Touch => batch.is_touched = true,
                Update::Release { alloc_id, state, error } => {
                    let known = batch.claims.entry(alloc_id).or_insert((state, String::new()));
                    *known = (known.0.max(state), error);
                }
            }
            if batch.claims.len() >= MOST_CHANGES {
                batch.due_at = batch.due_at.min(now);
            }
        });
    }

    /// Nothing else will come for a volume soon: its updates are due now.
    pub fn close(&mut self, volume: &ObjectKey, now: Duration) {
        self.change(volume, |batch| batch.due_at = batch.due_at.min(now));
    }

    /// The next write: a volume and its updates. It is under way until [`Batches::written`].
    pub fn next(&mut self, now: Duration) -> Option<(ObjectKey, Vec<Update>)> {
        let (_, volume) = self.due.first().filter(|(at, _)| *at <= now)?.clone();
        let updates = self.change(&volume, |batch| {
            batch.is_writing = true;
            batch.take()
        });
        Some((volume, updates.unwrap_or_default()))
    }

    /// The write of a volume was answered.
    pub fn written(&mut self, volume: &ObjectKey) {
        let is_done = self.change(volume, |batch| {
            batch.is_writing = false;
            batch.is_empty()
        });
        if is_done == Some(true) {
            self.waiting.remove(volume);
        }
    }

    /// A volume is gone, and with it what waits for it.
    pub fn forget(&mut self, volume: &ObjectKey) {
        if let Some(at) = self.waiting.remove(volume).and_then(|batch| batch.due()) {
            self.due.remove(&(at, volume.clone()));
        }
    }

    /// When the next write is due.
    pub fn wake_at(&self) -> Option<Duration> {
        self.due.first().map(|(at, _)| *at)
    }

    /// How many volumes have updates that wait, or a write under way.
    pub fn n_waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Changes what waits for a volume, and when it is due with it.
    fn change<T>(&mut self, volume: &ObjectKey, change: impl FnOnce(&mut Batch) -> T) -> Option<T> {
        let batch = self.waiting.get_mut(volume)?;
        let before = batch.due();
        let result = change(batch);
        let after = batch.due();
        if before != after {
            before.map(|at| self.due.remove(&(at, volume.clone())));
            after.map(|at| self.due.insert((at, volume.clone())));
        }
        Some(result)
    }
}
