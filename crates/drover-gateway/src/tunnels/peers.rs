//! Asks the other replicas for a node that has no tunnel to this one, and to know what was written here.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use drover_daemon::monitor::GatewayMetrics;
use drover_socket::client::Exchange;
use drover_socket::protocol::{self, Request};
use drover_socket::tunnel::{ALLOCATION_HEADER, NAMESPACE_HEADER};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use http::{Method, StatusCode, header};
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::task::TaskTracker;

use super::arrivals::{ARRIVALS_HEADER, ARRIVALS_PATH};
use super::exchange::{ACCEPT_TIMEOUT, ExchangeError, OpenedExchange, Place};
use super::registry::Tunnels;
use super::relay::{NODE_HEADER, RELAY_PATH, RELAY_PROTOCOL, RelayStart};
use super::replicas::Fleet;
use crate::certificates::Served;
use crate::connections;

/// How long the others may take to say whether they have a node's tunnel.
const ASK_TIMEOUT: Duration = Duration::from_millis(500);
/// How long the others may take to know what was written here; longer than they wait themselves.
const ARRIVE_TIMEOUT: Duration = Duration::from_millis(2500);
/// How much longer than its own limit another replica may take to say that an agent does not answer.
const GRACE: Duration = Duration::from_secs(1);

/// All nodes, whichever replica has their tunnel; clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Nodes {
    tunnels: Tunnels,
    peers: Peers,
}

impl Nodes {
    /// Those with tunnels here, and those that the other replicas have.
    pub(crate) const fn new(tunnels: Tunnels, peers: Peers) -> Self {
        Self { tunnels, peers }
    }

    /// Sends a request to the agent of an allocation's node.
    ///
    /// # Errors
    /// When the node has no tunnel to any replica, or its agent does not answer.
    pub(crate) async fn ask(&self, place: &Place, request: &Request) -> Result<Exchange, ExchangeError> {
        let opened = match self.tunnels.open(place).await {
            Err(error @ ExchangeError::NoTunnel { .. }) => {
                let Some(peer) = self.peers.find(place).await else {
                    self.peers.metrics.relayed("unknown");
                    return Err(error);
                };
                self.peers.metrics.relayed("carried");
                peer_opened(peer).await?
            }
            opened => opened?,
        };
        opened.request(place, request).await
    }

    /// Waits until all replicas that are reached know what was written here, for a short while.
    pub(crate) async fn arrive(&self, written: &str) {
        self.peers.arrive(written).await;
    }
}

/// The other replicas; clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Peers {
    fleet: Fleet,
    served: Served,
    server_name: Arc<str>,
    metrics: GatewayMetrics,
    tasks: TaskTracker,
}

/// Requests to another replica.
type PeerRequests = http1::SendRequest<Empty<Bytes>>;
/// A connection to another replica that has the node's tunnel.
type Peer = TokioIo<Upgraded>;

impl Peers {
    /// The replicas of this fleet, which have the certificate that is served, for this name.
    pub(crate) fn new(fleet: Fleet, served: Served, server_name: &str, metrics: GatewayMetrics) -> Self {
        Self { fleet, served, server_name: server_name.into(), metrics, tasks: TaskTracker::new() }
    }

    /// The first of the others to say that it has the node's tunnel. All are asked at once, this one too, which says
    /// no: none knows its own address.
    async fn find(&self, place: &Place) -> Option<Peer> {
        let Some(config) = self.served.to_peers() else {
            tracing::warn!("the other replicas cannot be asked for node {}: there is no certificate yet", place.node);
            return None;
        };
        let mut asked: FuturesUnordered<_> = self
            .fleet
            .peers()
            .into_iter()
            .map(|at| {
                let config = Arc::clone(&config);
                async move { (at, tokio::time::timeout(ASK_TIMEOUT, self.ask(at, config, place)).await) }
            })
            .collect();
        while let Some((at, answer)) = asked.next().await {
            match answer {
                Ok(Ok(Some(peer))) => {
                    tracing::debug!(node = place.node, %at, "another replica has the node's tunnel");
                    return Some(peer);
                }
                Ok(Ok(None)) => {}
                Ok(Err(error)) => tracing::debug!(%at, %error, "another replica is not reached"),
                Err(_) => tracing::debug!(%at, "another replica does not answer"),
            }
        }
        None
    }

    /// Asks all at once, this one too: none knows its own address.
    async fn arrive(&self, written: &str) {
        let Some(config) = self.served.to_peers() else { return };
        let asked = self.fleet.peers().into_iter().map(|at| {
            let config = Arc::clone(&config);
            async move {
                let asked = self.ask_to_know(at, config, written);
                match tokio::time::timeout(ARRIVE_TIMEOUT, asked).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => tracing::debug!(%at, %error, "another replica does not know what was written"),
                    Err(_) => tracing::debug!(%at, "another replica does not say whether it knows what was written"),
                }
            }
        });
        asked.collect::<FuturesUnordered<_>>().collect::<()>().await;
    }

    async fn ask_to_know(&self, at: SocketAddr, config: Arc<ClientConfig>, written: &str) -> io::Result<()> {
        let connected = tokio::time::timeout(ASK_TIMEOUT, self.connect(at, config)).await;
        let mut way = connected.map_err(|_| io::Error::other("it is not reached"))??;
        let request = http::Request::builder()
            .method(Method::POST)
            .uri(ARRIVALS_PATH)
            .header(header::HOST, &*self.server_name)
            .header(ARRIVALS_HEADER, written)
            .body(Empty::<Bytes>::new())
            .map_err(io::Error::other)?;
        match way.send_request(request).await.map_err(io::Error::other)?.status() {
            StatusCode::OK => Ok(()),
            other => Err(io::Error::other(format!("it answers {other}"))),
        }
    }

    async fn connect(&self, at: SocketAddr, config: Arc<ClientConfig>) -> io::Result<PeerRequests> {
        let tcp = TcpStream::connect(at).await?;
        connections::prepare(&tcp)?;
        let name = ServerName::try_from(self.server_name.to_string()).map_err(io::Error::other)?;
        let tls = TlsConnector::from(config).connect(name, tcp).await?;
        let (way, connection) = http1::handshake(TokioIo::new(tls)).await.map_err(io::Error::other)?;
        drop(self.tasks.spawn(connection.with_upgrades()));
        Ok(way)
    }

    /// Asks one; none: it has no tunnel of the node.
    async fn ask(&self, at: SocketAddr, config: Arc<ClientConfig>, place: &Place) -> io::Result<Option<Peer>> {
        let mut way = self.connect(at, config).await?;
        let request = http::Request::builder()
            .method(Method::POST)
            .uri(RELAY_PATH)
            .header(header::HOST, &*self.server_name)
            .header(header::CONNECTION, "Upgrade")
            .header(header::UPGRADE, RELAY_PROTOCOL)
            .header(NODE_HEADER, &place.node)
            .header(NAMESPACE_HEADER, &place.namespace)
            .header(ALLOCATION_HEADER, &place.uid)
            .body(Empty::<Bytes>::new())
            .map_err(io::Error::other)?;
        let answer = way.send_request(request).await.map_err(io::Error::other)?;
        match answer.status() {
            StatusCode::SWITCHING_PROTOCOLS => {
                Ok(Some(TokioIo::new(hyper::upgrade::on(answer).await.map_err(io::Error::other)?)))
            }
            StatusCode::NOT_FOUND => Ok(None),
            other => Err(io::Error::other(format!("it refuses with {other}"))),
        }
    }
}

/// Waits until the agent has accepted.
async fn peer_opened(mut peer: Peer) -> Result<OpenedExchange, ExchangeError> {
    let broken =
        |why: String| ExchangeError::Relayed(format!("the replica that has the node's tunnel broke off: {why}"));
    let frame = tokio::time::timeout(ACCEPT_TIMEOUT + GRACE, protocol::read_frame(&mut peer))
        .await
        .map_err(|_| broken("it does not answer".to_owned()))?
        .map_err(|error| broken(error.to_string()))?
        .ok_or_else(|| broken("it has gone".to_owned()))?;
    match serde_json::from_slice(&frame.payload) {
        Ok(RelayStart::Accepted) => {
            let (from, to) = tokio::io::split(peer);
            Ok(OpenedExchange { from: Box::new(from), to: Box::new(to) })
        }
        Ok(RelayStart::Failed(why)) => Err(ExchangeError::Relayed(why)),
        Err(error) => Err(broken(error.to_string())),
    }
}
