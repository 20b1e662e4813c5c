//! How a request becomes a WebSocket.

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use crate::answers::{Answer, Refusal, whole};

/// The largest message of a client.
const MAX_MESSAGE_BYTES: usize = 1024 * 1024;

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
