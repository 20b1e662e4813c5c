//! When a claim is tried again that others stand in the way of (`spec/volumes.md` 6.1): after 2 s, 4 s, 8 s and so on,
//! then each minute.
//!
//! Every change of a volume has its claims tried anyway; this is for a change that no watch shows. Time is that of one
//! process's monotonic clock, as a duration since its start. Only volumes with a waiting claim are held. Must never
//! know what a try does, nor give up: who waits does that.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::ids::ObjectKey;

/// The pause after the first failure.
pub const FIRST_PAUSE: Duration = Duration::from_secs(2);
/// The longest pause.
pub const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// How long what has failed so often is left alone.
pub fn pause(n_failed: u32) -> Duration {
    let doublings = n_failed.saturating_sub(1).min(16);
    (FIRST_PAUSE * 2_u32.pow(doublings)).min(LONGEST_PAUSE)
}

/// The volumes whose claims are not free, and when each is tried again.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    waiting: BTreeMap<ObjectKey, Wait>,
    next: BTreeSet<(Duration, ObjectKey)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Wait {
    n_tried: u32,
    /// When it is tried again; none while it is being tried.
    at: Option<Duration>,
}

impl Waits {
    /// A claim of the volume was not free. A try before its time, because the volume has changed, moves the next one
    /// nowhere.
    pub fn refused(&mut self, volume: &ObjectKey, now: Duration) {
        let wait = self.waiting.entry(volume.clone()).or_default();
        if wait.at.is_none() {
            wait.n_tried = wait.n_tried.saturating_add(1);
            let at = now + pause(wait.n_tried);
            wait.at = Some(at);
            self.next.insert((at, volume.clone()));
        }
    }

    /// No claim waits for the volume.
    pub fn settled(&mut self, volume: &ObjectKey) {
        if let Some(at) = self.waiting.remove(volume).and_then(|wait| wait.at) {
            self.next.remove(&(at, volume.clone()));
        }
    }

    /// The next volume whose claims are tried now.
    pub fn due(&mut self, now: Duration) -> Option<ObjectKey> {
        let (at, volume) = self.next.first().filter(|(at, _)| *at <= now).cloned()?;
        self.next.remove(&(at, volume.clone()));
        if let Some(wait) = self.waiting.get_mut(&volume) {
            wait.at = None;
        }
        Some(volume)
    }

    /// When there is something to try next.
    pub fn wake_at(&self) -> Option<Duration> {
        self.next.first().map(|(at, _)| *at)
    }
}
