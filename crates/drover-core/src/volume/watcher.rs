//! When a volume is looked at for claims to release (`spec/volumes.md` 4): after each change, in a pace of its own, and
//! not at all while nothing happens to it.
//!
//! Time is that of one process's monotonic clock, as a duration since its start. The watcher holds only volumes that
//! changed a while ago at most, so that idle ones cost nothing; it ends with its owner's term. Must never know what a
//! look does.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::ids::ObjectKey;

/// How often a volume is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Between two looks at one volume, in the long run.
    pub interval: Duration,
    /// So many looks may follow each other at once.
    pub burst: u32,
    /// A volume that was not looked at for so long is no longer watched.
    pub settle_after: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { interval: Duration::from_secs(1), burst: 3, settle_after: Duration::from_mins(5) }
    }
}

/// The volumes that changed, and when each is looked at.
#[derive(Clone, Debug)]
pub struct Watcher {
    pace: Pace,
    active: BTreeMap<ObjectKey, Watch>,
    /// What is next for each volume: a look, or its end. A volume that is being looked at is not in it.
    next: BTreeSet<(Duration, ObjectKey)>,
}

#[derive(Clone, Copy, Debug)]
struct Watch {
    /// A look is wanted; further changes add nothing to it.
    is_queued: bool,
    /// A look is under way.
    is_looking: bool,
    /// When the looks so far would be over if they were made one for each interval.
    spent_until: Duration,
    /// When it ends, if no look is wanted.
    settles_at: Duration,
}

impl Watcher {
    /// Watches nothing yet.
    pub fn new(pace: Pace) -> Self {
        Self { pace, active: BTreeMap::new(), next: BTreeSet::new() }
    }

    /// A volume changed, or a new term found it: it is looked at.
    pub fn changed(&mut self, volume: &ObjectKey, now: Duration) {
        let fresh =
            Watch { is_queued: false, is_looking: false, spent_until: now, settles_at: now + self.pace.settle_after };
        let watch = *self.active.entry(volume.clone()).or_insert(fresh);
        self.set(volume, Watch { is_queued: true, ..watch });
    }

    /// A volume is gone. A look at it that is under way may finish.
    pub fn gone(&mut self, volume: &ObjectKey) {
        if let Some(watch) = self.active.remove(volume) {
            self.next.remove(&(self.due(watch), volume.clone()));
        }
    }

    /// The next volume to look at now; its look is under way until [`Watcher::finish`]. Ends what has settled.
    pub fn look(&mut self, now: Duration) -> Option<ObjectKey> {
        while let Some((_, volume)) = self.next.first().filter(|(at, _)| *at <= now).cloned() {
            let Some(watch) = self.active.get(&volume).copied() else { break };
            if !watch.is_queued {
                self.gone(&volume);
                continue;
            }
            let spent_until = watch.spent_until.max(now) + self.pace.interval;
            self.set(&volume, Watch { is_queued: false, is_looking: true, spent_until, ..watch });
            return Some(volume);
        }
        None
    }

    /// A look is over; a change that came meanwhile is looked at next.
    pub fn finish(&mut self, volume: &ObjectKey, now: Duration) {
        if let Some(watch) = self.active.get(volume).copied() {
            self.set(volume, Watch { is_looking: false, settles_at: now + self.pace.settle_after, ..watch });
        }
    }

    /// When there is something to do next: a look, or an end.
    pub fn wake_at(&self) -> Option<Duration> {
        self.next.first().map(|(at, _)| *at)
    }

    /// How many volumes are watched.
    pub fn n_active(&self) -> usize {
        self.active.len()
    }

    fn set(&mut self, volume: &ObjectKey, watch: Watch) {
        if let Some(before) = self.active.insert(volume.clone(), watch) {
            self.next.remove(&(self.due(before), volume.clone()));
        }
        if !watch.is_looking {
            self.next.insert((self.due(watch), volume.clone()));
        }
    }

    /// When something is due for a volume without a change.
    fn due(&self, watch: Watch) -> Duration {
        if !watch.is_queued {
            return watch.settles_at;
        }
        watch.spent_until.saturating_sub(self.pace.interval * self.pace.burst.saturating_sub(1))
    }
}
