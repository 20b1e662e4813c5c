//! Proves which node dials, and turns the connection round.

use std::sync::Arc;

use drover_clock::SharedClock;
use drover_socket::tunnel::{CONNECTION_WINDOW, PING_EVERY, PING_TIMEOUT, PROTOCOL, STREAM_WINDOW, TUNNEL_PATH};
use http::{Method, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::TokioTimer;
use rustls::pki_types::CertificateDer;
use tokio_util::sync::CancellationToken;

use super::executor::Executor;
use super::registry::Tunnels;
use crate::answers::{Answer, Refusal, whole};
use crate::connections::Service;
use crate::reviews::{AGENT_AUDIENCE, Reviews, bearer};

/// The claim of a pod's token that names its node.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// Answers agents.
#[derive(Clone, Debug)]
pub(crate) struct Listener {
    reviews: Reviews,
    tunnels: Tunnels,
    /// The only user that may open tunnels.
    agent_user: Arc<str>,
    clock: SharedClock,
    executor: Executor,
    stop: CancellationToken,
}

impl Listener {
    /// Enters tunnels of this user's tokens.
    pub(crate) fn new(reviews: Reviews, tunnels: Tunnels, agent_user: &str, clock: SharedClock) -> Self {
        let (executor, stop) = (Executor::default(), CancellationToken::new());
        Self { reviews, tunnels, agent_user: agent_user.into(), clock, executor, stop }
    }

    /// Ends all tunnels, and waits for their end.
    pub(crate) async fn end(&self) {
        self.stop.cancel();
        self.executor.0.close();
        self.executor.0.wait().await;
    }

    /// The node whose agent this is.
    async fn node(&self, request: &http::Request<Incoming>) -> Result<String, Refusal> {
        if request.uri().path() != TUNNEL_PATH {
            return Err(Refusal::new(404, format!("only {TUNNEL_PATH} is answered here")));
        }
        if request.method() != Method::POST {
            return Err(Refusal::new(405, "a tunnel is opened by POST"));
        }
        let upgrade = request.headers().get(header::UPGRADE).and_then(|value| value.to_str().ok());
        if upgrade != Some(PROTOCOL) {
            return Err(Refusal::new(400, format!("a tunnel needs `Upgrade: {PROTOCOL}`")));
        }
        let token = bearer(request.headers()).ok_or_else(|| Refusal::new(401, "a tunnel needs a token"))?;
        let identity = self.reviews.identify(token, Some(AGENT_AUDIENCE)).await?;
        if identity.user != *self.agent_user {
            return Err(Refusal::new(403, format!("tunnels are for {} alone", self.agent_user)));
        }
        let nodes = identity.extra.get(NODE_NAME).map(Vec::as_slice).unwrap_or_default();
        match nodes {
            [node] if !node.is_empty() => Ok(node.clone()),
            _ => Err(Refusal::new(403, "the token names no node: it must be bound to a pod or a node")),
        }
    }

    async fn carry(self, node: String, request: http::Request<Incoming>) {
        let upgraded = match hyper::upgrade::on(request).await {
            Ok(upgraded) => upgraded,
            Err(error) => return tracing::info!(node, %error, "a tunnel did not come about"),
        };
        let opened = http2::Builder::new(self.executor.clone())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .handshake(upgraded)
            .await;
        let (way, connection) = match opened {
            Ok(opened) => opened,
            Err(error) => return tracing::info!(node, %error, "a tunnel did not come about"),
        };
        let (number, end) = self.tunnels.enter(&node, way);
        tracing::info!(node, "a tunnel is open");
        tokio::select! {
            biased;
            () = self.stop.cancelled() => {}
            () = end.cancelled() => tracing::info!(node, "a newer tunnel has taken this one's place"),
            ended = connection => match ended {
                Ok(()) => tracing::info!(node, "a tunnel has ended"),
                Err(error) => tracing::info!(node, %error, "a tunnel broke"),
            },
        }
        self.tunnels.leave(&node, number, self.clock.now());
    }
}

impl Service for Listener {
    async fn answer(&self, request: http::Request<Incoming>, _: Arc<Vec<CertificateDer<'static>>>) -> Response<Answer> {
        let node = match self.node(&request).await {
            Ok(node) => node,
            Err(refusal) => {
                tracing::warn!(code = refusal.code, reason = refusal.message, "a tunnel was refused");
                return refusal.answer();
            }
        };
        drop(self.executor.0.spawn(self.clone().carry(node, request)));
        let mut answer = Response::new(whole(""));
        *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        answer.headers_mut().insert(header::CONNECTION, http::HeaderValue::from_static("Upgrade"));
        answer.headers_mut().insert(header::UPGRADE, http::HeaderValue::from_static(PROTOCOL));
        answer
    }
}
