//! Which replicas there are: those of the Service's `EndpointSlices`, or those that the configuration names.
//!
//! Each replica watches them; agents do not, and are told through their tunnels.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use drover_api::gateway::{GatewayPort, replicas_in, slices_of};
use drover_socket::tunnel::Replicas;
use futures::StreamExt as _;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::{WatchStreamExt as _, reflector, watcher};
use kube::{Api, Client};
use tokio::sync::watch;

use crate::config::GatewayConfig;

/// What is known of the replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct KnownReplicas {
    /// Where all of them answer agents and each other, ready or not: one that ends may have the only tunnel of a node.
    all: BTreeSet<SocketAddr>,
    /// Those that are ready.
    ready: BTreeSet<SocketAddr>,
    is_leaving: bool,
}

/// The replicas; clones share what is known of them.
#[derive(Clone, Debug)]
pub(crate) struct Fleet(watch::Sender<KnownReplicas>);

impl Fleet {
    /// Those that the configuration names; agents are told of none of these, for their configuration names them too.
    pub(crate) fn new(config: &GatewayConfig) -> Self {
        let all = config.peers.iter().copied().collect();
        Self(watch::Sender::new(KnownReplicas { all, ..KnownReplicas::default() }))
    }

    /// Follows the cluster's until it is dropped. What was known stays known while the API server is not reached.
    pub(crate) async fn follow(self, client: Client, config: &GatewayConfig) {
        if !config.peers.is_empty() {
            return std::future::pending().await;
        }
        let slices: Api<EndpointSlice> = Api::namespaced(client, &config.namespace);
        let selection = watcher::Config::default().labels(&slices_of(&config.service));
        let (reader, writer) = reflector::store();
        let mut changes = std::pin::pin!(reflector(writer, watcher(slices, selection).default_backoff()));
        while let Some(change) = changes.next().await {
            if let Err(error) = change {
                tracing::debug!(%error, "the watch of the replicas restarts");
                continue;
            }
            let found: Vec<(SocketAddr, bool)> =
                reader.state().iter().flat_map(|slice| replicas_in(slice, GatewayPort::Agents)).collect();
            let all = found.iter().map(|(at, _)| *at).collect();
            let ready = found.iter().filter(|(_, is_ready)| *is_ready).map(|(at, _)| *at).collect();
            self.0.send_if_modified(|known| {
                let next = KnownReplicas { all, ready, is_leaving: known.is_leaving };
                let is_news = *known != next;
                *known = next;
                is_news
            });
        }
    }

    /// This replica ends.
    pub(crate) fn leave(&self) {
        self.0.send_modify(|known| known.is_leaving = true);
    }

    /// Where the replicas answer each other, this one among them.
    pub(super) fn peers(&self) -> BTreeSet<SocketAddr> {
        self.0.borrow().all.clone()
    }

    /// What agents are to be told, now and after each change.
    pub(super) fn news(&self) -> News {
        News { known: self.0.subscribe(), last: None }
    }
}

/// What agents are told.
pub(super) struct News {
    known: watch::Receiver<KnownReplicas>,
    last: Option<Replicas>,
}

impl News {
    /// The next telling, when there is one. May be dropped and called again.
    pub(super) async fn next(&mut self) -> Replicas {
        loop {
            let known = self.known.borrow_and_update().clone();
            let next = Replicas { ready: known.ready.into_iter().collect(), is_leaving: known.is_leaving };
            let is_worth_it = next.is_leaving || !next.ready.is_empty();
            if is_worth_it && self.last.as_ref() != Some(&next) {
                self.last = Some(next.clone());
                return next;
            }
            // The listener holds a sender as long as it has tunnels.
            if self.known.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[tokio::test]
    async fn agents_are_told_of_changes_and_of_nothing_else() {
        let fleet = Fleet::new(&GatewayConfig::default());
        let mut news = fleet.news();
        let is_quiet = async |news: &mut News| futures::poll!(std::pin::pin!(news.next())).is_pending();
        assert!(is_quiet(&mut news).await, "nothing is known");
        let ready = BTreeSet::from([at("10.0.0.7:8444")]);
        fleet.0.send_modify(|known| known.ready.clone_from(&ready));
        assert_eq!(news.next().await.ready, [at("10.0.0.7:8444")]);
        assert!(is_quiet(&mut news).await);
        // One that is not ready is no news for agents.
        fleet.0.send_modify(|known| known.all.extend([at("10.0.0.8:8444")]));
        assert!(is_quiet(&mut news).await);
        fleet.leave();
        assert!(news.next().await.is_leaving);
    }
}
