//! The agent's one source of randomness: seeded once, shared, so that a test can fix it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A shared random source.
#[derive(Clone, Debug)]
pub(crate) struct Random(Arc<Mutex<fastrand::Rng>>);

impl Random {
    /// A source with a seed of the operating system.
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(fastrand::Rng::new())))
    }

    /// A source that gives the same numbers again.
    #[cfg(any(test, feature = "simulated"))]
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))))
    }

    /// A source of its own, which follows from this one as it is now: what is drawn of it later moves nothing here.
    pub(crate) fn fork(&self) -> Self {
        Self(Arc::new(Mutex::new(self.with(fastrand::Rng::fork))))
    }

    /// A number in [0, 1).
    pub(crate) fn unit(&self) -> f64 {
        self.with(fastrand::Rng::f64)
    }

    /// Uniform in [0, span).
    pub(crate) fn below(&self, span: Duration) -> Duration {
        span.mul_f64(self.unit())
    }

    /// One of the places below `n`; 0 where there is none.
    pub(crate) fn place(&self, n: usize) -> usize {
        if n == 0 { 0 } else { self.with(|rng| rng.usize(..n)) }
    }

    /// `base` and up to as much again, so that many agents do not act at the same moment.
    pub(crate) fn jitter(&self, base: Duration) -> Duration {
        base + self.below(base)
    }

    /// Eight hexadecimal digits.
    pub(crate) fn tag(&self) -> String {
        self.with(|rng| format!("{:08x}", rng.u32(..)))
    }

    fn with<T>(&self, draw: impl FnOnce(&mut fastrand::Rng) -> T) -> T {
        draw(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
