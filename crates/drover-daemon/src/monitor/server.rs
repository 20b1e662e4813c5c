//! The listener for probes and scrapes: plain HTTP, three paths, nothing that is secret.
//!
//! Who comes is answered, however many connections others hold: above a number of them the oldest is cut. A port that
//! another process holds ends nothing: it is told of and tried again.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::{Health, Metrics};

/// The part of a daemon's health that is its port.
pub const PORT: &str = "port";

/// The media type of what a scrape is answered with.
pub const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Connections at the same time. With another one the oldest is cut: who asks is answered within milliseconds, and who
/// only holds a connection has to hold it against everyone that comes.
const MAX_CONNECTIONS: usize = 128;
/// Who takes longer to ask, or keeps a connection that long, is cut.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
const CONNECTION_TIMEOUT: Duration = Duration::from_mins(1);
/// The pause before a port that is taken is tried again.
const RETRY: Duration = Duration::from_secs(2);

/// Answers until `stop`. While the address cannot be listened on, the daemon's health says why.
pub async fn serve(address: SocketAddr, health: Health, metrics: Metrics, stop: CancellationToken) {
    let serve = async {
        let listener = listen(address, &health).await;
        tracing::info!(address = %listener.local_addr().unwrap_or(address), "probes and scrapes are answered");
        accept(&listener, &health, &metrics).await;
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = serve => {}
    }
}

async fn listen(address: SocketAddr, health: &Health) -> TcpListener {
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => {
                health.well(PORT);
                return listener;
            }
            Err(error) => health.ill(
                PORT,
                format!(
                    "{address} cannot be listened on: {error}; it is tried again. End the process that holds port {}, \
                     or have the administrator of the cluster give this daemon another one",
                    address.port()
                ),
            ),
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// The open connections, the oldest first.
#[derive(Debug, Default)]
struct Connections {
    open: BTreeMap<u64, AbortHandle>,
    next: u64,
    tasks: JoinSet<u64>,
}

impl Connections {
    fn add(&mut self, conversation: impl Future<Output = ()> + Send + 'static) {
        if self.open.len() >= MAX_CONNECTIONS
            && let Some((_, oldest)) = self.open.pop_first()
        {
            oldest.abort();
        }
        let number = self.next;
        self.next += 1;
        let handle = self.tasks.spawn(async move {
            conversation.await;
            number
        });
        self.open.insert(number, handle);
    }
}

async fn accept(listener: &TcpListener, health: &Health, metrics: &Metrics) {
    let mut connections = Connections::default();
    loop {
        tokio::select! {
            biased;
            Some(ended) = connections.tasks.join_next() => {
                // One that was cut is no longer among the open ones.
                if let Ok(number) = ended {
                    connections.open.remove(&number);
                }
            }
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let (health, metrics) = (health.clone(), metrics.clone());
                    connections.add(async move { converse(stream, &health, &metrics).await });
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
        "/metrics" => text(StatusCode::OK, METRICS_TYPE, metrics.text()),
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

    async fn ask_over(address: SocketAddr, path: &str) -> String {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let mut stream = TcpStream::connect(address).await.expect("connected");
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("asked");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        answer
    }

    /// A server on a port of its own, and where.
    async fn server(health: &Health) -> (SocketAddr, JoinSet<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let health = health.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { accept(&listener, &health, &Metrics::default()).await });
        (address, tasks)
    }

    #[tokio::test]
    async fn must_survive_x_013_connections_that_ask_nothing_or_half() {
        use tokio::io::AsyncWriteExt as _;
        let health = Health::of(&[]);
        let (address, _server) = server(&health).await;
        let mut held = Vec::new();
        for n in 0..1000 {
            let mut stream = TcpStream::connect(address).await.expect("connected");
            if n % 2 == 0 {
                // One that was cut meanwhile may say so.
                drop(stream.write_all(b"GET /healthz HT").await);
            }
            held.push(stream);
            if n % 50 == 49 {
                let both = async { [ask_over(address, "/healthz").await, ask_over(address, "/readyz").await] };
                let answers = tokio::time::timeout(Duration::from_secs(2), both).await.expect("answered in time");
                assert!(answers.iter().all(|answer| answer.starts_with("HTTP/1.1 200")), "{n}: {answers:?}");
            }
        }
    }

    #[tokio::test]
    async fn must_survive_x_012_a_port_that_is_taken() {
        let taken = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = taken.local_addr().expect("an address");
        let (health, stop) = (Health::of(&[]), CancellationToken::new());
        let serving = serve(address, health.clone(), Metrics::default(), stop.clone());
        let watching = async {
            let problems = health.other_than(&super::super::Problems::new()).await;
            let reason = &problems[PORT];
            let wanted =
                [&address.to_string(), "in use", &format!("End the process that holds port {}", address.port())];
            assert!(wanted.iter().all(|wanted| reason.contains(*wanted)), "{reason}");
            drop(taken);
            assert_eq!(health.other_than(&problems).await, super::super::Problems::new());
            assert!(ask_over(address, "/readyz").await.starts_with("HTTP/1.1 200"));
            stop.cancel();
        };
        tokio::join!(serving, watching);
    }
}
