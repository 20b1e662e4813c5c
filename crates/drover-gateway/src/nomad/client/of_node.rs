//! Calls about a node itself, which its agent answers: what it uses, and its metadata.

use drover_nomad::{HostUsage, NodeCall, Query, Reply, core_mhz, host_stats, is_down, meta_changes, node_meta};
use drover_socket::client::{Replies, Reply as Replied};
use drover_socket::protocol::{Answer as Said, CoreStats, HostStats, Request};
use hyper::body::Incoming;
use serde_json::Value;

use super::begin::no_way;
use super::whole::WHOLE_TIMEOUT;
use crate::answers::Refusal;
use crate::callers::Caller;
use crate::limits::Opening;
use crate::nomad::audit::NomadCall;
use crate::nomad::service::{Nomad, Outcome, body, known};
use crate::reviews::{Access, Meanwhile};
use crate::tunnels::Place;

impl Nomad {
    /// Answers a caller by what the agent of a node says of it.
    ///
    /// # Errors
    /// 400 for a wrong request, 403 without the right to `get` the ClientNode, or to `update` it, 404 where there is no
    /// such node or no way to it, 504 when its agent does not answer.
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
            NodeCall::Stats => (String::new(), Request::HostStats),
            NodeCall::Meta => (String::new(), Request::Meta),
            NodeCall::SetMeta => {
                let (node, changes) = meta_changes(&body(request).await?)?;
                (node, Request::SetMeta { changes })
            }
        };
        let id = query.text("node_id").map_or(in_body, str::to_owned);
        if id.is_empty() {
            return Err(Refusal::new(400, "node_id is missing: the gateway runs on no node of its own"));
        }
        let world = self.parts.caches.complete().await?;
        let name = world.nodes.with_uid(&id).and_then(|node| node.metadata.name.clone());
        let verb = if asked.changes_something() { "update" } else { "get" };
        let meanwhile = if asked.changes_something() { Meanwhile::Stops } else { Meanwhile::GoesOn };
        // Without a node the right to all: whoever lacks it learns nothing of which there are.
        let access = Access {
            group: drover_api::GROUP,
            resource: "clientnodes",
            subresource: "",
            verb,
            namespace: String::new(),
            name: name.clone().unwrap_or_default(),
        };
        self.parts.reviews.permit(&caller.identity, &access, meanwhile).await?;
        let node = name.ok_or_else(|| Refusal::new(404, format!("there is no node {id}")))?;
        call.leads_to(&node);
        let open = caller.limits.open(Opening::Stream, &caller.identity.user)?;
        let place = Place { node: node.clone(), namespace: String::new(), uid: String::new() };
        let exchange = self.parts.nodes.ask(&place, &request).await;
        let mut exchange = exchange.map_err(|error| no_way(error, is_down(&world, &node)))?;
        let said = tokio::time::timeout(WHOLE_TIMEOUT, said(&mut exchange.replies)).await;
        let value = match said.map_err(|_| Refusal::new(504, "the agent does not come to an end"))?? {
            Said::HostStats(stats) => host_stats(&usage(&stats, core_mhz(&world, &node))),
            Said::Meta(meta) => node_meta(&meta.meta, &meta.dynamic, &meta.fixed),
            _ => return Err(Refusal::new(504, "the agent answers something else")),
        };
        drop(open);
        Ok(Outcome { reply: Reply::of(&value as &Value, &query)?, index: None })
    }
}

async fn said(replies: &mut Replies) -> Result<Said, Refusal> {
    loop {
        let reply = replies.next().await;
        let reply = reply.map_err(|error| Refusal::new(504, format!("the agent's answer broke off: {error}")))?;
        match reply.ok_or_else(|| Refusal::new(504, "the agent has gone in the middle of its answer"))? {
            Replied::Answer(Said::Error { code, message }) => return Err(Refusal::new(code, message)),
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
