//! One connection of a task: each request is looked at and passed on, with its body, its answer and what follows on an
//! upgrade.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use drover_store::Store;
use http::{HeaderValue, Request, Response, StatusCode, Uri, header};
use http_body_util::{Either, Full};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::UnixStream;
use tokio::sync::{Mutex as AsyncMutex, OwnedSemaphorePermit};
use tokio::task::JoinSet;

use super::callers;
use super::line::GatewayLine;
use super::pace::Pace;
use super::refusals::ApiRefusal;

/// How long a request's head may take.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// A body that comes from the gateway; the call lasts as long.
#[derive(Debug)]
pub(super) struct Relayed {
    body: Incoming,
    _call: OwnedSemaphorePermit,
}

impl Body for Relayed {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

type ApiAnswer = Response<Either<Relayed, Full<Bytes>>>;

/// Answers one connection until it ends.
pub(super) async fn answer<S: Store>(stream: UnixStream, line: GatewayLine<S>, pace: Arc<Pace>) {
    let (line, upgraded) = (AsyncMutex::new(line), Mutex::new(JoinSet::new()));
    let one = async |request: Request<Incoming>| {
        let answered = relay(request, &line, &pace, &upgraded).await;
        Ok::<_, Infallible>(answered.unwrap_or_else(|refusal| refusal.answer(|bytes| Either::Right(Full::new(bytes)))))
    };
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service_fn(one))
        .with_upgrades();
    if let Err(error) = served.await {
        tracing::debug!(%error, "a connection of a task's API broke");
    }
    let mut upgraded = upgraded.into_inner().unwrap_or_else(PoisonError::into_inner);
    while upgraded.join_next().await.is_some() {}
}

async fn relay<S: Store>(
    mut request: Request<Incoming>,
    line: &AsyncMutex<GatewayLine<S>>,
    pace: &Pace,
    upgraded: &Mutex<JoinSet<()>>,
) -> Result<ApiAnswer, ApiRefusal> {
    callers::check(request.headers())?;
    let call = pace.begin()?;
    let wrong = |why: String| ApiRefusal::new(StatusCode::BAD_REQUEST, why);
    let path = request.uri().path_and_query().ok_or_else(|| wrong("the request names no path".to_owned()))?.clone();
    *request.uri_mut() = Uri::from(path);
    let mut line = line.lock().await;
    let host = HeaderValue::from_str(line.server_name()).map_err(|error| wrong(error.to_string()))?;
    request.headers_mut().insert(header::HOST, host);
    let theirs = request.headers().contains_key(header::UPGRADE).then(|| hyper::upgrade::on(&mut request));
    let mut answer = line.send(request).await?;
    match (answer.status(), theirs) {
        // It was shown, so that it is of no worth: only who shows none is asked to.
        (StatusCode::UNAUTHORIZED, _) => {
            Err(ApiRefusal::new(StatusCode::FORBIDDEN, "the token is of no one who is known"))
        }
        (StatusCode::SWITCHING_PROTOCOLS, Some(theirs)) => {
            let ours = hyper::upgrade::on(&mut answer);
            let carried = async move {
                let _call = call;
                let (Ok(ours), Ok(theirs)) = tokio::join!(ours, theirs) else { return };
                let (mut ours, mut theirs) = (TokioIo::new(ours), TokioIo::new(theirs));
                if let Err(error) = tokio::io::copy_bidirectional(&mut ours, &mut theirs).await {
                    tracing::debug!(%error, "a stream of a task's API broke");
                }
            };
            upgraded.lock().unwrap_or_else(PoisonError::into_inner).spawn(carried);
            Ok(answer.map(|_| Either::Right(Full::default())))
        }
        _ => Ok(answer.map(|body| Either::Left(Relayed { body, _call: call }))),
    }
}
