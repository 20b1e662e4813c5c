//! Carries another replica's exchange through a tunnel of this one. One hop: what comes this way is never handed on.
//!
//! The other replica proves itself by a certificate of the gateway's own authority and asks for an upgrade. The answer
//! says at once whether the node has a tunnel here; then one [`RelayStart`] says whether its agent has accepted, and
//! from there on both sides carry bytes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use drover_socket::protocol;
use drover_socket::tunnel::{ALLOCATION_HEADER, NAMESPACE_HEADER, UNSENT_BYTES};
use http::{HeaderMap, Method, header};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};

use super::exchange::{OpenedExchange, Place};
use super::registry::Tunnels;
use crate::answers::Refusal;

/// Where it is asked for, by POST.
pub(super) const RELAY_PATH: &str = "/relay/v1";
/// The protocol that the connection becomes.
pub(super) const RELAY_PROTOCOL: &str = "drover-relay/1";
/// The header with the node.
pub(super) const NODE_HEADER: &str = "drover-node";

/// Whether the agent has accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum RelayStart {
    /// It has.
    Accepted,
    /// It has not, or the tunnel broke.
    Failed(String),
}

/// Reads which exchange is asked for, and refuses what has no tunnel here.
///
/// # Errors
/// 400 or 405 for what is no such request, 404 where the node has no tunnel to this replica.
pub(super) fn place(request: &http::Request<Incoming>, tunnels: &Tunnels) -> Result<Place, Refusal> {
    if request.method() != Method::POST {
        return Err(Refusal::new(405, "a relay is asked for by POST"));
    }
    let upgrade = request.headers().get(header::UPGRADE).and_then(|value| value.to_str().ok());
    if upgrade != Some(RELAY_PROTOCOL) {
        return Err(Refusal::new(400, format!("a relay needs `Upgrade: {RELAY_PROTOCOL}`")));
    }
    let place = named(request.headers())?;
    match tunnels.find(&place.node) {
        Ok(_) => Ok(place),
        Err(_) => Err(Refusal::new(404, "the node has no tunnel to this replica")),
    }
}

fn named(headers: &HeaderMap) -> Result<Place, Refusal> {
    let missing = |name: &str| Refusal::new(400, format!("the header {name} is missing"));
    let text = |name: &'static str| {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        value.map(str::to_owned).ok_or_else(|| missing(name))
    };
    let place = Place { node: text(NODE_HEADER)?, namespace: text(NAMESPACE_HEADER)?, uid: text(ALLOCATION_HEADER)? };
    // Both are empty where the call is about the node.
    if place.node.is_empty() || place.namespace.is_empty() != place.uid.is_empty() {
        return Err(missing(if place.node.is_empty() { NODE_HEADER } else { ALLOCATION_HEADER }));
    }
    Ok(place)
}

/// Carries the exchange until one side ends it.
pub(super) async fn carry(request: http::Request<Incoming>, place: Place, tunnels: Tunnels) {
    let mut peer = match hyper::upgrade::on(request).await {
        Ok(upgraded) => TokioIo::new(upgraded),
        Err(error) => return tracing::debug!(%error, "a relay did not come about"),
    };
    let (opening, opened) = match tunnels.open(&place).await {
        Ok(opened) => (RelayStart::Accepted, Some(opened)),
        Err(error) => (RelayStart::Failed(error.to_string()), None),
    };
    let said = async { protocol::write_frame(&mut peer, &protocol::message(&opening)?).await };
    if let Err(error) = said.await {
        return tracing::debug!(%error, "another replica went away before its exchange began");
    }
    let Some(opened) = opened else { return };
    if let Err(error) = between(&mut peer, opened).await {
        tracing::debug!(node = place.node, %error, "an exchange of another replica broke off");
    }
}

async fn between<S: AsyncRead + AsyncWrite + Unpin>(peer: &mut S, opened: OpenedExchange) -> io::Result<()> {
    let mut agent = tokio::io::join(opened.from, WhileHeard(Some(opened.to)));
    tokio::io::copy_bidirectional_with_sizes(peer, &mut agent, UNSENT_BYTES, UNSENT_BYTES).await.map(drop)
}

/// What an agent is told. One that hears no more has answered, and its answer is still on its way: to lose that for a
/// word too many would be an exchange that ends without an answer.
struct WhileHeard<W>(Option<W>);

impl<W: AsyncWrite + Unpin> WhileHeard<W> {
    /// Does something with what is still heard; `instead` where nothing is.
    fn poll<T>(&mut self, work: impl FnOnce(Pin<&mut W>) -> Poll<io::Result<T>>, instead: T) -> Poll<io::Result<T>> {
        let Some(told) = &mut self.0 else { return Poll::Ready(Ok(instead)) };
        match work(Pin::new(told)) {
            Poll::Ready(Err(error)) => {
                tracing::debug!(%error, "an agent hears no more of an exchange");
                self.0 = None;
                Poll::Ready(Ok(instead))
            }
            done => done,
        }
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for WhileHeard<W> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().poll(|told| told.poll_write(cx, bytes), bytes.len())
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll(|told| told.poll_flush(cx), ())
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll(|told| told.poll_shutdown(cx), ())
    }
}

#[cfg(test)]
mod tests {
    use hyper::body::Bytes;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio_util::io::StreamReader;

    use super::*;

    #[tokio::test]
    async fn what_an_agent_has_answered_arrives_although_it_hears_no_more() {
        let ((mut other, mut peer), (to, heard)) = (duplex(1024), duplex(1024));
        drop(heard);
        let opened = OpenedExchange { from: Box::new(&b"answered"[..]), to: Box::new(to) };
        other.write_all(b"a word too many").await.expect("written");
        other.shutdown().await.expect("shut down");
        let carried = async move { between(&mut peer, opened).await };
        let mut answer = String::new();
        let (carried, read) = tokio::join!(carried, other.read_to_string(&mut answer));
        carried.expect("carried");
        read.expect("read");
        assert_eq!(answer, "answered");
    }

    /// One whose word cannot be read has gone, and its exchange with it.
    #[tokio::test]
    async fn an_exchange_ends_with_its_tunnel() {
        let ((_other, mut peer), (to, _heard)) = (duplex(1024), duplex(1024));
        let gone = futures::stream::iter([Err::<Bytes, _>(io::Error::from(io::ErrorKind::BrokenPipe))]);
        let gone = StreamReader::new(gone);
        let opened = OpenedExchange { from: Box::new(gone), to: Box::new(to) };
        between(&mut peer, opened).await.expect_err("broken");
    }
}
