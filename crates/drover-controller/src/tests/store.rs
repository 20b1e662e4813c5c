//! The in-memory API server as a [`Store`] that notes every write, and refuses what a test wants refused.

use std::sync::{Arc, Mutex};

use drover_clock::{Clock, SharedClock};
use drover_store::memory::{
    Caller, FieldSelection, Kind, MemoryStore, Refusal, Stored, Target, Unknown, WatchEvent, Write, kind,
};
use drover_store::{Change, Key, Object, Ownership, Part, Precondition, Selection, Store, StoreError};
use futures::StreamExt;
use futures::stream::BoxStream;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

/// The time of day of a test: it begins at a round hour and passes with tokio's paused time.
#[derive(Debug)]
pub(crate) struct TestClock {
    began: Instant,
}

/// When every test begins.
pub(crate) const MORNING: &str = "2026-03-02T08:00:00Z";

impl TestClock {
    pub(crate) fn shared() -> SharedClock {
        Arc::new(Self { began: Instant::now() })
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        MORNING.parse::<Timestamp>().unwrap() + self.began.elapsed()
    }
}

/// A fault: the next call whose text begins so ends with this error; after it has happened, or before.
#[derive(Debug)]
struct Fault {
    call: String,
    error: StoreError,
    happens: bool,
}

/// What befalls one write, whichever it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accident {
    /// The API server is away: nothing is written.
    Refused,
    /// Another writer was first.
    Conflict,
    /// It is written, and the answer gets lost.
    AnswerLost,
    /// The leader is gone before it.
    DeathBefore,
    /// The leader is gone after it, and never learns of it.
    DeathAfter,
}

#[derive(Debug, Default)]
struct Notes {
    writes: Vec<String>,
    faults: Vec<Fault>,
    /// How many writes there are before the one that this befalls.
    accident: Option<(usize, Accident)>,
    /// Whether the leader is gone: nothing that it still begins is written.
    is_dead: bool,
}

impl Notes {
    /// The accident, if it befalls the write that comes now.
    fn meets(&mut self) -> Option<Accident> {
        if self.is_dead {
            return Some(Accident::DeathBefore);
        }
        let (before, accident) = self.accident.as_mut()?;
        if *before > 0 {
            *before -= 1;
            return None;
        }
        let accident = *accident;
        self.accident = None;
        self.is_dead = matches!(accident, Accident::DeathBefore | Accident::DeathAfter);
        Some(accident)
    }
}

/// The API server. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct TestStore {
    memory: MemoryStore,
    notes: Arc<Mutex<Notes>>,
    clock: SharedClock,
    /// Whether its calls are neither noted nor refused.
    is_unnoticed: bool,
}

impl TestStore {
    pub(crate) fn new(clock: SharedClock) -> Self {
        Self { memory: MemoryStore::default(), notes: Arc::default(), clock, is_unnoticed: false }
    }

    /// The same API server for those whose calls no test is about: people and agents.
    pub(crate) fn unnoticed(&self) -> Self {
        Self { is_unnoticed: true, ..self.clone() }
    }

    /// The writes since this was asked last, as `create Job default/web`.
    pub(crate) fn take_writes(&self) -> Vec<String> {
        std::mem::take(&mut self.notes.lock().unwrap().writes)
    }

    /// The next call whose text begins so is refused.
    pub(crate) fn refuse(&self, call: &str, error: StoreError) {
        self.notes.lock().unwrap().faults.push(Fault { call: call.to_owned(), error, happens: false });
    }

    /// The answer to the next call whose text begins so gets lost: what it wrote is stored.
    pub(crate) fn lose_answer(&self, call: &str, error: StoreError) {
        self.notes.lock().unwrap().faults.push(Fault { call: call.to_owned(), error, happens: true });
    }

    /// This befalls the write that comes after so many others.
    pub(crate) fn arrange(&self, before: usize, accident: Accident) {
        self.notes.lock().unwrap().accident = Some((before, accident));
    }

    /// Whether the leader has died since this was asked last: the next one is written for again.
    pub(crate) fn take_death(&self) -> bool {
        std::mem::take(&mut self.notes.lock().unwrap().is_dead)
    }

    pub(crate) fn read<K: Object>(&self, key: &Key) -> Option<K> {
        self.memory.get(kind_of::<K>()?, key).map(|stored| typed(&stored))
    }

    /// Objects without owners go, and what they own.
    pub(crate) fn collect_garbage(&self) {
        while self.memory.has_garbage() {
            self.memory.sweep(self.clock.now());
        }
    }

    pub(crate) fn all<K: Object>(&self) -> Vec<K> {
        let Some(kind) = kind_of::<K>() else { return Vec::new() };
        self.memory.list(kind, &FieldSelection::default()).iter().map(|stored| typed(stored)).collect()
    }

    fn call<K: Object>(
        &self,
        verb: &str,
        key: &Key,
        write: impl FnOnce(&'static Kind) -> Result<Write, Refusal>,
    ) -> Result<K, StoreError> {
        let call = format!("{verb} {} {key}", K::kind(&()));
        let fault = if self.is_unnoticed {
            None
        } else {
            let mut notes = self.notes.lock().unwrap();
            let found = notes.faults.iter().position(|fault| call.starts_with(&fault.call));
            // An Event is written by itself, again after a while.
            let accident = if K::kind(&()) == "Event" { None } else { notes.meets() };
            let accident = accident.map(|accident| fault_of(accident, &call));
            notes.writes.push(call);
            accident.or_else(|| found.map(|found| notes.faults.remove(found)))
        };
        if let Some(fault) = fault {
            if let (StoreError::Conflict(_), Some(kind)) = (&fault.error, kind_of::<K>()) {
                self.touch(kind, key);
            }
            if fault.happens {
                drop(kind_of::<K>().map(write));
            }
            return Err(fault.error);
        }
        let kind = kind_of::<K>().ok_or_else(|| StoreError::Forbidden(format!("no kind {}", K::kind(&()))))?;
        write(kind).map(|write| typed(&write.object)).map_err(refusal)
    }

    /// Another writer changes an object, so that what was read of it is old.
    fn touch(&self, kind: &'static Kind, key: &Key) {
        let body = json!({ "metadata": { "annotations": { "touched": self.clock.now() } } });
        let target = Target { kind, key, part: Part::Spec, precondition: &Precondition::default() };
        drop(self.memory.merge(target, &body, self.caller("another")));
    }

    fn caller<'a>(&self, manager: &'a str) -> Caller<'a> {
        Caller { manager, now: self.clock.now() }
    }
}

fn fault_of(accident: Accident, call: &str) -> Fault {
    let error = match accident {
        Accident::Conflict => StoreError::Conflict("another one wrote first".to_owned()),
        Accident::Refused | Accident::AnswerLost | Accident::DeathBefore | Accident::DeathAfter => {
            StoreError::Unavailable("the API server restarts".to_owned())
        }
    };
    let happens = matches!(accident, Accident::AnswerLost | Accident::DeathAfter);
    Fault { call: call.to_owned(), error, happens }
}

fn kind_of<K: Object>() -> Option<&'static Kind> {
    kind(&K::kind(&()))
}

fn typed<K: Object>(stored: &Stored) -> K {
    stored.typed::<K>().expect("a stored object can be read").clone()
}

fn refusal(refusal: Refusal) -> StoreError {
    match refusal {
        Refusal::NotFound(text) => StoreError::NotFound(text),
        Refusal::AlreadyExists(text) => StoreError::AlreadyExists(text),
        Refusal::Conflict(text) => StoreError::Conflict(text),
        Refusal::Invalid(text) | Refusal::BadRequest(text) => StoreError::Invalid(text),
        Refusal::Forbidden(text) => StoreError::Forbidden(text),
        Refusal::Expired(version) => StoreError::Unavailable(format!("version {version} is forgotten")),
    }
}

impl Store for TestStore {
    async fn get<K: Object>(&self, key: &Key) -> Result<Option<K>, StoreError> {
        Ok(self.read(key))
    }

    async fn list<K: Object>(&self, _: &Selection) -> Result<Vec<K>, StoreError> {
        Ok(self.all())
    }

    fn watch<K: Object>(&self, wanted: Selection) -> BoxStream<'static, Change<K>> {
        let Some(kind) = kind_of::<K>() else {
            let nothing = futures::stream::iter([Change::Restarted, Change::InSync]);
            return nothing.chain(futures::stream::pending()).boxed();
        };
        let selection = FieldSelection::parse(kind, wanted.namespace.as_deref(), wanted.fields.as_deref()).unwrap();
        let (there, mut watch) = self.memory.list_and_watch(kind, &selection, None).unwrap();
        let there = there.into_iter().map(|stored| Change::Present(Box::new(typed(&stored))));
        let begin: Vec<_> = std::iter::once(Change::Restarted).chain(there).chain([Change::InSync]).collect();
        let changes = futures::stream::poll_fn(move |context| watch.poll_next(context).map(Some));
        let changes = changes.map(|event| match event {
            WatchEvent::Put(object) => Change::Present(Box::new(typed(&object))),
            WatchEvent::Gone(object) => Change::Gone(Box::new(typed(&object))),
        });
        futures::stream::iter(begin).chain(changes).boxed()
    }

    async fn create<K: Object>(&self, object: &K) -> Result<K, StoreError> {
        let body = serde_json::to_value(object).unwrap();
        let caller = self.caller("test");
        self.call("create", &object.key(), |kind| self.memory.create(kind, body, Unknown::Refuse, caller))
    }

    async fn apply_status<K: Object>(
        &self,
        key: &Key,
        manager: &'static str,
        precondition: &Precondition,
        body: Value,
    ) -> Result<K, StoreError> {
        self.call("apply", key, |kind| {
            let target = Target { kind, key, part: Part::Status, precondition };
            self.memory.apply(target, body, Ownership::Force, self.caller(manager))
        })
    }

    async fn merge<K: Object>(
        &self,
        key: &Key,
        part: Part,
        precondition: &Precondition,
        body: Value,
    ) -> Result<K, StoreError> {
        let verb = if part == Part::Spec { "merge" } else { "merge status of" };
        self.call(verb, key, |kind| {
            let target = Target { kind, key, part, precondition };
            self.memory.merge(target, &body, self.caller("test"))
        })
    }

    async fn replace<K: Object>(&self, object: &K) -> Result<K, StoreError> {
        let body = serde_json::to_value(object).unwrap();
        self.call("replace", &object.key(), |kind| self.memory.replace(kind, body, self.caller("test")))
    }

    async fn delete<K: Object>(&self, key: &Key, precondition: &Precondition) -> Result<(), StoreError> {
        let now = self.clock.now();
        self.call::<K>("delete", key, |kind| self.memory.delete(kind, key, precondition, now)).map(drop)
    }
}
