//! The listener for probes and scrapes: plain HTTP, three paths, nothing that is secret.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Health, Metrics};

/// Probes and scrapers together; who comes beyond that waits.
const MAX_CONNECTIONS: usize = 16;
/// Who takes longer to ask, or keeps a connection that long, is cut.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
const CONNECTION_TIMEOUT: Duration = Duration::from_mins(1);

/// Answers until `stop`.
///
/// # Errors
/// When the address cannot be listened on.
pub async fn serve(
    address: SocketAddr,
    health: Health,
    metrics: Metrics,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address).await.with_context(|| format!("listening on {address} for probes"))?;
    tracing::info!(address = %listener.local_addr().unwrap_or(address), "probes and scrapes are answered");
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let place = Arc::clone(&places).acquire_owned().await.context("the listener for probes")?;
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let (health, metrics) = (health.clone(), metrics.clone());
                    connections.spawn(async move {
                        converse(stream, &health, &metrics).await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection for probes cannot be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
        }
    }
}

async fn converse(stream: TcpStream, health: &Health, metrics: &Metrics) {
    let service = service_fn(async |request: Request<Incoming>| Ok::<_, Infallible>(answer(&request, health, metrics)));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    if let Ok(Err(error)) = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await {
        tracing::debug!(%error, "a connection for probes ended");
    }
}

fn answer<B>(request: &Request<B>, health: &Health, metrics: &Metrics) -> Response<Full<Bytes>> {
    if request.method() != Method::GET {
        return text(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "only GET is answered here\n".to_owned());
    }
    match request.uri().path() {
        "/healthz" => text(StatusCode::OK, "text/plain", "ok\n".to_owned()),
        "/readyz" => {
            let problems = health.problems();
            if problems.is_empty() {
                return text(StatusCode::OK, "text/plain", "ok\n".to_owned());
            }
            text(StatusCode::SERVICE_UNAVAILABLE, "text/plain", problems.join("\n") + "\n")
        }
        "/metrics" => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            text(StatusCode::OK, kind, metrics.text())
        }
        _ => text(StatusCode::NOT_FOUND, "text/plain", "/healthz, /readyz and /metrics are answered here\n".to_owned()),
    }
}

fn text(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    async fn ask(method: Method, path: &str, health: &Health) -> (u16, String) {
        let request = Request::builder().method(method).uri(path).body(()).expect("a request");
        let response = answer(&request, health, &Metrics::default());
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    #[tokio::test]
    async fn readiness_says_what_is_missing_and_liveness_does_not_depend_on_it() {
        let health = Health::of(&["leader"]);
        assert_eq!(ask(Method::GET, "/healthz", &health).await, (200, "ok\n".to_owned()));
        assert_eq!(ask(Method::GET, "/readyz", &health).await, (503, "leader: not known yet\n".to_owned()));
        health.well("leader");
        assert_eq!(ask(Method::GET, "/readyz", &health).await, (200, "ok\n".to_owned()));
        assert_eq!(ask(Method::GET, "/elsewhere", &health).await.0, 404);
        assert_eq!(ask(Method::POST, "/healthz", &health).await.0, 405);
        let (status, text) = ask(Method::GET, "/metrics", &health).await;
        assert!(status == 200 && text.ends_with("# EOF\n"), "{text}");
    }
}
