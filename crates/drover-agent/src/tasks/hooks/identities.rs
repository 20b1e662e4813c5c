//! Hook `identities`: tokens that say which task it is, in files and variables, over all its runs.
//!
//! The gateway signs, and signs again at half of a token's life. Another token before that, as a gateway gives that
//! has begun again, is kept for then: a renewal is what the task is told of, and nothing else.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use drover_api::GoDuration;
use drover_api::task::Identity;
use drover_api::value_object::{TOKEN, ValueObject};
use drover_core::task::identity;
use drover_core::task::sandbox_path::{OtherRoot, SandboxPath, sandbox_path};
use jiff::Timestamp;
use serde::Deserialize;
use tokio::time::Instant;

use super::hook_error::TaskHookError;
use super::templates::{TemplateNews, is_the_agents};
use super::values::{TaskValues, change_until, follow_objects};
use crate::node::beneath::nobody;
use crate::node::task_file::{NewFile, TaskFile};
use crate::tasks::task_words::TaskWords;
use crate::values::ValueState;

/// The longest token that is read back.
const MAX_TOKEN_BYTES: u64 = 64 * 1024;
/// Only the task's user reads it.
const MODE: u32 = 0o600;

/// The identities of a task, from its first start to its end.
#[derive(Debug)]
pub(crate) struct TaskIdentities {
    words: TaskWords,
    /// None: a start waits for them.
    values: Option<TaskValues>,
    held: Vec<HeldIdentity>,
}

#[derive(Debug)]
struct HeldIdentity {
    identity: Identity,
    object: ValueObject,
    token: Option<HeldToken>,
}

/// A token that the task has.
#[derive(Clone, PartialEq, Eq)]
struct HeldToken {
    /// Empty: the agent was away, and what the task has is not known.
    text: String,
    /// From when another one takes its place; none: it has no limit.
    renew_at: Option<Timestamp>,
}

/// A token is never shown.
impl std::fmt::Debug for HeldToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeldToken").field("renew_at", &self.renew_at).finish_non_exhaustive()
    }
}

/// What of a token says how long it counts. The agent only looks: who relies on a token checks its signature.
#[derive(Deserialize)]
struct TokenLife {
    iat: i64,
    exp: Option<i64>,
}

impl HeldToken {
    fn new(text: String) -> Self {
        let renew_at = life_of(&text).and_then(|life| {
            let at = identity::renewal(life.iat, life.exp?);
            Timestamp::from_second(at).ok()
        });
        Self { text, renew_at }
    }
}

fn life_of(token: &str) -> Option<TokenLife> {
    let said = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    serde_json::from_slice(&said).ok()
}

impl TaskIdentities {
    /// Those of a task of which nothing is known yet; none: it has none.
    pub(crate) fn new(words: &TaskWords) -> Option<Self> {
        let plan = words.plan();
        let held = |identity: &Identity| HeldIdentity {
            object: identity::object_of(&plan.task.name, identity),
            identity: identity.clone(),
            token: None,
        };
        let held: Vec<HeldIdentity> = plan.task.identities.iter().map(held).collect();
        if held.is_empty() {
            return None;
        }
        let objects = held.iter().map(|it| it.object.clone());
        let values = follow_objects(&*words.runner_env().machine.values, plan, objects);
        Some(Self { words: words.clone(), values: Some(values), held })
    }

    /// After the agent was away from a task that runs: its files hold its tokens, and what is in its environment is as
    /// old as its run.
    pub(crate) fn found_again(mut self, started_at: Option<Timestamp>) -> Self {
        let disk = &self.words.runner_env().machine.disk;
        for held in &mut self.held {
            let plan = self.words.plan();
            let path = destination(&held.identity).filter(|_| held.identity.file);
            let read = path.and_then(|path| {
                let file = TaskFile { dir: &plan.dir, task: &plan.task.name, path: &path };
                String::from_utf8(disk.read_file(&file, MAX_TOKEN_BYTES).ok()?).ok()
            });
            let ttl = held.identity.ttl.map(GoDuration::to_std).filter(|ttl| !ttl.is_zero());
            let renew_at = ttl.zip(started_at).and_then(|(ttl, at)| at.checked_add(ttl / 2).ok());
            let unknown = || HeldToken { text: String::new(), renew_at };
            held.token = Some(read.map_or_else(unknown, HeldToken::new));
        }
        self
    }

    /// The values, for a start that waits for them; [`Self::begin_run`] takes them back.
    pub(crate) fn take_values(&mut self) -> Option<TaskValues> {
        self.values.take()
    }

    /// Begins a start: the files are there then.
    ///
    /// # Errors
    /// When a file leads out of the task's directory or cannot be written.
    pub(crate) fn begin_run(&mut self, words: &TaskWords, values: Option<TaskValues>) -> Result<(), TaskHookError> {
        (self.words, self.values) = (words.clone(), values.or(self.values.take()));
        let failed = |reason| TaskHookError { hook: "identities", reason, is_recoverable: true };
        for place in 0..self.held.len() {
            let held = &self.held[place];
            // A new run is told nothing, so that the newest token is the best.
            if let Some(news) = self.newest(held) {
                self.held[place].token = Some(HeldToken::new(news));
            }
            self.write(&self.held[place]).map_err(failed)?;
        }
        Ok(())
    }

    /// The variables that hold tokens.
    pub(crate) fn variables(&self) -> BTreeMap<String, String> {
        let named = self.held.iter().filter(|held| held.identity.env);
        let pair = |held: &HeldIdentity| Some((identity::variable(&held.identity), held.token.clone()?.text));
        named.filter_map(pair).filter(|(_, text)| !text.is_empty()).collect()
    }

    /// Waits for a renewal while the task runs that something follows on. May be dropped and called again.
    pub(crate) async fn next(&mut self) -> TemplateNews {
        loop {
            if let Some(values) = &mut self.values {
                values.take_in();
            }
            let now = self.words.runner_env().clock.now();
            let is_due = |held: &HeldIdentity| {
                let renew_at = held.token.as_ref().and_then(|token| token.renew_at);
                renew_at.is_some_and(|at| at <= now)
            };
            let places = (0..self.held.len()).filter(|place| is_due(&self.held[*place]));
            let due: Vec<(usize, String)> =
                places.filter_map(|place| Some((place, self.newest(&self.held[place])?))).collect();
            let (mut renewed, mut problems) = (Vec::new(), Vec::new());
            for (place, news) in due {
                self.held[place].token = Some(HeldToken::new(news));
                // A task whose file holds the old token is not told of a new one.
                match self.write(&self.held[place]) {
                    Ok(()) => renewed.push(place),
                    Err(reason) => problems.push(reason),
                }
            }
            let renewed = || renewed.iter().map(|place| &self.held[*place].identity);
            let reaction = identity::reaction(renewed());
            if !reaction.is_nothing() {
                let names: Vec<&str> = renewed().map(|identity| identity.name.as_str()).collect();
                let text = std::iter::once(format!("identity {} renewed", names.join(", "))).chain(problems);
                return TemplateNews::Changed(reaction, text.collect::<Vec<_>>().join("; "));
            }
            if !problems.is_empty() {
                return TemplateNews::Message(problems.join("; "));
            }
            self.wait(now).await;
        }
    }

    /// A token that the gateway has given and the task has not.
    fn newest(&self, held: &HeldIdentity) -> Option<String> {
        let state = self.values.as_ref()?.state_of(&held.object)?;
        let ValueState::There(values) = state else { return None };
        let text = String::from_utf8(values.keys.get(TOKEN)?.clone()).ok()?;
        (held.token.as_ref().is_none_or(|token| token.text != text)).then_some(text)
    }

    /// Waits for another token, or for the time of one that is there already.
    async fn wait(&mut self, now: Timestamp) {
        let has_news = |held: &&HeldIdentity| self.newest(held).is_some();
        let times = self.held.iter().filter(has_news).filter_map(|held| held.token.as_ref()?.renew_at);
        let left = times.min().map(|at| Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO));
        let until = left.and_then(|left| Instant::now().checked_add(left));
        change_until(&mut self.values, until).await;
    }

    /// Puts a token into its file, if it has one.
    fn write(&self, held: &HeldIdentity) -> Result<(), String> {
        let Some(token) = held.token.as_ref().filter(|token| held.identity.file && !token.text.is_empty()) else {
            return Ok(());
        };
        let plan = self.words.plan();
        let name = &held.identity.name;
        let path = destination(&held.identity).ok_or_else(|| {
            let file = identity::file(&held.identity);
            format!("identity {name}: filepath {file:?} leads out of the task's directory; take a path below it, as secrets/token")
        })?;
        let owner = plan.owner_of_files()?;
        let new =
            NewFile { bytes: token.text.as_bytes(), mode: MODE, owner, owner_of_dirs: plan.owner.or_else(nobody) };
        let file = TaskFile { dir: &plan.dir, task: &plan.task.name, path: &path };
        let written = self.words.runner_env().machine.disk.replace_file(&file, &new);
        written.map_err(|error| format!("identity {name}: {path} cannot be written: {error}"))
    }
}

/// Where an identity's file goes; none: out of the task's directory, or where the agent alone writes.
fn destination(identity: &Identity) -> Option<SandboxPath> {
    let path = sandbox_path(&identity::file(identity), None, OtherRoot::Outside)?;
    Some(path).filter(|path| !path.parts.is_empty() && !is_the_agents(path))
}
