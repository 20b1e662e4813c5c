//! Tunnels of nodes that are there for nothing else: each proves its node as an agent does, and pings as
//! one does.

use std::convert::Infallible;
use std::net::SocketAddr;

use anyhow::{Context as _, Result, bail};
use drover_socket::executor::Executor;
use drover_socket::tunnel::{PING_EVERY, PING_TIMEOUT, PROTOCOL, TUNNEL_PATH};
use drover_testkit::agent_door::{AgentConnection, AgentDoor, token};
use drover_testkit::progress::Progress;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::Response;
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::api::{Api, PostParams};
use serde_json::json;
use tokio::task::JoinSet;

use super::cluster_stage::{CLIENTS, paced};
use super::door::Door;

/// A gateway asks for 100 tokens a second, and there are users beside.
const TUNNELS_PER_SECOND: u32 = 80;
/// Tunnels that are open as long as this lives.
pub(super) struct IdleTunnels(JoinSet<Result<()>>);

impl IdleTunnels {
    /// Makes as many nodes, and opens a tunnel of each.
    pub(super) async fn open(
        client: &kube::Client,
        (door, agents): (&Door, SocketAddr),
        n_tunnels: usize,
        progress: &Progress,
    ) -> Result<Self> {
        let step = progress.step(format!("making {n_tunnels} nodes"));
        let made = stream::iter(0..n_tunnels).map(async |n| token_of_node(client, &format!("idle-{n}")).await);
        let tokens: Vec<String> = made.buffer_unordered(CLIENTS).try_collect().await?;
        step.done("");

        let step = progress.step(format!("opening {n_tunnels} tunnels"));
        let door = AgentDoor::new(&door.authority, agents)?;
        let tokens = paced(tokens.into_iter(), TUNNELS_PER_SECOND);
        let opened = tokens.map(async |token| door.enter(&token, (TUNNEL_PATH, PROTOCOL)).await);
        let mut opened = std::pin::pin!(opened.buffer_unordered(CLIENTS));
        let mut serving = JoinSet::new();
        while let Some(tunnel) = opened.try_next().await? {
            serving.spawn(serve(tunnel));
            step.moved("", serving.len() as u64, n_tunnels as u64);
        }
        step.done("");
        Ok(Self(serving))
    }

    /// Ends them.
    ///
    /// # Errors
    /// When one has ended before.
    pub(super) async fn end(mut self) -> Result<()> {
        if let Some(ended) = self.0.try_join_next() {
            ended.context("a tunnel has panicked")?.context("a tunnel broke")?;
            bail!("a tunnel has ended");
        }
        self.0.shutdown().await;
        Ok(())
    }
}

/// Makes a node, and a token by which its agent shows a gateway which one it is.
pub(super) async fn token_of_node(client: &kube::Client, name: &str) -> Result<String> {
    let nodes: Api<Node> = Api::all(client.clone());
    let node = serde_json::from_value(json!({ "metadata": { "name": name }, "spec": { "unschedulable": true } }))?;
    nodes.create(&PostParams::default(), &node).await.with_context(|| format!("creating node {name}"))?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), drover_api::SYSTEM_NAMESPACE);
    let bound = json!({ "kind": "Node", "apiVersion": "v1", "name": name });
    let wanted = json!({ "audiences": ["gateway.drover.dev"], "boundObjectRef": bound, "expirationSeconds": 3600 });
    token(&accounts, "drover-agent", &wanted).await
}

/// Answers until the tunnel ends: whatever is asked, that it was heard.
async fn serve(tunnel: AgentConnection) -> Result<()> {
    let heard = service_fn(async |_| Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())));
    let served = http2::Builder::new(Executor::default())
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT)
        .serve_connection(TokioIo::new(tunnel), heard);
    served.await.context("a tunnel broke")
}
