//! A way from loopback to the gateway, through the API server and with the rights of a kubeconfig.
//!
//! Input: requests for `/v1/…` that prove this run's secret. Output: what the gateway answers, as it comes: logs that
//! are followed, events and commands with their terminals too. Must never know what is asked.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::secret::Secret;

/// Where the API server leads to the gateway.
const PREFIX: &str = "/apis/subresources.drover.dev/v1alpha1/gateways/nomad/proxy";
/// The header of Nomad's tokens.
const TOKEN: &str = "x-nomad-token";
/// What belongs to one connection, or to the way between client and proxy.
const OWN: [HeaderName; 8] = [
    header::HOST,
    header::AUTHORIZATION,
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::TE,
    header::TRAILER,
    header::PROXY_AUTHORIZATION,
    header::CONTENT_LENGTH,
];
/// The largest body of a request; the gateway takes no larger one.
const MOST_BODY_BYTES: usize = 1024 * 1024;
/// How long no connection is taken after one could not be.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest refusal of the API server that is read.
const LONGEST_REFUSAL: usize = 64 * 1024;

type Answer = Response<UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>>;
/// Something that goes on beside the connections that are taken.
type Work = BoxFuture<'static, ()>;

/// A proxy that listens.
#[derive(Debug)]
pub(super) struct Proxy {
    listener: TcpListener,
    way: Arc<Way>,
}

/// What a request needs on its way.
struct Way {
    client: Client,
    secret: Secret,
    /// What goes on over a connection after its upgrade.
    goes_on: mpsc::UnboundedSender<Work>,
    upgraded: tokio::sync::Mutex<mpsc::UnboundedReceiver<Work>>,
}

impl std::fmt::Debug for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Way").finish_non_exhaustive()
    }
}

impl Proxy {
    /// Listens on a port of loopback; 0: one that is free.
    pub(super) async fn listen(port: u16, client: Client, secret: Secret) -> anyhow::Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listener = TcpListener::bind(address).await;
        let listener = listener.with_context(|| format!("listening on {address}; give another --port, or 0"))?;
        let (goes_on, upgraded) = mpsc::unbounded_channel();
        let upgraded = tokio::sync::Mutex::new(upgraded);
        Ok(Self { listener, way: Arc::new(Way { client, secret, goes_on, upgraded }) })
    }

    /// Where clients reach it.
    pub(super) fn address(&self) -> anyhow::Result<String> {
        Ok(format!("http://{}", self.listener.local_addr().context("asking for the port")?))
    }

    /// Serves clients without end.
    pub(super) async fn serve(&self) {
        let mut works: FuturesUnordered<Work> = FuturesUnordered::new();
        let mut upgraded = self.way.upgraded.lock().await;
        loop {
            tokio::select! {
                taken = self.listener.accept() => {
                    match taken {
                        Ok((stream, _)) => works.push(connection(stream, Arc::clone(&self.way))),
                        // Without a free descriptor the next one may find it, when others have ended.
                        Err(_) => tokio::time::sleep(PAUSE).await,
                    }
                }
                Some(work) = upgraded.recv() => works.push(work),
                Some(()) = works.next(), if !works.is_empty() => {}
            }
        }
    }
}

fn connection(stream: tokio::net::TcpStream, way: Arc<Way>) -> Work {
    let service = service_fn(move |request| {
        let way = Arc::clone(&way);
        async move { Ok::<_, std::convert::Infallible>(carry(&way, request).await) }
    });
    let served = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    // A client that goes is none of anyone's concern.
    served.with_upgrades().map(drop).boxed()
}

/// Carries a request to the gateway, and its answer back.
async fn carry(way: &Way, mut request: Request<Incoming>) -> Answer {
    if !proves(request.headers(), &way.secret) {
        return text(StatusCode::FORBIDDEN, "give NOMAD_TOKEN as `drover nomad proxy` has printed it");
    }
    let path = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
    if !path.starts_with("/v1/") {
        return text(StatusCode::NOT_FOUND, "Nomad's API is below /v1/; drover has no web interface here");
    }
    let Ok(uri) = format!("{PREFIX}{path}").parse::<Uri>() else {
        return text(StatusCode::BAD_REQUEST, "the path cannot be sent on");
    };
    let is_upgrade = request.headers().contains_key(header::UPGRADE);
    let from_client = is_upgrade.then(|| hyper::upgrade::on(&mut request));
    let (parts, body) = request.into_parts();
    let body = match Limited::new(body, MOST_BODY_BYTES).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return text(StatusCode::PAYLOAD_TOO_LARGE, &format!("the body cannot be sent on: {error}")),
    };
    let mut onward = Request::new(Body::from(body));
    (*onward.method_mut(), *onward.uri_mut()) = (parts.method, uri);
    *onward.headers_mut() = kept(&parts.headers);
    if is_upgrade {
        onward.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    }
    let mut answer = match way.client.send(onward).await {
        Ok(answer) => answer,
        Err(error) => {
            return text(StatusCode::BAD_GATEWAY, &format!("the API server cannot be asked: {error}"));
        }
    };
    if let Some(from_client) = from_client.filter(|_| answer.status() == StatusCode::SWITCHING_PROTOCOLS) {
        let to_gateway = hyper::upgrade::on(&mut answer);
        let work = async move {
            let (Ok(client), Ok(gateway)) = (from_client.await, to_gateway.await) else { return };
            // Either side may end it at any time.
            let (mut client, mut gateway) = (TokioIo::new(client), TokioIo::new(gateway));
            tokio::io::copy_bidirectional(&mut client, &mut gateway).await.ok();
        };
        // The other end is as old as this one.
        way.goes_on.send(work.boxed()).ok();
    }
    answered(answer).await
}

fn proves(headers: &HeaderMap, secret: &Secret) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = text("authorization").and_then(|value| value.split_once(' ')).map(|(_, token)| token.trim());
    text(TOKEN).or(bearer).is_some_and(|text| secret.is(text))
}

/// The headers that are for the other side too.
fn kept(headers: &HeaderMap) -> HeaderMap {
    let is_own = |name: &HeaderName| OWN.contains(name) || name.as_str() == TOKEN;
    let kept = headers.iter().filter(|(name, _)| !is_own(name));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The answer to the client. What the API server itself refuses is an object, of which clients of Nomad want the text.
async fn answered(answer: Response<Body>) -> Answer {
    let (parts, body) = answer.into_parts();
    let is_json = parts.headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().ends_with(b"json"));
    if parts.status.is_client_error() && is_json {
        let read = Limited::new(body, LONGEST_REFUSAL).collect().await;
        let bytes = read.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let message = serde_json::from_slice::<Value>(&bytes)
            .ok()
            .and_then(|status| status["message"].as_str().map(str::to_owned));
        return text(parts.status, &message.unwrap_or_else(|| String::from_utf8_lossy(&bytes).into_owned()));
    }
    let is_upgrade = parts.status == StatusCode::SWITCHING_PROTOCOLS;
    let mut onward = Response::new(body.map_err(Into::into).boxed_unsync());
    (*onward.status_mut(), *onward.headers_mut()) = (parts.status, kept(&parts.headers));
    if is_upgrade {
        onward.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    }
    onward
}

fn text(code: StatusCode, message: &str) -> Answer {
    let body = Full::new(Bytes::from(message.to_owned())).map_err(|never| match never {});
    let mut answer = Response::new(body.boxed_unsync());
    *answer.status_mut() = code;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&str, &str)| {
            (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn only_who_knows_the_secret_is_carried_and_the_secret_stays_here() {
        let secret = Secret::new().unwrap();
        let bearer = format!("Bearer {}", secret.text());
        assert!(proves(&headers(&[(TOKEN, secret.text())]), &secret));
        assert!(proves(&headers(&[("authorization", &bearer)]), &secret));
        for wrong in [headers(&[]), headers(&[(TOKEN, "x")]), headers(&[(TOKEN, "x"), ("authorization", &bearer)])] {
            assert!(!proves(&wrong, &secret), "{wrong:?}");
        }
        let sent = headers(&[(TOKEN, "x"), ("authorization", "y"), ("host", "z"), ("accept-encoding", "gzip")]);
        assert_eq!(kept(&sent), headers(&[("accept-encoding", "gzip")]));
    }
}
