//! What an agent answers, as an answer in HTTP: frames as they are, bytes alone, or JSON.

use std::io;
use std::time::Duration;

use drover_socket::client::{Exchange, Inputs, Reply};
use drover_socket::protocol::{self, Answer as Said, Request};
use futures::stream::{BoxStream, Stream, StreamExt as _, unfold};
use http::{Response, StatusCode};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame as BodyFrame};
use serde_json::json;

use super::audit::Call;
use crate::answers::{Answer, Refusal, json_answer, success, with_type};
use crate::callers::Recheck;
use crate::limits::Open;
use crate::replies::{WholeAnswer, in_turn, whole_answer};

/// The media type of frames, which name positions: a client that is disconnected goes on where it was.
pub(super) const FRAMES: &str = "application/vnd.drover.frames";
/// How long a refusal of the agent is waited for before an answer begins: afterwards there is no code for it.
const REFUSAL_WAIT: Duration = Duration::from_millis(500);
/// How long nothing comes of a followed log before a heartbeat says that it is still followed: without one, what stands
/// between gateway and client may take a silent connection for a dead one, and a client a dead one for a silent task.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(1);

/// An exchange that was begun, with what lives as long as it does.
pub(super) struct Session {
    pub(super) exchange: Exchange,
    pub(super) call: Call,
    pub(super) open: Open,
    pub(super) recheck: Recheck,
}

/// How the answer looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Frames,
    Bytes,
    Json,
}

/// Answers a request with what the agent says.
pub(super) async fn answer(request: &Request, wants_frames: bool, session: Session) -> Response<Answer> {
    let (form, kind) = match request {
        _ if wants_frames => (Form::Frames, FRAMES),
        Request::Logs { .. } => (Form::Bytes, "text/plain; charset=utf-8"),
        Request::Read { .. } => (Form::Bytes, "application/octet-stream"),
        _ => (Form::Json, "application/json"),
    };
    let n_samples = match request {
        Request::Stats { every_ms: Some(_), .. } => Some(2),
        Request::Stats { every_ms: None, .. } => Some(1),
        _ => None,
    };
    let Session { exchange: Exchange { replies, inputs }, mut call, open, recheck } = session;
    let mut replies = in_turn(replies);
    if form == Form::Json {
        let whole = whole_answer(replies, n_samples).await.and_then(|whole| json_of(request, whole));
        let answer = whole.unwrap_or_else(|refusal| refusal.answer());
        call.answered(answer.status().as_u16());
        return answer;
    }
    let first = match tokio::time::timeout(REFUSAL_WAIT, replies.next()).await {
        Ok(Some(Ok(Reply::Answer(Said::Error { code, message })))) => {
            call.answered(code);
            return Refusal::new(code, message).answer();
        }
        Ok(None | Some(Err(_))) => {
            call.answered(504);
            return Refusal::new(504, "the agent has gone").answer();
        }
        Ok(Some(Ok(reply))) => Some(reply),
        Err(_) => None,
    };
    call.answered(200);
    let carried = Carried { replies, first, n_samples, form, call, recheck, is_over: false, held: (inputs, open) };
    // In a box: the stream has room for it twice, while it waits for the next part and in between.
    let parts = unfold(Box::new(carried), Carried::next);
    match request {
        Request::Logs { follow: true, .. } if form == Form::Frames => {
            with_type(StatusCode::OK, kind, StreamBody::new(with_heartbeats(parts.boxed())).boxed_unsync())
        }
        _ => with_type(StatusCode::OK, kind, StreamBody::new(parts).boxed_unsync()),
    }
}

/// What an agent has answered to a request, in JSON.
fn json_of(request: &Request, whole: WholeAnswer) -> Result<Response<Answer>, Refusal> {
    let WholeAnswer { files, file, sample, checks } = whole;
    let said = match request {
        Request::List { .. } => Some(json!({ "files": files })),
        Request::Stat { .. } => file.map(|file| json!(file)),
        Request::Stats { .. } => sample.map(|sample| json!(sample)),
        Request::Checks { .. } => checks.map(|checks| json!({ "checks": checks })),
        _ => Some(success()),
    };
    let said = said.ok_or_else(|| Refusal::new(504, "the agent's answer is incomplete"))?;
    Ok(json_answer(StatusCode::OK, &said))
}

/// The parts of an answer, and an empty frame of data wherever none came for a while. Bytes alone have no such thing.
fn with_heartbeats<S>(parts: S) -> impl Stream<Item = io::Result<BodyFrame<Bytes>>>
where
    S: Stream<Item = io::Result<BodyFrame<Bytes>>> + Unpin,
{
    unfold(parts, async |mut parts| match tokio::time::timeout(HEARTBEAT_EVERY, parts.next()).await {
        Ok(part) => part.map(|part| (part, parts)),
        Err(_) => Some((frame(&Reply::Data(Vec::new())).map(|bytes| BodyFrame::data(Bytes::from(bytes))), parts)),
    })
}

/// An answer under way.
struct Carried {
    replies: BoxStream<'static, io::Result<Reply>>,
    first: Option<Reply>,
    n_samples: Option<usize>,
    form: Form,
    call: Call,
    recheck: Recheck,
    is_over: bool,
    /// The agent's exchange ends when it is told no more; the user's place is free then.
    held: (Inputs, Open),
}

impl Carried {
    async fn next(mut self: Box<Self>) -> Option<(io::Result<BodyFrame<Bytes>>, Box<Self>)> {
        while !self.is_over {
            let reply = if let Some(first) = self.first.take() {
                Ok(first)
            } else {
                tokio::select! {
                    biased;
                    refusal = self.recheck.refused() => Ok(error_of(&refusal)),
                    reply = self.replies.next() => {
                        reply.unwrap_or_else(|| Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the agent has gone")))
                    }
                }
            };
            let rendered = reply.and_then(|reply| self.render(reply));
            match rendered {
                Ok(bytes) if bytes.is_empty() => {}
                Ok(bytes) => {
                    self.call.carried(bytes.len());
                    return Some((Ok(BodyFrame::data(Bytes::from(bytes))), self));
                }
                Err(error) => {
                    self.is_over = true;
                    self.call.answered(499);
                    return Some((Err(error), self));
                }
            }
        }
        drop(self.held);
        None
    }

    /// The bytes of a reply; notes whether it was the last one.
    fn render(&mut self, reply: Reply) -> io::Result<Vec<u8>> {
        if let Reply::Answer(said) = &reply {
            match said {
                Said::Done | Said::Exited { .. } => self.is_over = true,
                Said::Error { code, .. } => {
                    self.is_over = true;
                    self.call.answered(*code);
                }
                Said::Stats(_) => {
                    self.n_samples = self.n_samples.map(|left| left.saturating_sub(1));
                }
                Said::Allocations(_)
                | Said::Files(_)
                | Said::File(_)
                | Said::At { .. }
                | Said::Entry(_)
                | Said::Checks(_)
                | Said::HostStats(_)
                | Said::Meta(_) => {}
            }
        }
        match self.form {
            Form::Frames => {
                let mut bytes = frame(&reply)?;
                if self.n_samples == Some(0) {
                    self.is_over = true;
                    bytes.extend(frame(&Reply::Answer(Said::Done))?);
                }
                Ok(bytes)
            }
            Form::Bytes | Form::Json => match reply {
                Reply::Data(bytes) | Reply::ErrorData(bytes) => Ok(bytes),
                // Bytes alone have no place for a reason: the answer breaks off, so that it is not taken for whole.
                Reply::Answer(Said::Error { message, .. }) => Err(io::Error::other(message)),
                Reply::Answer(_) => Ok(Vec::new()),
            },
        }
    }
}

fn error_of(refusal: &Refusal) -> Reply {
    Reply::Answer(Said::Error { code: refusal.code, message: refusal.message.clone() })
}

fn frame(reply: &Reply) -> io::Result<Vec<u8>> {
    protocol::encode(&reply.frame()?)
}

#[cfg(test)]
mod tests {
    use drover_socket::client::Exchange;
    use futures::stream;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn p_035_a_silent_log_has_a_heartbeat_each_second_and_ends_with_what_is_followed() {
        let begun = tokio::time::Instant::now();
        let line =
            |text: &str| frame(&Reply::Data(text.as_bytes().to_vec())).map(|bytes| BodyFrame::data(Bytes::from(bytes)));
        let lines = [(500, line("a")), (2600, line("b"))].into_iter();
        let parts = stream::unfold(lines, async |mut lines| {
            let (after, line) = lines.next()?;
            tokio::time::sleep(Duration::from_millis(after)).await;
            Some((line, lines))
        });
        let mut seen = Vec::new();
        let mut parts = with_heartbeats(parts.boxed()).boxed();
        while let Some(part) = parts.next().await {
            let bytes = part.expect("a frame").into_data().expect("data").to_vec();
            let mut replies = Exchange::over(io::Cursor::new(bytes), tokio::io::sink()).replies;
            let Ok(Some(Reply::Data(text))) = replies.next().await else { unreachable!("no frame of data") };
            seen.push((begun.elapsed().as_millis(), String::from_utf8(text).expect("text")));
        }
        let expected = [(500, "a"), (1500, ""), (2500, ""), (3100, "b")];
        assert_eq!(seen, expected.map(|(at, text)| (at, text.to_owned())));
    }
}
