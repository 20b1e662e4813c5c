//! Proves which node dials, and turns the connection round; and answers other replicas, which prove themselves by their
//! certificate.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use drover_clock::SharedClock;
use drover_socket::disks::{DISKS_PATH, DISKS_PROTOCOL};
use drover_socket::tunnel::{PROTOCOL, REPLICAS_PATH, Replicas, TUNNEL_PATH};
use drover_socket::values::{VALUES_PATH, VALUES_PROTOCOL};
use http::{Method, Response, StatusCode, header};
use hyper::body::Incoming;
use rustls::pki_types::CertificateDer;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::arrivals::{self, ARRIVALS_PATH, Arrivals};
use super::pings::Answering;
use super::registry::Tunnels;
use super::relay::{self, RELAY_PATH, RELAY_PROTOCOL};
use super::replicas::Fleet;
use super::silence::Silence;
use super::way::Way;
use crate::answers::{Answer, Refusal, whole};
use crate::connections::{Service, turned_round};
use crate::disks::Disks;
use crate::reviews::{AGENT_AUDIENCE, Reviews, bearer, node_of};
use crate::values::Values;

/// How long an agent may take to be told of the replicas.
const TELL_TIMEOUT: Duration = Duration::from_secs(10);

/// What carries a tunnel until it breaks; it ends with this.
type Running = AbortOnDropHandle<Result<(), h2::Error>>;

/// What a listener needs.
#[derive(Clone, Debug)]
pub(crate) struct ListenerParts {
    pub(crate) reviews: Reviews,
    pub(crate) tunnels: Tunnels,
    pub(crate) fleet: Fleet,
    pub(crate) values: Values,
    pub(crate) disks: Disks,
    /// What this replica knows; none: it does not answer clients of Nomad.
    pub(crate) arrivals: Option<Arc<dyn Arrivals>>,
    /// The only user that may open tunnels.
    pub(crate) agent_user: String,
    pub(crate) clock: SharedClock,
}

/// Answers agents and other replicas; clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Listener {
    parts: Arc<ListenerParts>,
    /// What the listener itself carries: tunnels and their connections, values, disks.
    tasks: TaskTracker,
    /// Exchanges of other replicas.
    relays: TaskTracker,
    stop: CancellationToken,
}

impl Listener {
    /// Enters tunnels, and carries other replicas' exchanges through them.
    pub(crate) fn new(parts: ListenerParts) -> Self {
        Self {
            parts: Arc::new(parts),
            tasks: TaskTracker::new(),
            relays: TaskTracker::new(),
            stop: CancellationToken::new(),
        }
    }

    /// Waits for the exchanges of other replicas that are under way.
    pub(crate) async fn relays_end(&self) {
        self.relays.close();
        self.relays.wait().await;
    }

    /// Ends all tunnels, and waits for their end.
    pub(crate) async fn end(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.relays_end().await;
    }

    /// The node whose agent this is, and the token that says so.
    async fn node(&self, request: &http::Request<Incoming>) -> Result<(String, String), Refusal> {
        let (what, protocol) = match request.uri().path() {
            TUNNEL_PATH => ("a tunnel", PROTOCOL),
            VALUES_PATH => ("a connection for values", VALUES_PROTOCOL),
            DISKS_PATH => ("a connection for a disk", DISKS_PROTOCOL),
            _ => {
                let known = format!("only {TUNNEL_PATH}, {VALUES_PATH} and {DISKS_PATH} are answered here");
                return Err(Refusal::new(404, known));
            }
        };
        if request.method() != Method::POST {
            return Err(Refusal::new(405, format!("{what} is opened by POST")));
        }
        let upgrade = request.headers().get(header::UPGRADE).and_then(|value| value.to_str().ok());
        if upgrade != Some(protocol) {
            return Err(Refusal::new(400, format!("{what} needs `Upgrade: {protocol}`")));
        }
        let token = bearer(request.headers()).ok_or_else(|| Refusal::new(401, format!("{what} needs a token")))?;
        let identity = self.parts.reviews.identify(token, Some(AGENT_AUDIENCE)).await?;
        Ok((node_of(&identity, &self.parts.agent_user)?, token.to_owned()))
    }

    /// Gives out values until the connection ends, or this replica does.
    async fn give(self, node: String, token: String, request: http::Request<Incoming>) {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => {}
            () = self.parts.values.clone().converse(node, token, request) => {}
        }
    }

    /// Hands a disk on, likewise.
    async fn hand_on(self, node: String, request: http::Request<Incoming>) {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => {}
            () = self.parts.disks.clone().converse(node, request) => {}
        }
    }

    /// Turns the connection round. What carries it runs for itself: what comes through it wakes nothing else of a
    /// tunnel's.
    async fn open(&self, request: http::Request<Incoming>) -> io::Result<(Silence, Way, Running)> {
        let upgraded = hyper::upgrade::on(request).await.map_err(io::Error::other)?;
        let (silence, tunnel) = Silence::of(turned_round(upgraded)?);
        let (way, connection) = Way::over(Answering::new(tunnel)).await.map_err(io::Error::other)?;
        Ok((silence, way, AbortOnDropHandle::new(self.tasks.spawn(connection))))
    }

    async fn carry(self, node: String, request: http::Request<Incoming>) {
        // Apart, and gone when it is open: there are thousands.
        let (silence, way, mut connection) = match Box::pin(self.open(request)).await {
            Ok(opened) => opened,
            Err(error) => return tracing::info!(node, %error, "a tunnel did not come about"),
        };
        let mut told = std::pin::pin!(self.tell(&node, way.clone(), &silence));
        let (number, end) = self.parts.tunnels.enter(&node, way, &silence);
        tracing::info!(node, "a tunnel is open");
        tokio::select! {
            biased;
            () = self.stop.cancelled() => {}
            () = end.cancelled() => {
                let why = if silence.is_death() { "its agent has gone silent" } else { "a newer one takes its place" };
                tracing::info!(node, why, "a tunnel has ended");
            }
            ended = &mut connection => match ended {
                Ok(Ok(())) => tracing::info!(node, "a tunnel has ended"),
                Ok(Err(error)) => tracing::info!(node, %error, "a tunnel broke"),
                Err(error) => tracing::error!(node, %error, "a tunnel broke off"),
            },
            never = &mut told => match never {},
        }
        self.parts.tunnels.leave(&node, number, self.parts.clock.now());
    }

    /// Tells an agent of the replicas, and of each change, and once more when it is silent: it has to answer. One that
    /// does not listen is told of the next one.
    async fn tell(&self, node: &str, way: Way, silence: &Silence) -> Infallible {
        let (mut news, mut last) = (self.parts.fleet.news(), Replicas::default());
        loop {
            tokio::select! {
                biased;
                next = news.next() => last = next,
                () = silence.is_long() => {}
            }
            match tokio::time::timeout(TELL_TIMEOUT, tell(&way, &last)).await {
                Ok(Ok(StatusCode::OK)) => {}
                Ok(Ok(code)) => tracing::debug!(node, %code, "the agent does not want to know the replicas"),
                Ok(Err(error)) => {
                    tracing::debug!(node, error, "the agent was not told of the replicas");
                    tokio::time::sleep(TELL_TIMEOUT).await;
                }
                Err(_) => tracing::debug!(node, "the agent does not listen"),
            }
        }
    }

    /// What becomes of a request's connection.
    async fn turn(
        &self,
        request: http::Request<Incoming>,
        certificates: &[CertificateDer<'static>],
    ) -> Result<&'static str, Refusal> {
        if request.uri().path() != RELAY_PATH {
            let (node, token) = self.node(&request).await?;
            if request.uri().path() == VALUES_PATH {
                drop(self.tasks.spawn(self.clone().give(node, token, request)));
                return Ok(VALUES_PROTOCOL);
            }
            if request.uri().path() == DISKS_PATH {
                drop(self.tasks.spawn(self.clone().hand_on(node, request)));
                return Ok(DISKS_PROTOCOL);
            }
            drop(self.tasks.spawn(self.clone().carry(node, request)));
            return Ok(PROTOCOL);
        }
        // The handshake has taken none but the gateway's own.
        if certificates.is_empty() {
            return Err(Refusal::new(401, "only another replica of the gateway is answered here"));
        }
        let place = relay::place(&request, &self.parts.tunnels)?;
        let (stop, relayed) = (self.stop.clone(), relay::carry(request, place, self.parts.tunnels.clone()));
        drop(self.relays.spawn(async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = relayed => {}
            }
        }));
        Ok(RELAY_PROTOCOL)
    }
}

async fn tell(way: &Way, replicas: &Replicas) -> Result<StatusCode, String> {
    let body = serde_json::to_vec(replicas).map_err(|error| error.to_string())?;
    let head = http::Request::post(format!("http://agent{REPLICAS_PATH}")).body(());
    let head = head.map_err(|error| error.to_string())?;
    way.tell(head, body.into()).await.map_err(|error| error.to_string())
}

impl Service for Listener {
    async fn answer(
        &self,
        request: http::Request<Incoming>,
        certificates: Arc<Vec<CertificateDer<'static>>>,
    ) -> Response<Answer> {
        // The handshake has taken no certificates but the gateway's own.
        if request.uri().path() == ARRIVALS_PATH && !certificates.is_empty() {
            let arrived = arrivals::answer(&request, self.parts.arrivals.as_ref()).await;
            return arrived.unwrap_or_else(|refusal| refusal.answer());
        }
        let protocol = match self.turn(request, &certificates).await {
            Ok(protocol) => protocol,
            // A question of another replica, and its usual answer.
            Err(refusal) if refusal.code == 404 && !certificates.is_empty() => return refusal.answer(),
            Err(refusal) => {
                tracing::warn!(code = refusal.code, reason = refusal.message, "a tunnel was refused");
                return refusal.answer();
            }
        };
        let mut answer = Response::new(whole(""));
        *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        answer.headers_mut().insert(header::CONNECTION, http::HeaderValue::from_static("Upgrade"));
        answer.headers_mut().insert(header::UPGRADE, http::HeaderValue::from_static(protocol));
        answer
    }
}
