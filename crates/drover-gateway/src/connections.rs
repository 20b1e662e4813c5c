//! Connections that come in: accepted, encrypted and served, as many as are allowed.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::{Builder, upgrade};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinError, JoinSet};
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tower::{ServiceExt as _, service_fn};

use crate::answers::Answer;
use crate::certificates::HTTP2;
use crate::compression::compressing;
use crate::http2::{Streams, until_taken};

/// Connections of one listener at a time; more are refused.
const MAX_CONNECTIONS: usize = 4096;
/// How long a handshake, and the head of a request, may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client may take nothing of what waits for it.
const UNSENT_TIMEOUT: Duration = Duration::from_secs(40);
/// When, how often and how many times a quiet connection is probed: a machine that has gone says nothing.
const PROBE_AFTER: Duration = Duration::from_secs(15);
const PROBE_EVERY: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;
/// The pause after a connection that could not be accepted.
const RETRY: Duration = Duration::from_millis(100);
/// The largest head of a request: tokens are up to 16 KiB.
const MAX_HEAD_BYTES: u32 = 64 * 1024;
/// Requests of one connection of HTTP/2 at a time. The API server carries those of all its users, and opens another
/// connection for more; others hold no more memory here than over as many connections of HTTP/1.1.
const MAX_STREAMS_OF_PROXY: u32 = 256;
const MAX_STREAMS: u32 = 16;
/// How much a request of HTTP/2 may have under way, and how much of its answer may wait to be sent.
const STREAM_WINDOW: u32 = 64 * 1024;
/// How much all requests of one connection of the API server may have under way; those of others share one window.
const CONNECTION_WINDOW_OF_PROXY: u32 = 16 * STREAM_WINDOW;

/// Answers requests of a listener.
pub(crate) trait Service: Clone + Send + Sync + 'static {
    /// Answers a request of a client that has shown these certificates, its own first; none: it has shown none.
    fn answer(
        &self,
        request: http::Request<Incoming>,
        certificates: Arc<Vec<CertificateDer<'static>>>,
    ) -> impl Future<Output = http::Response<Answer>> + Send;

    /// Whether the client that has shown these carries the requests of others.
    fn is_proxy(&self, _certificates: &[CertificateDer<'static>]) -> bool {
        false
    }
}

/// A port that is listened on.
#[derive(Debug)]
pub(crate) struct Port {
    listener: TcpListener,
    config: Arc<ServerConfig>,
}

impl Port {
    /// Opens it.
    ///
    /// # Errors
    /// When the address is taken or not the machine's.
    pub(crate) async fn open(address: SocketAddr, config: ServerConfig, who: &'static str) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(address).await.with_context(|| format!("listening on {address} for {who}"))?;
        let at = listener.local_addr().with_context(|| format!("listening on {address}"))?;
        tracing::info!(address = %at, who, "listens");
        Ok(Self { listener, config: Arc::new(config) })
    }

    /// Serves until `stop`: then nothing more is accepted, and what is under way goes on until it has ended, or until
    /// this future is dropped.
    pub(crate) async fn serve(self, service: impl Service, stop: CancellationToken) {
        let acceptor = TlsAcceptor::from(self.config);
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(ended) = connections.join_next() => ended_well(ended),
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, from)) if connections.len() < MAX_CONNECTIONS => {
                        let client = Client { stream, is_near: from.ip().to_canonical().is_loopback() };
                        connections.spawn(converse(client, acceptor.clone(), service.clone(), stop.clone()));
                    }
                    Ok((_, from)) => tracing::warn!(%from, "a connection was refused: it is one too many"),
                    Err(error) => {
                        tracing::warn!(%error, "a connection cannot be accepted");
                        tokio::time::sleep(RETRY).await;
                    }
                },
            }
        }
        drop(self.listener);
        while let Some(ended) = connections.join_next().await {
            ended_well(ended);
        }
    }
}

fn ended_well(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a connection broke off");
    }
}

/// Has a connection send small frames at once and notice that the other side is gone.
///
/// # Errors
/// When the system refuses.
pub(crate) fn prepare(stream: &TcpStream) -> io::Result<()> {
    // Without it small frames wait for each other: 1 MB/s instead of hundreds.
    stream.set_nodelay(true)?;
    let probes = TcpKeepalive::new().with_time(PROBE_AFTER).with_interval(PROBE_EVERY).with_retries(PROBES);
    SockRef::from(stream).set_tcp_keepalive(&probes)
}

/// A client's connection: encrypted, and broken off where nothing is taken of what waits.
pub(crate) type Encrypted = TlsStream<Pin<Box<TimeoutStream<TcpStream>>>>;

/// The connection of a client that has turned it round, without the layers by which hyper has spoken before: each read
/// and write would pass through them.
///
/// # Errors
/// When the client has sent something before it was answered.
pub(crate) fn turned_round(upgraded: Upgraded) -> io::Result<Encrypted> {
    let other = |text: &'static str| io::Error::new(io::ErrorKind::InvalidData, text);
    let parts =
        upgrade::downcast::<TokioIo<Encrypted>>(upgraded).map_err(|_| other("it is no connection of a client"))?;
    if !parts.read_buf.is_empty() {
        return Err(other("something came before the answer"));
    }
    Ok(parts.io.into_inner())
}

/// Who has connected.
struct Client {
    stream: TcpStream,
    /// From this machine.
    is_near: bool,
}

async fn converse(client: Client, acceptor: TlsAcceptor, service: impl Service, stop: CancellationToken) {
    let Client { stream, is_near } = client;
    if let Err(error) = prepare(&stream) {
        tracing::debug!(%error, "a connection stays slow");
    }
    // Who takes nothing holds what waits for him: memory here, and a stream of a tunnel.
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(UNSENT_TIMEOUT));
    let stream = match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(Box::pin(stream))).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "a handshake failed"),
        Err(_) => return tracing::debug!("a handshake took too long"),
    };
    let certificates = Arc::new(shown(&stream));
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(HTTP2);
    // Only the limits of HTTP/2 ask for it, and it takes the check of a signature.
    let speech = Speech { is_http2, is_proxy: is_http2 && service.is_proxy(&certificates), is_near };
    speech.converse(stream, service, certificates, stop).await;
}

/// How one speaks with a client.
#[derive(Clone, Copy, Debug)]
struct Speech {
    is_http2: bool,
    is_proxy: bool,
    is_near: bool,
}

impl Speech {
    /// Answers until the client goes, or does nothing for too long. After `stop`, what is under way is answered.
    async fn converse<S>(
        self,
        stream: S,
        service: impl Service,
        certificates: Arc<Vec<CertificateDer<'static>>>,
        stop: CancellationToken,
    ) where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let streams = Streams::new(UNSENT_TIMEOUT);
        let answer = service_fn(move |request| {
            let (service, certificates) = (service.clone(), Arc::clone(&certificates));
            async move { Ok::<_, std::convert::Infallible>(service.answer(request, certificates).await) }
        });
        let answer = compressing(answer, self.is_near);
        let answer = TowerToHyperService::new(answer.map_response(|answer| answer.map(until_taken)));
        let server = self.server(streams.clone());
        let connection = server.serve_connection_with_upgrades(TokioIo::new(stream), answer);
        let mut connection = std::pin::pin!(connection);
        let ended = tokio::select! {
            biased;
            ended = &mut connection => Some(ended),
            () = stop.cancelled() => None,
            () = streams.rest(HANDSHAKE_TIMEOUT), if self.is_http2 => {
                return tracing::debug!("a connection ended: nothing was asked for");
            }
        };
        let ended = if let Some(ended) = ended {
            ended
        } else {
            connection.as_mut().graceful_shutdown();
            connection.await
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended");
        }
    }

    fn server(self, streams: Streams) -> Builder<Streams> {
        let (n_streams, window) = if self.is_proxy {
            (MAX_STREAMS_OF_PROXY, CONNECTION_WINDOW_OF_PROXY)
        } else {
            (MAX_STREAMS, STREAM_WINDOW)
        };
        let mut server = Builder::new(streams);
        server
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(HANDSHAKE_TIMEOUT)
            .max_buf_size(MAX_HEAD_BYTES as usize);
        server
            .http2()
            .max_concurrent_streams(n_streams)
            .max_header_list_size(MAX_HEAD_BYTES)
            .max_send_buf_size(STREAM_WINDOW as usize)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(window);
        if self.is_http2 { server.http2_only() } else { server.http1_only() }
    }
}

fn shown<S>(stream: &TlsStream<S>) -> Vec<CertificateDer<'static>> {
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    chain.iter().map(|certificate| certificate.clone().into_owned()).collect()
}

#[cfg(test)]
mod tests;
