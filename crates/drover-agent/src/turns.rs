//! One change of a thing after the other, for things that are told apart by their ids.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard};

type Turn = tokio::sync::RwLock<()>;

/// The turns of things, by their ids. A turn may be held on a thread that waits for the kernel: it goes on although the
/// caller does not wait for it any more.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<BTreeMap<String, Arc<Turn>>>);

impl Turns {
    /// Waits until nothing else holds a turn of this id, and holds it alone.
    pub(crate) async fn take(&self, id: &str) -> OwnedRwLockWriteGuard<()> {
        self.of(id).write_owned().await
    }

    /// Waits until nothing holds the turn of this id alone, and holds it with others.
    pub(crate) async fn share(&self, id: &str) -> OwnedRwLockReadGuard<()> {
        self.of(id).read_owned().await
    }

    fn of(&self, id: &str) -> Arc<Turn> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|known, turn| known == id || Arc::strong_count(turn) > 1);
        Arc::clone(all.entry(id.to_owned()).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_thing_is_changed_by_one_at_a_time_and_others_meanwhile() {
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

    #[tokio::test]
    async fn those_who_share_a_turn_keep_out_who_wants_it_alone() {
        let turns = Turns::default();
        let shared = [turns.share("a").await, turns.share("a").await];
        let alone = turns.take("a");
        tokio::pin!(alone);
        assert!(futures::poll!(alone.as_mut()).is_pending());
        drop(shared);
        let _held = alone.await;
    }
}
