//! Watches through a link: they break, go on where they broke or begin again, come late and say things twice.
//!
//! Input: the in-memory store's events. Output: what a process would see of them, in an order that an API server can
//! produce: events of one object never go back except by a list, and what was missed follows.

use std::collections::VecDeque;
use std::time::Duration;

use drover_clock::Backoff;
use drover_store::memory::{FieldSelection as Selected, Kind, Stored, Watch, WatchEvent};
use futures::StreamExt;
use futures::stream::BoxStream;

use super::link::Reach;
use super::seam::Seam;
use drover_store::{Change, Key, Object, Selection, StoreError};

/// Shortest and longest pause before a broken watch is tried again.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// How many changes an old list may lack.
const STALE_BY: u64 = 40;
/// Longest delay of a late event, in milliseconds.
const LATE_MS: u64 = 3000;

/// A selection as the store understands it.
pub(super) fn selected(kind: &Kind, selection: &Selection) -> Result<Selected, StoreError> {
    let by_fields = Selected::parse(kind, selection.namespace.as_deref(), selection.fields.as_deref());
    let labels = selection.labels.as_deref().unwrap_or_default();
    by_fields.and_then(|selected| selected.labelled(labels)).map_err(StoreError::Invalid)
}

struct Feed<K> {
    seam: Seam,
    kind: &'static Kind,
    selected: Selected,
    watch: Option<Watch>,
    /// The version of the newest event that was delivered; none: a list is needed.
    resume_after: Option<u64>,
    backlog: VecDeque<Change<K>>,
    backoff: Backoff,
}

/// Opens a watch for a process.
pub(super) fn open<K: Object>(seam: Seam, selection: &Selection) -> BoxStream<'static, Change<K>> {
    let name = K::kind(&());
    let kind = drover_store::memory::kind(&name).ok_or_else(|| StoreError::NotFound(name.into_owned()));
    match kind.and_then(|kind| Ok((kind, selected(kind, selection)?))) {
        Ok((kind, selected)) => {
            let feed = Feed {
                seam,
                kind,
                selected,
                watch: None,
                resume_after: None,
                backlog: VecDeque::new(),
                backoff: Backoff::new(PAUSE.0, PAUSE.1),
            };
            futures::stream::unfold(feed, Feed::next).boxed()
        }
        Err(error) => {
            let refused = Change::Interrupted(error.to_string());
            futures::stream::once(std::future::ready(refused)).chain(futures::stream::pending()).boxed()
        }
    }
}

impl<K: Object> Feed<K> {
    async fn next(mut self) -> Option<(Change<K>, Self)> {
        loop {
            if let Some(change) = self.backlog.pop_front() {
                return Some((change, self));
            }
            if self.watch.is_none() {
                self.connect().await;
            } else {
                self.follow().await;
            }
        }
    }

    /// How this watch reaches the server.
    fn reach(&self) -> Reach {
        let state = self.seam.link.state();
        match state.reach() {
            Reach::Open if state.lease_watch_is_broken && self.kind.name == "Lease" => Reach::Cut,
            reach => reach,
        }
    }

    async fn link_changed(&self) {
        self.seam.link.changed().await;
    }

    /// Restarts or goes on, when the server can be reached.
    async fn connect(&mut self) {
        match self.reach() {
            Reach::Open => {}
            Reach::Cut | Reach::Frozen => return self.link_changed().await,
            Reach::Refused => {
                self.backlog.push_back(Change::Interrupted("connection refused".to_owned()));
                let pause = self.backoff.failed();
                return tokio::time::sleep(pause).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        if self.reach() != Reach::Open {
            return;
        }
        self.backoff.worked();
        let store = self.seam.world.store.clone();
        if let Some(after) = self.resume_after
            && let Ok(watch) = store.watch(self.kind, &self.selected, after)
        {
            self.watch = Some(watch);
            return;
        }
        let past = self.stale_version(store.version());
        let listed = store.list_and_watch(self.kind, &self.selected, past);
        let Ok((objects, watch)) = listed.or_else(|_| store.list_and_watch(self.kind, &self.selected, None)) else {
            return;
        };
        let version = past.unwrap_or_else(|| store.version());
        self.seam.link.note_seen(version);
        self.resume_after = Some(version);
        self.watch = Some(watch);
        self.backlog.push_back(Change::Restarted);
        for object in objects {
            self.present(&object);
        }
        self.backlog.push_back(Change::InSync);
    }

    /// The version of an old list, if this one is to be old. Nothing that the process has seen is undone by it, in an
    /// earlier life neither: an agent's state file remembers.
    fn stale_version(&self, version: u64) -> Option<u64> {
        let share = self.seam.world.faults().stale_reads;
        if share <= 0.0 || self.seam.chance(self.kind, fastrand::Rng::f64) >= share {
            return None;
        }
        let by = self.seam.chance(self.kind, |rng| rng.u64(1..=STALE_BY));
        Some(version.saturating_sub(by).max(self.seam.link.seen()))
    }

    /// Waits for the next event, or for the end of the connection.
    async fn follow(&mut self) {
        match self.reach() {
            Reach::Open => {}
            Reach::Cut | Reach::Frozen => {
                // Nothing arrives, and nobody says that the connection is dead until it is tried again.
                while matches!(self.reach(), Reach::Cut | Reach::Frozen) {
                    self.link_changed().await;
                }
                return self.interrupt("the connection is dead");
            }
            Reach::Refused => return self.interrupt("the connection was closed"),
        }
        let Some(mut watch) = self.watch.take() else { return };
        let event = tokio::select! {
            biased;
            () = self.link_changed() => None,
            event = std::future::poll_fn(|context| watch.poll_next(context)) => Some(event),
        };
        self.watch = Some(watch);
        if let Some(event) = event {
            self.take(&event).await;
        }
    }

    fn interrupt(&mut self, why: &str) {
        self.watch = None;
        self.backlog.push_back(Change::Interrupted(why.to_owned()));
    }

    /// Delivers an event, or lets something go wrong with it.
    async fn take(&mut self, event: &WatchEvent) {
        let share = self.seam.world.faults().watch_drops;
        if share > 0.0 && self.seam.chance(self.kind, fastrand::Rng::f64) < share {
            match self.seam.chance(self.kind, |rng| rng.u8(..4)) {
                // It breaks, and goes on with the same event.
                0 => {
                    self.interrupt("the connection was reset");
                    let pause = self.backoff.failed();
                    return tokio::time::sleep(pause).await;
                }
                // It breaks, and where it stood is forgotten (410): what came in between is seen by nobody.
                1 => {
                    self.resume_after = None;
                    self.interrupt("too old resource version (410)");
                    let ms = self.seam.chance(self.kind, |rng| rng.u64(..LATE_MS));
                    return tokio::time::sleep(Duration::from_millis(ms)).await;
                }
                2 => self.deliver(event),
                _ => {
                    let ms = self.seam.chance(self.kind, |rng| rng.u64(1..LATE_MS));
                    tokio::time::sleep(Duration::from_millis(ms)).await;
                }
            }
        }
        self.deliver(event);
    }

    fn deliver(&mut self, event: &WatchEvent) {
        let object = event.object();
        self.resume_after = Some(object.version);
        self.seam.link.note_seen(object.version);
        match event {
            WatchEvent::Put(object) => self.present(object),
            WatchEvent::Gone(object) => match self.seam.read::<K>(object) {
                Ok(object) => self.backlog.push_back(Change::Gone(Box::new(object))),
                Err(error) => self.malformed(object, &error),
            },
        }
    }

    fn present(&mut self, object: &Stored) {
        if !self.seam.sees::<K>(&object.key.name) {
            return;
        }
        self.seam.world.observe_read(self.seam.client, object);
        match self.seam.read::<K>(object) {
            Ok(object) => self.backlog.push_back(Change::Present(Box::new(object))),
            Err(error) => self.malformed(object, &error),
        }
    }

    fn malformed(&mut self, object: &Stored, error: &StoreError) {
        let key = Key { namespace: object.key.namespace.clone(), name: object.key.name.clone() };
        self.backlog.push_back(Change::Malformed(key, error.to_string()));
    }
}
