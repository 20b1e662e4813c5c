//! A command through the API server: the WebSocket's channels as the frames of the agent's socket, in both directions.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use drover_socket::channels::{CLOSE, ERROR, RESIZE, STDERR, STDIN, STDOUT};
use drover_socket::client::Exchange;
use drover_socket::protocol::{self, Answer, Frame, FrameKind, Input, TtySize};
use futures::{Sink, SinkExt as _, Stream, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, DuplexStream, ReadBuf};
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::{Error as SocketError, Message};

/// What waits for a slow side; then the other one waits.
const UNSENT_BYTES: usize = 256 * 1024;

/// What comes back; the work behind it ends with it.
struct Carried {
    frames: DuplexStream,
    _work: JoinSet<()>,
}

impl AsyncRead for Carried {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.frames).poll_read(context, into)
    }
}

/// The exchange with a command whose WebSocket is open.
pub(super) fn exchange<S>(socket: S) -> Exchange
where
    S: Stream<Item = Result<Message, SocketError>> + Sink<Message, Error = SocketError> + Send + Unpin + 'static,
{
    let (replies, frames) = tokio::io::duplex(UNSENT_BYTES);
    let (inputs, told) = tokio::io::duplex(UNSENT_BYTES);
    let mut work = JoinSet::new();
    work.spawn(carry(socket, replies, told));
    Exchange::over(Carried { frames, _work: work }, inputs)
}

async fn carry<S>(socket: S, mut replies: DuplexStream, mut told: DuplexStream)
where
    S: Stream<Item = Result<Message, SocketError>> + Sink<Message, Error = SocketError> + Send + Unpin + 'static,
{
    let (mut to, mut from) = socket.split();
    let signal = {
        let hear = async {
            while let Some(message) = from.next().await {
                let message = match message {
                    Ok(Message::Binary(bytes)) => bytes,
                    Ok(Message::Close(_)) | Err(_) => break,
                    Ok(Message::Text(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => continue,
                };
                let frame = match message.split_first() {
                    Some((&STDOUT, bytes)) => Ok(Frame { kind: FrameKind::Data, payload: bytes.to_vec() }),
                    Some((&STDERR, bytes)) => Ok(Frame { kind: FrameKind::ErrorData, payload: bytes.to_vec() }),
                    Some((&ERROR, bytes)) => protocol::message(&last_word(bytes)),
                    Some(_) | None => continue,
                };
                let sent = match frame {
                    Ok(frame) => protocol::write_frame(&mut replies, &frame).await,
                    Err(error) => Err(error),
                };
                // Who listens no more has heard enough.
                if sent.is_err() {
                    break;
                }
            }
        };
        let tell = async {
            while let Ok(Some(Frame { kind, payload })) = protocol::read_frame(&mut told).await {
                let message = match kind {
                    FrameKind::Data => [&[STDIN], &payload[..]].concat(),
                    FrameKind::Message => match serde_json::from_slice(&payload) {
                        Ok(Input::Close) => vec![CLOSE, STDIN],
                        Ok(Input::Resize(size)) => resize(size),
                        // The protocol knows no signals: the command ends with its connection, as with kubectl.
                        Ok(Input::Signal { number }) => return Some(number),
                        Err(_) => continue,
                    },
                    FrameKind::ErrorData => continue,
                };
                if send(&mut to, message).await.is_err() {
                    break;
                }
            }
            None
        };
        tokio::pin!(hear, tell);
        tokio::select! {
            biased;
            () = &mut hear => None,
            signal = &mut tell => {
                if signal.is_none() {
                    hear.await;
                }
                signal
            }
        }
    };
    let Some(number) = signal else { return };
    let ended = protocol::message(&Answer::Exited { exit_code: 128 + number });
    if let Ok(frame) = ended {
        // Who listens no more has heard enough.
        protocol::write_frame(&mut replies, &frame).await.ok();
    }
}

async fn send<W>(to: &mut W, message: Vec<u8>) -> Result<(), SocketError>
where
    W: Sink<Message, Error = SocketError> + Unpin,
{
    to.send(Message::Binary(message.into())).await
}

fn resize(size: TtySize) -> Vec<u8> {
    let size = json!({ "Width": size.width, "Height": size.height }).to_string();
    [&[RESIZE], size.as_bytes()].concat()
}

/// The `Status` with which a command ends, as the agent says it.
fn last_word(status: &[u8]) -> Answer {
    let status: Value = serde_json::from_slice(status).unwrap_or_default();
    if status["status"] == "Success" {
        return Answer::Exited { exit_code: 0 };
    }
    let message = status["message"].as_str().unwrap_or("the command ended without a word").to_owned();
    let causes = status["details"]["causes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let code = causes.iter().find(|cause| cause["reason"] == "ExitCode").and_then(|cause| cause["message"].as_str());
    if let Some(exit_code) = code.and_then(|code| code.parse().ok()) {
        return Answer::Exited { exit_code };
    }
    let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or(500);
    Answer::Error { code, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_is_an_exit_code_or_a_reason() {
        let of = |status: Value| last_word(status.to_string().as_bytes());
        assert_eq!(of(json!({ "status": "Success" })), Answer::Exited { exit_code: 0 });
        let causes = json!([{ "reason": "ExitCode", "message": "7" }]);
        let seven = json!({ "status": "Failure", "message": "m", "details": { "causes": causes } });
        assert_eq!(of(seven), Answer::Exited { exit_code: 7 });
        let refused = json!({ "status": "Failure", "message": "unknown task", "code": 400 });
        assert_eq!(of(refused), Answer::Error { code: 400, message: "unknown task".to_owned() });
        assert!(matches!(last_word(b"nonsense"), Answer::Error { code: 500, .. }));
    }
}
