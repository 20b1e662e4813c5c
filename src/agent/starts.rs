//! How many tasks are being started right now, for whoever lets them go first.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts starts under way; clones share the count.
#[derive(Clone, Debug, Default)]
pub(crate) struct Starts(Arc<AtomicUsize>);

/// A start under way, until it is dropped.
#[derive(Debug)]
pub(crate) struct UnderWay(Arc<AtomicUsize>);

impl Starts {
    /// Counts one more.
    pub(crate) fn begin(&self) -> UnderWay {
        self.0.fetch_add(1, Ordering::Relaxed);
        UnderWay(Arc::clone(&self.0))
    }

    /// Whether there is any.
    pub(crate) fn are_under_way(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_counts_until_it_is_over() {
        let starts = Starts::default();
        let (first, second) = (starts.begin(), starts.clone().begin());
        drop(first);
        assert!(starts.are_under_way());
        drop(second);
        assert!(!starts.are_under_way());
    }
}
