//! Answers what comes through a tunnel: one stream of HTTP/2 for each exchange, with the frames of the agent's socket
//! in both directions.

use std::convert::Infallible;
use std::io;

use drover_socket::executor::Executor;
use drover_socket::tunnel::{
    ALLOCATION_HEADER, CONNECTION_WINDOW, EXCHANGE_PATH, MAX_REPLICAS_BYTES, NAMESPACE_HEADER, PING_EVERY,
    PING_TIMEOUT, REPLICAS_PATH, Replicas, STREAM_WINDOW, UNSENT_BYTES,
};
use futures::{StreamExt as _, TryStreamExt as _};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, Limited, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioTimer;
use tokio::sync::mpsc;
use tokio_util::io::{ReaderStream, StreamReader};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::socket::{Caller, Server};

/// Exchanges of a tunnel at a time; the gateway holds others back. A thousand may follow one task, and each takes twice
/// [`UNSENT_BYTES`] here at most when its client does not read.
const MAX_EXCHANGES: u32 = 1024;
type Body = UnsyncBoxBody<Bytes, io::Error>;

/// What a replica has told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct News {
    /// The address by which it was dialled.
    pub(super) from: String,
    pub(super) replicas: Replicas,
}

/// Who a tunnel leads to, and who is told what comes from there.
type Tell = (String, mpsc::Sender<News>);

/// Answers until the tunnel ends; what it has begun ends with it. A replica that ends is asked for nothing more to
/// begin: the tunnel ends with its last exchange.
pub(super) async fn serve(
    tunnel: Upgraded,
    server: Server,
    tasks: &TaskTracker,
    tell: Tell,
) -> Result<(), hyper::Error> {
    let (exchanges, leaving) = (tasks.clone(), CancellationToken::new());
    let left = leaving.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let (server, exchanges, tell, left) = (server.clone(), exchanges.clone(), tell.clone(), left.clone());
        async move {
            Ok::<_, Infallible>(if request.uri().path() == REPLICAS_PATH {
                plain(hear(request, &tell, &left).await)
            } else {
                exchange(request, server, &exchanges)
            })
        }
    });
    let connection = http2::Builder::new(Executor(tasks.clone()))
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(MAX_EXCHANGES)
        .max_send_buf_size(UNSENT_BYTES)
        .serve_connection(tunnel, service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        biased;
        ended = &mut connection => return ended,
        () = leaving.cancelled() => {}
    }
    connection.as_mut().graceful_shutdown();
    connection.await
}

/// Takes in what the replica tells of itself and the others.
async fn hear(request: Request<Incoming>, (from, tell): &Tell, left: &CancellationToken) -> StatusCode {
    let body = Limited::new(request.into_body(), MAX_REPLICAS_BYTES).collect().await;
    let Ok(body) = body else { return StatusCode::PAYLOAD_TOO_LARGE };
    let replicas: Replicas = match serde_json::from_slice(&body.to_bytes()) {
        Ok(replicas) => replicas,
        Err(error) => {
            tracing::warn!(from, %error, "what a replica of the gateway tells is not understood");
            return StatusCode::BAD_REQUEST;
        }
    };
    if replicas.is_leaving {
        left.cancel();
    }
    match tell.send(News { from: from.clone(), replicas }).await {
        Ok(()) => StatusCode::OK,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
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
    let (namespace, uid) = (text(NAMESPACE_HEADER)?, text(ALLOCATION_HEADER)?);
    // What names no allocation is about the node.
    let is_of_node = namespace.is_empty() && uid.is_empty();
    Some(if is_of_node { Caller::GatewayOfNode } else { Caller::Gateway { namespace, uid } })
}

fn plain(code: StatusCode) -> Response<Body> {
    let mut answer = Response::new(Empty::new().map_err(|never: Infallible| match never {}).boxed_unsync());
    *answer.status_mut() = code;
    answer
}
