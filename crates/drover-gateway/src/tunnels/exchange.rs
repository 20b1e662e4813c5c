//! One request to an agent: a stream of its node's tunnel, with the frames of the agent's socket in both directions.

use std::time::Duration;

use drover_socket::client::Exchange;
use drover_socket::protocol::Request;
use drover_socket::tunnel::{ALLOCATION_HEADER, EXCHANGE_PATH, NAMESPACE_HEADER};
use http::{Method, StatusCode};
use jiff::Timestamp;
use tokio::io::{AsyncRead, AsyncWrite};

use super::registry::Tunnels;
use crate::answers::Refusal;

/// Where an allocation is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The node.
    pub(crate) node: String,
    /// The allocation's namespace.
    pub(crate) namespace: String,
    /// Its uid: the agent refuses another one under the same name.
    pub(crate) uid: String,
}

/// Why an agent could not be asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExchangeError {
    /// No tunnel.
    #[error("node {node} has no tunnel to the gateway{}: is its agent running?", gone_since(*.since))]
    NoTunnel {
        /// The node.
        node: String,
        /// Since when, where it ever had one.
        since: Option<Timestamp>,
    },
    /// The agent holds the tunnel and does not answer.
    #[error("the agent of node {0} does not answer")]
    TimedOut(String),
    /// The other replica that has the tunnel says that the agent does not answer, or how the tunnel broke.
    #[error("{0}")]
    Relayed(String),
    /// The tunnel breaks, or what comes is no exchange.
    #[error("the tunnel of node {0} broke: {1}")]
    Broken(String, String),
}

impl From<ExchangeError> for Refusal {
    fn from(error: ExchangeError) -> Self {
        let code = match error {
            ExchangeError::NoTunnel { .. } => 404,
            ExchangeError::TimedOut(_) | ExchangeError::Relayed(_) | ExchangeError::Broken(..) => 504,
        };
        Self::new(code, error.to_string())
    }
}

fn gone_since(at: Option<Timestamp>) -> String {
    at.map(|at| format!(" since {at:.0}")).unwrap_or_default()
}

/// How long an agent may take to accept an exchange. What it then does may take longer.
pub(super) const ACCEPT_TIMEOUT: Duration = Duration::from_secs(5);

/// Both directions of an exchange, as bytes of frames; the request is still to be sent.
pub(super) struct OpenedExchange {
    /// What the agent says.
    pub(super) from: Box<dyn AsyncRead + Send + Unpin>,
    /// What it is told.
    pub(super) to: Box<dyn AsyncWrite + Send + Unpin>,
}

impl OpenedExchange {
    /// Sends the request.
    pub(super) async fn request(self, place: &Place, request: &Request) -> Result<Exchange, ExchangeError> {
        let mut exchange = Exchange::over(self.from, self.to);
        let sent = exchange.inputs.request(request).await;
        sent.map_err(|error| ExchangeError::Broken(place.node.clone(), error.to_string()))?;
        // Who has a node's token has no say over what others ask.
        Ok(Exchange { replies: exchange.replies.doubted(request), inputs: exchange.inputs })
    }
}

impl Tunnels {
    /// Opens an exchange with the agent of an allocation's node.
    ///
    /// # Errors
    /// When the node has no tunnel to this replica, or its agent does not answer.
    pub(super) async fn open(&self, place: &Place) -> Result<OpenedExchange, ExchangeError> {
        let node = &place.node;
        let broken = |error: String| ExchangeError::Broken(node.clone(), error);
        let way = self.find(node).map_err(|since| ExchangeError::NoTunnel { node: node.clone(), since })?;
        let head = http::Request::builder()
            .method(Method::POST)
            .uri(format!("http://agent{EXCHANGE_PATH}"))
            .header(NAMESPACE_HEADER, &place.namespace)
            .header(ALLOCATION_HEADER, &place.uid)
            .body(())
            .map_err(|error| broken(error.to_string()))?;
        let (status, from, to) = tokio::time::timeout(ACCEPT_TIMEOUT, way.begin(head))
            .await
            .map_err(|_| ExchangeError::TimedOut(node.clone()))?
            .map_err(|error| broken(error.to_string()))?;
        if status != StatusCode::OK {
            return Err(broken(format!("the agent answers {status}")));
        }
        Ok(OpenedExchange { from: Box::new(from.reader()), to: Box::new(to) })
    }
}
