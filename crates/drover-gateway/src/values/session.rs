//! A connection of an agent that wants values: its requests, and an answer to each, now and at every change.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drover_clock::SharedClock;
use drover_socket::values::{MAX_ASK_BYTES, ValueAsk, ValueNews};
use futures::StreamExt as _;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use kube::Client;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::codec::{FramedRead, LinesCodec};
use tokio_util::sync::CancellationToken;

use super::follower::{Follower, Sources};
use super::identity_tokens::IdentityTokens;
use super::objects::Objects;
use super::permits::NodeRequest;
use super::rollouts::Rollouts;
use crate::identities::IdentitySigner;
use crate::reviews::{AGENT_AUDIENCE, Reviews, node_of};

/// Requests of one agent at a time: a thousand tasks with templates, each of which lists as many objects as a job may.
const MOST_REQUESTS: usize = 16_384;
/// What a request takes, mostly.
const ASK_BYTES: usize = 512;
/// Answers that wait to be written; then those who have more wait.
const UNSENT: usize = 16;
/// How many requests of one agent are asked about at a time: one that floods the gateway does not flood the API server.
const ASKED_AT_A_TIME: usize = 4;
/// How often a token that came with the connection is looked at again.
const RECHECK_EVERY: Duration = Duration::from_mins(1);

/// Gives out values; clones are the same.
#[derive(Clone)]
pub(crate) struct Values {
    reviews: Reviews,
    sources: Arc<Sources>,
    /// The only user that gets any.
    agent_user: Arc<str>,
    open: Arc<Mutex<OpenConnections>>,
}

/// The newest connection of each node, by its number: an older one ends.
#[derive(Debug, Default)]
struct OpenConnections {
    last: u64,
    by_node: BTreeMap<String, (u64, CancellationToken)>,
}

impl OpenConnections {
    /// A new one; the node's older one is told to end.
    fn enter(&mut self, node: &str) -> (u64, CancellationToken) {
        self.last += 1;
        let fresh = (self.last, CancellationToken::new());
        if let Some((_, older)) = self.by_node.insert(node.to_owned(), fresh.clone()) {
            older.cancel();
        }
        fresh
    }

    /// One has ended.
    fn leave(&mut self, node: &str, number: u64) {
        if self.by_node.get(node).is_some_and(|(newest, _)| *newest == number) {
            self.by_node.remove(node);
        }
    }
}

impl std::fmt::Debug for Values {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Values")
    }
}

impl Values {
    /// Reads by this client, asks these reviews who an agent is, and signs so.
    pub(crate) fn new(
        client: Client,
        reviews: Reviews,
        signer: IdentitySigner,
        agent_user: &str,
        clock: SharedClock,
    ) -> Self {
        let (objects, tokens) = (Objects::new(client.clone()), IdentityTokens::new(client.clone(), signer));
        let rollouts = Rollouts::new(client.clone(), objects.clone(), clock);
        let sources = Arc::new(Sources { client, objects, tokens, rollouts });
        Self { reviews, sources, agent_user: agent_user.into(), open: Arc::default() }
    }

    fn open(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers an agent until its connection ends, its token is not valid any more, or the node opens another one.
    pub(crate) async fn converse(self, node: String, token: String, request: http::Request<hyper::body::Incoming>) {
        let (number, newer) = self.open().enter(&node);
        tokio::select! {
            biased;
            () = newer.cancelled() => tracing::info!(node, "a newer connection for values has taken this one's place"),
            () = self.clone().answer(&node, token, request) => self.open().leave(&node, number),
        }
    }

    async fn answer(self, node: &str, mut token: String, request: http::Request<hyper::body::Incoming>) {
        let upgraded: Upgraded = match hyper::upgrade::on(request).await {
            Ok(upgraded) => upgraded,
            Err(error) => return tracing::info!(node, %error, "a connection for values did not come about"),
        };
        let (reading, mut writing) = tokio::io::split(TokioIo::new(upgraded));
        let mut asks = FramedRead::with_capacity(reading, LinesCodec::new_with_max_length(MAX_ASK_BYTES), ASK_BYTES);
        let (tell, mut news) = mpsc::channel::<ValueNews>(UNSENT);
        let (mut followers, mut handles) = (JoinSet::new(), BTreeMap::<u64, AbortHandle>::new());
        let asking = Arc::new(Semaphore::new(ASKED_AT_A_TIME));
        let mut recheck = tokio::time::interval(RECHECK_EVERY);
        let reason = loop {
            let ask = tokio::select! {
                biased;
                _ = recheck.tick() => {
                    if let Err(reason) = self.check(node, &token).await {
                        break reason;
                    }
                    continue;
                }
                Some(_) = followers.join_next() => continue,
                Some(next) = news.recv() => {
                    if let Err(error) = write(&mut writing, &next).await {
                        break error.to_string();
                    }
                    continue;
                }
                ask = asks.next() => match ask {
                    None => break "the agent has ended it".to_owned(),
                    Some(Err(error)) => break error.to_string(),
                    Some(Ok(line)) => serde_json::from_str::<ValueAsk>(&line),
                },
            };
            match ask {
                Err(error) => break format!("it is not understood: {error}"),
                Ok(ValueAsk::Token { token: next }) => {
                    if let Err(reason) = self.check(node, &next).await {
                        break reason;
                    }
                    token = next;
                }
                Ok(ValueAsk::Drop { id }) => {
                    if let Some(follower) = handles.remove(&id) {
                        follower.abort();
                    }
                }
                Ok(ValueAsk::Follow { id, namespace, allocation, uid, object, holds, in_turn }) => {
                    if handles.len() >= MOST_REQUESTS {
                        break format!("the agent wants more than {MOST_REQUESTS} objects");
                    }
                    let request = NodeRequest { node: node.to_owned(), namespace, allocation, uid, object };
                    let (sources, tell, asking) = (Arc::clone(&self.sources), tell.clone(), Arc::clone(&asking));
                    let follower =
                        Box::new(Follower { sources, id, request, holds, in_turn, given: None, tell, asking });
                    let follower = followers.spawn(follower.run());
                    if let Some(earlier) = handles.insert(id, follower) {
                        earlier.abort();
                    }
                }
            }
        };
        tracing::info!(node, reason, "a connection for values has ended");
    }

    /// Whether the token still names the node.
    async fn check(&self, node: &str, token: &str) -> Result<(), String> {
        match self.reviews.identify(token, Some(AGENT_AUDIENCE)).await {
            Ok(identity) => match node_of(&identity, &self.agent_user) {
                Ok(named) if named == node => Ok(()),
                Ok(_) => Err("the token names another node".to_owned()),
                Err(refusal) => Err(refusal.message),
            },
            // While it cannot be asked nothing new is granted either.
            Err(refusal) if refusal.code == 503 || refusal.code == 429 => Ok(()),
            Err(refusal) => Err(refusal.message),
        }
    }
}

/// Writes a line.
async fn write(to: &mut (impl AsyncWrite + Unpin), news: &ValueNews) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(news)?;
    line.push(b'\n');
    to.write_all(&line).await?;
    to.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_one_connection_and_the_newest_stays() {
        let mut open = OpenConnections::default();
        let (first, is_first_over) = open.enter("n-1");
        let (_, is_other_over) = open.enter("n-2");
        let (second, is_second_over) = open.enter("n-1");
        assert!(is_first_over.is_cancelled() && !is_second_over.is_cancelled() && !is_other_over.is_cancelled());
        // The end of the older one is not that of the newer.
        open.leave("n-1", first);
        assert_eq!(open.by_node.len(), 2);
        open.leave("n-1", second);
        assert_eq!(open.by_node.keys().collect::<Vec<_>>(), ["n-2"]);
    }
}
