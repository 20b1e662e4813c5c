//! One request of an agent: an object for an allocation, answered now and at every change, in turn where the job wants
//! it so.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use drover_api::value_object::{TOKEN, ValueKind};
use drover_core::rolling::{Turn, rolling_policy};
use drover_socket::values::{Kept, ValueAnswer, ValueNews};
use kube::Client;
use tokio::sync::{Semaphore, mpsc, watch};

use super::identity_tokens::{IdentityTokens, MadeToken};
use super::objects::{Objects, WatchedObject};
use super::permits::{self, Denied, Granted, NodeRequest};
use super::read_object::{ObjectState, ReadObject};
use super::rollouts::{Membership, Pace, RolloutKey, Rollouts};

/// The first pause after an answer that could not be found out, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What all followers share.
pub(super) struct Sources {
    pub(super) client: Client,
    pub(super) objects: Objects,
    pub(super) tokens: IdentityTokens,
    pub(super) rollouts: Rollouts,
}

/// A request of an agent.
pub(super) struct Follower {
    pub(super) sources: Arc<Sources>,
    /// The number by which it is answered.
    pub(super) id: u64,
    pub(super) request: NodeRequest,
    /// The version of the values that the allocation has; none: it needs some now.
    pub(super) holds: Option<String>,
    /// Whether the agent knows of turns; others get each value at once.
    pub(super) in_turn: bool,
    /// What was answered last.
    pub(super) given: Option<Arc<ReadObject>>,
    pub(super) tell: mpsc::Sender<ValueNews>,
    /// How many of one agent may ask the API server at a time.
    pub(super) asking: Arc<Semaphore>,
}

/// Where the values come from.
struct ValueFeed {
    known: watch::Receiver<ObjectState>,
    /// Part in the roll-out of new ones; none: they are given at once.
    rolling: Option<Membership>,
    _watched: Arc<WatchedObject>,
}

/// What an allocation was granted.
enum Permitted {
    /// To have the object's values.
    Object(Box<Granted>),
    /// A token of its own.
    Token(MadeToken),
}

/// What is to be done.
enum Due {
    /// To wait.
    Nothing,
    /// To give this.
    Give(Arc<ReadObject>),
    /// To say why newer values are not given yet.
    Say(Kept),
}

impl Follower {
    /// Answers until nothing more will change. Boxed: a future holds what it is given by value twice.
    pub(super) async fn run(mut self: Box<Self>) {
        let (mut feed, mut is_told, mut pause) = (None, false, FIRST_PAUSE);
        loop {
            // In its own memory, which is free again while the follower waits.
            let granted = match Box::pin(self.ask()).await {
                Ok(granted) => granted,
                Err(Denied::No(reason)) => return self.refuse(reason).await,
                Err(Denied::Later(reason)) => {
                    // What the agent has stays its: only one that has nothing yet is told.
                    if feed.is_none() && !is_told && self.holds.is_none() {
                        self.answer(ValueAnswer::Unavailable(reason), String::new()).await;
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    continue;
                }
            };
            pause = FIRST_PAUSE;
            let granted = match granted {
                Permitted::Object(granted) => granted,
                Permitted::Token(MadeToken { token, renewal }) => {
                    let values = BTreeMap::from([(TOKEN.to_owned(), STANDARD.encode(token))]);
                    let is_heard = self.answer(ValueAnswer::Values(values), String::new()).await;
                    let Some(renewal) = renewal.filter(|_| is_heard) else { return };
                    is_told = true;
                    tokio::time::sleep(renewal).await;
                    continue;
                }
            };
            let feed = feed.get_or_insert_with(|| {
                let watched = self.sources.objects.want(&self.request.namespace, &self.request.object);
                ValueFeed { known: watched.known(), rolling: None, _watched: watched }
            });
            feed.rolling = self.part(&granted, feed.rolling.take());
            // What is waited for may take days: nothing of the job is held meanwhile.
            drop(granted);
            let is_heard = match self.due(feed) {
                Due::Give(read) => self.give(read).await,
                Due::Nothing | Due::Say(_) => true,
            };
            if !is_heard || !self.wait(feed).await {
                return;
            }
        }
    }

    /// Whether the allocation may have it now.
    async fn ask(&self) -> Result<Permitted, Denied> {
        let Ok(turn) = self.asking.acquire().await else {
            return Err(Denied::No("the connection ends".to_owned()));
        };
        let granted = permits::ask(&self.sources.client, &self.request).await;
        drop(turn);
        let granted = granted?;
        if self.request.object.kind == ValueKind::Identity {
            return self.sources.tokens.make(&granted, &self.request).await.map(Permitted::Token);
        }
        Ok(Permitted::Object(Box::new(granted)))
    }

    async fn refuse(&self, reason: String) {
        let NodeRequest { node, namespace, allocation, object, .. } = &self.request;
        tracing::warn!(node, namespace, allocation, %object, reason, "values were refused");
        self.answer(ValueAnswer::Refused(reason), String::new()).await;
    }

    /// Answers the agent; whether it hears.
    async fn answer(&self, value: ValueAnswer, version: String) -> bool {
        self.tell.send(ValueNews { id: self.id, value, version }).await.is_ok()
    }

    async fn give(&mut self, read: Arc<ReadObject>) -> bool {
        if !read.version.is_empty() {
            self.holds = Some(read.version.clone());
        }
        let is_heard = self.answer(read.answer.clone(), read.version.clone()).await;
        self.given = Some(read);
        is_heard
    }

    /// Its part in the roll-out of new values, where the version of the job that the allocation runs wants one.
    fn part(&self, granted: &Granted, before: Option<Membership>) -> Option<Membership> {
        let (alloc, version) = (&granted.allocation.spec, &granted.version.spec);
        let group = version.job.group(&alloc.group).filter(|_| self.in_turn)?;
        let policy = rolling_policy(&version.job, group, &self.request.object)?;
        let pace = Pace { job_version: alloc.job_version, policy, group: group.clone() };
        if let Some(before) = before {
            before.adopt(pace);
            return Some(before);
        }
        let NodeRequest { namespace, object, .. } = self.request.clone();
        let (job, job_uid) = (alloc.job_name.clone(), alloc.job_uid.clone());
        let key = RolloutKey { namespace, job, job_uid, group: alloc.group.clone(), object };
        Some(self.sources.rollouts.join(&key, pace))
    }

    /// What is to be done now.
    fn due(&self, feed: &mut ValueFeed) -> Due {
        let Some(read) = feed.known.borrow_and_update().clone() else { return Due::Nothing };
        // Without turns the values alone count: a new label on a Secret is no news.
        let is_known = |given: &Arc<ReadObject>| {
            given.answer == read.answer && (feed.rolling.is_none() || given.version == read.version)
        };
        if self.given.as_ref().is_some_and(is_known) {
            return Due::Nothing;
        }
        let (Some(rolling), Some(holds), ValueAnswer::Values(_)) = (&mut feed.rolling, &self.holds, &read.answer)
        else {
            return Due::Give(read);
        };
        if *holds == read.version {
            return Due::Give(read);
        }
        let object = &self.request.object;
        match rolling.turn(&self.request.uid, &read.version) {
            None => Due::Nothing,
            Some(Turn::Takes | Turn::Holds) => Due::Give(read),
            Some(Turn::Waits) => {
                Due::Say(Kept { reason: format!("waits for its turn with new values of {object}"), is_stopped: false })
            }
            Some(Turn::Stopped(other)) => {
                let reason = format!(
                    "keeps its values of {object}: allocation {other} is not healthy with the new ones; make that one \
                     healthy, or change {object} again"
                );
                Due::Say(Kept { reason, is_stopped: true })
            }
        }
    }

    /// Waits until there is something to give; false: nothing more will come.
    async fn wait(&self, feed: &mut ValueFeed) -> bool {
        let mut said = None;
        loop {
            match self.due(feed) {
                Due::Give(_) => return true,
                Due::Nothing => {}
                Due::Say(kept) => {
                    if said.as_ref() != Some(&kept) {
                        if !self.answer(ValueAnswer::Kept(kept.clone()), String::new()).await {
                            return false;
                        }
                        said = Some(kept);
                    }
                }
            }
            let others = async {
                match &mut feed.rolling {
                    Some(rolling) => rolling.changed().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                changed = feed.known.changed() => if changed.is_err() {
                    return false;
                },
                () = others => {}
            }
        }
    }
}
