//! Pauses between tries, which grow with each one that failed.

use std::time::Duration;

/// Pauses that double from the shortest to the longest. With [`Backoff::spread`] they are spread at random, so that a
/// fleet that lost its API server does not come back in step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    shortest: Duration,
    longest: Duration,
    n_failed: u32,
}

impl Backoff {
    /// Pauses between these bounds; the first one is the shortest.
    pub const fn new(shortest: Duration, longest: Duration) -> Self {
        Self { shortest, longest, n_failed: 0 }
    }

    /// The pause after so many tries in a row that failed, at least one.
    pub fn after(self, n_failed: u32) -> Duration {
        let doublings = n_failed.saturating_sub(1).min(31);
        self.shortest.saturating_mul(1_u32 << doublings).min(self.longest)
    }

    /// The pause after another try that failed.
    pub fn failed(&mut self) -> Duration {
        self.n_failed = self.n_failed.saturating_add(1);
        self.after(self.n_failed)
    }

    /// A try worked: the next pause is the shortest again.
    pub const fn worked(&mut self) {
        self.n_failed = 0;
    }

    /// From half of a pause to all of it, at random ("equal jitter"): no two clients stay in step, and none comes back
    /// at once.
    pub fn spread(pause: Duration, rng: &mut fastrand::Rng) -> Duration {
        let half = pause / 2;
        half + half.mul_f64(rng.f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn pauses_double_up_to_the_longest_and_begin_again_after_a_success() {
        let mut backoff = Backoff::new(SECOND, 5 * SECOND);
        let pauses: Vec<u64> = (0..5).map(|_| backoff.failed().as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 5, 5]);
        backoff.worked();
        assert_eq!(backoff.failed(), SECOND);
        assert_eq!(backoff.after(u32::MAX), 5 * SECOND);
    }

    #[test]
    fn clients_that_lost_the_same_server_do_not_come_back_in_step() {
        let pauses: Vec<Duration> =
            (0..1000).map(|seed| Backoff::spread(SECOND, &mut fastrand::Rng::with_seed(seed))).collect();
        assert!(pauses.iter().all(|pause| *pause >= SECOND / 2 && *pause < SECOND), "from half to all of it");
        for tenth in 0..10 {
            let from = SECOND / 2 + SECOND / 20 * tenth;
            let n = pauses.iter().filter(|pause| **pause >= from && **pause < from + SECOND / 20).count();
            assert!((60..140).contains(&n), "{n} of 1000 in the tenth {tenth}");
        }
    }
}
