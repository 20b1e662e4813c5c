//! The plugins of this node: which there are, which tasks of plugins are to be followed, and whom a change is told.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::plugin_task::PluginTask;
use super::registry::Registry;
use crate::watch;

/// The plugins, locked each by itself.
#[derive(Debug)]
pub(super) struct PluginTable {
    registry: Mutex<Registry>,
    /// Told when a plugin comes, goes or changes its health.
    changed: watch::Sender<u64>,
    /// Tasks that are plugins and are to be followed.
    begun: Mutex<Vec<PluginTask>>,
    /// Plugins of the cluster beside which a task runs the same; users were told.
    doubled: Mutex<BTreeSet<String>>,
}

impl Default for PluginTable {
    fn default() -> Self {
        Self {
            registry: Mutex::default(),
            changed: watch::Sender::new(0),
            begun: Mutex::default(),
            doubled: Mutex::default(),
        }
    }
}

impl PluginTable {
    /// The registry, for as long as this is held.
    pub(super) fn registry(&self) -> MutexGuard<'_, Registry> {
        lock(&self.registry)
    }

    /// Tasks that are plugins and are not followed yet.
    pub(super) fn begun(&self) -> MutexGuard<'_, Vec<PluginTask>> {
        lock(&self.begun)
    }

    /// Whether it is the first time that a job's task and the cluster both run this plugin.
    pub(super) fn is_first_time_twofold(&self, id: &str) -> bool {
        lock(&self.doubled).insert(id.to_owned())
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
