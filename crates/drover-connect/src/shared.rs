//! Requests that share connections of HTTP/2: who follows thousands of objects one by one would have as many
//! connections otherwise, and each of HTTP/1.1 holds 30 KB here and a file at both ends.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::Context as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::{Connection as _, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::Config;
use kube::client::{Body, ConfigExt as _, DynBody};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::{BoxError, Service, ServiceExt as _};

use crate::dial::{PREPARING, tcp};

/// Requests of one connection at a time. The API server takes 100 (`MaxConcurrentStreams`, 250 before version 1.29)
/// unless it is told otherwise; more would wait for the end of another, and a watch does not end.
const STREAMS: usize = 90;
/// How often a connection is tried over which nothing comes, and how long the API server may take: an API server that
/// went away without a word is noticed, and its watches begin again.
const PING_EVERY: Duration = Duration::from_secs(15);
const PING_TIMEOUT: Duration = Duration::from_secs(15);

type Connector = TimeoutConnector<HttpsConnector<HttpConnector>>;

/// A connection, once it is needed, and again when it broke.
#[derive(Clone, Debug)]
struct Line {
    http: HttpClient<Connector, Body>,
    places: Arc<Semaphore>,
}

/// Sends requests over as few connections as have room for them; clones share these.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    connector: Connector,
    lines: Arc<Mutex<Vec<Line>>>,
}

impl Shared {
    /// None is open yet.
    ///
    /// # Errors
    /// When the configuration cannot be used.
    pub(crate) fn new(config: &Config) -> anyhow::Result<Self> {
        let mut connector = TimeoutConnector::new(https(config)?);
        connector.set_connect_timeout(config.connect_timeout);
        connector.set_write_timeout(config.write_timeout);
        Ok(Self { connector, lines: Arc::default() })
    }

    /// The first connection with room, and the room.
    fn place(&self) -> (HttpClient<Connector, Body>, OwnedSemaphorePermit) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let free = |line: &Line| Some((line.http.clone(), Arc::clone(&line.places).try_acquire_owned().ok()?));
        loop {
            if let Some(place) = lines.iter().find_map(free) {
                return place;
            }
            let http = HttpClient::builder(TokioExecutor::new())
                .timer(TokioTimer::new())
                .pool_timer(TokioTimer::new())
                .http2_only(true)
                .http2_keep_alive_interval(PING_EVERY)
                .http2_keep_alive_timeout(PING_TIMEOUT)
                .build(self.connector.clone());
            lines.push(Line { http, places: Arc::new(Semaphore::new(STREAMS)) });
        }
    }
}

impl Service<Request<Body>> for Shared {
    type Response = Response<Box<DynBody>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (http, place) = self.place();
        Box::pin(async move {
            let answer = http.request(request).await?;
            // The place is free when the answer's last part was taken, or nobody wants it.
            Ok(answer.map(|body| {
                let held = body.map_err(BoxError::from).map_frame(move |frame| {
                    let _held = &place;
                    frame
                });
                Box::new(held) as Box<DynBody>
            }))
        })
    }
}

/// Whether the API server of a configuration speaks HTTP/2. One that cannot be reached now is taken to.
pub(crate) async fn speaks_http2(config: &Config) -> anyhow::Result<bool> {
    if config.cluster_url.scheme_str() != Some("https") {
        return Ok(false);
    }
    let dialled = tokio::time::timeout(PING_TIMEOUT, https(config)?.oneshot(config.cluster_url.clone())).await;
    Ok(!matches!(dialled, Ok(Ok(connection)) if !connection.connected().is_negotiated_h2()))
}

/// Opens connections, over which HTTP/2 is spoken where the other side does.
fn https(config: &Config) -> anyhow::Result<HttpsConnector<HttpConnector>> {
    let mut builder =
        HttpsConnectorBuilder::new().with_tls_config(config.rustls_client_config().context(PREPARING)?).https_or_http();
    if let Some(name) = &config.tls_server_name {
        let name = name.clone().try_into().with_context(|| format!("using tls-server-name {name}"))?;
        builder = builder.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    Ok(builder.enable_all_versions().wrap_connector(tcp()))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::{StreamExt as _, stream};
    use http_body_util::StreamBody;
    use hyper::body::{Bytes, Frame};
    use hyper::server::conn::http2;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use tokio::net::TcpListener;
    use tokio::task::JoinSet;

    use super::*;

    /// Answers each request by a watch that never ends; counts connections.
    async fn serve(listener: TcpListener, n_connections: &AtomicUsize) -> Infallible {
        let mut serving = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            n_connections.fetch_add(1, Ordering::Relaxed);
            let watch = service_fn(async |_| {
                let first = Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"{}")));
                Ok::<_, Infallible>(Response::new(StreamBody::new(stream::iter([first]).chain(stream::pending()))))
            });
            serving.spawn(http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), watch));
        }
    }

    #[tokio::test]
    async fn watches_share_connections_and_leave_their_places_when_they_end() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url: http::Uri = format!("http://{}", listener.local_addr().expect("an address")).parse().expect("a URI");
        let n_connections = AtomicUsize::new(0);
        let asking = async {
            let mut shared = Shared::new(&Config::new(url.clone())).expect("a client");
            for _ in 0..2 {
                let mut watches = Vec::new();
                for _ in 0..=STREAMS {
                    let request = Request::get(url.clone()).body(Body::empty()).expect("a request");
                    let mut watch = shared.ready().await.expect("ready").call(request).await.expect("it begins");
                    assert!(watch.frame().await.is_some(), "it says something");
                    watches.push(watch);
                }
                assert_eq!(n_connections.load(Ordering::Relaxed), 2);
            }
        };
        tokio::select! {
            never = serve(listener, &n_connections) => match never {},
            () = asking => {}
        }
    }
}
