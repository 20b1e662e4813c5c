//! git's requests over HTTP, by the connections of every other fetch: the same addresses are refused, redirects are
//! asked about, and what comes counts.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::io::{self, BufRead, Read, Write};
use std::rc::Rc;

use drover_core::artifact::{FetchPlan, WebAddress};
use gix_error::ErrorExt as _;
use gix_transport::client::blocking_io::http::{GetResponse, Http, PostBodyDataKind, PostResponse};
use http::{HeaderValue, Response, header};
use hyper::body::{Buf as _, Bytes};

use crate::budget::Budget;
use crate::exchange::{Coming, Heads, Web, shown};
use crate::waiting::Waiting;

/// The end of the address at which a repository says what it has.
const REFS: &str = "/info/refs?service=git-upload-pack";
/// What git's library says of itself; servers are told of drover's fetch.
const OWN_AGENT: &str = "user-agent";

/// What requests of one repository need.
#[derive(Clone, Copy)]
pub(crate) struct Repository<'a> {
    pub(crate) web: Web<'a>,
    pub(crate) plan: &'a FetchPlan,
    pub(crate) waiting: &'a Waiting,
    pub(crate) budget: &'a Cell<Budget>,
}

/// Carries out git's requests.
pub(crate) struct SmartHttp<'a> {
    repository: Repository<'a>,
    first: WebAddress,
    /// Where a redirect led to.
    moved_to: Option<String>,
}

impl<'a> SmartHttp<'a> {
    pub(crate) fn new(repository: Repository<'a>) -> Result<Self, String> {
        let first = WebAddress::parse(&repository.plan.url).map_err(|error| error.to_string())?;
        Ok(Self { repository, first, moved_to: None })
    }

    /// Asks for what the repository has.
    fn ask(&mut self, url: &str, headers: &[(String, String)]) -> Result<Stage, String> {
        let Repository { web, plan, waiting, .. } = self.repository;
        let asks = pairs(headers);
        let at = WebAddress::parse(url).map_err(|error| error.to_string())?;
        let (from, response) = waiting.on(web.get(&at, Heads { asks: &asks, own: &plan.headers }))?;
        if from != at {
            let path = from.path.strip_suffix(REFS);
            let path = path.ok_or_else(|| format!("{} leads to {}, which is no repository", plan.url, shown(&from)))?;
            let scheme = if from.is_tls { "https" } else { "http" };
            self.moved_to = Some(format!("{scheme}://{}{path}", from.authority()));
        }
        answered(&from, response)
    }
}

fn pairs(headers: &[(String, String)]) -> Vec<(&str, &str)> {
    headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

/// Headers as git's library has them: a line each.
fn of_lines(lines: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<(String, String)> {
    let split = |line: &str| line.split_once(':').map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()));
    let all = lines.into_iter().filter_map(|line| split(line.as_ref()));
    all.filter(|(name, _)| name != OWN_AGENT).collect()
}

/// A request that is written first, and sent when its answer is read.
struct Exchange<'a> {
    repository: Repository<'a>,
    stage: Stage,
}

enum Stage {
    Written(Request),
    /// What is still to be read of it: the line that says of what kind it is, and its body.
    Answered(Bytes, Coming),
}

struct Request {
    at: WebAddress,
    is_first: bool,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Exchange<'_> {
    fn answer(&mut self) -> Result<(&mut Bytes, &mut Coming), String> {
        if let Stage::Written(request) = &mut self.stage {
            let Repository { web, plan, waiting, .. } = self.repository;
            let asks = pairs(&request.headers);
            let heads = Heads { asks: &asks, own: &plan.headers };
            let body = Bytes::from(std::mem::take(&mut request.body));
            let response = waiting.on(web.post(&request.at, (heads, request.is_first), body))?;
            self.stage = answered(&request.at, response)?;
        }
        match &mut self.stage {
            Stage::Answered(kind, body) => Ok((kind, body)),
            Stage::Written(_) => Err("it was not asked".to_owned()),
        }
    }

    fn kind(&mut self) -> Result<Bytes, String> {
        self.answer().map(|(kind, _)| std::mem::take(kind))
    }

    /// Waits for the next bytes of the body; none: it is whole.
    fn more(&mut self) -> Result<Bytes, String> {
        let Repository { waiting, budget, .. } = self.repository;
        let part = waiting.on(self.answer()?.1.next())?.unwrap_or_default();
        let mut left = budget.get();
        left.take_bytes(part.len() as u64)?;
        budget.set(left);
        Ok(part)
    }
}

/// An answer, where it is one that says something.
fn answered(from: &WebAddress, response: Response<Coming>) -> Result<Stage, String> {
    let status = response.status();
    match status.as_u16() {
        200 => {
            let kind = response.headers().get(header::CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
            let line = [b"content-type: ", kind, b"\n"].concat();
            Ok(Stage::Answered(line.into(), response.into_body()))
        }
        401 | 403 => Err(format!(
            "{}: answered {status}; give the header Authorization in getterHeaders, with the word Basic, and user and token in base64",
            shown(from)
        )),
        _ => Err(format!("{}: answered {status}", shown(from))),
    }
}

type Shared<'a> = Rc<RefCell<Exchange<'a>>>;

/// The body of a request.
pub(crate) struct Written<'a>(Shared<'a>);

impl Write for Written<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0.borrow_mut().stage {
            Stage::Written(request) => request.body.extend_from_slice(bytes),
            Stage::Answered(..) => return Err(io::ErrorKind::BrokenPipe.into()),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What is read of an answer: the line that says of what kind it is, or its body.
pub(crate) struct Late<'a> {
    exchange: Shared<'a>,
    more: fn(&mut Exchange<'a>) -> Result<Bytes, String>,
    /// What came and was not read.
    part: Bytes,
}

/// The line, and the body.
fn read_of<'a>(exchange: &Shared<'a>) -> (Late<'a>, Late<'a>) {
    let late = |more| Late { exchange: Rc::clone(exchange), more, part: Bytes::new() };
    (late(Exchange::kind), late(Exchange::more))
}

impl Read for Late<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n_bytes = self.fill_buf()?.read(buffer)?;
        self.consume(n_bytes);
        Ok(n_bytes)
    }
}

impl BufRead for Late<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.part.is_empty() {
            self.part = (self.more)(&mut self.exchange.borrow_mut()).map_err(io::Error::other)?;
        }
        Ok(&self.part)
    }

    fn consume(&mut self, n_bytes: usize) {
        self.part.advance(n_bytes.min(self.part.len()));
    }
}

impl<'a> Http for SmartHttp<'a> {
    type Headers = Late<'a>;
    type ResponseBody = Late<'a>;
    type PostBody = Written<'a>;

    fn get(
        &mut self,
        url: &str,
        _: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> gix_error::Result<GetResponse<Late<'a>, Late<'a>>> {
        let stage = self.ask(url, &of_lines(headers)).map_err(failed)?;
        let (headers, body) = read_of(&Rc::new(RefCell::new(Exchange { repository: self.repository, stage })));
        Ok(GetResponse { headers, body })
    }

    fn post(
        &mut self,
        url: &str,
        _: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
        _: PostBodyDataKind,
    ) -> gix_error::Result<PostResponse<Late<'a>, Late<'a>, Written<'a>>> {
        let at = WebAddress::parse(url).map_err(|error| failed(error.to_string()))?;
        let is_first = at.is_same_origin(&self.first);
        let stage = Stage::Written(Request { at, is_first, headers: of_lines(headers), body: Vec::new() });
        let exchange = Rc::new(RefCell::new(Exchange { repository: self.repository, stage }));
        let (headers, body) = read_of(&exchange);
        Ok(PostResponse { post_body: Written(exchange), headers, body })
    }

    fn configure(&mut self, _: &dyn Any) -> gix_error::Result {
        Ok(())
    }

    fn redirected_base_url(&self) -> Option<String> {
        self.moved_to.clone()
    }
}

fn failed(reason: String) -> gix_error::Error {
    gix_error::Message::new(reason).raise()
}
