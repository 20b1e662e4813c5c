//! The world of one run: the store, time, links and chances that all processes share, and the observer that sees every
//! write.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drover_store::Key;
use drover_store::memory::{Kind, Stored, StoredChange};
use jiff::Timestamp;
use tokio::sync::{Notify, mpsc};

use super::clock::VirtualClock;
use super::link::{Client, Links, Reach};
use super::log::Log;
use super::scenario::{Faults, Scenario};
use super::verb::Verb;
use drover_agent::simulated::{PluginNews, TaskChange, TaskRun};
use drover_clock::Clock;

/// How long garbage collection takes to notice.
const SWEEP_AFTER: Duration = Duration::from_millis(50);

/// When the controller crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CrashPoint {
    /// Right after its durable write of this number.
    Write(u64),
    /// At this moment of those in the lives of plugin calls: a driver is called, has answered, or its agent has told
    /// so.
    Call(u64),
}

/// The world of one run.
#[derive(Debug)]
pub(super) struct World {
    pub(super) store: drover_store::memory::MemoryStore,
    pub(super) clock: VirtualClock,
    pub(super) links: Links,
    faults: Faults,
    /// When nothing goes wrong by chance any more.
    pub(super) faults_until: Duration,
    crash_at: Option<CrashPoint>,
    durable_writes: AtomicU64,
    call_moments: AtomicU64,
    /// The life of the controller that runs; 0 for none yet.
    controller: AtomicU32,
    crashes: mpsc::UnboundedSender<Client>,
    garbage: Notify,
    log: Mutex<Log>,
}

impl World {
    /// An empty world. Must be made within the runtime. The receiver hears which processes crash.
    pub(super) fn new(
        scenario: &Scenario,
        crash_at: Option<CrashPoint>,
        log: Log,
    ) -> (Self, mpsc::UnboundedReceiver<Client>) {
        let (crashes, reports) = mpsc::unbounded_channel();
        let world = Self {
            store: drover_store::memory::MemoryStore::default(),
            clock: VirtualClock::new(scenario.start_time),
            links: Links::default(),
            faults: scenario.faults,
            faults_until: scenario.faults_until(),
            crash_at,
            durable_writes: AtomicU64::new(0),
            call_moments: AtomicU64::new(0),
            controller: AtomicU32::new(0),
            crashes,
            garbage: Notify::new(),
            log: Mutex::new(log),
        };
        (world, reports)
    }

    /// The true time.
    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// What goes wrong by chance now.
    pub(super) fn faults(&self) -> Faults {
        if self.faults.is_any() && self.clock.elapsed() < self.faults_until { self.faults } else { Faults::default() }
    }

    /// Counts a durable write of the controller, and says whether it is the one after which it crashes.
    pub(super) fn is_crash_due(&self) -> bool {
        let number = self.durable_writes.fetch_add(1, Ordering::Relaxed) + 1;
        self.crash_at == Some(CrashPoint::Write(number))
    }

    /// A life of the controller begins.
    pub(super) fn note_controller(&self, life: u32) {
        self.controller.store(life, Ordering::Relaxed);
        let at = self.clock.elapsed();
        self.log().invariants.note_controller(at);
    }

    /// A moment in the life of a plugin call: the controller crashes there if it is the one.
    fn pass_call_moment(&self) {
        let number = self.call_moments.fetch_add(1, Ordering::Relaxed) + 1;
        if self.crash_at == Some(CrashPoint::Call(number)) {
            let controller = Client::Controller(self.controller.load(Ordering::Relaxed));
            // What it would still do before it is gone does not happen.
            self.links.set_reach(controller, Reach::Frozen);
            self.crash(controller);
        }
    }

    /// How many moments of plugin calls there were.
    pub(super) fn call_moments(&self) -> u64 {
        self.call_moments.load(Ordering::Relaxed)
    }

    /// How many durable writes the controller has made.
    pub(super) fn durable_writes(&self) -> u64 {
        self.durable_writes.load(Ordering::Relaxed)
    }

    /// A process ends.
    pub(super) fn crash(&self, client: Client) {
        let at = self.clock.elapsed();
        self.log().note_crash(at, client);
        // When nobody listens the run is over.
        self.crashes.send(client).ok();
    }

    /// What the observer has noted.
    pub(super) fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows a write to the observer.
    pub(super) fn observe(&self, client: Client, verb: Verb, change: Option<StoredChange>) {
        let at = self.clock.elapsed();
        let mut log = self.log();
        log.count(verb, change.as_ref().map(|change| change.object().kind));
        if let Some(change) = change {
            log.take(at, Some(client), &change);
            drop(log);
            if matches!(client, Client::Node(_)) && tells_of_calls(&change) {
                self.pass_call_moment();
            }
            if self.store.has_garbage() {
                self.garbage.notify_one();
            }
        }
    }

    /// Shows to the observer what a process has read.
    pub(super) fn observe_read(&self, client: Client, object: &Stored) {
        let is_asked = matches!(object.kind.name.as_str(), "Allocation" | "EndpointSlice");
        if matches!(client, Client::Controller(_)) && is_asked {
            let at = self.clock.elapsed();
            self.log().invariants.observe_read(at, client, object);
        }
    }

    /// Shows to the observer that a process is about to delete something, whatever becomes of it.
    pub(super) fn observe_attempt(&self, client: Client, kind: &Kind, key: &Key) {
        if matches!(client, Client::Controller(_)) && kind.name == "EndpointSlice" {
            let at = self.clock.elapsed();
            self.log().invariants.observe_attempt(at, client, key);
        }
    }

    /// Shows a task's start, stop or end to the observer.
    pub(super) fn observe_task(&self, node: &str, run: &TaskRun, change: TaskChange) {
        let at = self.clock.elapsed();
        let mut log = self.log();
        for what in log.invariants.observe_task(at, node, run, change) {
            log.fail(at, what);
        }
    }

    /// Shows to the observer what happens to a driver.
    pub(super) fn observe_plugin(&self, news: &PluginNews) {
        let at = self.clock.elapsed();
        let mut log = self.log();
        match news {
            PluginNews::Called(_) => {}
            PluginNews::Answered { call, is_fault } => {
                log.count_call(*call, *is_fault);
                if *is_fault {
                    log.invariants.note_fault(at);
                }
            }
            PluginNews::Mount(run, change) => {
                for what in log.invariants.observe_mount(at, run, *change) {
                    log.fail(at, what);
                }
                return;
            }
        }
        drop(log);
        self.pass_call_moment();
    }

    /// Shows to the observer that all tasks of a node have ended.
    pub(super) fn observe_power_loss(&self, node: &str) {
        self.log().invariants.observe_power_loss(node);
    }

    /// Does forever what Kubernetes' own controllers do: objects without owners go, and what is in namespaces that go.
    pub(super) async fn collect_garbage(&self) {
        loop {
            self.garbage.notified().await;
            loop {
                tokio::time::sleep(SWEEP_AFTER).await;
                let changes = self.store.sweep(self.now());
                let at = self.clock.elapsed();
                let mut log = self.log();
                for change in &changes {
                    log.take(at, None, change);
                }
                if changes.is_empty() {
                    break;
                }
            }
        }
    }

    /// The kind of this name.
    pub(super) fn kind(name: &str) -> anyhow::Result<&'static Kind> {
        drover_store::memory::kind(name).ok_or_else(|| {
            anyhow::anyhow!("the simulator has no kind {name:?}; it has Job, Deployment, Allocation, CSIVolume, ClientNode, JobVersion, Namespace, ConfigMap, Lease, Event, Service, EndpointSlice, Node")
        })
    }
}

/// Whether an agent tells with a write what a driver has answered: the controller, or what was to be mounted.
fn tells_of_calls(change: &StoredChange) -> bool {
    let part = match change.object().kind.name.as_str() {
        "ClientNode" => "/status/fingerprint/csiAnswers",
        "Allocation" => "/status/volumes",
        _ => return false,
    };
    let [before, after] =
        [&change.before, &change.after].map(|stored| stored.as_ref().and_then(|it| it.value.pointer(part)));
    before != after
}
