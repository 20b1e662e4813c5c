//! Calls about a node itself, which its agent answers: what it uses, its metadata, and that what has ended there is
//! collected.

use drover_nomad::{
    ClientCall, HostUsage, NodeCall, Query, Reply, World, core_mhz, host_stats, is_down, meta_changes, node_meta,
};
use drover_socket::client::{Replies, Reply as Replied};
use drover_socket::protocol::{Answer as Said, CoreStats, HostStats, Request};
use hyper::body::Incoming;
use serde_json::Value;

use super::begin::no_way;
use crate::answers::Refusal;
use crate::callers::Caller;
use crate::limits::Opening;
use crate::nomad::audit::NomadCall;
use crate::nomad::service::{Nomad, Outcome, body, known};
use crate::replies::WHOLE_TIMEOUT;
use crate::reviews::{Access, Meanwhile, Object};
use crate::tunnels::Place;

impl Nomad {
    /// Answers a caller by what the agent of a node says of it.
    ///
    /// # Errors
    /// 400 for a wrong request, 403 without the right, 404 where there is no such node or no way to it, 504 when its
    /// agent does not answer.
    pub(in crate::nomad) async fn of_node(
        &self,
        caller: &Caller,
        call: &mut NomadCall,
        asked: NodeCall,
        request: http::Request<Incoming>,
    ) -> Result<Outcome, Refusal> {
        known(&caller.identity)?;
        let query = Query::parse(request.uri().query().unwrap_or_default())?;
        let (in_body, request) = match asked {
            NodeCall::Stats => (String::new(), Some(Request::HostStats)),
            NodeCall::Meta => (String::new(), Some(Request::Meta)),
            NodeCall::SetMeta => {
                let (node, changes) = meta_changes(&body(request).await?)?;
                (node, Some(Request::SetMeta { changes }))
            }
            NodeCall::Gc => (String::new(), None),
        };
        let id = query.text("node_id").map_or(in_body, str::to_owned);
        if id.is_empty() {
            return Err(Refusal::new(400, "node_id is missing: the gateway runs on no node of its own"));
        }
        let world = self.parts.caches.complete().await?;
        let name = world.nodes.with_uid(&id).and_then(|node| node.metadata.name.clone());
        let meanwhile = if asked.changes_something() { Meanwhile::Stops } else { Meanwhile::GoesOn };
        self.parts.reviews.permit(&caller.identity, &access(asked, name.as_deref()), meanwhile).await?;
        let node = name.ok_or_else(|| Refusal::new(404, format!("there is no node {id}")))?;
        call.leads_to(&node);
        let open = caller.limits.open(Opening::Stream, &caller.identity.user)?;
        let reply = if let Some(request) = request {
            let place = Place { node: node.clone(), namespace: String::new(), uid: String::new() };
            Reply::of(&value(self.told(&world, &place, &request).await?, core_mhz(&world, &node))?, &query)?
        } else {
            self.collect(&world, &node).await?;
            Reply::nothing()
        };
        drop(open);
        Ok(Outcome { reply, index: None })
    }

    /// What the agent of a node answers at last, be it a refusal.
    pub(super) async fn told(&self, world: &World, place: &Place, request: &Request) -> Result<Said, Refusal> {
        let exchange = self.parts.nodes.ask(place, request).await;
        let mut exchange = exchange.map_err(|error| no_way(error, is_down(world, &place.node)))?;
        let said = tokio::time::timeout(WHOLE_TIMEOUT, said(&mut exchange.replies)).await;
        said.map_err(|_| Refusal::new(504, "the agent does not come to an end"))?
    }
}

/// The right to ask it. Without a node that to all: who lacks it learns nothing of which there are.
fn access(asked: NodeCall, node: Option<&str>) -> Access {
    let of_node = |verb| Access {
        group: drover_api::GROUP,
        resource: "clientnodes",
        subresource: "",
        verb,
        namespace: String::new(),
        name: node.unwrap_or_default().to_owned(),
    };
    match asked {
        NodeCall::Stats | NodeCall::Meta => of_node("get"),
        NodeCall::SetMeta => of_node("update"),
        // Those on a node are of any namespace. Who may drain it may not destroy what others still want to read.
        NodeCall::Gc => {
            let subresource = ClientCall::Gc.subresource();
            (&Object { namespace: String::new(), name: String::new(), subresource }).into()
        }
    }
}

/// What an agent has answered, in Nomad's words.
fn value(said: Said, core_mhz: f64) -> Result<Value, Refusal> {
    match said {
        Said::HostStats(stats) => Ok(host_stats(&usage(&stats, core_mhz))),
        Said::Meta(meta) => Ok(node_meta(&meta.meta, &meta.dynamic, &meta.fixed)),
        Said::Error { code, message } => Err(Refusal::new(code, message)),
        _ => Err(Refusal::new(504, "the agent answers something else")),
    }
}

async fn said(replies: &mut Replies) -> Result<Said, Refusal> {
    loop {
        let reply = replies.next().await;
        let reply = reply.map_err(|error| Refusal::new(504, format!("the agent's answer broke off: {error}")))?;
        match reply.ok_or_else(|| Refusal::new(504, "the agent has gone in the middle of its answer"))? {
            Replied::Answer(said) => return Ok(said),
            Replied::Data(_) | Replied::ErrorData(_) => {}
        }
    }
}

fn usage(stats: &HostStats, core_mhz: f64) -> HostUsage {
    let core = |of: &CoreStats| (of.user, of.system, of.idle);
    HostUsage {
        cores: stats.cores.iter().map(core).collect(),
        core_mhz,
        memory: (stats.memory_bytes, stats.memory_available_bytes, stats.memory_free_bytes),
        disk: (stats.disk_path.display().to_string(), stats.disk_bytes, stats.disk_available_bytes),
        inodes_used: stats.disk_inodes_used,
        uptime_seconds: stats.uptime_seconds,
    }
}
