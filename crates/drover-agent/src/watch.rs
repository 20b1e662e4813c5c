//! A value of which all watchers see the newest one.
//!
//! As tokio's channel of that name, but that watchers wake in the order in which they began to wait: tokio draws lots
//! among them, and a simulated run would then differ from the next one with the same seed. Must never know what the
//! value is.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use tokio::sync::Notify;

/// No sender is left that could change the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the value does not change any more")]
pub(crate) struct Closed;

#[derive(Debug)]
struct Watched<T> {
    value: RwLock<T>,
    version: AtomicU64,
    n_senders: AtomicUsize,
    changed: Notify,
}

/// A look at the value; it does not change meanwhile.
#[derive(Debug)]
pub(crate) struct Ref<'a, T>(RwLockReadGuard<'a, T>);

impl<T> Deref for Ref<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// Changes the value.
#[derive(Debug)]
pub(crate) struct Sender<T>(Arc<Watched<T>>);

/// Sees the value and its changes.
#[derive(Debug)]
pub(crate) struct Receiver<T> {
    shared: Arc<Watched<T>>,
    seen: u64,
}

/// A value and its first watcher.
pub(crate) fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
    let sender = Sender::new(value);
    let receiver = sender.subscribe();
    (sender, receiver)
}

impl<T> Sender<T> {
    /// A value without a watcher yet.
    pub(crate) fn new(value: T) -> Self {
        Self(Arc::new(Watched {
            value: RwLock::new(value),
            version: AtomicU64::new(0),
            n_senders: AtomicUsize::new(1),
            changed: Notify::new(),
        }))
    }

    /// A watcher that has seen the value as it is now.
    pub(crate) fn subscribe(&self) -> Receiver<T> {
        Receiver { shared: Arc::clone(&self.0), seen: self.0.version.load(Ordering::Acquire) }
    }

    /// The value now.
    pub(crate) fn borrow(&self) -> Ref<'_, T> {
        self.0.read()
    }

    /// Sets the value.
    pub(crate) fn send_replace(&self, value: T) {
        self.send_modify(|known| *known = value);
    }

    /// Changes the value.
    pub(crate) fn send_modify(&self, change: impl FnOnce(&mut T)) {
        self.send_if_modified(|value| {
            change(value);
            true
        });
    }

    /// Changes the value; watchers hear of it only when `change` says so. Returns what it says.
    pub(crate) fn send_if_modified(&self, change: impl FnOnce(&mut T) -> bool) -> bool {
        let mut value = self.0.value.write().unwrap_or_else(PoisonError::into_inner);
        let is_changed = change(&mut value);
        if is_changed {
            self.0.version.fetch_add(1, Ordering::Release);
        }
        drop(value);
        if is_changed {
            self.0.changed.notify_waiters();
        }
        is_changed
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.n_senders.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.0.n_senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.changed.notify_waiters();
        }
    }
}

impl<T> Watched<T> {
    fn read(&self) -> Ref<'_, T> {
        Ref(self.value.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), seen: self.seen }
    }
}

impl<T> Receiver<T> {
    /// The value now.
    pub(crate) fn borrow(&self) -> Ref<'_, T> {
        self.shared.read()
    }

    /// The value now, which then counts as seen.
    pub(crate) fn borrow_and_update(&mut self) -> Ref<'_, T> {
        let value = self.shared.read();
        self.seen = self.shared.version.load(Ordering::Acquire);
        value
    }

    /// The value counts as seen.
    pub(crate) fn mark_unchanged(&mut self) {
        self.seen = self.shared.version.load(Ordering::Acquire);
    }

    /// The value counts as not seen yet.
    pub(crate) fn mark_changed(&mut self) {
        self.seen = self.shared.version.load(Ordering::Acquire).wrapping_sub(1);
    }

    /// Waits for a value that has not been seen; it then counts as seen.
    pub(crate) async fn changed(&mut self) -> Result<(), Closed> {
        loop {
            // Made before the look: what changes in between wakes it.
            let changed = self.shared.changed.notified();
            let version = self.shared.version.load(Ordering::Acquire);
            if std::mem::replace(&mut self.seen, version) != version {
                return Ok(());
            }
            if self.shared.n_senders.load(Ordering::Acquire) == 0 {
                return Err(Closed);
            }
            changed.await;
        }
    }

    /// Waits until the value is as wanted, which it may be already; it then counts as seen.
    pub(crate) async fn wait_for(&mut self, mut is_wanted: impl FnMut(&T) -> bool) -> Result<Ref<'_, T>, Closed> {
        loop {
            let changed = self.shared.changed.notified();
            let is_closed = self.shared.n_senders.load(Ordering::Acquire) == 0;
            {
                let value = self.shared.read();
                self.seen = self.shared.version.load(Ordering::Acquire);
                if is_wanted(&value) {
                    return Ok(value);
                }
            }
            if is_closed {
                return Err(Closed);
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    use tokio::task::JoinSet;

    #[tokio::test]
    async fn watchers_wake_in_the_order_in_which_they_waited() {
        for _ in 0..20 {
            let (sender, receiver) = channel(0);
            let order = Arc::new(Mutex::new(Vec::new()));
            let mut tasks = JoinSet::new();
            for name in 0..16 {
                let (mut receiver, order) = (receiver.clone(), Arc::clone(&order));
                tasks.spawn(async move {
                    receiver.changed().await.expect("a sender");
                    order.lock().expect("no panic").push(name);
                });
            }
            tokio::task::yield_now().await;
            sender.send_replace(1);
            while tasks.join_next().await.is_some() {}
            assert_eq!(*order.lock().expect("no panic"), (0..16).collect::<Vec<_>>());
        }
    }

    #[tokio::test]
    async fn a_change_before_the_wait_is_not_missed_and_is_seen_once() {
        let (sender, mut receiver) = channel(0);
        sender.send_replace(1);
        receiver.changed().await.expect("a change");
        assert_eq!(*receiver.borrow(), 1);
        drop(sender);
        assert_eq!(receiver.changed().await, Err(Closed));
        receiver.mark_changed();
        receiver.changed().await.expect("it counts as new");
    }

    #[tokio::test]
    async fn waiting_ends_with_the_last_sender_unless_the_value_is_there() {
        let (sender, mut receiver) = channel(3);
        let other = sender.clone();
        drop(sender);
        assert!(other.send_if_modified(|value| std::mem::replace(value, 4) != 4));
        drop(other);
        assert_eq!(*receiver.wait_for(|value| *value == 4).await.expect("it is there"), 4);
        assert!(receiver.wait_for(|value| *value == 5).await.is_err());
    }
}
