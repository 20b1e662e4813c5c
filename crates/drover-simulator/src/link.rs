//! What lies between a process and the API server, and how it is at the moment.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

/// A process that talks to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Client {
    /// An operator with kubectl.
    User,
    /// A life of a controller.
    Controller(u32),
    /// A node's agent.
    Node(u32),
}

/// How a process reaches the API server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Reach {
    /// Well.
    #[default]
    Open,
    /// Nothing arrives, in neither direction.
    Cut,
    /// The process stands still.
    Frozen,
    /// The server is gone: connections are refused.
    Refused,
}

/// The state of one process's way to the API server.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct LinkState {
    own: Reach,
    server_is_gone: bool,
    /// Its watch of Leases says nothing.
    pub(super) lease_watch_is_broken: bool,
    /// Time that each request takes besides.
    pub(super) latency: Duration,
    /// How many conditional writes in a hundred thousand are answered with a conflict.
    pub(super) conflicts: u32,
}

impl LinkState {
    /// How the process reaches the server now.
    pub(super) fn reach(self) -> Reach {
        match (self.own, self.server_is_gone) {
            (Reach::Open, true) => Reach::Refused,
            (own, _) => own,
        }
    }
}

/// One process's way to the API server. Clones are the same way.
#[derive(Clone, Debug, Default)]
pub(super) struct Link(Arc<Way>);

#[derive(Debug, Default)]
struct Way {
    state: Mutex<LinkState>,
    changed: Notify,
    /// The newest version that the process has seen, over all its lives.
    seen: AtomicU64,
}

impl Link {
    /// How it is now.
    pub(super) fn state(&self) -> LinkState {
        *self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it is another way than now. Who waits longest hears first.
    pub(super) async fn changed(&self) {
        self.0.changed.notified().await;
    }

    /// The newest version that arrived over it.
    pub(super) fn seen(&self) -> u64 {
        self.0.seen.load(Ordering::Relaxed)
    }

    /// Notes that a version arrived.
    pub(super) fn note_seen(&self, version: u64) {
        self.0.seen.fetch_max(version, Ordering::Relaxed);
    }

    fn change(&self, change: impl FnOnce(&mut LinkState)) {
        change(&mut self.0.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.0.changed.notify_waiters();
    }
}

/// The ways of all processes.
#[derive(Debug, Default)]
pub(super) struct Links {
    known: Mutex<KnownLink>,
}

#[derive(Debug, Default)]
struct KnownLink {
    links: BTreeMap<Client, Link>,
    /// What holds for all, the ones to come too.
    common: LinkState,
}

impl Links {
    fn lock(&self) -> MutexGuard<'_, KnownLink> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process's way.
    pub(super) fn of(&self, client: Client) -> Link {
        let mut known = self.lock();
        let common = known.common;
        let fresh = || {
            let link = Link::default();
            link.change(|state| *state = common);
            link
        };
        known.links.entry(client).or_insert_with(fresh).clone()
    }

    /// Changes one process's way.
    pub(super) fn set_reach(&self, client: Client, reach: Reach) {
        self.of(client).change(|state| state.own = reach);
    }

    /// Silences a process's watch of Leases, or ends that.
    pub(super) fn set_lease_watch(&self, client: Client, is_broken: bool) {
        self.of(client).change(|state| state.lease_watch_is_broken = is_broken);
    }

    /// The server goes or comes back.
    pub(super) fn set_server_gone(&self, is_gone: bool) {
        self.change_all(|state| state.server_is_gone = is_gone);
    }

    /// The server answers slowly.
    pub(super) fn set_latency(&self, latency: Duration) {
        self.change_all(|state| state.latency = latency);
    }

    /// The server refuses so many conditional writes in a hundred thousand.
    pub(super) fn set_conflicts(&self, rate: u32) {
        self.change_all(|state| state.conflicts = rate);
    }

    fn change_all(&self, change: impl Fn(&mut LinkState)) {
        let mut known = self.lock();
        change(&mut known.common);
        let links: Vec<Link> = known.links.values().cloned().collect();
        drop(known);
        for link in links {
            link.change(&change);
        }
    }
}
