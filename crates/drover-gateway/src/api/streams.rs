//! What an agent answers, as an answer in HTTP: frames as they are, bytes alone, or JSON.

use std::io;
use std::time::Duration;

use drover_socket::client::{Exchange, Inputs, Reply};
use drover_socket::protocol::{self, Answer as Said, FileInfo, Frame, FrameKind, Request};
use futures::stream::{BoxStream, Stream, StreamExt as _, unfold};
use http::{Response, StatusCode};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame as BodyFrame};
use serde_json::json;

use super::audit::Call;
use crate::answers::{Answer, Refusal, json_answer, success, with_type};
use crate::callers::Recheck;
use crate::limits::Open;

/// The media type of frames, which name positions: a client that is disconnected goes on where it was.
pub(super) const FRAMES: &str = "application/vnd.drover.frames";
/// How long a refusal of the agent is waited for before an answer begins: afterwards there is no code for it.
const REFUSAL_WAIT: Duration = Duration::from_millis(500);
/// How long nothing comes of a followed log before a heartbeat says that it is still followed: without one, what stands
/// between gateway and client may take a silent connection for a dead one, and a client a dead one for a silent task.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(1);
/// How long an answer may take that is sent as a whole: the API server ends its requests after 60 s.
const WHOLE_TIMEOUT: Duration = Duration::from_secs(55);

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
    // A reply that was read in part must not be lost when something else comes first.
    let mut replies =
        unfold(replies, async |mut replies| replies.next().await.transpose().map(|reply| (reply, replies))).boxed();
    if form == Form::Json {
        let whole = tokio::time::timeout(WHOLE_TIMEOUT, whole(&mut replies, n_samples)).await;
        let answer = whole.unwrap_or_else(|_| Err(Refusal::new(504, "the agent does not come to an end")));
        let answer = answer.unwrap_or_else(|refusal| refusal.answer());
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
    let parts = unfold(carried, Carried::next);
    match request {
        Request::Logs { follow: true, .. } if form == Form::Frames => {
            with_type(StatusCode::OK, kind, StreamBody::new(with_heartbeats(parts.boxed())).boxed_unsync())
        }
        _ => with_type(StatusCode::OK, kind, StreamBody::new(parts).boxed_unsync()),
    }
}

/// Reads everything; in JSON.
async fn whole(
    replies: &mut BoxStream<'static, io::Result<Reply>>,
    n_samples: Option<usize>,
) -> Result<Response<Answer>, Refusal> {
    let mut files: Option<Vec<FileInfo>> = None;
    let (mut samples, mut last) = (0, None);
    loop {
        match replies.next().await {
            Some(Ok(Reply::Answer(said))) => match said {
                Said::Error { code, message } => return Err(Refusal::new(code, message)),
                Said::Files(part) => files.get_or_insert_default().extend(part),
                Said::File(file) => last = Some(json!(file)),
                Said::Stats(stats) => {
                    samples += 1;
                    last = Some(json!(stats));
                    if n_samples == Some(samples) {
                        break;
                    }
                }
                Said::Checks(checks) => last = Some(json!({ "checks": checks })),
                Said::Done | Said::Exited { .. } => break,
                Said::Allocations(_) | Said::HostStats(_) | Said::Meta(_) | Said::At { .. } => {}
            },
            Some(Ok(Reply::Data(_) | Reply::ErrorData(_))) => {}
            Some(Err(error)) => return Err(Refusal::new(504, format!("the agent's answer broke off: {error}"))),
            None => return Err(Refusal::new(504, "the agent has gone in the middle of its answer")),
        }
    }
    let said = files.map(|files| json!({ "files": files })).or(last).unwrap_or_else(success);
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
    async fn next(mut self) -> Option<(io::Result<BodyFrame<Bytes>>, Self)> {
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
    let frame = match reply {
        Reply::Answer(said) => protocol::message(said)?,
        Reply::Data(bytes) => Frame { kind: FrameKind::Data, payload: bytes.clone() },
        Reply::ErrorData(bytes) => Frame { kind: FrameKind::ErrorData, payload: bytes.clone() },
    };
    protocol::encode(&frame)
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
