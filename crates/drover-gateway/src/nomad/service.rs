//! A request of a client of Nomad: from its path over its caller's rights and the wait for a change to its answer.

use std::sync::Arc;
use std::time::Duration;

use drover_nomad::{
    AgentFacts, Blocking, Endpoint, Fault, Query, Reply, Route, Scopes, SearchRequest, View, World, answer, index,
    kind, needed, route, told,
};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::audit::NomadCall;
use super::parts::NomadParts;
use super::scopes::scopes;
use super::writing::Writing;
use crate::answers::{Answer, Refusal, whole, with_type};
use crate::reviews::{Identity, is_anonymous};

/// Reads that wait for a change at a time, on this replica.
const MOST_BLOCKED: usize = 4096;
/// The largest body.
const MAX_BODY_BYTES: usize = 1024 * 1024;
/// How long a body may take to come.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The refusal of a stream where it is turned off.
const NO_EVENTS: &str =
    "the event stream is turned off here: set events.enabled in the gateway's configuration, or `kubectl get --watch`";

/// Answers clients of Nomad; clones are the same.
#[derive(Clone)]
pub(crate) struct Nomad {
    pub(super) parts: Arc<NomadParts>,
    blocked: Arc<Semaphore>,
}

/// What is answered, and how new it is.
struct Outcome {
    reply: Reply,
    index: Option<u64>,
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self::new(fault.code, fault.message)
    }
}

/// A refusal as Nomad's clients read it: its text alone.
pub(crate) fn refused(refusal: &Refusal) -> Response<Answer> {
    let code = StatusCode::from_u16(refusal.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    with_type(code, "text/plain; charset=utf-8", whole(refusal.message.clone()))
}

impl Nomad {
    /// Answers from these.
    pub(crate) fn new(parts: NomadParts) -> Self {
        Self { parts: Arc::new(parts), blocked: Arc::new(Semaphore::new(MOST_BLOCKED)) }
    }

    /// Answers a caller who asks for a path below `/v1/`.
    pub(crate) async fn answer(
        &self,
        identity: &Identity,
        path: &str,
        request: http::Request<Incoming>,
    ) -> Response<Answer> {
        let id = request.headers().get("audit-id").and_then(|id| id.to_str().ok()).unwrap_or_default();
        let mut call = NomadCall::begin(id, identity, (request.method(), path), self.parts.metrics.clone());
        match self.outcome(&mut call, identity, path, request).await {
            Ok(outcome) => {
                call.answered(200, outcome.reply.body.len());
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
        path: &str,
        request: http::Request<Incoming>,
    ) -> Result<Outcome, Refusal> {
        let route = route::read(request.method(), path)?;
        let query = Query::parse(request.uri().query().unwrap_or_default())?;
        call.is_about(query.text("namespace").unwrap_or("default"));
        let endpoint = match route {
            Route::Read(endpoint) => endpoint,
            Route::Search => Endpoint::Search(SearchRequest::read(&body(request).await?)?),
            Route::Write(endpoint) => {
                known(identity)?;
                let body = body(request).await?.into();
                return self.write(Writing { parts: &self.parts, identity, endpoint, query, body }).await;
            }
            // Where there is one, the request did not come here.
            Route::Events => return Err(Refusal::new(400, NO_EVENTS)),
        };
        if endpoint != Endpoint::AgentHealth {
            known(identity)?;
        }
        let needed = needed(&endpoint, &query);
        let world = self.parts.caches.complete().await?;
        let may_see = async |world: &World| scopes(&self.parts.reviews, identity, &needed, world).await;
        let allowed = may_see(&world).await?;
        let Some(blocking) = query.blocking().filter(|_| kind(&endpoint).is_some()) else {
            let index = index(&endpoint, &query, &world);
            return Ok(Outcome { reply: made(endpoint, query, world, (allowed, self.facts())).await?, index });
        };
        let turn = self.turn()?;
        let (world, index) = self.wait(&endpoint, &query, blocking, &world).await;
        drop(turn);
        // The right may have gone meanwhile.
        let allowed = may_see(&world).await?;
        Ok(Outcome { reply: made(endpoint, query, world, (allowed, self.facts())).await?, index: Some(index) })
    }

    async fn write(&self, writing: Writing<'_>) -> Result<Outcome, Refusal> {
        let (answer, index) = writing.carry_out().await?;
        Ok(Outcome { reply: Reply::of(&answer, &writing.query)?, index: Some(index) })
    }

    fn facts(&self) -> AgentFacts {
        self.parts.facts.clone()
    }

    fn turn(&self) -> Result<SemaphorePermit<'_>, Refusal> {
        let full = |_| Refusal::new(429, "too many reads wait for a change here: try again later");
        self.blocked.try_acquire().map_err(full)
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
        let mut response = with_type(StatusCode::OK, "application/json", whole(reply.body));
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
async fn made(
    endpoint: Endpoint,
    query: Query,
    world: Arc<World>,
    (allowed, facts): (Scopes, AgentFacts),
) -> Result<Reply, Refusal> {
    let make = move || answer(&endpoint, View { world: &world, query: &query, scopes: &allowed, facts: &facts });
    let reply = tokio::task::spawn_blocking(make).await;
    Ok(reply.map_err(|error| Refusal::new(500, format!("the answer cannot be made: {error}")))??)
}

async fn body(request: http::Request<Incoming>) -> Result<Vec<u8>, Refusal> {
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
