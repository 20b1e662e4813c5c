//! One connection to a replica: encrypted, its certificate verified, and only then the token.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::task::TaskTracker;

/// How long each step may take.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);
/// The most of a refusal that is read.
const MAX_REFUSAL_BYTES: usize = 4096;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum DialError {
    /// The replica is not reached.
    #[error("it is not reached: {0}")]
    Unreachable(io::Error),
    /// Its certificate is not believed, or it speaks no TLS 1.3. No token was sent.
    #[error("its certificate is not believed: {0}")]
    Untrusted(io::Error),
    /// The token cannot be read.
    #[error("the token cannot be read: {0}")]
    Token(io::Error),
    /// It says no.
    #[error("it refuses with {0}: {1}")]
    Refused(StatusCode, String),
    /// The connection breaks.
    #[error("the connection broke: {0}")]
    Broken(String),
}

/// Whom to dial, how it is called in its certificate, and by whom that must be signed.
#[derive(Clone, Debug)]
pub(super) struct Replica {
    pub(super) address: String,
    pub(super) server_name: String,
    pub(super) authorities: Arc<RootCertStore>,
}

/// Where a replica is asked, and what the connection becomes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Door {
    pub(crate) path: &'static str,
    pub(crate) protocol: &'static str,
}

/// An encrypted connection to a replica that has shown who it is.
pub(super) async fn connect(replica: &Replica) -> Result<TlsStream<TcpStream>, DialError> {
    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
    let tcp = tokio::time::timeout(STEP_TIMEOUT, TcpStream::connect(&replica.address))
        .await
        .map_err(late)
        .flatten()
        .map_err(DialError::Unreachable)?;
    tcp.set_nodelay(true).map_err(DialError::Unreachable)?;
    let untrusted = |error: rustls::Error| DialError::Untrusted(io::Error::other(error));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(untrusted)?
        .with_root_certificates(Arc::clone(&replica.authorities))
        .with_no_client_auth();
    let name = ServerName::try_from(replica.server_name.clone())
        .map_err(|error| DialError::Untrusted(io::Error::other(error)))?;
    tokio::time::timeout(STEP_TIMEOUT, TlsConnector::from(Arc::new(config)).connect(name, tcp))
        .await
        .map_err(late)
        .flatten()
        .map_err(DialError::Untrusted)
}

/// Shows who this node is on a connection, which then speaks the protocol that is asked for. The token is read now:
/// what is at the other end has shown who it is.
pub(super) async fn enter(
    tls: TlsStream<TcpStream>,
    (server_name, door): (&str, Door),
    token_file: &Path,
    tasks: &TaskTracker,
) -> Result<Upgraded, DialError> {
    let token = tokio::fs::read_to_string(token_file).await.map_err(DialError::Token)?;
    let opened = tokio::time::timeout(STEP_TIMEOUT, open(tls, (server_name, door), token.trim(), tasks)).await;
    opened.map_err(|_| DialError::Broken("it does not answer".to_owned())).flatten()
}

async fn open(
    tls: TlsStream<TcpStream>,
    (host, door): (&str, Door),
    token: &str,
    tasks: &TaskTracker,
) -> Result<Upgraded, DialError> {
    let broken = |error: hyper::Error| DialError::Broken(error.to_string());
    let (mut way, connection) = http1::handshake(TokioIo::new(tls)).await.map_err(broken)?;
    drop(tasks.spawn(connection.with_upgrades()));
    let request = Request::builder()
        .method(Method::POST)
        .uri(door.path)
        .header(header::HOST, host)
        .header(header::AUTHORIZATION, format!("Bearer {token}"))
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, door.protocol)
        .body(Empty::<Bytes>::new())
        .map_err(|error| DialError::Broken(error.to_string()))?;
    let answer = way.send_request(request).await.map_err(broken)?;
    let status = answer.status();
    if status == StatusCode::SWITCHING_PROTOCOLS {
        return hyper::upgrade::on(answer).await.map_err(broken);
    }
    let body = Limited::new(answer.into_body(), MAX_REFUSAL_BYTES).collect().await;
    let text = body.map(|body| String::from_utf8_lossy(&body.to_bytes()).into_owned());
    Err(DialError::Refused(status, text.unwrap_or_else(|error| error.to_string())))
}
