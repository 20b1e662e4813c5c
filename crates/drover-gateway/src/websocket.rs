//! How a request becomes a WebSocket, and how that ends.

use std::time::Duration;

use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt as _, StreamExt as _};
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt as _;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};

use crate::answers::{Answer, Refusal, whole};

/// The largest message of a client.
const MAX_MESSAGE_BYTES: usize = 1024 * 1024;

/// How long a client may take to close its side, so that what was sent last is not lost with the connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection that is one.
pub(crate) type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// A header of a request; empty where it is absent.
pub(crate) fn text(headers: &HeaderMap, name: header::HeaderName) -> &str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// What proves that the request was understood.
///
/// # Errors
/// 400 for everything but a WebSocket of version 13.
pub(crate) fn accept(headers: &HeaderMap) -> Result<String, Refusal> {
    if !text(headers, header::UPGRADE).eq_ignore_ascii_case("websocket") {
        return Err(Refusal::new(400, "exec needs a WebSocket; SPDY is not spoken here"));
    }
    let key = text(headers, header::SEC_WEBSOCKET_KEY);
    if text(headers, header::SEC_WEBSOCKET_VERSION) != "13" || key.is_empty() {
        return Err(Refusal::new(400, "exec needs a WebSocket of version 13 with a key"));
    }
    Ok(derive_accept_key(key.as_bytes()))
}

/// The answer after which the connection is a WebSocket, of a protocol where one was agreed on.
///
/// # Errors
/// 500 for what is no answer.
pub(crate) fn switching(accept: &str, protocol: Option<&'static str>) -> Result<Response<Answer>, Refusal> {
    let mut answer = Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(header::CONNECTION, HeaderValue::from_static("Upgrade"))
        .header(header::UPGRADE, HeaderValue::from_static("websocket"))
        .header(header::SEC_WEBSOCKET_ACCEPT, accept);
    if let Some(protocol) = protocol {
        answer = answer.header(header::SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    answer.body(whole("")).map_err(|error| Refusal::new(500, error.to_string()))
}

/// The connection, once the answer was sent.
///
/// # Errors
/// When it did not come about.
pub(crate) async fn upgraded(request: http::Request<Incoming>) -> Result<Socket, hyper::Error> {
    let upgraded = hyper::upgrade::on(request).await?;
    let limits =
        WebSocketConfig::default().max_message_size(Some(MAX_MESSAGE_BYTES)).max_frame_size(Some(MAX_MESSAGE_BYTES));
    Ok(WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(limits)).await)
}

/// Closes a connection, and waits for the client to have done so too: one that is closed with something unread is
/// reset, and what was sent last may be lost with it.
pub(crate) async fn close(
    mut to: SplitSink<Socket, Message>,
    mut from: SplitStream<Socket>,
    frame: Option<CloseFrame>,
) {
    if let Err(error) = to.send(Message::Close(frame)).await {
        return tracing::debug!(%error, "a client went away before the end of its command");
    }
    let rest = async { while let Some(Ok(_)) = from.next().await {} };
    if tokio::time::timeout(CLOSE_TIMEOUT, rest).await.is_err() {
        tracing::debug!("a client does not close its side");
    }
    // Both are of one socket.
    let Ok(mut socket) = to.reunite(from) else { return };
    if let Err(error) = socket.get_mut().shutdown().await {
        tracing::debug!(%error, "a client closed its side first");
    }
}
