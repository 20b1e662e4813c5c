//! A request of a client of Nomad: from its path over its caller's rights and the wait for a change to its answer.

use std::sync::Arc;
use std::time::Duration;

use drover_daemon::monitor::METRICS_TYPE;
use drover_nomad::{
    AgentFacts, Blocking, ClientCall, Counted, Endpoint, Fault, Form, Kind, Manner, Query, Reply, Route, SearchRequest,
    View, World, WriteEndpoint, answer, index, is_unseen, kind, needed, route, told,
};
use futures::future::BoxFuture;
use http::{HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::audit::NomadCall;
use super::caches::SEEN_WITHIN;
use super::parts::NomadParts;
use super::planning::{self, Asking, PlanTurns};
use super::same::{Question, SameAnswers};
use super::scopes::{of_own_job, scopes};
use super::submitted::Submitted;
use super::writing::Writing;
use crate::answers::{Answer, Refusal, in_pieces, whole, with_type};
use crate::callers::Caller;
use crate::limits::Limits;
use crate::reviews::{Identity, is_anonymous};

/// Reads that wait for a change at a time, on this replica.
const MOST_BLOCKED: usize = 4096;
/// The largest body.
const MAX_BODY_BYTES: usize = 1024 * 1024;
/// How long a body may take to come.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Answers clients of Nomad; clones are the same.
#[derive(Clone)]
pub(crate) struct Nomad {
    pub(super) parts: Arc<NomadParts>,
    blocked: Arc<Semaphore>,
    plans: PlanTurns,
    same: SameAnswers,
}

/// Finds out whose token it is that came after a request.
pub(crate) type Identify = Box<dyn Fn(String) -> BoxFuture<'static, Result<Caller, Refusal>> + Send + Sync>;

/// What a client asks.
pub(crate) struct Asked {
    /// Who asks, or why that is not known.
    pub(crate) caller: Result<Caller, Refusal>,
    pub(crate) identify: Identify,
    pub(crate) limits: Limits,
    /// Below `/v1/`.
    pub(crate) path: String,
    pub(crate) request: http::Request<Incoming>,
}

/// What a client is answered.
pub(crate) struct Answered {
    pub(crate) response: Response<Answer>,
    /// What goes on over its connection when the answer was sent.
    pub(crate) goes_on: Option<BoxFuture<'static, ()>>,
}

impl From<Response<Answer>> for Answered {
    fn from(response: Response<Answer>) -> Self {
        Self { response, goes_on: None }
    }
}

/// What is answered, and how new it is.
pub(super) struct Outcome {
    pub(super) reply: Reply,
    pub(super) index: Option<u64>,
}

/// What is answered from what is known.
enum WholeCall {
    Read(Endpoint),
    Search(Manner),
    Write(WriteEndpoint),
    Plan(String),
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self::new(fault.code, fault.message)
    }
}

/// A refusal as Nomad's clients read it: its text alone.
pub(super) fn refused(refusal: &Refusal) -> Response<Answer> {
    let code = StatusCode::from_u16(refusal.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    with_type(code, "text/plain; charset=utf-8", whole(refusal.message.clone()))
}

impl Nomad {
    /// Answers from these.
    pub(crate) fn new(parts: NomadParts) -> Self {
        Self {
            parts: Arc::new(parts),
            blocked: Arc::new(Semaphore::new(MOST_BLOCKED)),
            plans: PlanTurns::default(),
            same: SameAnswers::default(),
        }
    }

    /// Answers a client that asks for a path below `/v1/`.
    pub(crate) async fn answer(&self, asked: Asked) -> Answered {
        let route = route::read(asked.request.method(), &asked.path);
        if let Ok(Route::Client(endpoint)) = &route
            && endpoint.call == ClientCall::Exec
        {
            return self.exec(endpoint.clone(), asked);
        }
        let Asked { caller, path, request, identify, .. } = asked;
        let caller = match caller {
            Ok(caller) => caller,
            Err(refusal) => return refused(&refusal).into(),
        };
        let call = self.call(&caller.identity, &path, &request);
        let known = match route {
            Ok(Route::Read(endpoint)) => WholeCall::Read(endpoint),
            Ok(Route::Search(manner)) => WholeCall::Search(manner),
            Ok(Route::Write(endpoint)) => WholeCall::Write(endpoint),
            Ok(Route::Plan(id)) => WholeCall::Plan(id),
            Ok(Route::Events) => {
                return self.stream(caller, call, request.uri().query().unwrap_or_default()).await.into();
            }
            Ok(Route::Acl(endpoint)) => {
                let outcome = self.acl(endpoint, (&caller.identity, &identify), request).await;
                return self.finished(call, outcome).into();
            }
            Ok(Route::Client(endpoint)) => return self.on_node(caller, call, endpoint, request).await.into(),
            Ok(Route::Node(asked)) => {
                let mut call = call;
                let outcome = self.of_node(&caller, &mut call, asked, request).await;
                return self.finished(call, outcome).into();
            }
            Err(fault) => return self.finished(call, Err(fault.into())).into(),
        };
        let mut call = call;
        let outcome = self.outcome(&mut call, &caller.identity, known, request).await;
        self.finished(call, outcome).into()
    }

    /// A call that begins.
    pub(super) fn call(&self, identity: &Identity, path: &str, request: &http::Request<Incoming>) -> NomadCall {
        let id = request.headers().get("audit-id").and_then(|id| id.to_str().ok()).unwrap_or_default();
        NomadCall::begin(id, identity, (request.method(), path), self.parts.metrics.gateway.clone())
    }

    /// The answer of a call that is answered at once and as a whole.
    pub(super) fn finished(&self, mut call: NomadCall, outcome: Result<Outcome, Refusal>) -> Response<Answer> {
        match outcome {
            Ok(outcome) => {
                call.answered(200, outcome.reply.body.n_bytes());
                self.response(outcome)
            }
            Err(refusal) => {
                call.answered(refusal.code, refusal.message.len());
                refused(&refusal)
            }
        }
    }

    async fn outcome(
        &self,
        call: &mut NomadCall,
        identity: &Identity,
        asked: WholeCall,
        request: http::Request<Incoming>,
    ) -> Result<Outcome, Refusal> {
        let query = Query::parse(request.uri().query().unwrap_or_default())?;
        call.is_about(query.text("namespace").unwrap_or("default"));
        let endpoint = match asked {
            WholeCall::Read(endpoint) => endpoint.with(&query),
            WholeCall::Search(manner) => Endpoint::Search(SearchRequest::read(manner, &body(request).await?)?),
            WholeCall::Write(endpoint) => {
                known(identity)?;
                let submitted = Submitted { endpoint, query, body: body(request).await?.into() };
                let (parts, blocked) = (&*self.parts, &*self.blocked);
                return self.write(Writing { parts, identity, submitted, blocked }).await;
            }
            WholeCall::Plan(id) => {
                known(identity)?;
                let endpoint = WriteEndpoint::Register(Some(id.clone()));
                let submitted = Submitted { endpoint, query: query.clone(), body: body(request).await?.into() };
                let asking = Asking { id, submitted };
                let (answer, index) = planning::plan(&self.parts, &self.plans, identity, asking).await?;
                return Ok(Outcome { reply: Reply::of(&answer, &query)?, index: Some(index) });
            }
        };
        if endpoint != Endpoint::AgentHealth {
            known(identity)?;
        }
        let (needed, own) = (needed(&endpoint, &query), of_own_job(identity, &endpoint, &query));
        let world = self.parts.caches.complete().await?;
        let may_see = async |world: &World| match &own {
            Some(own) => Ok(own.clone()),
            None => scopes(&self.parts.reviews, identity, &needed, world).await,
        };
        let allowed = may_see(&world).await?;
        let Some(blocking) = query.blocking().filter(|_| kind(&endpoint).is_some()) else {
            let world = self.seen(&endpoint, &query, world).await?;
            let (index, facts) = (index(&endpoint, &query, &world), self.facts(&endpoint).await?);
            let reply = made(Question { world, endpoint, query, scopes: allowed }, facts).await?;
            return Ok(Outcome { reply, index });
        };
        let turn = self.turn()?;
        let (world, index) = self.wait(&endpoint, &query, blocking, &world).await;
        drop(turn);
        // The right may have gone meanwhile.
        let (allowed, facts) = (may_see(&world).await?, self.facts(&endpoint).await?);
        let question = Question { world, endpoint, query, scopes: allowed };
        let reply = self.same.get(question, async |question| made(question, facts).await).await?;
        Ok(Outcome { reply, index: Some(index) })
    }

    async fn write(&self, writing: Writing<'_>) -> Result<Outcome, Refusal> {
        let (answer, index) = writing.carry_out().await?;
        Ok(Outcome { reply: Reply::of(&answer, &writing.submitted.query)?, index: Some(index) })
    }

    /// What drover tells of itself, with its controllers where they are asked for.
    async fn facts(&self, endpoint: &Endpoint) -> Result<AgentFacts, Refusal> {
        let mut facts = self.parts.facts.clone();
        if matches!(endpoint, Endpoint::Members | Endpoint::Leader | Endpoint::Peers) {
            facts.servers = self.parts.controllers.now().await?;
        }
        if *endpoint == Endpoint::Metrics {
            facts.counted = Counted { text: self.parts.metrics.text(), at: self.parts.clock.now() };
        }
        Ok(facts)
    }

    fn turn(&self) -> Result<SemaphorePermit<'_>, Refusal> {
        let full = |_| Refusal::new(429, "too many reads wait for a change here: try again later");
        self.blocked.try_acquire().map_err(full)
    }

    /// What is known once the evaluation that is asked for is: another replica may have told its id just now.
    async fn seen(&self, endpoint: &Endpoint, query: &Query, now: Arc<World>) -> Result<Arc<World>, Refusal> {
        let caches = &self.parts.caches;
        let Some(mut news) = caches.news(Kind::Job).filter(|_| is_unseen(endpoint, query, &now)) else {
            return Ok(now);
        };
        let turn = self.turn()?;
        let comes = async { while is_unseen(endpoint, query, &caches.now()) && news.changed().await.is_ok() {} };
        let _ = tokio::time::timeout(SEEN_WITHIN, comes).await;
        drop(turn);
        Ok(caches.now())
    }

    /// Waits until there is something newer than the caller knows, or its time is over. `before` is the world in which
    /// it began: where the API server has gone back to an older state since, there is nothing to wait for.
    async fn wait(&self, endpoint: &Endpoint, query: &Query, blocking: Blocking, before: &World) -> (Arc<World>, u64) {
        let NomadParts { caches, ends, .. } = &*self.parts;
        let over = tokio::time::sleep(blocking.waits(fastrand::f64()));
        let mut over = std::pin::pin!(over);
        let kind = kind(endpoint);
        let mut news = kind.and_then(|kind| caches.news(kind));
        loop {
            let world = caches.now();
            let index = index(endpoint, query, &world).unwrap_or(0);
            let is_older = kind.is_some_and(|kind| world.n_steps_back(kind) != before.n_steps_back(kind));
            if blocking.is_answered_by(index) || is_older {
                return (world, index);
            }
            let changed = async {
                match &mut news {
                    Some(news) => news.changed().await.is_ok(),
                    None => false,
                }
            };
            let goes_on = tokio::select! {
                biased;
                () = ends.cancelled() => false,
                () = &mut over => false,
                changed = changed => changed,
            };
            if !goes_on {
                return (world, blocking.settled(index));
            }
        }
    }

    fn response(&self, outcome: Outcome) -> Response<Answer> {
        let Outcome { reply, index } = outcome;
        let kind = match reply.form {
            Form::Json => "application/json",
            Form::Metrics => METRICS_TYPE,
        };
        let mut response = in_pieces(kind, reply.body.into_inner());
        let silent_for = self.parts.reviews.silent_for();
        let known = if silent_for.is_some() { "false" } else { "true" };
        let contact = silent_for.unwrap_or_default().as_millis().to_string();
        let index = index.map(|index| told(index).to_string());
        let headers = [
            ("x-nomad-index", index),
            ("x-nomad-knownleader", Some(known.to_owned())),
            ("x-nomad-lastcontact", Some(contact)),
            ("x-nomad-nexttoken", reply.next_token),
        ];
        for (name, value) in headers {
            // An id that is no header's value would have to hold a control character, which none does.
            if let Some(value) = value.and_then(|value| HeaderValue::from_str(&value).ok()) {
                response.headers_mut().insert(name, value);
            }
        }
        response
    }
}

/// Refuses who has proved nothing.
pub(super) fn known(identity: &Identity) -> Result<(), Refusal> {
    if is_anonymous(identity) {
        let remedy = "Permission denied: give a token, as in NOMAD_TOKEN, or a client certificate";
        return Err(Refusal::new(403, remedy));
    }
    Ok(())
}

/// Makes an answer beside the threads that carry others: one of ten thousand allocations takes a while.
async fn made(question: Question, facts: AgentFacts) -> Result<Reply, Refusal> {
    let Question { world, endpoint, query, scopes } = question;
    let make = move || answer(&endpoint, View { world: &world, query: &query, scopes: &scopes, facts: &facts });
    let reply = tokio::task::spawn_blocking(make).await;
    Ok(reply.map_err(|error| Refusal::new(500, format!("the answer cannot be made: {error}")))??)
}

/// The body of a request.
///
/// # Errors
/// 400 when it does not come, 413 when it is too large.
pub(super) async fn body(request: http::Request<Incoming>) -> Result<Vec<u8>, Refusal> {
    let collected = Limited::new(request.into_body(), MAX_BODY_BYTES).collect();
    let collected = tokio::time::timeout(BODY_TIMEOUT, collected).await;
    let collected = collected.map_err(|_| Refusal::new(400, "the body did not come within 10s"))?;
    let bytes = collected.map_err(|error| {
        if error.is::<LengthLimitError>() {
            return Refusal::new(413, format!("the body is larger than {MAX_BODY_BYTES} bytes"));
        }
        Refusal::new(400, format!("the body cannot be read: {error}"))
    })?;
    Ok(bytes.to_bytes().to_vec())
}
