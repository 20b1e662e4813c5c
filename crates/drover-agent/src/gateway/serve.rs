//! Answers what comes through a tunnel: one stream of HTTP/2 for each exchange, with the frames of the agent's socket
//! in both directions.

use std::convert::Infallible;
use std::io;

use drover_socket::tunnel::{
    ALLOCATION_HEADER, CONNECTION_WINDOW, EXCHANGE_PATH, NAMESPACE_HEADER, PING_EVERY, PING_TIMEOUT, STREAM_WINDOW,
    UNSENT_BYTES,
};
use futures::{StreamExt as _, TryStreamExt as _};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioTimer;
use tokio_util::io::{ReaderStream, StreamReader};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::socket::{Caller, Server};

/// Exchanges of a tunnel at a time; the gateway holds others back.
const MAX_EXCHANGES: u32 = 256;
type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Where HTTP/2 runs what it needs beside.
#[derive(Clone, Debug)]
struct Executor(TaskTracker);

impl<F> hyper::rt::Executor<F> for Executor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, task: F) {
        drop(self.0.spawn(task));
    }
}

/// Answers until the tunnel ends; what it has begun ends with it.
pub(super) async fn serve(tunnel: Upgraded, server: Server, tasks: &TaskTracker) -> Result<(), hyper::Error> {
    let exchanges = tasks.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = exchange(request, server.clone(), &exchanges);
        async move { Ok::<_, Infallible>(answer) }
    });
    http2::Builder::new(Executor(tasks.clone()))
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(MAX_EXCHANGES)
        .serve_connection(tunnel, service)
        .await
}

fn exchange(request: Request<Incoming>, server: Server, tasks: &TaskTracker) -> Response<Body> {
    if request.uri().path() != EXCHANGE_PATH || request.method() != Method::POST {
        return plain(StatusCode::NOT_FOUND);
    }
    let Some(caller) = caller(request.headers()) else { return plain(StatusCode::BAD_REQUEST) };
    let from = StreamReader::new(request.into_body().into_data_stream().map_err(io::Error::other));
    let (theirs, ours) = tokio::io::duplex(UNSENT_BYTES);
    // The exchange ends when its answer is no longer wanted, also while it waits for something to say.
    let end = CancellationToken::new();
    let wanted = end.clone().drop_guard();
    drop(tasks.spawn(async move {
        tokio::select! {
            biased;
            () = end.cancelled() => {}
            () = server.converse(caller, Box::new(from), Box::new(theirs)) => {}
        }
    }));
    let frames = ReaderStream::new(ours).map(move |part| {
        let _wanted = &wanted;
        part.map(Frame::data)
    });
    Response::new(StreamBody::new(frames).boxed_unsync())
}

fn caller(headers: &HeaderMap) -> Option<Caller> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::to_owned);
    Some(Caller::Gateway { namespace: text(NAMESPACE_HEADER)?, uid: text(ALLOCATION_HEADER)? })
}

fn plain(code: StatusCode) -> Response<Body> {
    let mut answer = Response::new(Empty::new().map_err(|never: Infallible| match never {}).boxed_unsync());
    *answer.status_mut() = code;
    answer
}
