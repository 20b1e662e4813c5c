//! One change of a network after the other.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedMutexGuard;

type Turn = tokio::sync::Mutex<()>;

/// The turns of networks, by their ids. What waits for the kernel on a thread holds its turn there: it goes on although
/// the allocation does not wait for it any more.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<BTreeMap<String, Arc<Turn>>>);

impl Turns {
    /// Waits for the network's turn.
    pub(super) async fn take(&self, id: &str) -> OwnedMutexGuard<()> {
        let turn = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|known, turn| known == id || Arc::strong_count(turn) > 1);
            Arc::clone(all.entry(id.to_owned()).or_default())
        };
        turn.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_network_is_changed_by_one_at_a_time_and_others_meanwhile() {
        let turns = Turns::default();
        let first = turns.take("a").await;
        let second = turns.take("a");
        tokio::pin!(second);
        assert!(futures::poll!(second.as_mut()).is_pending());
        let other = turns.take("b").await;
        drop((first, other));
        let _held = second.await;
        assert_eq!(turns.0.lock().expect("a lock").len(), 2);
    }
}
