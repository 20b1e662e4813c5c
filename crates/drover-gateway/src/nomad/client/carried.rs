//! Answers of an agent that are sent as they come: bytes alone, or Nomad's frames with a heartbeat where none comes.

use std::io;
use std::time::Duration;

use drover_nomad::{ClientOrder, FileFrames, HEARTBEAT};
use drover_socket::client::{Exchange, Inputs, Reply};
use drover_socket::protocol::Answer as Said;
use futures::stream::{BoxStream, StreamExt as _, unfold};
use http::{Response, StatusCode};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame as BodyFrame};

use super::begin::NodeSession;
use crate::answers::{Answer, Refusal, with_type};
use crate::callers::Recheck;
use crate::limits::Open;
use crate::nomad::audit::NomadCall;
use crate::replies::in_turn;

/// How long an agent may take to begin its answer.
const FIRST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long its refusal is waited for where it may have nothing to say for a long time, as of output that is followed:
/// afterwards there is no code for it.
const REFUSAL_WAIT: Duration = Duration::from_millis(500);
/// How long nothing comes before a heartbeat says that more may.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(1);

/// The answer, once the agent has begun to say something, or may go on to say nothing.
pub(super) async fn answer(session: NodeSession, mut call: NomadCall) -> Result<Response<Answer>, Refusal> {
    let NodeSession { order, exchange: Exchange { replies, inputs }, open, recheck, .. } = session;
    let (form, kind) = form(&order);
    let mut replies = in_turn(replies);
    let is_quiet = matches!(&order, ClientOrder::Logs(log) if log.follow);
    let first = match first(&mut replies, is_quiet).await {
        Ok(first) => first,
        Err(refusal) => {
            call.answered(refusal.code, refusal.message.len());
            return Err(refusal);
        }
    };
    call.answered(200, 0);
    let held = (inputs, open);
    let carried = NodeAnswer { replies, first, form, call, recheck, is_over: false, _held: held };
    let body = StreamBody::new(unfold(carried, NodeAnswer::next)).boxed_unsync();
    Ok(with_type(StatusCode::OK, kind, body))
}

/// What the agent says first; none: nothing yet, where that is as it may be.
async fn first(replies: &mut BoxStream<'static, io::Result<Reply>>, is_quiet: bool) -> Result<Option<Reply>, Refusal> {
    let wait = if is_quiet { REFUSAL_WAIT } else { FIRST_TIMEOUT };
    match tokio::time::timeout(wait, replies.next()).await {
        Ok(Some(Ok(Reply::Answer(Said::Error { code, message })))) => Err(Refusal::new(code, message)),
        Ok(Some(Ok(reply))) => Ok(Some(reply)),
        Ok(None | Some(Err(_))) => Err(Refusal::new(504, "the agent has gone")),
        Err(_) if is_quiet => Ok(None),
        Err(_) => Err(Refusal::new(504, "the agent does not answer")),
    }
}

/// How the answer looks.
#[derive(Debug)]
enum ClientForm {
    Bytes,
    Frames {
        at: FileFrames,
        /// It ends where the file does.
        is_followed_file: bool,
    },
}

fn form(order: &ClientOrder) -> (ClientForm, &'static str) {
    let frames = |is_followed_file| ClientForm::Frames { at: FileFrames::default(), is_followed_file };
    match order {
        ClientOrder::Logs(log) if log.is_plain => (ClientForm::Bytes, "text/plain; charset=utf-8"),
        ClientOrder::Logs(_) => (frames(false), "application/json"),
        ClientOrder::Stream { follow, .. } => (frames(*follow), "application/json"),
        ClientOrder::List { .. }
        | ClientOrder::Stat { .. }
        | ClientOrder::Read { .. }
        | ClientOrder::Restart { .. }
        | ClientOrder::Signal { .. }
        | ClientOrder::Gc
        | ClientOrder::Exec { .. }
        | ClientOrder::Stats { .. }
        | ClientOrder::Checks => (ClientForm::Bytes, "application/octet-stream"),
    }
}

/// An answer under way.
struct NodeAnswer {
    replies: BoxStream<'static, io::Result<Reply>>,
    first: Option<Reply>,
    form: ClientForm,
    call: NomadCall,
    recheck: Recheck,
    is_over: bool,
    /// The agent's exchange ends when it is told no more; the user's place is free then.
    _held: (Inputs, Open),
}

/// What comes next.
enum NextPart {
    Reply(Reply),
    Refused(Refusal),
    Broken(io::Error),
    Silence,
}

impl NodeAnswer {
    async fn next(mut self) -> Option<(io::Result<BodyFrame<Bytes>>, Self)> {
        while !self.is_over {
            let turned = self.turned().await;
            match self.render(turned) {
                Ok(bytes) if bytes.is_empty() => {}
                Ok(bytes) => {
                    self.call.carried(bytes.len());
                    return Some((Ok(BodyFrame::data(Bytes::from(bytes))), self));
                }
                // There is no place for a reason: the answer breaks off, so that it is not taken for whole.
                Err(refusal) => {
                    self.is_over = true;
                    self.call.answered_at_last(refusal.code);
                    return Some((Err(io::Error::other(refusal.message)), self));
                }
            }
        }
        None
    }

    async fn turned(&mut self) -> NextPart {
        if let Some(first) = self.first.take() {
            return NextPart::Reply(first);
        }
        tokio::select! {
            biased;
            refusal = self.recheck.refused() => NextPart::Refused(refusal),
            reply = self.replies.next() => match reply {
                Some(Ok(reply)) => NextPart::Reply(reply),
                Some(Err(error)) => NextPart::Broken(error),
                None => NextPart::Broken(io::Error::new(io::ErrorKind::UnexpectedEof, "the agent has gone")),
            },
            () = silence(&self.form) => NextPart::Silence,
        }
    }

    /// The bytes of it; notes whether it was the last one.
    fn render(&mut self, turned: NextPart) -> Result<Vec<u8>, Refusal> {
        let reply = match turned {
            NextPart::Silence => return Ok(HEARTBEAT.to_vec()),
            NextPart::Refused(refusal) => return Err(refusal),
            NextPart::Broken(error) => return Err(Refusal::new(504, error.to_string())),
            NextPart::Reply(reply) => reply,
        };
        match (reply, &mut self.form) {
            (Reply::Answer(Said::Error { code, message }), _) => Err(Refusal::new(code, message)),
            (Reply::Answer(Said::Done | Said::Exited { .. }), form) => {
                self.is_over = true;
                match form {
                    ClientForm::Frames { at, is_followed_file: true } => Ok(at.deleted()?),
                    ClientForm::Frames { .. } | ClientForm::Bytes => Ok(Vec::new()),
                }
            }
            (Reply::Answer(Said::At { file, offset }), ClientForm::Frames { at, .. }) => Ok(at.at(&file, offset)?),
            (Reply::Data(bytes), ClientForm::Frames { at, .. }) if !bytes.is_empty() => Ok(at.data(&bytes)?),
            (Reply::Data(bytes), ClientForm::Bytes) => Ok(bytes),
            (Reply::Answer(_) | Reply::Data(_) | Reply::ErrorData(_), _) => Ok(Vec::new()),
        }
    }
}

/// Bytes alone have no heartbeat.
async fn silence(form: &ClientForm) {
    match form {
        ClientForm::Frames { .. } => tokio::time::sleep(HEARTBEAT_EVERY).await,
        ClientForm::Bytes => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use drover_daemon::monitor::GatewayMetrics;
    use drover_nomad::{LogOrder, Position};
    use futures::FutureExt as _;
    use http::Method;
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;
    use tokio::time::Instant;

    use super::*;
    use crate::callers::Caller;
    use crate::limits::{Limits, Opening};
    use crate::reviews::{Identity, Meanwhile, Object, Reviews};

    /// An API server that refuses everything.
    fn reviews() -> Reviews {
        let service = tower::service_fn(|_: http::Request<Body>| async {
            let review = json!({ "metadata": {}, "spec": {}, "status": { "allowed": false } });
            Ok::<_, std::convert::Infallible>(http::Response::new(Body::from(review.to_string().into_bytes())))
        });
        Reviews::new(Client::new(service, "default"), GatewayMetrics::default())
    }

    /// An answer to one whose rights are asked for after so long, of replies that come after so many milliseconds.
    fn carried(order: &ClientOrder, recheck_every: Duration, replies: Vec<(u64, Reply)>) -> NodeAnswer {
        let (identity, limits) = (Identity::default(), Limits::default());
        let call = NomadCall::begin("", &identity, (&Method::GET, "client"), GatewayMetrics::default());
        let open = limits.open(Opening::Stream, "ann").expect("room");
        let caller = Caller { identity, is_still: Box::new(|| async { Ok(()) }.boxed()), recheck_every, limits };
        let object = Object { namespace: "shop".to_owned(), name: "web".to_owned(), subresource: "log" };
        let recheck = Recheck::new(caller, reviews(), object, Meanwhile::GoesOn);
        let replies = unfold(replies.into_iter(), async |mut replies| {
            let (after, reply) = replies.next()?;
            tokio::time::sleep(Duration::from_millis(after)).await;
            Some((Ok(reply), replies))
        });
        let inputs = Exchange::over(tokio::io::empty(), tokio::io::sink()).inputs;
        let (replies, form) = (replies.boxed(), form(order).0);
        NodeAnswer { replies, first: None, form, call, recheck, is_over: false, _held: (inputs, open) }
    }

    /// What is sent, when, and whether it ends as a whole.
    async fn sent(carried: NodeAnswer) -> (Vec<(u128, String)>, bool) {
        let begun = Instant::now();
        let (mut parts, mut seen) = (unfold(carried, NodeAnswer::next).boxed(), Vec::new());
        while let Some(part) = parts.next().await {
            let Ok(part) = part else { return (seen, false) };
            let text = String::from_utf8(part.into_data().expect("data").to_vec()).expect("text");
            seen.push((begun.elapsed().as_millis(), text));
        }
        (seen, true)
    }

    fn log(is_plain: bool) -> ClientOrder {
        let at = Position::default();
        ClientOrder::Logs(LogOrder { task: "web".to_owned(), is_stderr: false, at, follow: true, is_plain })
    }

    const NEVER: Duration = Duration::from_hours(1);

    fn replies() -> Vec<(u64, Reply)> {
        vec![
            (500, Reply::Answer(Said::At { file: "f".to_owned(), offset: 0 })),
            (0, Reply::Data(b"a".to_vec())),
            (2600, Reply::Data(b"b".to_vec())),
            (0, Reply::Answer(Said::Done)),
        ]
    }

    #[tokio::test(start_paused = true)]
    async fn p_035_a_silent_log_has_a_heartbeat_each_second_and_ends_with_what_is_followed() {
        let (seen, is_whole) = sent(carried(&log(false), NEVER, replies())).await;
        let seen: Vec<(u128, &str)> = seen.iter().map(|(at, text)| (*at, text.as_str())).collect();
        let (first, last) = (r#"{"Data":"YQ==","File":"f"}"#, r#"{"Offset":1,"Data":"Yg==","File":"f"}"#);
        assert_eq!((seen, is_whole), (vec![(500, first), (1500, "{}"), (2500, "{}"), (3100, last)], true));
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_alone_have_no_heartbeat_and_a_followed_file_ends_with_its_name() {
        let (seen, is_whole) = sent(carried(&log(true), NEVER, replies())).await;
        assert_eq!((seen, is_whole), (vec![(500, "a".to_owned()), (3100, "b".to_owned())], true));
        let file = ClientOrder::Stream { path: "f".to_owned(), at: Position::default(), follow: true };
        let (seen, is_whole) = sent(carried(&file, NEVER, replies())).await;
        let end = r#"{"Offset":2,"File":"f","FileEvent":"file deleted"}"#;
        assert_eq!((seen.last().map(|(_, text)| text.as_str()), is_whole), (Some(end), true));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_breaks_off_with_its_right_with_the_agent_and_with_what_the_agent_refuses() {
        let (seen, is_whole) = sent(carried(&log(true), Duration::from_secs(2), replies())).await;
        assert_eq!((seen, is_whole), (vec![(500, "a".to_owned())], false));
        let mut gone = replies();
        gone.pop();
        assert!(!sent(carried(&log(true), NEVER, gone)).await.1);
        let mut refused = replies();
        refused[2].1 = Reply::Answer(Said::Error { code: 500, message: "no".to_owned() });
        assert!(!sent(carried(&log(false), NEVER, refused)).await.1);
    }
}
