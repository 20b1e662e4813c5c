//! The way of a call to an agent: whether its caller may, where its allocation is, and what the agent is asked.

use drover_nomad::{ClientCall, ClientEndpoint, ClientOrder, Placed, Position, Query, is_down, placed};
use drover_socket::client::Exchange;
use drover_socket::protocol::{LogStream, Origin, Request, TtySize};

use crate::answers::Refusal;
use crate::callers::{Caller, Recheck};
use crate::limits::{Open, Opening};
use crate::nomad::audit::NomadCall;
use crate::nomad::service::{Nomad, known};
use crate::reviews::{Meanwhile, Object};
use crate::tunnels::{ExchangeError, Place};

/// How long the two samples are apart of which the second says how much of a core is used.
pub(super) const SAMPLES_APART_MS: u64 = 200;

/// An exchange that was begun, with what lives as long as it does.
pub(super) struct NodeSession {
    pub(super) query: Query,
    pub(super) order: ClientOrder,
    pub(super) placed: Placed,
    pub(super) exchange: Exchange,
    pub(super) open: Open,
    pub(super) recheck: Recheck,
}

/// What a call asks with.
pub(super) struct Ask<'a> {
    pub(super) endpoint: ClientEndpoint,
    pub(super) query: Query,
    pub(super) body: &'a [u8],
    /// The size of a command's terminal, where its client has sent it.
    pub(super) size: Option<TtySize>,
}

impl Nomad {
    /// Everything up to the agent's acceptance.
    ///
    /// # Errors
    /// 400 for a wrong request, 403 when the caller may not, 404 where there is no such allocation or no way to its
    /// node, 429 when too much is open, 504 when the agent does not answer.
    pub(super) async fn begin(
        &self,
        call: &mut NomadCall,
        caller: Caller,
        ask: Ask<'_>,
    ) -> Result<NodeSession, Refusal> {
        let Ask { endpoint, query, body, size } = ask;
        let namespace = query.namespace();
        call.is_about(&namespace);
        known(&caller.identity)?;
        let (kind, meanwhile) = manner(endpoint.call);
        let world = self.parts.caches.complete().await?;
        let found = placed(&world, &query, &endpoint.allocation);
        // Without an allocation the right to all: whoever lacks it learns nothing of which there are.
        let name = found.as_ref().map(|placed| placed.name.clone()).unwrap_or_default();
        let object = Object { namespace, name, subresource: endpoint.call.subresource() };
        self.parts.reviews.allow(&caller.identity, &object, meanwhile).await?;
        let placed = found?;
        let order = ClientOrder::read(endpoint.call, &query, body)?;
        let open = caller.limits.open(kind, &caller.identity.user)?;
        call.leads_to(&placed.node);
        if let ClientOrder::Exec { command, .. } = &order {
            call.runs(command.first().map(String::as_str).unwrap_or_default());
        }
        let place = Place { node: placed.node.clone(), namespace: placed.namespace.clone(), uid: placed.uid.clone() };
        let asked = self.parts.nodes.ask(&place, &request(&order, &placed.uid, size)).await;
        let exchange = asked.map_err(|error| no_way(error, is_down(&world, &placed.node)))?;
        let recheck = Recheck::new(caller, self.parts.reviews.clone(), object, meanwhile);
        Ok(NodeSession { query, order, placed, exchange, open, recheck })
    }
}

/// What counts as open, and what happens while the API server cannot be asked: reads go on for a while.
const fn manner(call: ClientCall) -> (Opening, Meanwhile) {
    let meanwhile = if call.does_something() { Meanwhile::Stops } else { Meanwhile::GoesOn };
    let kind = if matches!(call, ClientCall::Exec) { Opening::Exec } else { Opening::Stream };
    (kind, meanwhile)
}

pub(super) fn no_way(error: ExchangeError, is_down: bool) -> Refusal {
    if !matches!(error, ExchangeError::NoTunnel { .. }) {
        return error.into();
    }
    let cause = if is_down { "node down" } else { "no path to node" };
    Refusal::new(404, format!("{cause}: {error}"))
}

/// The request to the agent.
fn request(order: &ClientOrder, uid: &str, size: Option<TtySize>) -> Request {
    let allocation = uid.to_owned();
    match order.clone() {
        ClientOrder::List { path } => Request::List { allocation, path },
        ClientOrder::Stat { path } => Request::Stat { allocation, path },
        ClientOrder::Read { path, at, limit } => {
            Request::Read { allocation, path, origin: origin(at), offset: at.offset, limit }
        }
        ClientOrder::Stream { path, at, follow: true } => {
            Request::Follow { allocation, path, origin: origin(at), offset: at.offset }
        }
        ClientOrder::Stream { path, at, follow: false } => {
            Request::Read { allocation, path, origin: origin(at), offset: at.offset, limit: None }
        }
        ClientOrder::Logs(log) => Request::Logs {
            allocation,
            task: log.task,
            stream: if log.is_stderr { LogStream::Stderr } else { LogStream::Stdout },
            origin: origin(log.at),
            offset: log.at.offset,
            file: None,
            follow: log.follow,
        },
        ClientOrder::Restart { task, all_tasks } => Request::Restart { allocation, task, all_tasks },
        ClientOrder::Signal { task, signal } => Request::Signal { allocation, task, signal },
        ClientOrder::Gc => Request::Gc { allocation },
        ClientOrder::Exec { task, command, tty } => Request::Exec { allocation, task, command, tty, size },
        ClientOrder::Stats { .. } => Request::Stats { allocation, every_ms: Some(SAMPLES_APART_MS) },
        ClientOrder::Checks => Request::Checks { allocation },
    }
}

const fn origin(at: Position) -> Origin {
    if at.is_from_end { Origin::End } else { Origin::Start }
}
