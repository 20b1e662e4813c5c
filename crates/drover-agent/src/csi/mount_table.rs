//! What is mounted here, or was and is to be unmounted. Those that wait for a change are told.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::mount_record::{MountRecord, Mounts};
use crate::watch;

#[derive(Clone, Debug)]
pub(super) struct Mount {
    pub(super) record: MountRecord,
    /// It is to be unmounted.
    pub(super) is_over: bool,
    pub(super) is_busy: bool,
    pub(super) error: String,
    pub(super) n_failed: u32,
    pub(super) retry_at: Option<Instant>,
}

impl Mount {
    /// One that is mounted, or is to be.
    pub(super) fn new(record: MountRecord) -> Self {
        Self { record, is_over: false, is_busy: false, error: String::new(), n_failed: 0, retry_at: None }
    }

    /// Whether it is to be unmounted now.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.is_over && !self.is_busy && self.retry_at.is_none_or(|at| at <= now)
    }
}

/// An allocation's uid and the name of the volume in its group.
pub(super) type MountKey = (String, String);

/// The mounts of this node.
#[derive(Debug)]
pub(super) struct MountTable {
    mounts: Mutex<BTreeMap<MountKey, Mount>>,
    /// Told when a mount has changed.
    changed: watch::Sender<u64>,
}

impl MountTable {
    /// What an earlier life has mounted.
    pub(super) fn new(saved: Mounts) -> Self {
        let mounts = saved.into_iter().flat_map(|(uid, volumes)| {
            volumes.into_iter().map(move |(name, record)| ((uid.clone(), name), Mount::new(record)))
        });
        Self { mounts: Mutex::new(mounts.collect()), changed: watch::Sender::new(0) }
    }

    /// The mounts, for as long as this is held.
    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<MountKey, Mount>> {
        self.mounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells of a change.
    pub(super) fn tell(&self) {
        self.changed.send_modify(|n| *n += 1);
    }

    /// Sees every change that is told.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}
