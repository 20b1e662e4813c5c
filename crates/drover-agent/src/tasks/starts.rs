//! How many tasks are being started right now, for those that let them go first.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Counts starts under way; clones share the count.
#[derive(Clone, Debug, Default)]
pub(crate) struct Starts(Arc<Count>);

#[derive(Debug, Default)]
struct Count {
    under_way: AtomicUsize,
    over: Notify,
}

/// A start under way, until it is dropped.
#[derive(Debug)]
pub(crate) struct UnderWay(Arc<Count>);

impl Starts {
    /// Counts one more.
    pub(crate) fn begin(&self) -> UnderWay {
        self.0.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay(Arc::clone(&self.0))
    }

    /// Whether there is any.
    pub(crate) fn are_under_way(&self) -> bool {
        self.0.under_way.load(Ordering::Relaxed) > 0
    }

    /// Ready when the last start was over since this was asked last. For one who waits.
    pub(crate) async fn over(&self) {
        self.0.over.notified().await;
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if self.0.under_way.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.over.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_start_counts_until_it_is_over() {
        let starts = Starts::default();
        let (first, second) = (starts.begin(), starts.clone().begin());
        drop(first);
        assert!(starts.are_under_way());
        drop(second);
        assert!(!starts.are_under_way());
        starts.over().await;
    }
}
