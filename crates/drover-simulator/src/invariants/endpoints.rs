//! I10 and I11: an endpoint is never ready that is not, and never missing for longer than a moment.
//!
//! What a leader knows is what it has read: while all goes wrong it may be late, but it may not act against that. When
//! all is well, what is stored has to be what follows from allocations, versions and nodes, a second after these were
//! changed.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_api::Allocation;
use drover_api::allocation::{ClientStatus, DesiredStatus};
use drover_api::label;
use drover_store::Key;
use drover_store::memory::{Stored, StoredChange};

use super::calm::{Calm, Trouble};
use super::found::{Found, Sources, is_to_run, owner};
use crate::link::Client;
use crate::readiness::is_ready;
use crate::times::at_text;

/// How long it may take until what was decided is found.
const MOMENT: Duration = Duration::from_secs(1);
/// How old what a controller has read may be when a write of it arrives, while calls run into their time-outs.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is found of an allocation and should not be so.
#[derive(Debug)]
struct Wrong {
    wanted: Found,
    since: Duration,
    is_told: bool,
}

/// What a controller has read.
#[derive(Debug, Default)]
struct Known {
    /// Since when it knows of an allocation's services that they are not ready, by uid and service; none: they are.
    unready: BTreeMap<String, BTreeMap<String, Option<Duration>>>,
    /// When it has read of a slice first.
    slices: BTreeMap<Key, Duration>,
    /// When it tried last to delete a slice, whatever became of that.
    attempts: BTreeMap<Key, Duration>,
}

/// The state of both invariants.
#[derive(Debug, Default)]
pub(super) struct EndpointsWatch {
    calm: Calm,
    sources: Sources,
    wrong: BTreeMap<String, Wrong>,
    known: BTreeMap<Client, Known>,
}

impl EndpointsWatch {
    /// Things go wrong by chance until then.
    pub(super) fn begin(&mut self, faults_until: Duration) {
        self.calm.begin(faults_until);
    }

    /// Something goes wrong from now on, or does no more.
    pub(super) fn note_trouble(&mut self, at: Duration, trouble: Trouble, begins: bool, found: &mut Vec<String>) {
        self.tick(at, found);
        self.calm.note(at, trouble, begins);
    }

    /// A controller is gone.
    pub(super) fn note_crash(&mut self, at: Duration, client: Client, found: &mut Vec<String>) {
        self.tick(at, found);
        self.calm.note_crash(client);
        self.known.remove(&client);
    }

    /// A controller has read something.
    pub(super) fn note_read(&mut self, at: Duration, client: Client, object: &Stored) {
        let known = self.known.entry(client).or_default();
        if object.kind.name == "EndpointSlice" {
            known.slices.entry(object.key.clone()).or_insert(at);
            return;
        }
        let Ok(alloc) = object.typed::<Allocation>() else { return };
        let Some(status) = alloc.status.as_ref() else { return };
        let of_alloc = known.unready.entry(object.uid().to_owned()).or_default();
        let may_be_ready = is_to_run(alloc) && status.client_status != ClientStatus::Unknown;
        let named: Vec<String> = status.services.iter().map(|service| service.service_name.clone()).collect();
        for name in of_alloc.keys().cloned().chain(named).collect::<Vec<_>>() {
            let mut of_name = status.services.iter().filter(|service| service.service_name == name).peekable();
            let is_ready = may_be_ready && of_name.peek().is_some() && of_name.all(|service| service.ready);
            let since = of_alloc.entry(name).or_insert(None);
            *since = if is_ready { None } else { since.or(Some(at)) };
        }
    }

    /// A controller is about to delete a slice.
    pub(super) fn note_attempt(&mut self, at: Duration, client: Client, slice: &Key) {
        self.known.entry(client).or_default().attempts.insert(slice.clone(), at);
    }

    /// Takes in a change of an object and says what it broke.
    pub(super) fn observe(&mut self, at: Duration, by: Option<Client>, change: &StoredChange, found: &mut Vec<String>) {
        self.tick(at, found);
        if let Some(client @ Client::Controller(_)) = by {
            self.check_write(at, client, change, found);
        }
        for uid in self.sources.take(change) {
            self.review(at, &uid);
        }
    }

    fn check_write(&mut self, at: Duration, by: Client, change: &StoredChange, found: &mut Vec<String>) {
        let Some(after) = &change.after else { return };
        match after.kind.name.as_str() {
            "Lease" => self.calm.note_lease(at, by, after),
            "EndpointSlice" if is_ready(&after.value) => {
                let service = after.value["metadata"]["labels"][label::SERVICE_NAME].as_str().unwrap_or_default();
                let of_alloc = self.known.get(&by).and_then(|known| known.unready.get(&owner(after)));
                let since = of_alloc.and_then(|services| services.get(service)).copied().flatten();
                let late = if self.calm.since(at).is_some() { MOMENT } else { PATIENCE };
                if let Some(since) = since.filter(|since| at > *since + late) {
                    found.push(format!(
                        "I10: EndpointSlice {} is made ready although its allocation is known not to be since {}",
                        after.key,
                        at_text(since)
                    ));
                }
            }
            "Allocation" => {
                let desired = |stored: &Stored| stored.typed::<Allocation>().map(|alloc| alloc.spec.desired_status);
                let was_to_run = change.before.as_ref().is_some_and(|it| desired(it) == Ok(DesiredStatus::Run));
                if !was_to_run || desired(after) == Ok(DesiredStatus::Run) {
                    return;
                }
                let Some(known) = self.known.get(&by) else { return };
                let late = if self.calm.since(at).is_some() { MOMENT } else { PATIENCE };
                // One that could not be deleted does not keep its allocation from the stop, and of one that was being
                // made while the stop was under way the leader hears too late.
                let is_left = |slice: &&Key| {
                    let was_tried = known.attempts.get(slice).is_some_and(|tried| at <= *tried + PATIENCE);
                    known.slices.get(slice).is_some_and(|read| at > *read + late) && !was_tried
                };
                for slice in self.sources.slices_of(after.uid()).map(|(slice, _)| slice).filter(is_left) {
                    found.push(format!(
                        "I10: Allocation {} is stopped before EndpointSlice {slice} is deleted",
                        after.key
                    ));
                }
            }
            _ => {}
        }
    }

    /// Compares what is found of an allocation with what should be.
    fn review(&mut self, at: Duration, uid: &str) {
        let wanted = self.sources.wanted(uid);
        let (found, is_double) = self.sources.found(uid);
        // Of a node that is away all that may be known is that nothing there is ready.
        let is_right = if self.sources.is_away(uid) {
            found.values().all(|(_, is_ready)| !is_ready)
        } else {
            found == wanted && !is_double
        };
        if is_right {
            self.wrong.remove(uid);
            return;
        }
        let fresh = Wrong { wanted: wanted.clone(), since: at, is_told: false };
        let wrong = self.wrong.entry(uid.to_owned()).or_insert(fresh);
        if wrong.wanted != wanted {
            *wrong = Wrong { wanted, since: at, is_told: false };
        }
    }

    /// Says what has been wrong for too long, up to now.
    fn tick(&mut self, at: Duration, told: &mut Vec<String>) {
        let Some(calm) = self.calm.since(at) else { return };
        for (uid, wrong) in self.wrong.iter_mut().filter(|(_, wrong)| !wrong.is_told) {
            if at <= wrong.since.max(calm) + MOMENT {
                continue;
            }
            wrong.is_told = true;
            let (found, _) = self.sources.found(uid);
            let is_too_ready = found.iter().any(|(place, (_, is_ready))| {
                *is_ready && !wrong.wanted.get(place).is_some_and(|(_, is_ready)| *is_ready)
            });
            let id = if is_too_ready || self.sources.is_away(uid) { "I10" } else { "I11" };
            let name = self.sources.alloc(uid).map_or_else(|| uid.clone(), |alloc| alloc.key.to_string());
            told.push(format!(
                "{id}: of Allocation {name} is found since {}: {}; it should be: {}",
                at_text(wrong.since),
                shown(&found),
                shown(&wrong.wanted)
            ));
        }
    }

    /// The last question, at the end of a run.
    pub(super) fn finish(&mut self, at: Duration, found: &mut Vec<String>) {
        self.tick(at, found);
    }
}

fn shown(found: &Found) -> String {
    let one = |((service, address), (ports, is_ready)): (&(String, String), &(_, bool))| {
        format!("{service} at {address} {ports:?} {}", if *is_ready { "ready" } else { "not ready" })
    };
    if found.is_empty() { "nothing".to_owned() } else { found.iter().map(one).collect::<Vec<_>>().join(", ") }
}
