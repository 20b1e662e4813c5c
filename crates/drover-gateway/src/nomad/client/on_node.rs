//! From a request to the answer of an agent: at once, or as it comes.

use drover_nomad::{ClientEndpoint, ClientOrder, Query};
use http::Response;
use hyper::body::Incoming;

use super::begin::{Ask, NodeSession};
use super::{carried, whole};
use crate::answers::{Answer, Refusal};
use crate::callers::Caller;
use crate::nomad::audit::NomadCall;
use crate::nomad::service::{Nomad, Outcome, body, refused};

impl Nomad {
    /// Answers a caller by what an agent says.
    pub(in crate::nomad) async fn on_node(
        &self,
        caller: Caller,
        mut call: NomadCall,
        endpoint: ClientEndpoint,
        request: http::Request<Incoming>,
    ) -> Response<Answer> {
        let session = match self.asked(&mut call, caller, endpoint, request).await {
            Ok(session) => session,
            Err(refusal) => return self.finished(call, Err(refusal)),
        };
        match &session.order {
            ClientOrder::Read { .. } | ClientOrder::Stream { .. } | ClientOrder::Logs(_) => {
                carried::answer(session, call).await.unwrap_or_else(|refusal| refused(&refusal))
            }
            ClientOrder::List { .. }
            | ClientOrder::Stat { .. }
            | ClientOrder::Restart { .. }
            | ClientOrder::Signal { .. }
            | ClientOrder::Gc
            | ClientOrder::Exec { .. }
            | ClientOrder::Stats { .. }
            | ClientOrder::Checks => {
                let outcome = whole::answer(session).await.map(|reply| Outcome { reply, index: None });
                self.finished(call, outcome)
            }
        }
    }

    async fn asked(
        &self,
        call: &mut NomadCall,
        caller: Caller,
        endpoint: ClientEndpoint,
        request: http::Request<Incoming>,
    ) -> Result<NodeSession, Refusal> {
        let query = Query::parse(request.uri().query().unwrap_or_default())?;
        let body = if endpoint.call.does_something() { body(request).await? } else { Vec::new() };
        self.begin(call, caller, Ask { endpoint, query, body: &body, size: None }).await
    }
}
