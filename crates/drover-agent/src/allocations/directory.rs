//! Who runs on this node, for requests that come from outside the watch.
//!
//! Entered and left by the owner of the runners. Must never know what a request is about.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, mpsc};

use crate::allocations::commands::AllocCommand;
use crate::node::alloc_dir::AllocDir;
use drover_store::Key;

/// What requests need to know of an allocation.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    /// Its namespace and name.
    pub(crate) key: Key,
    /// Its runner.
    pub(crate) commands: mpsc::Sender<AllocCommand>,
    /// Its files.
    pub(crate) dir: AllocDir,
    /// The names of its tasks.
    pub(crate) tasks: Vec<String>,
}

/// The allocations by uid; clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Directory {
    entries: Arc<Mutex<BTreeMap<String, Listed>>>,
    /// Those that users want to be given up.
    unwanted: Arc<(Mutex<BTreeSet<String>>, Notify)>,
}

impl Directory {
    /// Enters an allocation.
    pub(crate) fn enter(&self, uid: &str, listed: Listed) {
        self.lock().insert(uid.to_owned(), listed);
    }

    /// Takes an allocation out.
    pub(crate) fn leave(&self, uid: &str) {
        self.lock().remove(uid);
    }

    /// Finds an allocation by its uid, the unique beginning of it, or `namespace/name`.
    pub(crate) fn find(&self, id: &str) -> Option<(String, Listed)> {
        let entries = self.lock();
        if let Some(listed) = entries.get(id) {
            return Some((id.to_owned(), listed.clone()));
        }
        let mut found = entries.iter().filter(|(uid, listed)| {
            let is_named = listed.key.name == id || listed.key.to_string() == id;
            is_named || (id.len() >= SHORTEST && uid.starts_with(id))
        });
        match (found.next(), found.next()) {
            (Some((uid, listed)), None) => Some((uid.clone(), listed.clone())),
            (Some(_), Some(_)) | (None, _) => None,
        }
    }

    /// All allocations.
    pub(crate) fn all(&self) -> Vec<(String, Listed)> {
        self.lock().iter().map(|(uid, listed)| (uid.clone(), listed.clone())).collect()
    }

    /// Asks the owner of the runners to give an ended allocation up.
    pub(crate) fn give_up(&self, uid: &str) {
        let (unwanted, asked) = &*self.unwanted;
        unwanted.lock().unwrap_or_else(PoisonError::into_inner).insert(uid.to_owned());
        asked.notify_one();
    }

    /// Waits until some are to be given up. May be dropped and called again.
    pub(crate) async fn unwanted(&self) -> BTreeSet<String> {
        let (unwanted, asked) = &*self.unwanted;
        loop {
            let all = std::mem::take(&mut *unwanted.lock().unwrap_or_else(PoisonError::into_inner));
            if !all.is_empty() {
                return all;
            }
            asked.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Listed>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The fewest characters of a uid that may stand for it.
const SHORTEST: usize = 4;
