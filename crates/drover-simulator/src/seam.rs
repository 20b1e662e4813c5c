//! The simulator's [`Store`]: what a process sees of the API server through its link, with everything that can go wrong
//! there.
//!
//! Input: calls of the real controller and the real agent. Output: the in-memory store's answers, late, twice or never,
//! as the scenario's faults and its steps say; each write is shown to the run's observer. All chances come from one
//! seeded stream per process, but for what becomes of Events, Services and slices: one more or less of them changes
//! nothing else. Must never know what any object means.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use drover_store::memory::{Caller, Kind, Refusal, Write};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Resource;
use serde_json::{Value, json};

use super::link::{Client, Link, Reach};
use super::seeds::stream_seed;
use super::verb::Verb;
use super::world::World;
use drover_agent::simulated::{StateFaults, StateWrite};
use drover_api::LEADER_LEASE;
use drover_store::{Key, Object, StoreError};

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
    of_events: Arc<Mutex<fastrand::Rng>>,
    of_services: Arc<Mutex<fastrand::Rng>>,
    /// Of an agent's death between two of its writes.
    of_deaths: Arc<Mutex<fastrand::Rng>>,
    /// The process has ended: what it still begins does not happen.
    is_gone: Arc<AtomicBool>,
    pub(super) manager: &'static str,
    /// Whether it has a leader's Lease of its own and does not see the others'.
    pub(super) has_shadow: bool,
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

impl Seam {
    /// A process's access. `seed` is that of its chances.
    pub(super) fn new(world: Arc<World>, client: Client, seed: u64) -> Self {
        let manager = match client {
            Client::User => "kubectl",
            Client::Controller(_) => "droverd-controller",
            Client::Node(_) => "droverd-agent",
        };
        let link = world.links.of(client);
        let mut rng = fastrand::Rng::with_seed(seed);
        let of_events = Arc::new(Mutex::new(rng.fork()));
        let of_services = fastrand::Rng::with_seed(stream_seed(seed, "services", 0));
        let (rng, of_services) = (Arc::new(Mutex::new(rng)), Arc::new(Mutex::new(of_services)));
        let of_deaths = Arc::new(Mutex::new(fastrand::Rng::with_seed(stream_seed(seed, "deaths", 0))));
        let is_gone = Arc::default();
        Self { world, client, link, rng, of_events, of_services, of_deaths, is_gone, manager, has_shadow: false }
    }

    /// The same for a controller that leads beside others.
    pub(super) fn with_shadow(self) -> Self {
        Self { has_shadow: true, ..self }
    }

    /// Draws of what may become of calls and events about a kind.
    pub(super) fn chance<T>(&self, kind: &Kind, draw: impl FnOnce(&mut fastrand::Rng) -> T) -> T {
        let chances = match kind.name.as_str() {
            "Event" => &self.of_events,
            // So that a run in which nothing is found by name is the same as before there was any of it.
            "Service" | "EndpointSlice" => &self.of_services,
            _ => &self.rng,
        };
        draw(&mut chances.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Decides what becomes of a call.
    fn draw(&self, kind: &Kind, verb: Verb, is_conditional: bool) -> Fate {
        self.chance(kind, |rng| self.fate(kind, verb, is_conditional, rng))
    }

    fn fate(&self, kind: &Kind, verb: Verb, is_conditional: bool, rng: &mut fastrand::Rng) -> Fate {
        let (faults, is_write) = (self.world.faults(), verb != Verb::Read);
        if is_write && is_conditional {
            let rate = self.link.state().conflicts;
            if rate > 0 && rng.u32(..100_000) < rate {
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
        let death = match self.client {
            _ if !is_write || !is_durable(kind) => StateWrite::Kept,
            Client::Node(_) => self.fate_of_agent(),
            Client::Controller(_) | Client::User => death(faults.crash_between_writes, rng),
        };
        match death {
            StateWrite::Kept => {}
            StateWrite::DiedBefore => return Fate::CrashBefore,
            StateWrite::DiedAfter => return Fate::CrashAfter,
        }
        if faults.api_errors > 0.0 && rng.f64() < faults.api_errors {
            return match (rng.u8(..6), is_write) {
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

    /// Whether an agent dies at a write, be it to the API server or to its state.
    fn fate_of_agent(&self) -> StateWrite {
        let mut rng = self.of_deaths.lock().unwrap_or_else(PoisonError::into_inner);
        death(self.world.faults().crash_between_writes, &mut rng)
    }

    /// What becomes of the agent's writes to its state.
    pub(super) fn state_faults(&self) -> StateFaults {
        let seam = self.clone();
        StateFaults::new(move || {
            if seam.is_gone.load(Ordering::Relaxed) {
                return StateWrite::DiedBefore;
            }
            let fate = seam.fate_of_agent();
            if fate != StateWrite::Kept {
                seam.die();
            }
            fate
        })
    }

    /// Carries a call there and back.
    pub(super) async fn call<T>(
        &self,
        kind: &'static Kind,
        verb: Verb,
        is_conditional: bool,
        work: impl FnOnce() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        // A process that stands still begins nothing, nor does one that is gone.
        self.thaw().await;
        if self.is_gone.load(Ordering::Relaxed) {
            return std::future::pending().await;
        }
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

    /// Lets a message travel; what is interrupted meanwhile does not arrive.
    pub(super) async fn travel(&self, sent: tokio::time::Instant, takes: Duration) -> Result<(), StoreError> {
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

    pub(super) async fn thaw(&self) {
        while self.link.state().reach() == Reach::Frozen {
            self.link.changed().await;
        }
    }

    /// The process is gone: what waits for the answer is ended with it.
    pub(super) async fn end_process<T>(&self) -> Result<T, StoreError> {
        self.die();
        std::future::pending().await
    }

    fn die(&self) {
        if !self.is_gone.swap(true, Ordering::Relaxed) {
            self.world.crash(self.client);
        }
    }

    pub(super) fn caller(&self, manager: &'static str) -> Caller<'static> {
        Caller { manager, now: self.world.now() }
    }

    pub(super) fn kind_of<K: Object>() -> Result<&'static Kind, StoreError> {
        let name = K::kind(&());
        drover_store::memory::kind(&name)
            .ok_or_else(|| StoreError::NotFound(format!("the simulator has no kind {name}")))
    }

    /// Shows a write to the observer and gives the object back.
    pub(super) fn answer<K: Object>(&self, verb: Verb, result: Result<Write, Refusal>) -> Result<K, StoreError> {
        let write = result.map_err(refusal)?;
        let object = self.read(&write.object);
        self.world.observe(self.client, verb, write.change);
        self.world.observe_read(self.client, &write.object);
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

    pub(super) fn place<K: Object>(&self, key: &Key) -> drover_store::Key {
        let is_shadowed = self.has_shadow && is_lease::<K>() && key.name == LEADER_LEASE;
        let name = if is_shadowed { SHADOW.to_owned() } else { key.name.clone() };
        drover_store::Key { namespace: key.namespace.clone(), name }
    }

    pub(super) fn body<K: Object>(&self, object: &K) -> Result<Value, StoreError> {
        let mut body = serde_json::to_value(object).map_err(|error| StoreError::Invalid(error.to_string()))?;
        body["metadata"]["name"] = json!(self.place::<K>(&object.key()).name);
        Ok(body)
    }
}

/// Whether a process dies at a write, with this chance.
fn death(chance: f64, rng: &mut fastrand::Rng) -> StateWrite {
    if chance <= 0.0 || rng.f64() >= chance {
        return StateWrite::Kept;
    }
    if rng.bool() { StateWrite::DiedBefore } else { StateWrite::DiedAfter }
}

/// Whether a write of this kind is one that a crash can separate from the next: not a renewal, not an Event.
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

pub(super) fn refusal(refusal: Refusal) -> StoreError {
    match refusal {
        Refusal::NotFound(text) => StoreError::NotFound(text),
        Refusal::AlreadyExists(text) => StoreError::AlreadyExists(text),
        Refusal::Conflict(text) => StoreError::Conflict(text),
        Refusal::Invalid(text) | Refusal::BadRequest(text) => StoreError::Invalid(text),
        Refusal::Forbidden(text) => StoreError::Forbidden(text),
        Refusal::Expired(version) => StoreError::Unavailable(format!("too old resource version: {version}")),
    }
}
