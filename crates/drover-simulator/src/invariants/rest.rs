//! I9: all comes to rest, stays there until something happens, and leaves nothing stuck.

use std::collections::BTreeSet;
use std::time::Duration;

use drover_api::allocation::DesiredStatus;
use drover_api::csi_volume::{CSIVolumeStatus, ClaimState};
use drover_api::job::JobReason;
use drover_api::{Allocation, CSIVolume, Deployment, Job};
use drover_core::definition::Definition;
use drover_store::memory::{FieldSelection, MemoryStore, Stored, StoredChange};
use jiff::{SignedDuration, Timestamp};

use super::definitions::Definitions;
use crate::link::Client;
use crate::times::at_text;

/// How long no write may happen before all counts as at rest.
const QUIET: Duration = Duration::from_mins(1);
/// How long after a timer its writes may come.
const AFTER_TIMER: Duration = Duration::from_secs(30);
/// How much earlier than a timer in an object says its reason may be seen.
const BEFORE_TIMER: Duration = Duration::from_secs(1);
/// Longest pause after which what a driver did not do is tried again.
const RETRY: Duration = drover_core::volume::wait::LONGEST_PAUSE;
/// How old a volume's last change is when the collection of claims looks at it, at the least.
const CLAIM_GC: SignedDuration = SignedDuration::from_mins(5);
/// How long all may take to come to rest.
const SETTLE: Duration = Duration::from_mins(10);

/// How long an allocation may take to become healthy by default.
const HEALTHY_DEADLINE: Duration = Duration::from_mins(5);
/// How long after its placement failed a job counts as stuck.
const BLOCKED: Duration = Duration::from_mins(5);
/// How long a new leader waits for the nodes' heartbeats, and a node for the first of them.
const FRESH_START: Duration = drover_core::node::heartbeat::FRESH_START;

/// A write, with what is known of jobs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written<'a> {
    pub(super) by: Option<Client>,
    pub(super) change: &'a StoredChange,
    pub(super) definitions: &'a Definitions,
}

/// When something last happened.
#[derive(Debug, Default)]
pub(super) struct Rest {
    start: Option<Timestamp>,
    /// The last step, fault, start or end of a task.
    disturbed: Duration,
    last_write: Duration,
    /// Times at which something is due, since the start.
    timers: BTreeSet<Duration>,
}

impl Rest {
    pub(super) fn disturb(&mut self, at: Duration) {
        self.disturbed = self.disturbed.max(at);
    }

    /// A driver did not do what it was asked for: that is tried again, and what comes of it is no unrest.
    pub(super) fn note_fault(&mut self, at: Duration) {
        self.timers.insert(at + RETRY);
    }

    /// A controller begins to lead: nodes that it has not heard of have their time.
    pub(super) fn note_controller(&mut self, at: Duration) {
        self.timers.insert(at + FRESH_START);
        self.disturb(at);
    }

    /// When all must have come to rest, if nothing happens any more.
    pub(super) fn settles_at(&self) -> Duration {
        self.disturbed + SETTLE
    }

    /// Sets the time of day at the start, to which times in objects are compared.
    pub(super) fn begin(&mut self, start: Timestamp) {
        self.start = Some(start);
    }

    pub(super) fn observe(&mut self, at: Duration, written: Written<'_>, found: &mut Vec<String>) {
        let Written { by, change, definitions } = written;
        let object = change.object();
        let is_collection = matches!(by, Some(Client::Controller(_))) && is_collected(change);
        if matches!(object.kind.name.as_str(), "Lease" | "Event") || is_claim_gc(change) || is_collection {
            return;
        }
        if by == Some(Client::User) || by.is_none() {
            self.disturb(at);
        }
        let last = self.disturbed.max(self.last_write);
        let since = at.saturating_sub(AFTER_TIMER);
        let is_timed = self.timers.range(since..=at + BEFORE_TIMER).next().is_some();
        if at > last + QUIET && !is_timed {
            found.push(format!(
                "I9: {} {} is written although nothing has happened since {}",
                object.kind.name,
                object.key,
                at_text(last)
            ));
        }
        self.last_write = self.last_write.max(at);
        self.note_timers(at, object, definitions);
    }

    fn note_timers(&mut self, at: Duration, object: &Stored, definitions: &Definitions) {
        let mut due = Vec::new();
        match object.kind.name.as_str() {
            "Allocation" => {
                if let Ok(alloc) = object.typed::<Allocation>() {
                    due.extend(alloc.spec.follow_up.as_ref().map(|follow_up| follow_up.at));
                    let definition = definitions.get(&alloc.spec.job_uid).map(|definition| &**definition);
                    // Verdicts on health fall at the latest then.
                    self.timers.insert(at + healthy_deadline(definition, alloc));
                }
            }
            "Deployment" => {
                if let Ok(deployment) = object.typed::<Deployment>() {
                    let status = deployment.status.iter().flat_map(|status| status.groups.values());
                    due.extend(status.filter_map(|group| group.require_progress_by));
                }
            }
            "Job" => {
                if let Ok(job) = object.typed::<Job>() {
                    due.extend(job.status.as_ref().and_then(|status| status.next_launch));
                    let conditions = job.status.iter().flat_map(|status| &status.conditions);
                    let blocked = conditions.filter(|one| one.reason == JobReason::NotPlaced);
                    due.extend(
                        blocked.map(|one| {
                            one.last_transition_time + SignedDuration::try_from(BLOCKED).unwrap_or_default()
                        }),
                    );
                }
            }
            "ClientNode" => {
                // What was on a node that stays down is given up.
                self.timers.insert(at + SETTLE);
            }
            _ => {}
        }
        let Some(start) = self.start else { return };
        self.timers.extend(due.iter().filter_map(|due| Duration::try_from(due.duration_since(start)).ok()));
    }

    /// Asks at the end whether all has come to rest and nothing is stuck.
    pub(super) fn finish(&mut self, at: Duration, store: &MemoryStore, found: &mut Vec<String>) {
        let last_timer = self.timers.range(..=at).next_back().copied().unwrap_or_default();
        let is_settled = at >= self.disturbed + SETTLE;
        if !is_settled {
            return;
        }
        if self.last_write > self.disturbed + SETTLE && self.last_write > last_timer + AFTER_TIMER {
            found.push(format!(
                "I9: still no rest: the last write was at {}, the last disturbance at {}",
                at_text(self.last_write),
                at_text(self.disturbed)
            ));
        }
        found.extend(unstopped(store));
        for kind in ["Allocation", "Job", "CSIVolume", "Deployment"] {
            let Some(kind) = drover_store::memory::kind(kind) else { continue };
            for stored in store.list(kind, &FieldSelection::default()) {
                let is_over = !stored.value["status"]["endedAt"].is_null() || kind.name != "Allocation";
                if stored.is_deleting() && is_over {
                    found.push(format!("I9: {} {} is stuck on its finalizers", kind.name, stored.key));
                }
            }
        }
    }
}

/// Whether a controller takes away what is over: that is looked for every so often, long after its end.
fn is_collected(change: &StoredChange) -> bool {
    let is_going = change.after.as_ref().is_none_or(|after| after.is_deleting());
    let Some(before) = change.before.as_ref().filter(|_| is_going) else { return false };
    let status = &before.value["status"];
    match before.kind.name.as_str() {
        "Allocation" => !status["endedAt"].is_null() || status["clientStatus"] == "lost",
        "Job" => status["phase"] == "dead",
        "Deployment" => !matches!(status["phase"].as_str(), Some("running" | "paused" | "pending" | "initializing")),
        "JobVersion" => true,
        "ClientNode" => status["phase"] == "down",
        _ => false,
    }
}

/// Whether the collection of claims asks for another look at a volume whose release goes on: `modifiedAt` moves, as
/// often as it may.
fn is_claim_gc(change: &StoredChange) -> bool {
    if change.object().kind.name != "CSIVolume" {
        return false;
    }
    let status = |stored: Option<&Stored>| stored?.typed::<CSIVolume>().ok()?.status.clone();
    let Some(before) = status(change.before.as_deref()) else { return false };
    let Some(after) = status(change.after.as_deref()) else { return false };
    let is_released = after.claims.iter().any(|claim| claim.state != ClaimState::Taken);
    let times = before.modified_at.zip(after.modified_at);
    let is_time = times.is_some_and(|(before, after)| after.duration_since(before) >= CLAIM_GC);
    is_released && is_time && CSIVolumeStatus { modified_at: after.modified_at, ..before } == after
}

/// Allocations that are to stop, whose node is well, and of which nothing says that they have stopped.
fn unstopped(store: &MemoryStore) -> Vec<String> {
    let list = |kind: &str| {
        let kind = drover_store::memory::kind(kind);
        kind.map(|kind| store.list(kind, &FieldSelection::default())).unwrap_or_default()
    };
    let nodes = list("ClientNode");
    let ready: BTreeSet<&str> = nodes
        .iter()
        .filter(|node| node.value["status"]["phase"] == "ready")
        .map(|node| node.key.name.as_str())
        .collect();
    let allocs = list("Allocation");
    let goes_on = allocs.iter().filter(|stored| {
        stored.typed::<Allocation>().is_ok_and(|alloc| {
            let client = alloc.status.as_ref().map(|status| status.client_status).unwrap_or_default();
            alloc.spec.desired_status != DesiredStatus::Run
                && !client.is_terminal()
                && ready.contains(alloc.spec.node_name.as_str())
        })
    });
    goes_on.map(|stored| format!("I9: Allocation {} is to stop and never says that it has", stored.key)).collect()
}

/// How long an allocation may take to become healthy, in a roll-out or a drain, with the time that its checks take in
/// the scenario.
fn healthy_deadline(definition: Option<&Definition>, alloc: &Allocation) -> Duration {
    let group = definition.and_then(|definition| definition.group(&alloc.spec.group));
    let update = group.and_then(|group| group.update.as_ref()).and_then(|update| update.healthy_deadline);
    let migrate = group.and_then(|group| group.migrate.as_ref()).and_then(|migrate| migrate.healthy_deadline);
    let deadlines = [update, migrate].into_iter().flatten().map(drover_api::GoDuration::to_std);
    let checks = group.iter().flat_map(|group| &group.tasks).filter_map(|task| {
        let after = task.config.get("healthyAfter")?.as_str()?;
        after.parse::<drover_api::GoDuration>().ok().map(drover_api::GoDuration::to_std)
    });
    deadlines.max().unwrap_or(HEALTHY_DEADLINE).max(checks.max().unwrap_or_default())
}
