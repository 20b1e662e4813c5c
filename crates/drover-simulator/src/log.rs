//! The observer: it counts writes, keeps the timeline, watches what must never be, and asks the invariants after every
//! write.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::time::Duration;

use drover_api::Allocation;
use drover_store::Key;
use drover_store::memory::{Kind, StoredChange};
use serde_json::{Map, Value, json};

use super::filter;
use super::invariants::{Invariants, Trouble};
use super::link::Client;
use super::scenario::AllocFilter;
use super::times::at_text;
use super::verb::Verb;
use drover_agent::simulated::PluginCall;

/// Failures that one run keeps.
const KEPT_FAILURES: usize = 50;

/// Something that went wrong in the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) at: Duration,
    pub(super) what: String,
}

impl Failure {
    /// Whether a crash of the controller is no excuse for it: an invariant is broken, or something at the end is not as
    /// it should be.
    pub(super) fn counts_after_a_crash(&self, last_step: Duration) -> bool {
        !self.what.starts_with("spec.steps") || self.at >= last_step
    }
}

/// Writes of a kind.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    create: u64,
    update: u64,
    patch: u64,
    delete: u64,
}

/// The most allocations that ever matched a filter at once.
#[derive(Debug)]
struct Peak {
    step: usize,
    filter: AllocFilter,
    now: BTreeSet<Key>,
    most: usize,
    at: Duration,
}

/// What the observer has noted.
#[derive(Debug)]
pub(super) struct Log {
    keeps_timeline: bool,
    /// Whether the scenario is over: what comes to rest after it is neither told nor counted.
    is_over: bool,
    timeline: Vec<(Duration, StoredChange)>,
    writes: BTreeMap<&'static str, Counted>,
    /// Of each call of a driver: how often it was made, and how often it was made to fail.
    calls: BTreeMap<PluginCall, (u64, u64)>,
    peaks: Vec<Peak>,
    pub(super) invariants: Invariants,
    pub(super) failures: Vec<Failure>,
}

impl Log {
    /// Nothing noted yet. `never` are the filters of what must never be, with their step.
    pub(super) fn new(keeps_timeline: bool, never: Vec<(usize, AllocFilter)>, invariants: Invariants) -> Self {
        let peak = |(step, filter)| Peak { step, filter, now: BTreeSet::new(), most: 0, at: Duration::ZERO };
        Self {
            keeps_timeline,
            is_over: false,
            timeline: Vec::new(),
            writes: BTreeMap::new(),
            calls: BTreeMap::new(),
            peaks: never.into_iter().map(peak).collect(),
            invariants,
            failures: Vec::new(),
        }
    }

    /// The scenario is over.
    pub(super) fn close(&mut self) {
        self.is_over = true;
    }

    /// Counts a write, whether it changed something or not.
    pub(super) fn count(&mut self, verb: Verb, kind: Option<&'static Kind>) {
        let Some(kind) = kind.filter(|_| !self.is_over) else { return };
        let counted = self.writes.entry(&kind.name).or_default();
        match verb {
            Verb::Read => {}
            Verb::Create => counted.create += 1,
            Verb::Update => counted.update += 1,
            Verb::Patch => counted.patch += 1,
            Verb::Delete => counted.delete += 1,
        }
    }

    /// Counts a call of a driver.
    pub(super) fn count_call(&mut self, call: PluginCall, is_fault: bool) {
        let (n_made, n_faults) = self.calls.entry(call).or_default();
        *n_made += 1;
        *n_faults += u64::from(is_fault);
    }

    /// Takes in a change of an object.
    pub(super) fn take(&mut self, at: Duration, by: Option<Client>, change: &StoredChange) {
        let kind = change.object().kind.name.as_str();
        if kind == "Event" {
            return;
        }
        if self.keeps_timeline && !self.is_over && kind != "Lease" {
            self.timeline.push((at, change.clone()));
        }
        if kind == "Allocation" {
            self.observe_peaks(at, change);
        }
        let found = self.invariants.observe(at, by, change);
        for what in found {
            self.fail(at, what);
        }
    }

    fn observe_peaks(&mut self, at: Duration, change: &StoredChange) {
        let after = change.after.as_ref().and_then(|after| after.typed::<Allocation>().ok());
        for peak in &mut self.peaks {
            let is_match = after.is_some_and(|after| filter::matches(&peak.filter, after));
            let key = &change.object().key;
            if is_match {
                peak.now.insert(key.clone());
            } else {
                peak.now.remove(key);
            }
            if peak.now.len() > peak.most {
                (peak.most, peak.at) = (peak.now.len(), at);
            }
        }
    }

    /// The most allocations that ever matched the `never` assertion of a step, and when; several stand in their order.
    pub(super) fn peaks(&self, step: usize) -> impl Iterator<Item = (usize, Duration)> {
        self.peaks.iter().filter(move |peak| peak.step == step).map(|peak| (peak.most, peak.at))
    }

    /// How many writes of a kind there were.
    pub(super) fn n_writes(&self, kind: &str) -> u64 {
        self.writes.get(kind).map_or(0, |counted| counted.create + counted.update + counted.patch + counted.delete)
    }

    /// Something between controller and API server goes wrong from now on, or does no more.
    pub(super) fn note_trouble(&mut self, at: Duration, trouble: Trouble, begins: bool) {
        for what in self.invariants.note_trouble(at, trouble, begins) {
            self.fail(at, what);
        }
    }

    /// A controller is gone.
    pub(super) fn note_crash(&mut self, at: Duration, client: Client) {
        for what in self.invariants.note_crash(at, client) {
            self.fail(at, what);
        }
    }

    /// Notes a failure. Beyond some the rest is only more of the same.
    pub(super) fn fail(&mut self, at: Duration, what: String) {
        let failure = Failure { at, what };
        if self.failures.len() < KEPT_FAILURES && !self.failures.contains(&failure) {
            self.failures.push(failure);
        }
    }

    /// The counted writes, by kind.
    pub(super) fn writes_json(&self) -> Value {
        let one = |counted: &Counted| json!({ "create": counted.create, "update": counted.update, "patch": counted.patch, "delete": counted.delete });
        self.writes.iter().map(|(kind, counted)| ((*kind).to_owned(), one(counted))).collect::<Map<_, _>>().into()
    }

    /// How often drivers were called, and made to fail, by call.
    pub(super) fn calls_json(&self) -> Value {
        let one = |(call, (made, faults)): (&PluginCall, &(u64, u64))| json!({ "call": call, "made": made, "faults": faults });
        self.calls.iter().map(one).collect()
    }

    /// Every change of an object but Leases and Events, with what is new.
    pub(super) fn timeline_json(&self) -> Vec<Value> {
        self.timeline.iter().map(|(at, change)| entry(*at, change)).collect()
    }
}

fn entry(at: Duration, change: &StoredChange) -> Value {
    let object = change.object();
    let (what, fields) = match (&change.before, &change.after) {
        (None, Some(after)) => ("created", json!({ "spec": after.value["spec"] })),
        (Some(before), Some(after)) => ("updated", difference(&before.value, &after.value)),
        (_, None) => ("deleted", json!({})),
    };
    json!({
        "at": at_text(at),
        "kind": object.kind.name,
        "namespace": object.key.namespace,
        "name": object.key.name,
        "change": what,
        "fields": fields,
    })
}

/// The new values of what differs; null for what is gone.
fn difference(before: &Value, after: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (before, after) else { return after.clone() };
    let mut changed = Map::new();
    for (name, value) in new {
        if name == "resourceVersion" || old.get(name) == Some(value) {
            continue;
        }
        let value = old.get(name).map_or_else(|| value.clone(), |before| difference(before, value));
        if value != json!({}) || !matches!(old.get(name), Some(Value::Object(_))) {
            changed.insert(name.clone(), value);
        }
    }
    for name in old.keys().filter(|name| !new.contains_key(*name)) {
        changed.insert(name.clone(), Value::Null);
    }
    Value::Object(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_holds_what_is_new_and_what_is_gone() {
        let before = json!({ "metadata": { "resourceVersion": "1" }, "spec": { "a": 1, "b": 2, "c": { "d": 3 } } });
        let after = json!({ "metadata": { "resourceVersion": "2" }, "spec": { "a": 1, "b": 4, "c": {} } });
        assert_eq!(difference(&before, &after), json!({ "spec": { "b": 4, "c": { "d": null } } }));
    }

    #[test]
    fn times_are_written_as_scenarios_write_them() {
        for (ms, text) in [(0, "0s"), (90_000, "90s"), (1_250, "1.25s")] {
            assert_eq!(at_text(Duration::from_millis(ms)), text);
        }
    }
}
