//! The loop that owns the node's facts: gathers the first ones, publishes what the node is, tells of drivers whose
//! health changed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use drover_api::client_node::{DriverInfo, Fingerprint};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::batch::{Batch, Fact, FactChange, Manager};
use super::meta::{Changes, Meta};
use crate::drivers::Drivers;
use crate::node::view::NodeNews;
use crate::state::{Flaws, StateError, StateStore};
use crate::watch;

/// How long the first facts are gathered.
const BATCH: Duration = Duration::from_secs(50);
/// How often drivers are asked.
const DRIVERS_EVERY: Duration = Duration::from_secs(30);
/// Facts that wait for the loop; who tells waits when it is full.
const QUEUE: usize = 64;

/// Owns the node's facts.
pub(crate) struct Keeper {
    batch: Batch,
    facts: mpsc::Receiver<Fact>,
    print: watch::Sender<Fingerprint>,
    news: mpsc::Sender<NodeNews>,
    /// Open until the first facts were gathered.
    gathered: watch::Sender<bool>,
}

/// What others hold of the loop.
pub(crate) struct KeeperHandles {
    /// Where facts are told.
    pub(crate) facts: mpsc::Sender<Fact>,
    /// What the node is.
    pub(crate) print: watch::Receiver<Fingerprint>,
    /// Whether the first facts were gathered.
    pub(crate) gathered: watch::Receiver<bool>,
}

impl Keeper {
    /// Over what is known already; the managers are waited for. Of drivers whose health changes it tells `news`.
    pub(crate) fn new(
        print: Fingerprint,
        managers: impl IntoIterator<Item = Manager>,
        news: mpsc::Sender<NodeNews>,
    ) -> (Self, KeeperHandles) {
        let (facts, queue) = mpsc::channel(QUEUE);
        let (published, seen) = watch::channel(print.clone());
        let (gathered, is_gathered) = watch::channel(false);
        let keeper = Self { batch: Batch::new(print, managers), facts: queue, print: published, news, gathered };
        (keeper, KeeperHandles { facts, print: seen, gathered: is_gathered })
    }

    /// Keeps the facts until no sender is left.
    pub(crate) async fn run(mut self) {
        let deadline = Instant::now() + BATCH;
        loop {
            if self.batch.is_open() && (self.batch.is_complete() || Instant::now() >= deadline) {
                self.close();
            }
            let fact = tokio::select! {
                biased;
                () = tokio::time::sleep_until(deadline), if self.batch.is_open() => continue,
                fact = self.facts.recv() => fact,
            };
            let Some(fact) = fact else { return };
            let FactChange { is_node_changed, driver } = self.batch.take(fact);
            if is_node_changed {
                self.print.send_replace(self.batch.print().clone());
            }
            if let Some((name, info)) = driver
                && self.news.try_send(NodeNews::Driver(name, info)).is_err()
            {
                tracing::debug!("the health of a driver is not told: too much is waiting");
            }
        }
    }

    fn close(&mut self) {
        match self.batch.close() {
            Ok(true) => self.print.send_replace(self.batch.print().clone()),
            Ok(false) => {}
            Err(error) => tracing::error!(error = %error, "facts are gathered twice"),
        }
        if !self.batch.is_complete() {
            tracing::warn!("some plugins have told nothing yet: the node registers without them");
        }
        self.gathered.send_replace(true);
    }
}

/// Asks the drivers again and again. While the state file takes no writes, none of them may start anything.
pub(crate) async fn watch_drivers(
    mut drivers: Drivers,
    state: StateStore,
    mut flaws: watch::Receiver<Flaws>,
    facts: mpsc::Sender<Fact>,
) {
    let mut is_first = true;
    loop {
        let unwritable = flaws.borrow_and_update().unwritable.clone();
        for (name, info) in drivers.fingerprint() {
            let info = match &unwritable {
                Some(reason) if info.detected => without_state(info, reason),
                Some(_) | None => info,
            };
            if facts.send(Fact::Driver(name, info)).await.is_err() {
                return;
            }
        }
        if std::mem::take(&mut is_first) && facts.send(Fact::Reported(Manager::Drivers)).await.is_err() {
            return;
        }
        tokio::select! {
            biased;
            Ok(()) = flaws.changed() => {}
            () = drivers.changed() => {}
            () = tokio::time::sleep(DRIVERS_EVERY) => {
                if unwritable.is_some() && let Err(error) = state.probe().await {
                    tracing::debug!(error = %error, "the state file still cannot be written");
                }
            }
        }
    }
}

fn without_state(info: DriverInfo, reason: &str) -> DriverInfo {
    let description = format!("nothing is started: the agent's state file cannot be written: {reason}");
    DriverInfo { healthy: false, description, ..info }
}

/// Why metadata was not changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MetaError {
    /// It could not be kept.
    #[error("node metadata is not changed: {0}")]
    NotKept(#[from] StateError),
    /// A key or value that the node's object cannot hold.
    #[error("node metadata is not changed: {0}")]
    Invalid(String),
}

/// The longest key and value.
const KEY_LIMIT: usize = 128;
const VALUE_LIMIT: usize = 1024;

/// What people see and set of the node's metadata; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct MetaHandle {
    meta: Arc<Mutex<Meta>>,
    /// One change after the other.
    turn: Arc<tokio::sync::Mutex<()>>,
    state: StateStore,
    facts: mpsc::Sender<Fact>,
}

impl MetaHandle {
    /// The configured metadata and what an earlier life was told.
    pub(crate) fn new(
        fixed: BTreeMap<String, String>,
        dynamic: Changes,
        state: StateStore,
        facts: mpsc::Sender<Fact>,
    ) -> Self {
        Self { meta: Arc::new(Mutex::new(Meta::restored(fixed, dynamic))), turn: Arc::default(), state, facts }
    }

    /// Tells the node what was set in an earlier life.
    pub(crate) async fn announce(&self) {
        let dynamic = self.read().on_the_wire();
        if self.facts.send(Fact::Meta(dynamic)).await.is_err() {
            tracing::debug!("metadata is not told: the agent ends");
        }
    }

    /// What there is.
    pub(crate) fn read(&self) -> Meta {
        self.meta.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps the changes, and then makes them. When they cannot be kept nothing changes.
    pub(crate) async fn apply(&self, changes: Changes) -> Result<Meta, MetaError> {
        check(&changes)?;
        let _turn = self.turn.lock().await;
        let wanted = self.read().with(changes);
        self.state.put_meta(wanted.dynamic()).await?;
        *self.meta.lock().unwrap_or_else(PoisonError::into_inner) = wanted.clone();
        self.announce().await;
        Ok(wanted)
    }
}

fn check(changes: &Changes) -> Result<(), MetaError> {
    for (key, value) in changes {
        let invalid = |what: String| Err(MetaError::Invalid(what));
        match value {
            _ if key.is_empty() || key.len() > KEY_LIMIT => {
                return invalid(format!("key {key:?} is empty or longer than {KEY_LIMIT} bytes"));
            }
            Some(value) if value.is_empty() => {
                return invalid(format!("the value of {key} is empty: use null to hide or remove it"));
            }
            Some(value) if value.len() > VALUE_LIMIT => {
                return invalid(format!("the value of {key} is longer than {VALUE_LIMIT} bytes"));
            }
            Some(_) | None => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::MemoryState;

    fn healthy() -> DriverInfo {
        DriverInfo { detected: true, healthy: true, ..DriverInfo::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_005_a_plugin_that_is_late_is_waited_for_and_then_left_out() {
        let start = Instant::now();
        let (keeper, wires) =
            Keeper::new(Fingerprint::default(), [Manager::Drivers, Manager::Devices], mpsc::channel(1).0);
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(keeper.run());
        wires.facts.send(Fact::Driver("exec".into(), healthy())).await.expect("a loop");
        wires.facts.send(Fact::Reported(Manager::Drivers)).await.expect("a loop");
        let (mut gathered, mut print) = (wires.gathered, wires.print);
        drop(gathered.wait_for(|done| *done).await.expect("a loop"));
        assert_eq!(start.elapsed(), BATCH);
        assert!(BATCH <= Duration::from_secs(55) && print.borrow_and_update().drivers["exec"].healthy);
        // The late report is an update of its own.
        wires
            .facts
            .send(Fact::Devices("file".into(), vec![drover_api::client_node::DeviceGroup::default()]))
            .await
            .expect("a loop");
        print.changed().await.expect("a loop");
        assert_eq!(print.borrow().devices.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_driver_that_turns_unhealthy_is_told_with_its_words() {
        let (news, mut told) = mpsc::channel(1);
        let (keeper, mut wires) = Keeper::new(Fingerprint::default(), [Manager::Drivers], news);
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(keeper.run());
        let ill = DriverInfo { healthy: false, description: "x".into(), ..healthy() };
        for fact in [Fact::Driver("exec".into(), healthy()), Fact::Reported(Manager::Drivers)] {
            wires.facts.send(fact).await.expect("a loop");
        }
        drop(wires.gathered.wait_for(|done| *done).await.expect("a loop"));
        wires.facts.send(Fact::Driver("exec".into(), ill.clone())).await.expect("a loop");
        assert_eq!(told.recv().await, Some(NodeNews::Driver("exec".to_owned(), ill)));
    }

    #[tokio::test]
    async fn a_014_metadata_that_cannot_be_kept_does_not_change() {
        let (facts, mut told) = mpsc::channel(8);
        let change = || -> Changes { [("c".to_owned(), Some("3".to_owned()))].into() };
        let refusing = MetaHandle::new(BTreeMap::new(), Changes::new(), StateStore::refusing(), facts.clone());
        refusing.apply(change()).await.expect_err("refused");
        assert_eq!(refusing.read(), Meta::default());
        assert!(told.try_recv().is_err(), "the node is not changed");
        let memory = MemoryState::default();
        let meta = MetaHandle::new(BTreeMap::new(), Changes::new(), memory.store(), facts);
        meta.apply(change()).await.expect("kept");
        assert_eq!(memory.saved().dynamic_meta, change());
        assert!(matches!(told.try_recv(), Ok(Fact::Meta(meta)) if meta["c"] == "3"));
    }
}
