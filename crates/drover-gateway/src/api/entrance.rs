//! The way of a request: who asks, for what, whether they may, where it is, and to its agent.

use std::sync::Arc;
use std::time::Duration;

use drover_daemon::monitor::GatewayMetrics;
use drover_socket::protocol::Request;
use futures::FutureExt as _;
use http::{HeaderMap, Method, Response, StatusCode, header};
use hyper::body::Incoming;
use kube::Client;
use rustls::pki_types::CertificateDer;
use tokio_util::task::TaskTracker;

use super::asker::{Asker, Proof};
use super::audit::Call;
use super::identity;
use super::places::Places;
use super::route::{self, Route, Subresource};
use super::streams::{FRAMES, Session};
use super::trust::{Trust, Worth};
use super::workload::{Workloads, from_elsewhere};
use super::{allocations, discovery, exec, query, streams};
use crate::answers::{Answer, Refusal, json_answer};
use crate::callers::{Caller, Recheck};
use crate::connections::Service;
use crate::identities::{IdentityDocuments, IdentitySigner};
use crate::limits::{self, Limits};
use crate::nomad::{self, Answered, Asked, Nomad};
use crate::reviews::{Identity, Meanwhile, Object, Reviews, UNAUTHENTICATED, bearer};
use crate::tunnels::{Nodes, Place};

/// What the entrance leads to.
pub(crate) struct EntranceParts {
    pub(crate) client: Client,
    pub(crate) reviews: Reviews,
    pub(crate) nodes: Nodes,
    pub(crate) trust: Trust,
    pub(crate) signer: IdentitySigner,
    pub(crate) metrics: GatewayMetrics,
    pub(crate) recheck_every: Duration,
    /// Nomad's API, where it is served.
    pub(crate) nomad: Option<Nomad>,
}

/// Answers users; clones are the same entrance.
#[derive(Clone)]
pub(crate) struct Entrance {
    parts: Arc<EntranceParts>,
    limits: Limits,
    places: Places,
    workloads: Workloads,
    documents: IdentityDocuments,
    /// Commands, which outlive the requests that began them.
    commands: TaskTracker,
}

impl Entrance {
    /// An entrance to these.
    pub(crate) fn new(parts: EntranceParts) -> Self {
        let limits = Limits::new(parts.metrics.clone());
        let workloads = Workloads::new(parts.client.clone(), parts.signer.clone());
        let documents = IdentityDocuments::new(parts.signer.clone());
        let (places, commands) = (Places::default(), TaskTracker::new());
        Self { parts: Arc::new(parts), limits, places, workloads, documents, commands }
    }

    /// Waits for the commands that still run.
    pub(crate) async fn end(&self) {
        self.commands.close();
        self.commands.wait().await;
    }

    /// Who asks. What a proxy says counts only where the connection shows its certificate; without any proof one is
    /// anonymous, whom the reviews refuse.
    async fn asker(
        &self,
        request: &http::Request<Incoming>,
        certificates: Arc<Vec<CertificateDer<'static>>>,
    ) -> Result<Asker, Refusal> {
        let worth = self.parts.trust.worth(&certificates);
        if let (Worth::FrontProxy(proxy), Some(own)) = (&worth, certificates.first()) {
            let name = identity::subject(own)?.name;
            if !proxy.names.is_empty() && !proxy.names.contains(&name) {
                return Err(Refusal::new(401, format!("{name:?} is no name of the API server's proxy")));
            }
            let identity = from_elsewhere(identity::from_headers(request.headers(), &proxy.headers)?)?;
            return Ok(Asker { identity, proof: Proof::Certificates(certificates) });
        }
        let token = bearer(request.headers()).or_else(|| nomad_token(request.headers()));
        if let Some(token) = token {
            return self.by_token(token).await;
        }
        if let (Worth::Person, Some(own)) = (&worth, certificates.first()) {
            let identity = from_elsewhere(identity::subject(own)?.into())?;
            return Ok(Asker { identity, proof: Proof::Certificates(certificates) });
        }
        Ok(anonymous())
    }

    /// Who shows a token.
    async fn by_token(&self, token: &str) -> Result<Asker, Refusal> {
        if Workloads::is_meant(token) {
            let (identity, workloads) = (self.workloads.identify(token).await?, self.workloads.clone());
            return Ok(Asker { identity, proof: Proof::Workload(workloads, token.to_owned()) });
        }
        let identity = from_elsewhere(self.parts.reviews.identify(token, None).await?)?;
        Ok(Asker { identity, proof: Proof::Token(token.to_owned()) })
    }

    /// Where an allocation is; while the API server cannot be asked, where it was a short while ago.
    async fn place(&self, route: &Route, meanwhile: Meanwhile) -> Result<Place, Refusal> {
        let found = self.look_up(route).await;
        self.places.settled(route, found, meanwhile)
    }

    async fn look_up(&self, route: &Route) -> Result<Place, Refusal> {
        let found = allocations::find(&self.parts.client, &route.namespace, &route.allocation).await?;
        let unknown = || Refusal::new(404, format!("allocations.drover.dev {:?} not found", route.allocation));
        let found = found.ok_or_else(unknown)?;
        let uid = found.metadata.uid.ok_or_else(unknown)?;
        Ok(Place { node: found.spec.node_name, namespace: route.namespace.clone(), uid })
    }

    /// Everything up to the agent's acceptance.
    async fn begin(
        &self,
        call: &mut Call,
        (asker, route): (&Asker, &Route),
        query: &str,
    ) -> Result<(Request, drover_socket::client::Exchange, limits::Open), Refusal> {
        let meanwhile = route.subresource.meanwhile();
        self.parts.reviews.allow(&asker.identity, &object(route), meanwhile).await?;
        let kind = match route.subresource {
            Subresource::Exec => limits::Opening::Exec,
            Subresource::Log
            | Subresource::Fs
            | Subresource::Stats
            | Subresource::Checks
            | Subresource::Restart
            | Subresource::Signal
            | Subresource::Stop
            | Subresource::Gc => limits::Opening::Stream,
        };
        let open = self.limits.open(kind, &asker.identity.user)?;
        let place = self.place(route, meanwhile).await?;
        call.leads_to(&place.node);
        let request = query::request(route.subresource, query, &place.uid)?;
        if let Request::Exec { command, .. } = &request {
            call.runs(command.first().map(String::as_str).unwrap_or_default());
        }
        let exchange = self.parts.nodes.ask(&place, &request).await?;
        Ok((request, exchange, open))
    }

    /// A caller whose stream goes on as long as it is who it is.
    fn caller(&self, asker: Asker) -> Caller {
        let (reviews, trust) = (self.parts.reviews.clone(), self.parts.trust.clone());
        let identity = asker.identity.clone();
        let is_still = move || {
            let (asker, reviews, trust) = (asker.clone(), reviews.clone(), trust.clone());
            async move { asker.is_still(&reviews, &trust).await }.boxed()
        };
        let (recheck_every, limits) = (self.parts.recheck_every, self.limits.clone());
        Caller { identity, is_still: Box::new(is_still), recheck_every, limits }
    }

    /// Answers a client of Nomad.
    async fn answer_nomad(
        &self,
        api: &Nomad,
        path: String,
        (request, certificates): (http::Request<Incoming>, Arc<Vec<CertificateDer<'static>>>),
    ) -> Response<Answer> {
        let caller = self.asker(&request, certificates).await.map(|asker| self.caller(asker));
        let entrance = self.clone();
        let identify = move |token: String| {
            let entrance = entrance.clone();
            async move {
                let asker = if token.is_empty() { anonymous() } else { entrance.by_token(&token).await? };
                Ok(entrance.caller(asker))
            }
            .boxed()
        };
        let limits = self.limits.clone();
        let asked = Asked { caller, identify: Box::new(identify), limits, path, request };
        let Answered { response, goes_on } = api.answer(asked).await;
        if let Some(command) = goes_on {
            drop(self.commands.spawn(command));
        }
        response
    }

    async fn operate(
        &self,
        request: http::Request<Incoming>,
        certificates: Arc<Vec<CertificateDer<'static>>>,
    ) -> Result<Response<Answer>, Refusal> {
        let route = route::parse(request.method(), request.uri().path())?;
        let asker = self.asker(&request, certificates).await?;
        let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let mut call = Call::begin(header("audit-id"), &asker.identity, &route, self.parts.metrics.clone());
        let is_exec = route.subresource == Subresource::Exec;
        let wants_frames = header(header::ACCEPT.as_str()).split(',').any(|kind| kind.trim() == FRAMES);
        let refused = |call: &mut Call, refusal: Refusal| {
            call.answered(refusal.code);
            refusal
        };
        let handshake = if is_exec { Some(exec::handshake(request.headers())) } else { None };
        let query = request.uri().query().unwrap_or_default();
        let begun = self.begin(&mut call, (&asker, &route), query).await;
        let (operation, exchange, open) = begun.map_err(|refusal| refused(&mut call, refusal))?;
        let (caller, reviews) = (self.caller(asker), self.parts.reviews.clone());
        let recheck = Recheck::new(caller, reviews, object(&route), route.subresource.meanwhile());
        let Some(handshake) = handshake else {
            let session = Session { exchange, call, open, recheck };
            return Ok(streams::answer(&operation, wants_frames, session).await);
        };
        let handshake = handshake.map_err(|refusal| refused(&mut call, refusal))?;
        let answer = handshake.answer()?;
        call.answered(101);
        drop(self.commands.spawn(exec::carry(request, Session { exchange, call, open, recheck })));
        Ok(answer)
    }
}

/// The token as Nomad's clients show it.
fn nomad_token(headers: &HeaderMap) -> Option<&str> {
    headers.get("x-nomad-token")?.to_str().ok().map(str::trim).filter(|token| !token.is_empty())
}

fn object(route: &Route) -> Object {
    Object { namespace: route.namespace.clone(), name: route.allocation.clone(), subresource: route.subresource.name() }
}

/// One who has proved nothing.
fn anonymous() -> Asker {
    let groups = vec![UNAUTHENTICATED.to_owned()];
    let identity = Identity { user: "system:anonymous".to_owned(), groups, ..Identity::default() };
    Asker { identity, proof: Proof::Nothing }
}

impl Service for Entrance {
    async fn answer(
        &self,
        request: http::Request<Incoming>,
        certificates: Arc<Vec<CertificateDer<'static>>>,
    ) -> Response<Answer> {
        if request.method() == Method::GET
            && let Some(found) = discovery::answer(request.uri().path())
        {
            return json_answer(StatusCode::OK, &found);
        }
        if request.method() == Method::GET
            && let Some(found) = self.documents.at(request.uri().path())
        {
            return json_answer(StatusCode::OK, &found);
        }
        if let Some(api) = &self.parts.nomad
            && let Some(path) = nomad::path_of(request.uri().path()).map(str::to_owned)
        {
            return Box::pin(self.answer_nomad(api, path, (request, certificates))).await;
        }
        match Box::pin(self.operate(request, certificates)).await {
            Ok(answer) => answer,
            Err(refusal) => refusal.answer(),
        }
    }

    fn is_proxy(&self, certificates: &[CertificateDer<'static>]) -> bool {
        matches!(self.parts.trust.worth(certificates), Worth::FrontProxy(_))
    }
}
