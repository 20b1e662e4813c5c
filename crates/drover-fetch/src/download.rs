//! A download over HTTP: into a file, with what it sums up to, and redirects that are asked about like the first
//! address.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use drover_api::names::hex;
use drover_core::artifact::{Checksum, ChecksumKind, WebAddress};
use drover_core::service::Cidr;
use http::{HeaderName, HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Body, Bytes, Incoming};
use hyper_util::rt::TokioIo;
use md5::Md5;
use sha1::Sha1;
use sha2::digest::DynDigest;
use sha2::{Sha256, Sha512};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::budget::Budget;
use crate::connect::{Trust, connect};

/// Redirects that are followed at most.
const MAX_REDIRECTS: usize = 10;
/// Longest wait for the next bytes.
const IDLE_TIMEOUT: Duration = Duration::from_mins(1);
/// What a fetch calls itself.
const USER_AGENT: &str = "drover-fetch";
/// What is taken of an answer, mostly.
pub(crate) const ANYTHING: &str = "*/*";

/// Whom a download believes, and where it may go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Web<'a> {
    pub(crate) trust: &'a Trust,
    /// Addresses that may be reached although they are the node's or its neighbours'.
    pub(crate) allowed: &'a [Cidr],
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) url: &'a str,
    /// Headers for the first server alone.
    pub(crate) headers: &'a BTreeMap<String, String>,
    /// The kinds that are taken.
    pub(crate) accept: &'a str,
    /// What it must sum up to, and who says so.
    pub(crate) checksum: Option<(&'a Checksum, &'a str)>,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Got {
    /// It is in the file.
    Taken,
    /// The first server wants to know who asks, and says how that is shown.
    Challenged(String),
}

/// How a server answers.
enum Answered {
    Taken,
    Elsewhere(String),
    Challenged(String),
}

impl Web<'_> {
    /// Downloads into a new file and compares what it sums up to.
    pub(crate) async fn get(self, ask: Ask<'_>, to: &Path, budget: &mut Budget) -> Result<Got, String> {
        let first = WebAddress::parse(ask.url).map_err(|error| error.to_string())?;
        let mut target = first.clone();
        for n_redirects in 0..=MAX_REDIRECTS {
            let request = request(ask, &target, target.is_same_origin(&first))?;
            let stream = connect(&target, self.allowed).await?;
            let next = if target.is_tls {
                let stream = self.trust.handshake(stream, &target.host).await?;
                exchange(ask, stream, request, (to, &mut *budget)).await
            } else {
                exchange(ask, stream, request, (to, &mut *budget)).await
            };
            let location = match next.map_err(|error| format!("{}: {error}", shown(&target)))? {
                Answered::Taken => return Ok(Got::Taken),
                Answered::Challenged(how) if n_redirects == 0 => return Ok(Got::Challenged(how)),
                Answered::Challenged(_) => return Err(unauthorized(&target)),
                Answered::Elsewhere(location) => location,
            };
            let next =
                target.join(&location).map_err(|error| format!("{} leads elsewhere: {error}", shown(&target)))?;
            if target.is_tls && !next.is_tls {
                return Err(format!("{} leads to {}, which has no TLS", shown(&target), shown(&next)));
            }
            target = next;
        }
        Err(format!("{} leads elsewhere more than {MAX_REDIRECTS} times", shown(&first)))
    }

    /// The same, where a server that wants to know who asks gives nothing.
    pub(crate) async fn get_plain(self, ask: Ask<'_>, to: &Path, budget: &mut Budget) -> Result<(), String> {
        match self.get(ask, to, budget).await? {
            Got::Taken => Ok(()),
            Got::Challenged(_) => {
                Err(WebAddress::parse(ask.url).map_or_else(|error| error.to_string(), |at| unauthorized(&at)))
            }
        }
    }
}

fn unauthorized(at: &WebAddress) -> String {
    format!("{}: answered {}", shown(at), StatusCode::UNAUTHORIZED)
}

/// An address without its query, which may hold a signature.
fn shown(address: &WebAddress) -> String {
    let path: String = address.path.split('?').next().unwrap_or_default().chars().take(128).collect();
    format!("{}://{}{path}", if address.is_tls { "https" } else { "http" }, address.authority())
}

fn request(ask: Ask<'_>, target: &WebAddress, with_headers: bool) -> Result<Request<Empty<Bytes>>, String> {
    let mut request =
        Request::builder().uri(target.path.as_str()).body(Empty::new()).map_err(|error| error.to_string())?;
    let headers = request.headers_mut();
    let value = |text: &str| HeaderValue::from_str(text).map_err(|error| error.to_string());
    headers.insert(header::HOST, value(&target.authority())?);
    headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
    headers.insert(header::ACCEPT, value(ask.accept)?);
    // They may be credentials, which another server must not see.
    for (name, text) in ask.headers.iter().filter(|_| with_headers) {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| format!("header {name}: {error}"))?;
        headers.insert(name, value(text)?);
    }
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    Ok(request)
}

/// Asks, and takes the body in.
async fn exchange<S>(
    ask: Ask<'_>,
    stream: S,
    request: Request<Empty<Bytes>>,
    place: (&Path, &mut Budget),
) -> Result<Answered, String>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let no_http = |error: hyper::Error| format!("no answer in HTTP: {:#}", anyhow::Error::from(error));
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(no_http)?;
    let work = async {
        let answered = tokio::time::timeout(IDLE_TIMEOUT, sender.send_request(request)).await;
        let response = answered.map_err(|_| is_idle())?.map_err(no_http)?;
        let status = response.status();
        let of = |name| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        if matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
            return of(header::LOCATION).map(Answered::Elsewhere).ok_or_else(|| "it leads nowhere".to_owned());
        }
        if let (StatusCode::UNAUTHORIZED, Some(how)) = (status, of(header::WWW_AUTHENTICATE)) {
            return Ok(Answered::Challenged(how));
        }
        if !status.is_success() {
            return Err(format!("answered {status}"));
        }
        take_in(ask, response.into_body(), place).await.map(|()| Answered::Taken)
    };
    tokio::pin!(work, connection);
    tokio::select! {
        biased;
        done = &mut work => done,
        // What was received before the end is still read; an error of the connection is the request's too.
        _ = &mut connection => work.await,
    }
}

async fn take_in(ask: Ask<'_>, mut body: Incoming, (to, budget): (&Path, &mut Budget)) -> Result<(), String> {
    // A server that says so is believed at once.
    budget.clone().take_bytes(body.size_hint().lower())?;
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to);
    let mut file: File = opened.map_err(|error| format!("the download cannot be kept: {error}"))?;
    let mut sum = ask.checksum.map(|(wanted, who)| (hasher(wanted.kind), wanted, who));
    loop {
        let frame = tokio::time::timeout(IDLE_TIMEOUT, body.frame()).await.map_err(|_| is_idle())?;
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|error| format!("it broke off: {:#}", anyhow::Error::from(error)))?;
        let Ok(data) = frame.into_data() else { continue };
        budget.take_bytes(data.len() as u64)?;
        if let Some((sum, ..)) = &mut sum {
            sum.update(&data);
        }
        file.write_all(&data).map_err(|error| format!("the download cannot be kept: {error}"))?;
    }
    sum.map_or(Ok(()), |(sum, wanted, who)| compare(&sum.finalize(), wanted, who))
}

fn is_idle() -> String {
    format!("nothing came for {}s", IDLE_TIMEOUT.as_secs())
}

fn hasher(kind: ChecksumKind) -> Box<dyn DynDigest + Send> {
    match kind {
        ChecksumKind::Md5 => Box::new(Md5::default()),
        ChecksumKind::Sha1 => Box::new(Sha1::default()),
        ChecksumKind::Sha256 => Box::new(Sha256::default()),
        ChecksumKind::Sha512 => Box::new(Sha512::default()),
    }
}

fn compare(sum: &[u8], wanted: &Checksum, who: &str) -> Result<(), String> {
    let found = hex(sum);
    if found == wanted.hex {
        return Ok(());
    }
    Err(format!("the checksum is {found}, not {} as {who} has it", wanted.hex))
}
