//! Which replicas there are: those of the Service's `EndpointSlices`, or those that the configuration names.
//!
//! Each replica watches them; agents do not, and are told through their tunnels.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use drover_socket::tunnel::Replicas;
use futures::StreamExt as _;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::{WatchStreamExt as _, reflector, watcher};
use kube::{Api, Client};
use tokio::sync::watch;

use crate::config::GatewayConfig;

/// The port for agents, by its name in the Service.
const PORT_NAME: &str = "agents";

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
        let selection = watcher::Config::default().labels(&format!("kubernetes.io/service-name={}", config.service));
        let (reader, writer) = reflector::store();
        let mut changes = std::pin::pin!(reflector(writer, watcher(slices, selection).default_backoff()));
        while let Some(change) = changes.next().await {
            if let Err(error) = change {
                tracing::debug!(%error, "the watch of the replicas restarts");
                continue;
            }
            let found: Vec<(SocketAddr, bool)> = reader.state().iter().flat_map(|slice| endpoints(slice)).collect();
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

/// Where agents are answered, and whether the replica there is ready.
fn endpoints(slice: &EndpointSlice) -> Vec<(SocketAddr, bool)> {
    let port = slice.ports.iter().flatten().find(|port| port.name.as_deref() == Some(PORT_NAME)).and_then(|it| it.port);
    let Some(port) = port.and_then(|port| u16::try_from(port).ok()) else { return Vec::new() };
    let each = slice.endpoints.iter().flatten().filter_map(|endpoint| {
        let is_ready = endpoint.conditions.as_ref().is_none_or(|conditions| conditions.ready != Some(false));
        let address = endpoint.addresses.first()?.parse().ok()?;
        Some((SocketAddr::new(address, port), is_ready))
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn replicas_are_where_the_slices_say_ready_or_not() {
        let slice: EndpointSlice = serde_json::from_value(serde_json::json!({
            "addressType": "IPv4",
            "ports": [{ "name": "users", "port": 8443 }, { "name": "agents", "port": 8444 }],
            "endpoints": [
                { "addresses": ["10.0.0.7"], "conditions": { "ready": true } },
                { "addresses": ["10.0.0.8"], "conditions": { "ready": false } },
                { "addresses": ["fd00::1"] },
                { "addresses": ["a name"] },
            ],
        }))
        .expect("a slice");
        let wanted = [(at("10.0.0.7:8444"), true), (at("10.0.0.8:8444"), false), (at("[fd00::1]:8444"), true)];
        assert_eq!(endpoints(&slice), wanted);
        assert!(endpoints(&EndpointSlice { ports: None, ..slice }).is_empty());
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
