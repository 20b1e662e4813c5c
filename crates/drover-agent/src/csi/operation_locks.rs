//! Locks of volumes and of plugins' controllers: one operation of each at a time on this node.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Held while a volume, or a plugin's controller, is worked with.
pub(super) type OperationLock = Arc<tokio::sync::Mutex<()>>;

/// The locks that are held or waited for.
#[derive(Debug, Default)]
pub(super) struct OperationLocks(Mutex<BTreeMap<(String, String), OperationLock>>);

impl OperationLocks {
    /// That of a volume, by its namespace and id.
    pub(super) fn of_volume(&self, namespace: &str, id: &str) -> OperationLock {
        self.of((namespace.to_owned(), id.to_owned()))
    }

    /// That of a plugin's controller.
    pub(super) fn of_controller(&self, plugin: &str) -> OperationLock {
        self.of((String::new(), plugin.to_owned()))
    }

    fn of(&self, of: (String, String)) -> OperationLock {
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A holder has a clone of its lock.
        locks.retain(|_, known| Arc::strong_count(known) > 1);
        Arc::clone(locks.entry(of).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_shared_and_what_is_not_is_forgotten() {
        let locks = OperationLocks::default();
        let held = locks.of_volume("shop", "db");
        let guard = held.try_lock().expect("free");
        assert!(locks.of_volume("shop", "db").try_lock().is_err());
        assert!(locks.of_volume("other", "db").try_lock().is_ok());
        assert!(locks.of_controller("db").try_lock().is_ok());
        drop(guard);
        assert!(locks.of_volume("shop", "db").try_lock().is_ok());
        drop(held);
        drop(locks.of_controller("a"));
        assert_eq!(locks.0.lock().expect("no panic").len(), 1, "only the newest one is left");
    }
}
