//! All invariants together.

use std::sync::Arc;
use std::time::Duration;

use drover_api::Job;
use drover_core::definition::Definition;
use drover_store::Key;
use drover_store::memory::{MemoryStore, Stored, StoredChange};
use jiff::Timestamp;

use super::calm::Trouble;
use super::definitions::{Definitions, is_per_node};
use super::endpoints::EndpointsWatch;
use super::{order, rest, rollout, room, slots, tasks, volumes};
use crate::link::Client;
use drover_agent::simulated::{MountChange, MountRun, TaskChange, TaskRun};
use drover_store::convert;

/// The state of all invariants.
#[derive(Debug, Default)]
pub(crate) struct Invariants {
    definitions: Definitions,
    slots: slots::Slots,
    room: room::Room,
    rollout: rollout::Rollouts,
    tasks: tasks::Tasks,
    volumes: volumes::Volumes,
    endpoints: EndpointsWatch,
    rest: rest::Rest,
}

impl Invariants {
    /// Of a run that begins at this time of day, and in which things go wrong by chance until then.
    pub(crate) fn new(start: Timestamp, faults_until: Duration) -> Self {
        let mut invariants = Self::default();
        invariants.rest.begin(start);
        invariants.rest.disturb(faults_until);
        invariants.endpoints.begin(faults_until);
        invariants
    }

    /// Takes in a change of an object and says what it broke.
    pub(crate) fn observe(&mut self, at: Duration, by: Option<Client>, change: &StoredChange) -> Vec<String> {
        let mut found = Vec::new();
        order::check(by, change, &mut found);
        self.endpoints.observe(at, by, change, &mut found);
        match change.object().kind.name.as_str() {
            "Job" => self.note_job(change),
            "Allocation" => {
                self.slots.observe(at, change, &self.definitions, &mut found);
                self.room.observe(change, &mut found);
                self.rollout.observe_alloc(at, change, &self.definitions, &mut found);
                self.tasks.observe_alloc(change, &self.definitions);
            }
            "CSIVolume" => self.volumes.observe_volume(change, &mut found),
            "ClientNode" => {
                self.room.observe_node(change);
                self.volumes.observe_node(change);
            }
            "Deployment" => self.rollout.observe_deployment(at, change, &mut found),
            _ => {}
        }
        self.rest.observe(at, rest::Written { by, change, definitions: &self.definitions }, &mut found);
        found
    }

    fn note_job(&mut self, change: &StoredChange) {
        let Some(job) = change.after.as_ref().and_then(|after| after.typed::<Job>().ok()) else { return };
        let name = job.metadata.name.as_deref().unwrap_or_default();
        let uid = job.metadata.uid.clone().unwrap_or_default();
        let is_news = change.before.as_ref().is_none_or(|before| before.value["spec"] != change.object().value["spec"]);
        if is_news {
            let definition = Definition::new(&job.spec, name);
            let counts = convert::job(job, 0, Arc::clone(&definition), false).0.counts;
            self.definitions.insert(uid.clone(), definition);
            // A job with one allocation per node has as many as there are nodes.
            if !is_per_node(&self.definitions, &uid) {
                self.rollout.note_counts(uid, counts);
            }
        }
    }

    /// Takes in what became of a task's run and says what it broke.
    pub(crate) fn observe_task(&mut self, at: Duration, node: &str, run: &TaskRun, change: TaskChange) -> Vec<String> {
        let mut found = Vec::new();
        self.rest.disturb(at);
        self.tasks.observe(node, run, change, &mut found);
        self.room.observe_task(node, run, change, &mut found);
        found
    }

    /// Takes in what became of a volume's use and says what it broke.
    pub(crate) fn observe_mount(&mut self, at: Duration, run: &MountRun, change: MountChange) -> Vec<String> {
        let mut found = Vec::new();
        self.rest.disturb(at);
        self.volumes.observe(run, change, |uid| self.tasks.has_any(uid), &mut found);
        found
    }

    /// A step, a launch or a timer: what follows on it is no unrest.
    pub(crate) fn disturb(&mut self, at: Duration) {
        self.rest.disturb(at);
    }

    /// A controller begins to lead.
    pub(crate) fn note_controller(&mut self, at: Duration) {
        self.rest.note_controller(at);
    }

    /// Something between controller and API server goes wrong from now on, or does no more: says what was wrong before.
    pub(crate) fn note_trouble(&mut self, at: Duration, trouble: Trouble, begins: bool) -> Vec<String> {
        let mut found = Vec::new();
        self.endpoints.note_trouble(at, trouble, begins, &mut found);
        found
    }

    /// A controller is gone: says what was wrong before.
    pub(crate) fn note_crash(&mut self, at: Duration, client: Client) -> Vec<String> {
        let mut found = Vec::new();
        self.endpoints.note_crash(at, client, &mut found);
        found
    }

    /// A controller has read an allocation or a slice.
    pub(crate) fn observe_read(&mut self, at: Duration, client: Client, object: &Stored) {
        self.endpoints.note_read(at, client, object);
    }

    /// A controller is about to delete a slice.
    pub(crate) fn observe_attempt(&mut self, at: Duration, client: Client, slice: &Key) {
        self.endpoints.note_attempt(at, client, slice);
    }

    /// When all must have come to rest, if nothing happens any more.
    pub(crate) fn settles_at(&self) -> Duration {
        self.rest.settles_at()
    }

    /// A driver failed because the scenario has it fail.
    pub(crate) fn note_fault(&mut self, at: Duration) {
        self.rest.note_fault(at);
    }

    /// From now on two leaders may place at once, or one leads alone again.
    pub(crate) fn expect_two_leaders(&mut self, has_two: bool) {
        self.room.expect_two_leaders(has_two);
    }

    /// An operator asked for tasks of this allocation to be restarted or signalled.
    pub(crate) fn expect_restart(&mut self, uid: &str) {
        self.tasks.expect_restart(uid);
    }

    /// All tasks of a node have ended.
    pub(crate) fn observe_power_loss(&mut self, node: &str) {
        self.tasks.lose_power(node);
        self.volumes.lose_power(node);
        self.room.lose_power(node);
    }

    /// The last question, at the end of a run.
    pub(crate) fn finish(&mut self, at: Duration, store: &MemoryStore) -> Vec<String> {
        let mut found = Vec::new();
        self.slots.check_overlaps(at, &mut found);
        self.endpoints.finish(at, &mut found);
        self.rest.finish(at, store, &mut found);
        found
    }
}
