//! The simulator's [`Store`]: what a process sees of the API server through its link, with everything that can go wrong there.
//!
//! Input: calls of the real controller and the real agent. Output: the in-memory store's answers, late, twice or never, as the
//! scenario's faults and its steps say; each write is shown to the run's observer. All chances come from one seeded stream per
//! process. Must never know what any object means.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use drover_store::memory::{Caller, Kind, Refusal, Target, Unknown, Write};
use futures::stream::BoxStream;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Resource;
use serde_json::{Value, json};

use super::feed;
use super::link::{Client, Link, Reach};
use super::world::World;
use drover_api::LEADER_LEASE;
use drover_store::{Change, Key, Object, Ownership, Part, Precondition, Selection, Store, StoreError};

/// How long a call waits for its answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How long a message travels.
const TRAVEL: Duration = Duration::from_millis(1);
/// The Lease of a second leader that does not see the first one's.
const SHADOW: &str = "drover-controller-shadow";

/// A process's access to the store.
#[derive(Clone, Debug)]
pub(super) struct Seam {
    pub(super) world: Arc<World>,
    pub(super) client: Client,
    pub(super) link: Link,
    rng: Arc<Mutex<fastrand::Rng>>,
    manager: &'static str,
    /// Whether it has a leader's Lease of its own and does not see the others'.
    has_shadow: bool,
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Answered,
    Refused(&'static str),
    Conflict,
    /// Neither done nor answered.
    Lost,
    /// Done, and the answer is lost.
    Unanswered,
    /// Done, and the connection breaks.
    Reset,
    /// The process ends before it.
    CrashBefore,
    /// The process ends right after it.
    CrashAfter,
}

/// What is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Read,
    Create,
    Update,
    Patch,
    Delete,
}

impl Seam {
    /// A process's access. `seed` is that of its chances.
    pub(super) fn new(world: Arc<World>, client: Client, seed: u64) -> Self {
        let manager = match client {
            Client::User => "kubectl",
            Client::Controller(_) => "droverd-controller",
            Client::Node(_) => "droverd-agent",
        };
        let link = world.links.of(client);
        let rng = Arc::new(Mutex::new(fastrand::Rng::with_seed(seed)));
        Self { world, client, link, rng, manager, has_shadow: false }
    }

    /// The same for a controller that leads whoever else does.
    pub(super) fn with_shadow(self) -> Self {
        Self { has_shadow: true, ..self }
    }

    pub(super) fn chance<T>(&self, draw: impl FnOnce(&mut fastrand::Rng) -> T) -> T {
        draw(&mut self.rng.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Decides what becomes of a call.
    fn draw(&self, kind: &Kind, verb: Verb, is_conditional: bool) -> Fate {
        let (faults, is_write) = (self.world.faults(), verb != Verb::Read);
        if is_write && is_conditional {
            let rate = self.link.state().conflicts;
            if rate > 0 && self.chance(|rng| rng.u32(..100_000)) < rate {
                return Fate::Conflict;
            }
        }
        let is_counted = is_write && matches!(self.client, Client::Controller(_)) && is_durable(kind);
        if is_counted && self.world.is_crash_due() {
            return Fate::CrashAfter;
        }
        if self.client == Client::User {
            return Fate::Answered;
        }
        if is_counted
            && faults.crash_between_writes > 0.0
            && self.chance(fastrand::Rng::f64) < faults.crash_between_writes
        {
            return if self.chance(fastrand::Rng::bool) { Fate::CrashBefore } else { Fate::CrashAfter };
        }
        if faults.api_errors > 0.0 && self.chance(fastrand::Rng::f64) < faults.api_errors {
            return match (self.chance(|rng| rng.u8(..6)), is_write) {
                (0, _) => Fate::Refused("the server has asked for fewer requests (429)"),
                (1, _) | (2..=4, false) => Fate::Refused("an internal error occurred (500)"),
                (2, true) => Fate::Unanswered,
                (3, true) => Fate::Reset,
                (4, true) if is_conditional => Fate::Conflict,
                (4, true) | (_, _) => Fate::Lost,
            };
        }
        Fate::Answered
    }

    /// Carries a call there and back.
    async fn call<T>(
        &self,
        kind: &'static Kind,
        verb: Verb,
        is_conditional: bool,
        work: impl FnOnce() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        // A process that stands still begins nothing.
        self.thaw().await;
        let fate = self.draw(kind, verb, is_conditional);
        let latency = self.link.state().latency;
        let sent = tokio::time::Instant::now();
        self.travel(sent, TRAVEL + latency).await?;
        match fate {
            Fate::Refused(why) => return Err(StoreError::Unavailable(why.to_owned())),
            Fate::Conflict => return Err(StoreError::Conflict("the object has been modified (injected)".to_owned())),
            Fate::Lost => return Err(no_answer(sent).await),
            Fate::CrashBefore => return self.end_process().await,
            Fate::Answered | Fate::Unanswered | Fate::Reset | Fate::CrashAfter => {}
        }
        let answer = work();
        match fate {
            Fate::Unanswered => Err(no_answer(sent).await),
            Fate::Reset => Err(StoreError::Unavailable("connection reset by peer".to_owned())),
            Fate::CrashAfter => self.end_process().await,
            _ => {
                self.travel(sent, TRAVEL + latency).await?;
                answer
            }
        }
    }

    /// Lets a message travel; what is cut off meanwhile does not arrive.
    async fn travel(&self, sent: tokio::time::Instant, takes: Duration) -> Result<(), StoreError> {
        tokio::time::sleep(takes).await;
        match self.link.state().reach() {
            Reach::Open => Ok(()),
            Reach::Refused => Err(StoreError::Unavailable("connection refused".to_owned())),
            Reach::Cut => Err(no_answer(sent).await),
            Reach::Frozen => {
                self.thaw().await;
                // It notices only now that its time is over.
                if sent.elapsed() >= TIMEOUT { Err(StoreError::Timeout(TIMEOUT)) } else { Ok(()) }
            }
        }
    }

    async fn thaw(&self) {
        while self.link.state().reach() == Reach::Frozen {
            self.link.changed().await;
        }
    }

    /// The process is gone: whoever waits for the answer is ended with it.
    async fn end_process<T>(&self) -> Result<T, StoreError> {
        self.world.crash(self.client);
        std::future::pending().await
    }

    fn caller(&self, manager: &'static str) -> Caller<'static> {
        Caller { manager, now: self.world.now() }
    }

    fn kind_of<K: Object>() -> Result<&'static Kind, StoreError> {
        let name = K::kind(&());
        drover_store::memory::kind(&name)
            .ok_or_else(|| StoreError::NotFound(format!("the simulator has no kind {name}")))
    }

    /// Shows a write to the observer and gives the object back.
    fn answer<K: Object>(&self, verb: Verb, result: Result<Write, Refusal>) -> Result<K, StoreError> {
        let write = result.map_err(refusal)?;
        let object = self.read(&write.object);
        self.world.observe(self.client, verb, write.change);
        object
    }

    pub(super) fn read<K: Object>(&self, stored: &drover_store::memory::Stored) -> Result<K, StoreError> {
        let mut object: K = stored
            .typed::<K>()
            .cloned()
            .map_err(|error| StoreError::Unavailable(format!("{}: {error}", stored.key)))?;
        if self.has_shadow && is_lease::<K>() && stored.key.name == SHADOW {
            object.meta_mut().name = Some(LEADER_LEASE.to_owned());
        }
        Ok(object)
    }

    /// Whether the process sees an object: a second leader sees its own Lease in the place of the first one's.
    pub(super) fn sees<K: Object>(&self, name: &str) -> bool {
        !is_lease::<K>() || name != if self.has_shadow { LEADER_LEASE } else { SHADOW }
    }

    fn place<K: Object>(&self, key: &Key) -> drover_store::Key {
        let is_shadowed = self.has_shadow && is_lease::<K>() && key.name == LEADER_LEASE;
        let name = if is_shadowed { SHADOW.to_owned() } else { key.name.clone() };
        drover_store::Key { namespace: key.namespace.clone(), name }
    }

    fn body<K: Object>(&self, object: &K) -> Result<Value, StoreError> {
        let mut body = serde_json::to_value(object).map_err(|error| StoreError::Invalid(error.to_string()))?;
        body["metadata"]["name"] = json!(self.place::<K>(&object.key()).name);
        Ok(body)
    }
}

/// Whether a write of this kind is one that a crash can cut off from the next: not a renewal, not an Event.
pub(super) fn is_durable(kind: &Kind) -> bool {
    !matches!(kind.name.as_str(), "Lease" | "Event")
}

fn is_lease<K: Object>() -> bool {
    K::kind(&()) == <Lease as Resource>::kind(&())
}

async fn no_answer(sent: tokio::time::Instant) -> StoreError {
    tokio::time::sleep_until(sent + TIMEOUT).await;
    StoreError::Timeout(TIMEOUT)
}

fn refusal(refusal: Refusal) -> StoreError {
    match refusal {
        Refusal::NotFound(text) => StoreError::NotFound(text),
        Refusal::AlreadyExists(text) => StoreError::AlreadyExists(text),
        Refusal::Conflict(text) => StoreError::Conflict(text),
        Refusal::Invalid(text) | Refusal::BadRequest(text) => StoreError::Invalid(text),
        Refusal::Forbidden(text) => StoreError::Forbidden(text),
        Refusal::Expired(version) => StoreError::Unavailable(format!("too old resource version: {version}")),
    }
}

/// A selection as the store understands it.
pub(super) fn selection(
    kind: &Kind,
    selection: &Selection,
) -> Result<drover_store::memory::FieldSelection, StoreError> {
    if selection.labels.is_some() {
        return Err(StoreError::Invalid("the simulator selects by fields alone".to_owned()));
    }
    drover_store::memory::FieldSelection::parse(kind, selection.namespace.as_deref(), selection.fields.as_deref())
        .map_err(StoreError::Invalid)
}

impl Store for Seam {
    async fn get<K: Object>(&self, key: &Key) -> Result<Option<K>, StoreError> {
        let kind = Self::kind_of::<K>()?;
        let found = || self.world.store.get(kind, &self.place::<K>(key)).map(|stored| self.read(&stored)).transpose();
        self.call(kind, Verb::Read, false, found).await
    }

    async fn list<K: Object>(&self, wanted: &Selection) -> Result<Vec<K>, StoreError> {
        let kind = Self::kind_of::<K>()?;
        let selection = selection(kind, wanted)?;
        let list = || {
            let all = self.world.store.list(kind, &selection);
            all.iter().filter(|stored| self.sees::<K>(&stored.key.name)).map(|stored| self.read(stored)).collect()
        };
        self.call(kind, Verb::Read, false, list).await
    }

    fn watch<K: Object>(&self, selection: Selection) -> BoxStream<'static, Change<K>> {
        feed::open(self.clone(), &selection)
    }

    async fn create<K: Object>(&self, object: &K) -> Result<K, StoreError> {
        let kind = Self::kind_of::<K>()?;
        let body = self.body(object)?;
        let create = || {
            let unknown = if self.client == Client::User { Unknown::Refuse } else { Unknown::Drop };
            let result = self.world.store.create(kind, body, unknown, self.caller(self.manager));
            self.answer(Verb::Create, result)
        };
        self.call(kind, Verb::Create, false, create).await
    }

    async fn apply_status<K: Object>(
        &self,
        key: &Key,
        manager: &'static str,
        condition: &Precondition,
        body: Value,
    ) -> Result<K, StoreError> {
        let kind = Self::kind_of::<K>()?;
        let apply = || {
            let target = Target { kind, key: &self.place::<K>(key), part: Part::Status, precondition: condition };
            self.answer(Verb::Patch, self.world.store.apply(target, body, Ownership::Force, self.caller(manager)))
        };
        self.call(kind, Verb::Patch, condition.resource_version.is_some(), apply).await
    }

    async fn merge<K: Object>(
        &self,
        key: &Key,
        part: Part,
        condition: &Precondition,
        body: Value,
    ) -> Result<K, StoreError> {
        let kind = Self::kind_of::<K>()?;
        let merge = || {
            let target = Target { kind, key: &self.place::<K>(key), part, precondition: condition };
            self.answer(Verb::Patch, self.world.store.merge(target, &body, self.caller(self.manager)))
        };
        self.call(kind, Verb::Patch, condition.resource_version.is_some(), merge).await
    }

    async fn replace<K: Object>(&self, object: &K) -> Result<K, StoreError> {
        let kind = Self::kind_of::<K>()?;
        let body = self.body(object)?;
        let replace = || self.answer(Verb::Update, self.world.store.replace(kind, body, self.caller(self.manager)));
        self.call(kind, Verb::Update, true, replace).await
    }

    async fn delete<K: Object>(&self, key: &Key, condition: &Precondition) -> Result<(), StoreError> {
        let kind = Self::kind_of::<K>()?;
        let delete = || {
            let place = self.place::<K>(key);
            let write = self.world.store.delete(kind, &place, condition, self.world.now()).map_err(refusal)?;
            self.world.observe(self.client, Verb::Delete, write.change);
            Ok(())
        };
        self.call(kind, Verb::Delete, condition.resource_version.is_some(), delete).await
    }
}
