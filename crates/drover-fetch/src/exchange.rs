//! One request over HTTP and its answer, each over a connection of its own; redirects are asked about like the first
//! address.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::Duration;

use drover_core::artifact::WebAddress;
use drover_core::service::Cidr;
use http::{HeaderName, HeaderValue, Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Incoming};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::connect::{Trust, connect};

/// Redirects that are followed at most.
const MAX_REDIRECTS: usize = 10;
/// Longest wait for the next bytes.
const IDLE_TIMEOUT: Duration = Duration::from_mins(1);
/// What a fetch calls itself.
const USER_AGENT: &str = "drover-fetch";

/// Names and values of headers.
pub(crate) type Headers<'a> = &'a [(&'a str, &'a str)];

/// Whom a download believes, and where it may go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Web<'a> {
    pub(crate) trust: &'a Trust,
    /// Addresses that may be reached although they are the node's or its neighbours'.
    pub(crate) allowed: &'a [Cidr],
}

/// The headers of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heads<'a> {
    /// For any server.
    pub(crate) asks: Headers<'a>,
    /// For the first one alone: they may be credentials, which another must not see.
    pub(crate) own: &'a BTreeMap<String, String>,
}

type Connection = Pin<Box<dyn Future<Output = Result<(), hyper::Error>> + Send>>;

/// An answer's body, of which more comes when it is waited for.
pub(crate) struct Coming {
    body: Incoming,
    /// Until it has ended.
    connection: Option<Connection>,
}

impl Coming {
    /// Bytes that the server says are still to come.
    pub(crate) fn announced(&self) -> u64 {
        self.body.size_hint().lower()
    }

    /// The next bytes; none: it is whole.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, String> {
        loop {
            let Some(frame) = beside(&mut self.connection, self.body.frame()).await? else { return Ok(None) };
            let frame = frame.map_err(|error| format!("it broke off: {:#}", anyhow::Error::from(error)))?;
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
    }
}

/// Waits for something of a connection while that runs. What was received before its end still comes; an error of the
/// connection is that of what is waited for too.
async fn beside<T>(connection: &mut Option<Connection>, what: impl Future<Output = T>) -> Result<T, String> {
    let mut what = std::pin::pin!(tokio::time::timeout(IDLE_TIMEOUT, what));
    let done = loop {
        match connection {
            Some(running) => tokio::select! {
                biased;
                done = &mut what => break done,
                _ = running => *connection = None,
            },
            None => break what.await,
        }
    };
    done.map_err(|_| format!("nothing came for {}s", IDLE_TIMEOUT.as_secs()))
}

impl Web<'_> {
    /// Asks for what is at an address, and where that leads; also returns who answered.
    pub(crate) async fn get(
        self,
        first: &WebAddress,
        heads: Heads<'_>,
    ) -> Result<(WebAddress, Response<Coming>), String> {
        let mut target = first.clone();
        for _ in 0..=MAX_REDIRECTS {
            let own = Some(heads.own).filter(|_| target.is_same_origin(first));
            let request = request(Request::get(target.path.as_str()), &target, (heads.asks, own))?;
            let response = self.once(&target, request).await?;
            if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
                return Ok((target, response));
            }
            let location = response.headers().get(header::LOCATION).and_then(|value| value.to_str().ok());
            let location = location.ok_or_else(|| format!("{}: it leads nowhere", shown(&target)))?;
            let next = target.join(location).map_err(|error| format!("{} leads elsewhere: {error}", shown(&target)))?;
            if target.is_tls && !next.is_tls {
                return Err(format!("{} leads to {}, which has no TLS", shown(&target), shown(&next)));
            }
            target = next;
        }
        Err(format!("{} leads elsewhere more than {MAX_REDIRECTS} times", shown(first)))
    }

    /// Sends something to an address. `is_first`: the server is the first one that was asked.
    pub(crate) async fn post(
        self,
        target: &WebAddress,
        (heads, is_first): (Heads<'_>, bool),
        body: Bytes,
    ) -> Result<Response<Coming>, String> {
        let own = Some(heads.own).filter(|_| is_first);
        let mut request = request(Request::post(target.path.as_str()), target, (heads.asks, own))?;
        *request.body_mut() = Full::new(body);
        self.once(target, request).await
    }

    async fn once(self, target: &WebAddress, request: Request<Full<Bytes>>) -> Result<Response<Coming>, String> {
        let stream = connect(target, self.allowed).await?;
        let answered = if target.is_tls {
            let stream = self.trust.handshake(stream, &target.host).await?;
            exchange(stream, request).await
        } else {
            exchange(stream, request).await
        };
        answered.map_err(|error| format!("{}: {error}", shown(target)))
    }
}

/// An address without its query, which may hold a signature.
pub(crate) fn shown(address: &WebAddress) -> String {
    let path: String = address.path.split('?').next().unwrap_or_default().chars().take(128).collect();
    format!("{}://{}{path}", if address.is_tls { "https" } else { "http" }, address.authority())
}

fn request(
    head: http::request::Builder,
    target: &WebAddress,
    (asks, own): (Headers<'_>, Option<&BTreeMap<String, String>>),
) -> Result<Request<Full<Bytes>>, String> {
    let mut request = head.body(Full::default()).map_err(|error| error.to_string())?;
    let headers = request.headers_mut();
    let value = |text: &str| HeaderValue::from_str(text).map_err(|error| error.to_string());
    headers.insert(header::HOST, value(&target.authority())?);
    headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
    let own = own.into_iter().flatten().map(|(name, text)| (name.as_str(), text.as_str()));
    for (name, text) in asks.iter().copied().chain(own) {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| format!("header {name}: {error}"))?;
        headers.insert(name, value(text)?);
    }
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    Ok(request)
}

/// Asks, and waits for the head of the answer.
async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> Result<Response<Coming>, String>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let no_http = |error: hyper::Error| format!("no answer in HTTP: {:#}", anyhow::Error::from(error));
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(no_http)?;
    let mut connection: Option<Connection> = Some(Box::pin(connection));
    let answered = beside(&mut connection, sender.send_request(request)).await?.map_err(no_http)?;
    Ok(answered.map(|body| Coming { body, connection }))
}
