//! A command in a task, over a WebSocket with a JSON object in each message.
//!
//! The connection becomes a WebSocket before anything is asked, because clients show what a close says, and of a
//! refused handshake nothing. A browser, which cannot send a header, shows its token in the first message.

use std::pin::pin;
use std::time::Duration;

use drover_nomad::{
    ClientEndpoint, Closing, ExecInput, ExecOutput, Fault, MOST_REASON_BYTES, Query, exec_inputs, shown_token,
};
use drover_socket::client::{Inputs, Replies, Reply};
use drover_socket::protocol::{Answer as Said, Input, TtySize};
use futures::{FutureExt as _, Sink, SinkExt as _, Stream, StreamExt as _};
use http::{HeaderMap, header};
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::Error as SocketError;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Message};

use super::begin::{Ask, NodeSession};
use crate::answers::Refusal;
use crate::callers::Caller;
use crate::limits::Opening;
use crate::nomad::audit::NomadCall;
use crate::nomad::service::{Answered, Asked, Identify, Nomad};
use crate::reviews::Identity;
use crate::websocket;

/// How long a browser may take to show its token.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the size of a terminal is waited for, which clients send at once: a command may ask for it at once.
const SIZE_WAIT: Duration = Duration::from_millis(250);
/// The most that is taken in before; more waits.
const MOST_EARLY: usize = 16;
/// Who asks.
enum Who {
    /// The request names it.
    Known(Result<Caller, Refusal>),
    /// The first message names it, and nothing else does.
    Shows(Identify),
}

/// A command that is asked for.
struct Command {
    nomad: Nomad,
    endpoint: ClientEndpoint,
    /// Its parameters, or what is wrong with them.
    query: Result<Query, Fault>,
    call: NomadCall,
}

impl Nomad {
    /// Makes a WebSocket of the connection, and carries the command over it.
    pub(in crate::nomad) fn exec(&self, endpoint: ClientEndpoint, asked: Asked) -> Answered {
        let Asked { caller, identify, limits, path, request } = asked;
        let query = Query::parse(request.uri().query().unwrap_or_default());
        let unknown = Identity::default();
        let mut call = self.call(caller.as_ref().map_or(&unknown, |caller| &caller.identity), &path, &request);
        let is_shown = query.as_ref().is_ok_and(|query| query.is("ws_handshake", false));
        let accepted = from_here(request.headers(), is_shown).and_then(|()| websocket::accept(request.headers()));
        let response = accepted.and_then(|accept| websocket::switching(&accept, None));
        let open = response.and_then(|response| Ok((response, limits.open(Opening::Socket, "")?)));
        let (response, open) = match open {
            Ok(both) => both,
            Err(refusal) => return self.finished(call, Err(refusal)).into(),
        };
        call.answered(101, 0);
        let who = if is_shown { Who::Shows(identify) } else { Who::Known(caller) };
        let command = Command { nomad: self.clone(), endpoint, query, call };
        let goes_on = async move {
            let socket = match websocket::upgraded(request).await {
                Ok(socket) => socket,
                Err(error) => return tracing::debug!(%error, "a WebSocket did not come about"),
            };
            let (mut to, mut from) = socket.split();
            if let Some(closing) = command.converse(who, &mut to, &mut from).await {
                let frame = CloseFrame { code: closing.code.into(), reason: closing.reason.into() };
                websocket::close(to, from, Some(frame)).await;
            }
            drop(open);
        };
        Answered { response, goes_on: Some(goes_on.boxed()) }
    }
}

/// Refuses what a page of elsewhere has a browser send: it would come with the browser's certificate.
fn from_here(headers: &HeaderMap, is_shown: bool) -> Result<(), Refusal> {
    let origin = websocket::text(headers, header::ORIGIN);
    let host = origin.split_once("://").map_or(origin, |(_, host)| host);
    if is_shown || origin.is_empty() || host == websocket::text(headers, header::HOST) {
        return Ok(());
    }
    Err(Refusal::new(403, format!("{origin:?} is another place: ask with ws_handshake=true and show a token")))
}

impl Command {
    /// Carries it until it has ended, its client has gone, or its user may no more; how the connection is closed, or
    /// none when the client has gone. The agent ends the command when the exchange ends.
    async fn converse<W, R>(mut self, who: Who, to: &mut W, from: &mut R) -> Option<Closing>
    where
        W: Sink<Message, Error = SocketError> + Unpin,
        R: Stream<Item = Result<Message, SocketError>> + Unpin,
    {
        match self.carry(who, to, from).await {
            Ok(closing) => closing,
            Err(refusal) => {
                self.call.answered_at_last(refusal.code);
                Some(Closing::refused(refusal.code, &self.shown(refusal)))
            }
        }
    }

    async fn carry<W, R>(&mut self, who: Who, to: &mut W, from: &mut R) -> Result<Option<Closing>, Refusal>
    where
        W: Sink<Message, Error = SocketError> + Unpin,
        R: Stream<Item = Result<Message, SocketError>> + Unpin,
    {
        let caller = who.known(from).await?;
        self.call.by(&caller.identity);
        let query = self.query.clone()?;
        let (size, early) = if query.is("tty", false) { early(from).await? } else { (None, Vec::new()) };
        let ask = Ask { endpoint: self.endpoint.clone(), query, body: &[], size };
        let NodeSession { exchange, open, mut recheck, .. } = self.nomad.begin(&mut self.call, caller, ask).await?;
        let (mut replies, mut inputs) = (exchange.replies, exchange.inputs);
        let ended = {
            let mut told = pin!(tell(early, from, &mut inputs));
            let mut heard = pin!(hear(&mut replies, to, &mut self.call));
            tokio::select! {
                biased;
                refusal = recheck.refused() => Err(refusal),
                heard = &mut heard => heard,
                told = &mut told => told.map(|()| None),
            }
        };
        drop(open);
        ended
    }

    /// What a close says of a refusal: where a right is missing, which one, as the whole sentence has no room.
    fn shown(&self, refusal: Refusal) -> String {
        if refusal.code != 403 || refusal.message.len() <= MOST_REASON_BYTES {
            return refusal.message;
        }
        let namespace = self.query.as_ref().map(Query::namespace).unwrap_or_default();
        format!("Permission denied: create on allocations/exec is missing in {namespace}")
    }
}

impl Who {
    async fn known<R>(self, from: &mut R) -> Result<Caller, Refusal>
    where
        R: Stream<Item = Result<Message, SocketError>> + Unpin,
    {
        let identify = match self {
            Self::Known(caller) => return caller,
            Self::Shows(identify) => identify,
        };
        let first = tokio::time::timeout(TOKEN_TIMEOUT, text(from)).await.ok().flatten();
        let first = first.ok_or_else(|| Refusal::new(400, "the first message, with the token, did not come"))?;
        identify(shown_token(&first)?).await
    }
}

/// The next message of a client; none: it has gone. May be dropped and called again.
async fn text<R>(from: &mut R) -> Option<String>
where
    R: Stream<Item = Result<Message, SocketError>> + Unpin,
{
    loop {
        match from.next().await {
            Some(Ok(Message::Text(text))) => return Some(text.to_string()),
            Some(Ok(Message::Binary(bytes))) => return Some(String::from_utf8_lossy(&bytes).into_owned()),
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            Some(Ok(Message::Close(_) | Message::Frame(_)) | Err(_)) | None => return None,
        }
    }
}

/// The size of a terminal that comes at once, and what comes beside it.
async fn early<R>(from: &mut R) -> Result<(Option<TtySize>, Vec<ExecInput>), Refusal>
where
    R: Stream<Item = Result<Message, SocketError>> + Unpin,
{
    let (until, mut size, mut others) = (Instant::now() + SIZE_WAIT, None, Vec::new());
    while size.is_none() && others.len() < MOST_EARLY {
        let Ok(Some(message)) = tokio::time::timeout_at(until, text(from)).await else { break };
        for input in exec_inputs(&message)? {
            match input {
                ExecInput::Size { height, width } => size = Some(TtySize { height, width }),
                ExecInput::Data(_) | ExecInput::Close => others.push(input),
            }
        }
    }
    Ok((size, others))
}

/// Sends what the command does until it has ended; none: the client has gone.
async fn hear<W>(replies: &mut Replies, to: &mut W, call: &mut NomadCall) -> Result<Option<Closing>, Refusal>
where
    W: Sink<Message, Error = SocketError> + Unpin,
{
    loop {
        let reply = replies.next().await.map_err(|error| Refusal::new(504, format!("the tunnel broke: {error}")))?;
        let reply = reply.ok_or_else(|| Refusal::new(504, "the agent has gone while the command ran"))?;
        let (sent, closing) = match reply {
            Reply::Data(bytes) => {
                call.carried(bytes.len());
                (send(to, &ExecOutput::Stdout(&bytes)).await, None)
            }
            Reply::ErrorData(bytes) => {
                call.carried(bytes.len());
                (send(to, &ExecOutput::Stderr(&bytes)).await, None)
            }
            Reply::Answer(Said::Error { code, message }) => return Err(Refusal::new(code, message)),
            Reply::Answer(Said::Exited { exit_code }) => (last(to, exit_code).await, Some(Closing::well())),
            Reply::Answer(_) => continue,
        };
        if let Err(error) = sent {
            tracing::debug!(%error, "a client went away while its command ran");
            return Ok(None);
        }
        if closing.is_some() {
            return Ok(closing);
        }
    }
}

async fn last<W>(to: &mut W, exit_code: i32) -> Result<(), SocketError>
where
    W: Sink<Message, Error = SocketError> + Unpin,
{
    send(to, &ExecOutput::Closed).await?;
    send(to, &ExecOutput::Exited(exit_code)).await
}

async fn send<W>(to: &mut W, output: &ExecOutput<'_>) -> Result<(), SocketError>
where
    W: Sink<Message, Error = SocketError> + Unpin,
{
    to.send(Message::Text(output.message().into())).await
}

/// Hands over what the client sends; ends when it has gone, or sends what no client sends.
async fn tell<R>(early: Vec<ExecInput>, from: &mut R, inputs: &mut Inputs) -> Result<(), Refusal>
where
    R: Stream<Item = Result<Message, SocketError>> + Unpin,
{
    let mut next = early;
    loop {
        for input in next {
            let told = match input {
                ExecInput::Data(bytes) => inputs.data(&bytes).await,
                ExecInput::Close => inputs.tell(Input::Close).await,
                ExecInput::Size { height, width } => inputs.tell(Input::Resize(TtySize { height, width })).await,
            };
            if told.is_err() {
                // The agent has said why: `hear` is told.
                return std::future::pending().await;
            }
        }
        let Some(message) = text(from).await else { return Ok(()) };
        next = exec_inputs(&message)?;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use drover_socket::client::Exchange;
    use drover_socket::protocol::{self, Frame, FrameKind};
    use futures::stream::{self, unfold};
    use http::HeaderValue;

    use super::*;

    fn message(text: &str) -> Message {
        Message::Text(text.into())
    }

    #[test]
    fn what_a_page_of_elsewhere_has_a_browser_send_is_refused_without_a_token_of_its_own() {
        let from = |origin: Option<&'static str>, is_shown| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_static("gateway:8443"));
            if let Some(origin) = origin {
                headers.insert(header::ORIGIN, HeaderValue::from_static(origin));
            }
            from_here(&headers, is_shown).map_err(|refusal| refusal.code)
        };
        assert_eq!((from(None, false), from(Some("https://gateway:8443"), false)), (Ok(()), Ok(())));
        for origin in ["https://elsewhere", "https://gateway", "https://gateway:8443.elsewhere", "null"] {
            assert_eq!((from(Some(origin), false), from(Some(origin), true)), (Err(403), Ok(())), "{origin}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_size_of_a_terminal_is_known_before_its_command_and_nothing_that_comes_before_it_is_lost() {
        let sent = [
            r#"{"stdin":{"data":"aGk="}}"#,
            "{}",
            r#"{"tty_size":{"height":40,"width":120}}"#,
            r#"{"stdin":{"close":true}}"#,
        ];
        let mut from = stream::iter(sent.map(|text| Ok(message(text))));
        let found = early(&mut from).await.expect("inputs");
        assert_eq!(found, (Some(TtySize { height: 40, width: 120 }), vec![ExecInput::Data(b"hi".to_vec())]));
        assert_eq!(text(&mut from).await.as_deref(), Some(sent[3]), "the rest is left");
        let begun = Instant::now();
        assert_eq!(early(&mut stream::pending()).await, Ok((None, Vec::new())));
        assert_eq!(begun.elapsed(), SIZE_WAIT, "one that says nothing is not waited for");
        let many = stream::iter(std::iter::repeat_with(|| Ok(message(sent[0]))).take(100));
        assert_eq!(early(&mut pin!(many)).await.map(|(_, inputs)| inputs.len()), Ok(MOST_EARLY));
        assert_eq!(early(&mut stream::iter([Ok(message("no"))])).await.map_err(|refusal| refusal.code), Err(400));
    }

    #[tokio::test(start_paused = true)]
    async fn p_032_a_command_is_told_after_a_minute_of_heartbeats_of_which_it_sees_nothing() {
        let sent = VecDeque::from([r"{}", r"{}", r"{}", r"{}", r"{}", r"{}", r#"{"stdin":{"data":"eA=="}}"#]);
        let messages = unfold(sent, async |mut sent| {
            tokio::time::sleep(Duration::from_secs(10)).await;
            Some((Ok(message(sent.pop_front()?)), sent))
        });
        let (ours, mut theirs) = tokio::io::duplex(1024);
        let mut inputs = Exchange::over(tokio::io::empty(), ours).inputs;
        let early = vec![ExecInput::Data(b"early".to_vec())];
        assert_eq!(tell(early, &mut pin!(messages), &mut inputs).await, Ok(()));
        drop(inputs);
        for text in ["early", "x"] {
            let frame = Frame { kind: FrameKind::Data, payload: text.into() };
            assert_eq!(protocol::read_frame(&mut theirs).await.expect("frames"), Some(frame));
        }
        assert_eq!(protocol::read_frame(&mut theirs).await.expect("frames"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_browser_that_shows_nothing_is_not_waited_for_and_its_token_is_read_from_the_first_message() {
        let who = || Who::Shows(Box::new(|token| async move { Err(Refusal::new(401, token)) }.boxed()));
        let of = async |messages: &[&str]| {
            let mut from = stream::iter(messages.iter().map(|text| Ok(message(text))).collect::<Vec<_>>());
            who().known(&mut from).await.map(drop).map_err(|refusal| (refusal.code, refusal.message))
        };
        let shown = of(&[r#"{"version":1,"auth_token":"x"}"#, "{}"]).await;
        assert_eq!(shown, Err((401, "x".to_owned())));
        assert_eq!(of(&["{}"]).await.map_err(|it| it.0), Err(400));
        assert_eq!(of(&[]).await.map_err(|it| it.0), Err(400));
        let begun = Instant::now();
        let late = who().known(&mut stream::pending()).await.map(drop).map_err(|refusal| refusal.code);
        assert_eq!((late, begun.elapsed()), (Err(400), TOKEN_TIMEOUT));
    }
}
