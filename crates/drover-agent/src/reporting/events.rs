//! Kubernetes Events of the agent about its allocations and its node: failures, restarts, first starts.
//!
//! Emitting never waits: the queues are bounded, and what does not fit is counted and dropped, for an Event is only a
//! courtesy. For the same reason Events are paced: two hundred tasks that start together need the API server for their
//! status first. Warnings go before routine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use drover_api::{Allocation, ClientNode, ClientNodeSpec};
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::node::view::NodeView;
use crate::random::Random;
use crate::watch;
use drover_clock::SharedClock;
use drover_store::Store;
use drover_store::events::{self, Happening, Severity};

/// Events of each severity that wait to be written.
const QUEUE: usize = 1024;
/// How many Events are written without a pause after a quiet time.
const BURST: u32 = 5;
/// The time in which the right to write one more is earned.
const PACE: Duration = Duration::from_millis(50);

/// What an Event says; its reason and whether it is a warning follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    TaskStarted,
    TaskFailed,
    RestartDelayed,
    DriverError,
    VolumeError,
    /// Files of a sticky disk come from another node.
    DiskMigrating,
    /// They have come.
    DiskMigrated,
    /// They have not: the disk is empty.
    DiskNotMigrated,
    /// Its network could not be made.
    NetworkError,
    /// A service has become ready.
    ServiceReady,
    /// A service is not ready any more.
    ServiceNotReady,
    /// A check has its task restarted.
    CheckFailed,
    /// New values of a Secret or `ConfigMap` come no further.
    ValuesHeldBack,
    /// About the node: a volume is mounted for an allocation.
    VolumeMounted,
    /// About the node: it waits for its plugin.
    MountWaiting,
    /// About the node: it is not, and why.
    MountFailed,
    /// About the node: it is mounted no more.
    VolumeUnmounted,
    /// About the node: it is mounted still, and why.
    UnmountFailed,
    /// About the node: a driver is not well.
    DriverUnhealthy,
    /// About the node: what the agent knew of its tasks is lost.
    StateDamaged,
}

impl Reason {
    fn text(self) -> &'static str {
        match self {
            Self::TaskStarted => "TaskStarted",
            Self::TaskFailed => "TaskFailed",
            Self::RestartDelayed => "RestartDelayed",
            Self::DriverError => "DriverError",
            Self::VolumeError => "VolumeError",
            Self::DiskMigrating => "DiskMigrating",
            Self::DiskMigrated => "DiskMigrated",
            Self::DiskNotMigrated => "DiskNotMigrated",
            Self::NetworkError => "NetworkError",
            Self::ServiceReady => "ServiceReady",
            Self::ServiceNotReady => "ServiceNotReady",
            Self::CheckFailed => "CheckFailed",
            Self::ValuesHeldBack => "ValuesHeldBack",
            Self::VolumeMounted => "VolumeMounted",
            Self::MountWaiting => "MountWaiting",
            Self::MountFailed => "MountFailed",
            Self::VolumeUnmounted => "VolumeUnmounted",
            Self::UnmountFailed => "UnmountFailed",
            Self::DriverUnhealthy => "DriverUnhealthy",
            Self::StateDamaged => "StateDamaged",
        }
    }

    fn severity(self) -> Severity {
        match self {
            Self::TaskStarted
            | Self::DiskMigrating
            | Self::DiskMigrated
            | Self::ServiceReady
            | Self::VolumeMounted
            | Self::VolumeUnmounted => Severity::Normal,
            Self::TaskFailed
            | Self::RestartDelayed
            | Self::DriverError
            | Self::VolumeError
            | Self::DiskNotMigrated
            | Self::NetworkError
            | Self::ServiceNotReady
            | Self::CheckFailed
            | Self::ValuesHeldBack
            | Self::MountWaiting
            | Self::MountFailed
            | Self::UnmountFailed
            | Self::DriverUnhealthy
            | Self::StateDamaged => Severity::Warning,
        }
    }

    fn action(self) -> &'static str {
        match self {
            Self::TaskStarted => "Start",
            Self::TaskFailed => "Stop",
            Self::RestartDelayed => "Restart",
            Self::ValuesHeldBack => "Configure",
            Self::DriverError => "Launch",
            Self::VolumeError | Self::VolumeMounted | Self::MountWaiting | Self::MountFailed => "Mount",
            Self::NetworkError => "Connect",
            Self::DiskMigrating | Self::DiskMigrated | Self::DiskNotMigrated => "Migrate",
            Self::VolumeUnmounted | Self::UnmountFailed => "Unmount",
            Self::ServiceReady | Self::ServiceNotReady | Self::CheckFailed => "Check",
            Self::DriverUnhealthy => "Fingerprint",
            Self::StateDamaged => "Restore",
        }
    }
}

#[derive(Debug)]
enum About {
    Allocation(Arc<Allocation>),
    Node(Box<ClientNode>),
}

#[derive(Debug)]
struct Note {
    about: About,
    reason: Reason,
    text: String,
    at: Timestamp,
}

/// Where runners leave their Events; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct EventSink {
    warnings: mpsc::Sender<Note>,
    routine: mpsc::Sender<Note>,
    clock: SharedClock,
    dropped: Arc<AtomicU64>,
}

impl EventSink {
    /// A sink and the future that writes what arrives, which the caller owns.
    pub(crate) fn new<S: Store>(
        store: S,
        instance: String,
        clock: SharedClock,
        random: Random,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (warnings, mut warning_queue) = mpsc::channel(QUEUE);
        let (routine, mut routine_queue) = mpsc::channel(QUEUE);
        let write = async move {
            let mut pacer = Pacer::new();
            loop {
                let note = tokio::select! {
                    biased;
                    Some(note) = warning_queue.recv() => note,
                    Some(note) = routine_queue.recv() => note,
                    else => return,
                };
                write(&store, &instance, &random, note).await;
                pacer.pause().await;
            }
        };
        (Self { warnings, routine, clock, dropped: Arc::default() }, write)
    }

    /// A sink that drops everything.
    #[cfg(test)]
    pub(crate) fn silent(clock: SharedClock) -> Self {
        Self::kept(clock).0
    }

    /// A sink from which nothing is written.
    #[cfg(test)]
    pub(crate) fn kept(clock: SharedClock) -> (Self, EventsLeft) {
        let ((warnings, warning_queue), (routine, routine_queue)) = (mpsc::channel(QUEUE), mpsc::channel(QUEUE));
        let sink = Self { warnings, routine, clock, dropped: Arc::default() };
        (sink, EventsLeft { warnings: warning_queue, routine: routine_queue })
    }

    /// Leaves an Event about an allocation.
    pub(crate) fn emit(&self, about: &Arc<Allocation>, reason: Reason, text: impl Into<String>) {
        self.leave(About::Allocation(Arc::clone(about)), reason, text.into());
    }

    fn leave(&self, about: About, reason: Reason, text: String) {
        let note = Note { about, reason, text, at: self.clock.now() };
        let queue = match reason.severity() {
            Severity::Warning => &self.warnings,
            Severity::Normal => &self.routine,
        };
        if queue.try_send(note).is_err() {
            let dropped = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
            tracing::debug!(dropped, "an event was dropped: the queue is full");
        }
    }
}

/// Where Events about this machine's node are left; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct NodeEvents {
    sink: EventSink,
    name: String,
    view: watch::Receiver<NodeView>,
}

impl NodeEvents {
    /// About the node of this name.
    pub(crate) fn new(sink: EventSink, name: String, view: watch::Receiver<NodeView>) -> Self {
        Self { sink, name, view }
    }

    /// Leaves an Event.
    pub(crate) fn emit(&self, reason: Reason, text: impl Into<String>) {
        let mut node = ClientNode::new(&self.name, ClientNodeSpec::default());
        node.metadata.uid.clone_from(&self.view.borrow().uid);
        self.sink.leave(About::Node(Box::new(node)), reason, text.into());
    }
}

/// What was left in a sink.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct EventsLeft {
    warnings: mpsc::Receiver<Note>,
    routine: mpsc::Receiver<Note>,
}

#[cfg(test)]
impl EventsLeft {
    /// What was left since the last question, warnings first.
    pub(crate) fn take(&mut self) -> Vec<(Reason, String)> {
        let queues = [&mut self.warnings, &mut self.routine];
        queues
            .into_iter()
            .flat_map(|queue| std::iter::from_fn(|| queue.try_recv().ok()))
            .map(|note| (note.reason, note.text))
            .collect()
    }
}

async fn write<S: Store>(store: &S, instance: &str, random: &Random, note: Note) {
    let happening = Happening {
        severity: note.reason.severity(),
        reason: note.reason.text(),
        action: note.reason.action(),
        note: note.text,
        occasion: &random.tag(),
    };
    let event = match &note.about {
        About::Allocation(about) => events::event(&**about, "agent", instance, &happening, note.at),
        About::Node(about) => events::event(&**about, "agent", instance, &happening, note.at),
    };
    if let Err(error) = store.create(&event).await {
        tracing::debug!(error = %error, "an event was not written");
    }
}

/// Lets a few through at once and then one per [`PACE`].
#[derive(Debug)]
struct Pacer {
    /// When the full burst is earned again.
    full_at: Instant,
}

impl Pacer {
    fn new() -> Self {
        Self { full_at: Instant::now() }
    }

    /// Counts one and waits while the burst is used up.
    async fn pause(&mut self) {
        let now = Instant::now();
        self.full_at = self.full_at.max(now) + PACE;
        tokio::time::sleep_until(self.full_at - PACE * BURST).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_goes_at_once_and_the_rest_in_its_time() {
        let start = Instant::now();
        let mut pacer = Pacer::new();
        for _ in 0..BURST {
            pacer.pause().await;
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
        for _ in 0..10 {
            pacer.pause().await;
        }
        let earned = PACE * 10;
        assert!((earned..earned + PACE).contains(&start.elapsed()), "{:?}", start.elapsed());
    }
}
