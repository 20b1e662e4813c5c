//! A command in a task, over a WebSocket: the protocol `v5.channel.k8s.io` that kubectl speaks, and v4.
//!
//! Each message begins with the number of its channel. The last one is a `Status` on channel 3, with the exit code
//! where it is not 0.

use std::pin::pin;

use drover_socket::channels::{CLOSE, ERROR, RESIZE, STDERR, STDIN, STDOUT};
use drover_socket::client::{Inputs, Replies, Reply};
use drover_socket::protocol::{Answer as Said, Input, TtySize};
use futures::{Sink, SinkExt as _, Stream, StreamExt as _};
use http::{HeaderMap, Response, header};
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Error as SocketError;
use tokio_tungstenite::tungstenite::protocol::Message;

use super::audit::Call;
use super::streams::Session;
use crate::answers::{Answer, Refusal, success};
use crate::websocket;

/// The protocols, the best first.
const PROTOCOLS: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];

/// What a client and the gateway have agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Handshake {
    protocol: &'static str,
    accept: String,
}

/// Reads what a client wants its connection to become.
///
/// # Errors
/// 400 for everything but a WebSocket with a known protocol.
pub(super) fn handshake(headers: &HeaderMap) -> Result<Handshake, Refusal> {
    let accept = websocket::accept(headers)?;
    let asked: Vec<&str> = headers
        .get_all(header::SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .collect();
    let protocol = PROTOCOLS.into_iter().find(|known| asked.contains(known));
    let protocol =
        protocol.ok_or_else(|| Refusal::new(400, format!("exec speaks {} and nothing else", PROTOCOLS.join(", "))))?;
    Ok(Handshake { protocol, accept })
}

impl Handshake {
    /// The answer after which the connection is a WebSocket.
    pub(super) fn answer(&self) -> Result<Response<Answer>, Refusal> {
        websocket::switching(&self.accept, Some(self.protocol))
    }
}

/// Carries a command until it has ended, its client has gone, or its user may no more. The agent ends the command when
/// the exchange ends.
pub(super) async fn carry(request: http::Request<Incoming>, session: Session) {
    let Session { exchange, mut call, open, mut recheck } = session;
    let socket = match websocket::upgraded(request).await {
        Ok(socket) => socket,
        Err(error) => return tracing::debug!(%error, "a WebSocket did not come about"),
    };
    let (mut to, mut from) = socket.split();
    let (mut replies, mut inputs) = (exchange.replies, exchange.inputs);
    let status = {
        let mut told = pin!(tell(&mut from, &mut inputs));
        let mut heard = pin!(hear(&mut replies, &mut to, &mut call));
        tokio::select! {
            biased;
            refusal = recheck.refused() => Some(refusal.status()),
            heard = &mut heard => heard,
            () = &mut told => None,
        }
    };
    // The agent ends the command now, whatever its client does.
    drop((replies, inputs));
    if let Some(status) = status {
        if let Some(code) = status["code"].as_u64().and_then(|code| u16::try_from(code).ok()) {
            call.answered(code);
        }
        match send(&mut to, ERROR, status.to_string().as_bytes()).await {
            Ok(()) => websocket::close(to, from, None).await,
            Err(error) => tracing::debug!(%error, "a client went away before the end of its command"),
        }
    }
    drop(open);
}

/// Sends what the command says; returns the last word, or none when the client has gone.
async fn hear<W>(replies: &mut Replies, to: &mut W, call: &mut Call) -> Option<Value>
where
    W: Sink<Message, Error = SocketError> + Unpin,
{
    loop {
        let sent = match replies.next().await {
            Ok(Some(Reply::Data(bytes))) => {
                call.carried(bytes.len());
                send(to, STDOUT, &bytes).await
            }
            Ok(Some(Reply::ErrorData(bytes))) => {
                call.carried(bytes.len());
                send(to, STDERR, &bytes).await
            }
            Ok(Some(Reply::Answer(said))) => match last_word(&said) {
                Some(status) => return Some(status),
                None => Ok(()),
            },
            Ok(None) => return Some(Refusal::new(504, "the agent has gone while the command ran").status()),
            Err(error) => return Some(Refusal::new(504, format!("the tunnel broke: {error}")).status()),
        };
        if let Err(error) = sent {
            tracing::debug!(%error, "a client went away while its command ran");
            return None;
        }
    }
}

async fn send<W>(to: &mut W, channel: u8, bytes: &[u8]) -> Result<(), SocketError>
where
    W: Sink<Message, Error = SocketError> + Unpin,
{
    let message = [&[channel], bytes].concat();
    to.send(Message::Binary(message.into())).await
}

fn last_word(said: &Said) -> Option<Value> {
    match said {
        Said::Exited { exit_code: 0 } | Said::Done => Some(success()),
        Said::Exited { exit_code } => Some(json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
            "message": format!("command terminated with non-zero exit code: {exit_code}"),
            "details": { "causes": [{ "reason": "ExitCode", "message": exit_code.to_string() }] },
        })),
        Said::Error { code, message } => Some(Refusal::new(*code, message.clone()).status()),
        Said::Allocations(_)
        | Said::Files(_)
        | Said::File(_)
        | Said::At { .. }
        | Said::Entry(_)
        | Said::Stats(_)
        | Said::Checks(_)
        | Said::HostStats(_)
        | Said::Meta(_) => None,
    }
}

/// The size of a terminal, as kubectl says it.
#[derive(Deserialize)]
struct Size {
    #[serde(rename = "Width")]
    width: u16,
    #[serde(rename = "Height")]
    height: u16,
}

/// Hands over what the client sends; ends when it has gone, or sends what no client sends.
async fn tell<R>(from: &mut R, inputs: &mut Inputs)
where
    R: Stream<Item = Result<Message, SocketError>> + Unpin,
{
    while let Some(message) = from.next().await {
        let bytes = match message {
            Ok(Message::Binary(bytes)) => bytes,
            Ok(Message::Ping(_) | Message::Pong(_)) => continue,
            Ok(Message::Text(_) | Message::Close(_) | Message::Frame(_)) | Err(_) => return,
        };
        let told = match bytes.split_first() {
            Some((&STDIN, data)) => inputs.data(data).await,
            Some((&CLOSE, [STDIN])) => inputs.tell(Input::Close).await,
            Some((&RESIZE, size)) => match serde_json::from_slice::<Size>(size) {
                Ok(Size { width, height }) => inputs.tell(Input::Resize(TtySize { height, width })).await,
                Err(_) => return,
            },
            // An empty message opens a channel.
            None | Some((_, [])) => Ok(()),
            Some(_) => return,
        };
        if told.is_err() {
            // The agent has said why: `hear` is told.
            return std::future::pending().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use drover_socket::client::Exchange;
    use drover_socket::protocol::{self, Frame, FrameKind};
    use futures::stream::unfold;
    use http::HeaderValue;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn p_032_a_command_is_told_after_a_minute_of_heartbeats_of_which_it_sees_nothing() {
        let sent = [vec![], vec![STDIN], vec![STDIN, b'x']];
        let messages = unfold(0_usize, async |n| {
            tokio::time::sleep(Duration::from_secs(30)).await;
            let message = match n {
                0 => Message::Ping(sent[0].clone().into()),
                1 | 2 => Message::Binary(sent[n].clone().into()),
                _ => return None,
            };
            Some((Ok(message), n + 1))
        });
        let (ours, mut theirs) = tokio::io::duplex(1024);
        let mut inputs = Exchange::over(tokio::io::empty(), ours).inputs;
        tell(&mut pin!(messages), &mut inputs).await;
        drop(inputs);
        let frame = Frame { kind: FrameKind::Data, payload: vec![b'x'] };
        assert_eq!(protocol::read_frame(&mut theirs).await.expect("frames"), Some(frame));
        assert_eq!(protocol::read_frame(&mut theirs).await.expect("frames"), None);
    }

    fn headers(parts: &[(&'static str, &'static str)]) -> HeaderMap {
        let header = |(name, value): &(&'static str, &'static str)| {
            (header::HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        parts.iter().map(header).collect()
    }

    #[test]
    fn a_websocket_of_v5_is_taken_and_spdy_is_not() {
        let whole = [
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("sec-websocket-protocol", "v4.channel.k8s.io, v5.channel.k8s.io"),
        ];
        let found = handshake(&headers(&whole)).expect("a handshake");
        assert_eq!(found.protocol, "v5.channel.k8s.io");
        assert_eq!(found.accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", "as in RFC 6455");
        let refused = |parts: &[(&'static str, &'static str)]| handshake(&headers(parts)).expect_err("refused");
        assert!(refused(&[("upgrade", "SPDY/3.1")]).message.contains("SPDY"));
        assert_eq!(refused(&whole[..3]).code, 400);
        assert_eq!(refused(&whole[..1]).code, 400);
    }

    #[test]
    fn the_last_word_has_the_exit_code() {
        let of = |said: Said| last_word(&said).expect("a last word");
        assert_eq!(of(Said::Exited { exit_code: 0 })["status"], "Success");
        let seven = of(Said::Exited { exit_code: 7 });
        assert_eq!(
            (seven["reason"].as_str(), &seven["details"]["causes"][0]["message"]),
            (Some("NonZeroExitCode"), &json!("7"))
        );
        let refused = of(Said::Error { code: 400, message: "unknown task".to_owned() });
        assert_eq!((refused["code"].as_u64(), refused["message"].as_str()), (Some(400), Some("unknown task")));
    }
}
