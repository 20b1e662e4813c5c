//! What a sticky disk keeps on another node, by way of the gateway: it knows which allocation replaces which one, and
//! asks that one's agent.

use std::fmt::Debug;
use std::future::ready;
use std::sync::Arc;

use drover_socket::client::{Exchange, Replies, Reply};
use drover_socket::disks::{DISK_PATIENCE, DISKS_PATH, DISKS_PROTOCOL, DiskAsk};
use drover_socket::protocol::{self, Answer, Request};
use drover_store::Store;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::task::TaskTracker;

use crate::config::AgentConfig;
use crate::gateway::{Dialer, Door};
use crate::node::disk_reader::DiskPiece;
use crate::random::Random;

/// Disks that arrive on a node at a time; more wait.
const AT_A_TIME: usize = 2;
const DOOR: Door = Door { path: DISKS_PATH, protocol: DISKS_PROTOCOL };

/// Why a disk has not come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DiskFault {
    /// For people.
    pub(crate) reason: String,
    /// Whether it is of no use to try again.
    pub(crate) is_final: bool,
}

impl DiskFault {
    fn passing(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), is_final: false }
    }
}

/// Gives out what sticky disks keep on other nodes.
pub(crate) trait RemoteDisks: Debug + Send + Sync {
    /// Sends all pieces of the disk that the allocation goes on with, the end among them. It has failed when who gets
    /// them has gone, too.
    fn fetch(&self, ask: DiskAsk, to: mpsc::Sender<DiskPiece>) -> BoxFuture<'static, Result<(), DiskFault>>;
}

/// None: this agent knows no gateway.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoRemoteDisks;

impl RemoteDisks for NoRemoteDisks {
    fn fetch(&self, _: DiskAsk, _: mpsc::Sender<DiskPiece>) -> BoxFuture<'static, Result<(), DiskFault>> {
        let reason = "this agent knows no gateway, by which files come from another node".to_owned();
        ready(Err(DiskFault { reason, is_final: true })).boxed()
    }
}

/// By way of the gateway.
#[derive(Clone)]
pub(crate) struct GatewayDisks<S> {
    dialer: Dialer<S>,
    random: Random,
    turns: Arc<Semaphore>,
}

impl<S> Debug for GatewayDisks<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GatewayDisks")
    }
}

impl<S: Store> GatewayDisks<S> {
    /// As the configuration says; none where it names no token.
    pub(crate) fn new(config: &AgentConfig, store: S) -> Option<Self> {
        let turns = Arc::new(Semaphore::new(AT_A_TIME));
        Some(Self { dialer: Dialer::new(config, store)?, random: Random::new(), turns })
    }
}

impl<S: Store> RemoteDisks for GatewayDisks<S> {
    fn fetch(&self, ask: DiskAsk, to: mpsc::Sender<DiskPiece>) -> BoxFuture<'static, Result<(), DiskFault>> {
        let Self { mut dialer, random, turns } = self.clone();
        async move {
            let _turn = turns.acquire().await.map_err(|_| DiskFault::passing("the agent ends"))?;
            let tasks = TaskTracker::new();
            let opened = dialer.open_one(DOOR, "", &random, &tasks).await;
            let (_, opened) =
                opened.map_err(|reason| DiskFault::passing(format!("the gateway does not answer: {reason}")))?;
            let (reading, mut writing) = tokio::io::split(TokioIo::new(opened));
            let asked = async {
                protocol::write_frame(&mut writing, &protocol::message(&ask)?).await?;
                writing.flush().await
            };
            asked.await.map_err(|error| DiskFault::passing(format!("the gateway has gone: {error}")))?;
            let request = Request::Snapshot { allocation: ask.uid };
            let replies = Exchange::over(reading, writing).replies.doubted(&request);
            hand_on(replies, &to).await
        }
        .boxed()
    }
}

/// Hands on what comes, until its end.
async fn hand_on(mut replies: Replies, to: &mpsc::Sender<DiskPiece>) -> Result<(), DiskFault> {
    loop {
        let reply = tokio::time::timeout(DISK_PATIENCE, replies.next()).await;
        let reply = reply.map_err(|_| DiskFault::passing("nothing comes any more"))?;
        let reply = reply.map_err(|error| DiskFault::passing(format!("it broke off: {error}")))?;
        let piece = match reply.ok_or_else(|| DiskFault::passing("it broke off"))? {
            Reply::Answer(Answer::Entry(entry)) => DiskPiece::Entry(entry),
            Reply::Data(bytes) => DiskPiece::Data(bytes),
            Reply::Answer(Answer::Done) => DiskPiece::End,
            Reply::Answer(Answer::Error { code, message }) => {
                // What is refused stays refused; what does not rest yet, or is too much now, is not later.
                let is_final = (400..500).contains(&code) && ![409, 429].contains(&code);
                return Err(DiskFault { reason: message, is_final });
            }
            Reply::Answer(_) | Reply::ErrorData(_) => {
                return Err(DiskFault::passing("what comes is no disk"));
            }
        };
        let is_end = piece == DiskPiece::End;
        to.send(piece).await.map_err(|_| DiskFault::passing("it is not taken"))?;
        if is_end {
            return Ok(());
        }
    }
}
