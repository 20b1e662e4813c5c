//! Waiting for the end of allocations that another one replaces: here by their runners, elsewhere by the API server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drover_api::Allocation;
use drover_api::allocation::ClientStatus;
use drover_store::{Change, Key, Selection, Store, StoreError};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};

use super::plan::PreviousEnd;
use crate::random::Random;
use crate::watch;

/// The pause after an error about a previous allocation.
const PREVIOUS_RETRY: Duration = Duration::from_secs(5);

/// The ends of the allocations that run here, by namespace and name; clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Ends(Arc<Mutex<BTreeMap<Key, watch::Receiver<bool>>>>);

impl Ends {
    /// An allocation runs here, and has ended once this shows it.
    pub(super) fn insert(&self, key: Key, ended: watch::Receiver<bool>) {
        self.lock().insert(key, ended);
    }

    /// Nothing of the allocation is here any more.
    pub(super) fn remove(&self, key: &Key) {
        self.lock().remove(key);
    }

    /// Makes the function by which runners wait for the end of other allocations.
    pub(super) fn waiter<S: Store>(&self, store: S, random: Random) -> PreviousEnd {
        let ends = self.clone();
        Arc::new(move |allocation: &Allocation, name: &str| -> BoxFuture<'static, ()> {
            let key = Key { namespace: allocation.metadata.namespace.clone(), name: name.to_owned() };
            let here = ends.lock().get(&key).cloned();
            match here {
                Some(mut ended) => async move {
                    // A runner that is gone has ended.
                    drop(ended.wait_for(|ended| *ended).await);
                }
                .boxed(),
                None => elsewhere_end(store.clone(), key, random.clone()).boxed(),
            }
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, watch::Receiver<bool>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Watches one allocation of another node until it has ended, is unknown or gone, or may not be seen.
async fn elsewhere_end<S: Store>(store: S, key: Key, random: Random) {
    loop {
        match store.get::<Allocation>(&key).await {
            Ok(Some(other)) if !is_ended(&other) => break,
            Ok(_) | Err(StoreError::Forbidden(_) | StoreError::NotFound(_)) => return,
            Err(error) => {
                tracing::warn!(error = %error, allocation = %key, "a previous allocation is not read yet");
                tokio::time::sleep(random.jitter(PREVIOUS_RETRY)).await;
            }
        }
    }
    let fields = Some(format!("metadata.name={}", key.name));
    let mut changes = store.watch::<Allocation>(Selection { namespace: key.namespace, fields, labels: None });
    let mut is_there = false;
    while let Some(change) = changes.next().await {
        match change {
            Change::Restarted => is_there = false,
            Change::Present(other) if is_ended(&other) => return,
            Change::Present(_) | Change::Malformed(..) => is_there = true,
            Change::InSync if !is_there => return,
            Change::Gone(_) => return,
            Change::InSync | Change::Interrupted(_) => {}
        }
    }
}

fn is_ended(allocation: &Allocation) -> bool {
    allocation
        .status
        .as_ref()
        .is_some_and(|status| status.client_status.is_terminal() || status.client_status == ClientStatus::Unknown)
}
