//! When a blocking read is answered (`spec/api.md` 1.1).

use std::time::Duration;

use crate::query::Blocking;

/// The random part of a wait is at most this fraction of it, so that those who began together do not end together.
const JITTER: u32 = 16;

impl Blocking {
    /// How long it waits; `random` from 0 to 1 is drawn for each read.
    pub fn waits(&self, random: f64) -> Duration {
        self.wait + (self.wait / JITTER).mul_f64(random.clamp(0.0, 1.0))
    }

    /// Whether there is something newer than the caller knows.
    pub const fn is_answered_by(&self, index: u64) -> bool {
        index > self.index
    }

    /// The index of an answer after the wait, when nothing is newer. A replica that began later than another may not
    /// know of the last deletion, whose index the caller has: it never gets a lower one.
    pub fn settled(&self, index: u64) -> u64 {
        index.max(self.index)
    }
}

/// The index that is told: never 0, with which a client would not wait next time.
pub fn told(index: u64) -> u64 {
    index.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_grows_by_at_most_a_sixteenth() {
        let read = Blocking { index: 7, wait: Duration::from_secs(2) };
        assert_eq!(read.waits(0.0), Duration::from_secs(2));
        assert_eq!(read.waits(1.0), Duration::from_millis(2125));
        assert_eq!(read.waits(9.0), Duration::from_millis(2125));
        assert_eq!((read.is_answered_by(7), read.is_answered_by(8)), (false, true));
        assert_eq!((read.settled(5), read.settled(9), told(0), told(3)), (7, 9, 1, 3));
    }
}
