//! Virtual time: the runtime's paused clock tells how much of it has passed, and each process may be wrong by an
//! offset.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use drover_clock::Clock;

/// The clock of one process.
#[derive(Debug)]
pub(super) struct VirtualClock {
    start: Timestamp,
    began: Instant,
    /// By how much this process is wrong, in milliseconds.
    offset: AtomicI64,
}

impl VirtualClock {
    /// A clock that shows `start` now. Must be made within the runtime.
    pub(super) fn new(start: Timestamp) -> Self {
        Self { start, began: Instant::now(), offset: AtomicI64::new(0) }
    }

    /// Another process's clock, which is right.
    pub(super) fn other(&self) -> Self {
        Self { start: self.start, began: self.began, offset: AtomicI64::new(0) }
    }

    /// Time since the start, as it is.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// The moment so long after the start.
    pub(super) fn instant(&self, after: Duration) -> Instant {
        self.began + after
    }

    /// Sets the process's clock ahead.
    pub(super) fn step(&self, by: Duration) {
        self.offset.fetch_add(i64::try_from(by.as_millis()).unwrap_or(i64::MAX), Ordering::Relaxed);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        let passed = SignedDuration::try_from(self.elapsed()).unwrap_or(SignedDuration::MAX);
        let wrong = SignedDuration::from_millis(self.offset.load(Ordering::Relaxed));
        self.start.saturating_add(passed.saturating_add(wrong)).unwrap_or(Timestamp::MAX)
    }
}
