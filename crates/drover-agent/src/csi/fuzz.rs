//! A driver that answers any bytes.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::Path;

use futures::stream;
use http_body_util::{BodyExt as _, Full};
use tokio::net::UnixListener;
use tonic::body::Body;
use tonic::codegen::{Bytes, http};
use tonic::server::NamedService;
use tonic::transport::Server;

use super::client::{Halves, SocketPlugin};
use super::plugin::{Attachment, KnownVolume, NewVolume, Plugin as _, VolumeUse};

/// Answers every call with the same bytes.
#[derive(Clone)]
struct HostileDriver(Bytes);

impl NamedService for HostileDriver {
    const NAME: &'static str = "csi.v1.Any";
}

impl tower::Service<http::Request<Body>> for HostileDriver {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<Body>) -> Self::Future {
        let (status, message) = match self.0.split_first() {
            Some((status, message)) => (*status, self.0.slice_ref(message)),
            None => (0, Bytes::new()),
        };
        std::future::ready(Ok(answer(status, message)))
    }
}

/// The status as of gRPC (0: a message, 17 and above: a message as it is, with its own frames).
fn answer(status: u8, message: Bytes) -> http::Response<Body> {
    let mut response = match status {
        0 => {
            let length = u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes();
            let framed = [&[0][..], &length, &message].concat();
            http::Response::new(ended_well(Bytes::from(framed)))
        }
        1..=16 => {
            let text = message.iter().fold(String::new(), |text, byte| text + &format!("%{byte:02X}"));
            let text = http::HeaderValue::from_str(&text).unwrap_or(http::HeaderValue::from_static(""));
            let mut refused = http::Response::new(Body::empty());
            refused.headers_mut().insert("grpc-status", http::HeaderValue::from(u16::from(status)));
            refused.headers_mut().insert("grpc-message", text);
            refused
        }
        _ => http::Response::new(ended_well(message)),
    };
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/grpc"));
    response
}

/// A body, and the trailer without which its message does not count.
fn ended_well(body: Bytes) -> Body {
    let trailers = http::HeaderMap::from_iter([(
        http::HeaderName::from_static("grpc-status"),
        http::HeaderValue::from_static("0"),
    )]);
    Body::new(Full::new(body).with_trailers(std::future::ready(Some(Ok(trailers)))))
}

/// Makes every call of a driver that answers this.
pub(crate) fn fuzz(data: &[u8]) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("csi.sock");
    runtime.block_on(async {
        let listener = UnixListener::bind(&socket).expect("a socket");
        let accepted = stream::unfold(listener, |listener| async move {
            let stream = listener.accept().await.map(|(stream, _)| stream);
            Some((stream, listener))
        });
        let driver = HostileDriver(Bytes::copy_from_slice(data));
        let serving = Server::builder().serve_with_incoming(driver, accepted);
        tokio::select! {
            served = serving => served.expect("a driver that serves"),
            () = call_all(&socket) => {}
        }
    });
}

async fn call_all(socket: &Path) {
    let plugin = SocketPlugin::new(socket.to_owned(), Halves { controller: true, node: true });
    let secrets = BTreeMap::from([("key".to_owned(), "hunter2".to_owned())]);
    let volume = VolumeUse { external_id: "v1".to_owned(), secrets: secrets.clone(), ..VolumeUse::default() };
    let new = NewVolume { name: "v".to_owned(), secrets: secrets.clone(), ..NewVolume::default() };
    let known = KnownVolume { external_id: "v1".to_owned(), secrets, ..KnownVolume::default() };
    let attachment = Attachment { volume: volume.clone(), node_id: "n".to_owned() };
    let mut refusals = Vec::new();
    refusals.extend(plugin.probe().await.err());
    refusals.extend(plugin.registered().await.err());
    refusals.extend(plugin.create(&new).await.err());
    refusals.extend(plugin.validate(&known).await.err());
    refusals.extend(plugin.attach(&attachment).await.err());
    refusals.extend(plugin.detach(&attachment).await.err());
    refusals.extend(plugin.stage(&volume).await.err());
    refusals.extend(plugin.publish(&volume).await.err());
    refusals.extend(plugin.unpublish(&volume).await.err());
    refusals.extend(plugin.unstage(&volume).await.err());
    refusals.extend(plugin.expand(&volume, (1, 2)).await.err());
    refusals.extend(plugin.expand_mount(&volume, (1, 2)).await.err());
    refusals.extend(plugin.take_snapshot(&volume, "s").await.err());
    refusals.extend(plugin.list_snapshots(&volume).await.err());
    refusals.extend(plugin.delete_snapshot(&volume, "s").await.err());
    refusals.extend(plugin.delete(&volume).await.err());
    // Calls without secrets may repeat the word by chance.
    let kept = refusals.iter().filter(|refusal| refusal.reason.contains("hunter2")).count();
    assert!(kept <= 6, "an error holds a secret");
}
