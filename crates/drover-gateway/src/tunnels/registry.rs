//! Which node is reached by which tunnel. The newest tunnel of a node wins: an agent that dials again knows better than
//! this side whether the one before still works.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drover_daemon::monitor::GatewayMetrics;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::silence::{Silence, Watch, Watchman, watch};
use super::way::Way;

#[derive(Debug)]
struct Tunnel {
    number: u64,
    way: Way,
    end: CancellationToken,
}

#[derive(Debug, Default)]
struct State {
    open: BTreeMap<String, Tunnel>,
    /// When the last tunnel of a node without one has ended. As many as there are nodes: each was proved.
    gone: BTreeMap<String, Timestamp>,
    next: u64,
    /// Nothing more begins.
    is_closed: bool,
}

/// All tunnels; clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Tunnels {
    state: Arc<Mutex<State>>,
    watch: Watch,
    metrics: GatewayMetrics,
}

impl Tunnels {
    /// None yet; they are counted here. They are looked after while the other result runs.
    pub(crate) fn new(metrics: GatewayMetrics) -> (Self, Watchman) {
        let (watch, watchman) = watch();
        (Self { state: Arc::default(), watch, metrics }, watchman)
    }

    /// Nothing more begins through them, as if there were none: another replica may have the node's.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
    }

    /// Enters a tunnel of a node and ends the one before. Returns its number, and what tells that it is to end.
    pub(super) fn enter(&self, node: &str, way: Way, silence: &Silence) -> (u64, CancellationToken) {
        let mut state = self.lock();
        state.next += 1;
        let (number, end) = (state.next, CancellationToken::new());
        state.gone.remove(node);
        self.watch.over(silence, end.clone());
        if let Some(before) = state.open.insert(node.to_owned(), Tunnel { number, way, end: end.clone() }) {
            before.end.cancel();
        }
        self.metrics.tunnels(state.open.len());
        (number, end)
    }

    /// Takes a tunnel out that has ended, unless a newer one has taken its place.
    pub(super) fn leave(&self, node: &str, number: u64, now: Timestamp) {
        let mut state = self.lock();
        if state.open.get(node).is_some_and(|tunnel| tunnel.number == number) {
            state.open.remove(node);
            state.gone.insert(node.to_owned(), now);
        }
        self.metrics.tunnels(state.open.len());
    }

    /// The way to a node; else since when there is none, where it ever had one.
    pub(super) fn find(&self, node: &str) -> Result<Way, Option<Timestamp>> {
        let state = self.lock();
        match state.open.get(node) {
            Some(tunnel) if !state.is_closed => Ok(tunnel.way.clone()),
            Some(_) | None => Err(state.gone.get(node).copied()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
