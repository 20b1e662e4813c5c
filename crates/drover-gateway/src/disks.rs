//! Hands the files of a sticky disk from the node of an allocation that has ended to that of its replacement.
//!
//! Input: a connection of an agent, whose token names its node, and the allocation for which it
//! asks. Which one that replaces, and where it was, says the API server. Output: what the agent there answers, frame by
//! frame: one frame is in memory, and what is not taken is not read.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drover_api::{Allocation, JobVersion};
use drover_core::ephemeral_disk::{self, DiskSource};
use drover_socket::client::{Replies, Reply};
use drover_socket::disks::{DISK_PATIENCE, DiskAsk};
use drover_socket::protocol::{self, Answer, Frame, FrameKind, Request};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use kube::{Api, Client};
use tokio::time::Instant;

use crate::answers::Refusal;
use crate::placed;
use crate::tunnels::{Nodes, Place};

/// How long the API server may take.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// Disks that a node may be handed at a time.
const MOST_OF_A_NODE: usize = 8;

/// Hands disks on; clones are the same.
#[derive(Clone)]
pub(crate) struct Disks {
    client: Client,
    nodes: Nodes,
    /// How many each node is being handed.
    open: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl std::fmt::Debug for Disks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Disks")
    }
}

/// Counts a disk of a node until it is dropped.
struct Turn(Disks, String);

impl Drop for Turn {
    fn drop(&mut self) {
        let mut open = self.0.open();
        let left = open.get(&self.1).map_or(0, |n| n.saturating_sub(1));
        if left == 0 {
            open.remove(&self.1);
        } else {
            open.insert(self.1.clone(), left);
        }
    }
}

impl Disks {
    /// Reads by this client, and asks these nodes.
    pub(crate) fn new(client: Client, nodes: Nodes) -> Self {
        Self { client, nodes, open: Arc::default() }
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn(&self, node: &str) -> Result<Turn, Refusal> {
        let mut open = self.open();
        let n = open.entry(node.to_owned()).or_default();
        if *n >= MOST_OF_A_NODE {
            return Err(Refusal::new(429, format!("node {node} is being handed {MOST_OF_A_NODE} disks already")));
        }
        *n += 1;
        Ok(Turn(self.clone(), node.to_owned()))
    }

    /// Answers an agent that wants a disk for an allocation of its node.
    pub(crate) async fn converse(self, node: String, request: http::Request<hyper::body::Incoming>) {
        let mut agent = match hyper::upgrade::on(request).await {
            Ok(upgraded) => TokioIo::new(upgraded),
            Err(error) => return tracing::info!(node, %error, "a connection for a disk did not come about"),
        };
        let begun = Instant::now();
        let gone = match self.hand_on(&node, &mut agent).await {
            Ok(n_bytes) => {
                let seconds = begun.elapsed().as_secs_f64();
                return tracing::info!(node, n_bytes, seconds, "a disk was handed on");
            }
            Err(Ended::Refused(refusal)) => {
                tracing::info!(node, code = refusal.code, reason = refusal.message, "a disk is not handed on");
                let last = Answer::Error { code: refusal.code, message: refusal.message };
                tell(&mut agent, &Reply::Answer(last)).await.err()
            }
            Err(gone) => Some(gone),
        };
        if let Some(Ended::Gone(reason)) = gone {
            tracing::info!(node, reason, "the agent that was handed a disk has gone");
        }
    }

    /// Returns how many bytes its files have.
    async fn hand_on(&self, node: &str, agent: &mut TokioIo<Upgraded>) -> Result<u64, Ended> {
        let frame = tokio::time::timeout(READ_TIMEOUT, protocol::read_frame(agent)).await;
        let frame = frame.map_err(|_| Refusal::new(408, "the agent does not say what it wants"))?;
        let frame = frame.map_err(|error| Ended::Gone(error.to_string()))?;
        let Some(Frame { kind: FrameKind::Message, payload }) = frame else {
            return Err(Ended::Gone("it says nothing".to_owned()));
        };
        let ask: DiskAsk = serde_json::from_slice(&payload)
            .map_err(|error| Refusal::new(400, format!("what the agent wants is not understood: {error}")))?;
        let _turn = self.turn(node)?;
        let DiskSource { node: from, uid } = self.source(node, &ask).await?;
        let (allocation, namespace) = (&ask.allocation, &ask.namespace);
        tracing::info!(node, from, namespace, allocation, "a disk is handed on");
        let place = Place { node: from, namespace: ask.namespace.clone(), uid: uid.clone() };
        // That a node has no tunnel now does not say that it will have none.
        let asked = self.nodes.ask(&place, &Request::Snapshot { allocation: uid }).await;
        let asked = asked.map_err(|error| Refusal::new(503, error.to_string()))?;
        carry(asked.replies, agent).await
    }

    /// Where the files are.
    async fn source(&self, node: &str, ask: &DiskAsk) -> Result<DiskSource, Refusal> {
        let read = tokio::time::timeout(READ_TIMEOUT, self.read(ask)).await;
        let read = read.map_err(|_| Refusal::new(503, "the API server does not answer"))?;
        let (allocation, version, previous) =
            read.map_err(|error| Refusal::new(503, format!("the API server cannot be asked: {error}")))?;
        let found = ephemeral_disk::source(allocation.as_ref(), version.as_ref(), previous.as_ref(), (node, &ask.uid));
        found.map_err(|error| {
            let code = if matches!(error, ephemeral_disk::DiskError::NotEnded(_)) { 409 } else { 403 };
            Refusal::new(code, error.to_string())
        })
    }

    async fn read(&self, ask: &DiskAsk) -> kube::Result<(Option<Allocation>, Option<JobVersion>, Option<Allocation>)> {
        let (allocation, version) = placed::read(&self.client, &ask.namespace, &ask.allocation).await?;
        let replaced = allocation.as_ref().map_or("", |it| &it.spec.previous_allocation);
        let allocations: Api<Allocation> = Api::namespaced(self.client.clone(), &ask.namespace);
        let previous = if replaced.is_empty() { None } else { allocations.get_opt(replaced).await? };
        Ok((allocation, version, previous))
    }
}

/// How it ended before its time.
enum Ended {
    Refused(Refusal),
    /// The agent that asked has gone.
    Gone(String),
}

impl From<Refusal> for Ended {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Carries what an agent answers to the other one. Returns how many bytes of files that were.
async fn carry(mut replies: Replies, to: &mut TokioIo<Upgraded>) -> Result<u64, Ended> {
    let mut n_bytes = 0;
    loop {
        let reply = tokio::time::timeout(DISK_PATIENCE, replies.next()).await;
        let reply = reply.map_err(|_| Refusal::new(504, "the agent there says nothing more"))?;
        let reply = reply.map_err(|error| Refusal::new(504, format!("the other node's answer broke off: {error}")))?;
        match reply.ok_or_else(|| Refusal::new(504, "the agent there has gone in the middle of its answer"))? {
            Reply::Answer(Answer::Error { code, message }) => return Err(Refusal::new(code, message).into()),
            reply => {
                if let Reply::Data(bytes) = &reply {
                    n_bytes += bytes.len() as u64;
                }
                tell(to, &reply).await?;
                if reply == Reply::Answer(Answer::Done) {
                    return Ok(n_bytes);
                }
            }
        }
    }
}

async fn tell(to: &mut TokioIo<Upgraded>, reply: &Reply) -> Result<(), Ended> {
    let gone = |error: std::io::Error| Ended::Gone(error.to_string());
    let frame = reply.frame().map_err(gone)?;
    let written = tokio::time::timeout(DISK_PATIENCE, protocol::write_frame(to, &frame)).await;
    written.map_err(|_| Ended::Gone("it takes nothing any more".to_owned()))?.map_err(gone)
}
