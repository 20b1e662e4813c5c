//! The way to a node: the gateway's side of a tunnel, a client of HTTP/2.
//!
//! A tunnel that is not used is held in as little memory as HTTP/2 needs: a client of a higher level keeps a queue of
//! requests for each, and a task and two buffers for each request.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use drover_socket::tunnel::{CONNECTION_WINDOW, STREAM_WINDOW, UNSENT_BYTES};
use futures::stream::poll_fn;
use h2::client::{Builder, Connection, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::{Request, StatusCode};
use hyper::body::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::io::StreamReader;

/// The largest head of an agent's answer.
const MAX_HEAD_BYTES: u32 = 16 * 1024;

/// Begins streams of a tunnel; clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Way(SendRequest<Bytes>);

impl Way {
    /// Speaks HTTP/2 over what an agent has opened. The connection is to be polled for as long as the way is used.
    ///
    /// # Errors
    /// When it breaks.
    pub(super) async fn over<T>(tunnel: T) -> Result<(Self, Connection<T, Bytes>), h2::Error>
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (way, connection) = Builder::new()
            .enable_push(false)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(MAX_HEAD_BYTES)
            .max_send_buffer_size(UNSENT_BYTES)
            .handshake(tunnel)
            .await?;
        Ok((Self(way), connection))
    }

    /// Begins a stream whose both sides go on; waits for the head of its answer.
    ///
    /// # Errors
    /// When the tunnel breaks.
    pub(super) async fn begin(&self, head: Request<()>) -> Result<(StatusCode, Received, Sent), h2::Error> {
        let (answer, to) = self.0.clone().ready().await?.send_request(head, false)?;
        let to = Sent(to);
        let (head, from) = answer.await?.into_parts();
        Ok((head.status, Received(from), to))
    }

    /// Sends a request whose body is whole; returns what the answer's head says.
    ///
    /// # Errors
    /// When the tunnel breaks.
    pub(super) async fn tell(&self, head: Request<()>, body: Bytes) -> Result<StatusCode, h2::Error> {
        let (answer, mut to) = self.0.clone().ready().await?.send_request(head, false)?;
        to.send_data(body, true)?;
        Ok(answer.await?.status())
    }
}

/// What comes through a stream.
pub(super) struct Received(RecvStream);

impl Received {
    /// Reads it. What is read makes room for more.
    pub(super) fn reader(self) -> impl AsyncRead + Send + Unpin + 'static {
        let mut from = self.0;
        StreamReader::new(poll_fn(move |cx| {
            Poll::Ready(match ready!(from.poll_data(cx)) {
                Some(Ok(part)) => {
                    Some(from.flow_control().release_capacity(part.len()).map(|()| part).map_err(io_error))
                }
                // RFC 9113, section 8.1: the answer is whole, and no more of the request is wanted.
                Some(Err(error)) if error.reason() == Some(Reason::NO_ERROR) => None,
                Some(Err(error)) => Some(Err(io_error(error))),
                None => None,
            })
        }))
    }
}

/// What goes through a stream; it ends when this is dropped.
pub(super) struct Sent(SendStream<Bytes>);

impl Sent {
    /// Says that no more comes. It may have ended before: the agent says for itself when it wants no more.
    fn end(&mut self) {
        if let Err(error) = self.0.send_data(Bytes::new(), true) {
            tracing::trace!(%error, "a stream had ended before");
        }
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        self.end();
    }
}

impl AsyncWrite for Sent {
    /// As much is taken as the agent has room for, and no more waits here than [`UNSENT_BYTES`].
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.0.reserve_capacity(bytes.len());
        // It is told of new room alone, not of what there was before.
        while self.0.capacity() == 0 {
            match ready!(self.0.poll_capacity(cx)) {
                Some(granted) => drop(granted.map_err(io_error)?),
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            }
        }
        let n_bytes = self.0.capacity().min(bytes.len());
        self.0.send_data(Bytes::copy_from_slice(&bytes[..n_bytes]), false).map_err(io_error)?;
        Poll::Ready(Ok(n_bytes))
    }

    /// The tunnel's connection sends what waits.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.end();
        Poll::Ready(Ok(()))
    }
}

fn io_error(error: h2::Error) -> io::Error {
    io::Error::other(error)
}
