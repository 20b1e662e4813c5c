//! Kubernetes Events of the agent about its allocations: failures, restarts, first starts.
//!
//! Emitting never waits: the queue is bounded, and what does not fit is counted and dropped, for an Event is only a courtesy.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use drover_api::Allocation;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Resource;
use kube::core::ObjectMeta;
use tokio::sync::mpsc;

use super::random::Random;
use crate::clock::SharedClock;
use crate::store::Store;

/// Events that wait to be written.
const QUEUE: usize = 256;
/// The most characters of a note.
const NOTE_LIMIT: usize = 1024;

/// What an Event says; its reason and whether it is a warning follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    TaskStarted,
    TaskFailed,
    RestartDelayed,
    DriverError,
}

impl Reason {
    fn text(self) -> &'static str {
        match self {
            Self::TaskStarted => "TaskStarted",
            Self::TaskFailed => "TaskFailed",
            Self::RestartDelayed => "RestartDelayed",
            Self::DriverError => "DriverError",
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Self::TaskStarted => "Normal",
            Self::TaskFailed | Self::RestartDelayed | Self::DriverError => "Warning",
        }
    }

    fn action(self) -> &'static str {
        match self {
            Self::TaskStarted => "Start",
            Self::TaskFailed => "Stop",
            Self::RestartDelayed => "Restart",
            Self::DriverError => "Launch",
        }
    }
}

#[derive(Debug)]
struct Note {
    about: ObjectReference,
    reason: Reason,
    text: String,
}

/// Where runners leave their Events; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct EventSink {
    notes: mpsc::Sender<Note>,
    dropped: Arc<AtomicU64>,
}

impl EventSink {
    /// A sink and the future that writes what arrives, which the caller owns.
    pub(crate) fn new<S: Store>(
        store: S,
        node: String,
        clock: SharedClock,
        random: Random,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (notes, mut queue) = mpsc::channel::<Note>(QUEUE);
        let write = async move {
            while let Some(note) = queue.recv().await {
                let event = object(note, &node, MicroTime(clock.now()), &random.tag());
                if let Err(error) = store.create(&event).await {
                    tracing::debug!(error = %error, "an event was not written");
                }
            }
        };
        (Self { notes, dropped: Arc::default() }, write)
    }

    /// Leaves an Event about an allocation.
    pub(crate) fn emit(&self, about: &Allocation, reason: Reason, text: impl Into<String>) {
        let about = about.object_ref(&());
        if self.notes.try_send(Note { about, reason, text: text.into() }).is_err() {
            let dropped = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
            tracing::debug!(dropped, "an event was dropped: the queue is full");
        }
    }
}

fn object(note: Note, node: &str, now: MicroTime, tag: &str) -> Event {
    let name = note.about.name.clone().unwrap_or_default();
    let namespace = note.about.namespace.clone().or_else(|| Some("default".to_owned()));
    let words: String = note.text.chars().take(NOTE_LIMIT).collect();
    Event {
        metadata: ObjectMeta { name: Some(format!("{name}.{tag}")), namespace, ..ObjectMeta::default() },
        action: Some(note.reason.action().to_owned()),
        event_time: Some(now),
        note: Some(words),
        reason: Some(note.reason.text().to_owned()),
        regarding: Some(note.about),
        reporting_controller: Some("drover.dev/agent".to_owned()),
        reporting_instance: Some(node.to_owned()),
        type_: Some(note.reason.kind().to_owned()),
        ..Event::default()
    }
}
