//! Kubernetes Events of the agent about its allocations: failures, restarts, first starts.
//!
//! Emitting never waits: the queue is bounded, and what does not fit is counted and dropped, for an Event is only a courtesy.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use drover_api::Allocation;
use tokio::sync::mpsc;

use super::random::Random;
use crate::clock::SharedClock;
use crate::events::{self, Happening, Severity};
use crate::store::Store;

/// Events that wait to be written.
const QUEUE: usize = 256;

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

    fn severity(self) -> Severity {
        match self {
            Self::TaskStarted => Severity::Normal,
            Self::TaskFailed | Self::RestartDelayed | Self::DriverError => Severity::Warning,
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
    about: Arc<Allocation>,
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
                let happening = Happening {
                    severity: note.reason.severity(),
                    reason: note.reason.text(),
                    action: note.reason.action(),
                    note: note.text,
                    occasion: &random.tag(),
                };
                let event = events::event(&*note.about, "agent", &node, &happening, clock.now());
                if let Err(error) = store.create(&event).await {
                    tracing::debug!(error = %error, "an event was not written");
                }
            }
        };
        (Self { notes, dropped: Arc::default() }, write)
    }

    /// Leaves an Event about an allocation.
    pub(crate) fn emit(&self, about: &Arc<Allocation>, reason: Reason, text: impl Into<String>) {
        let about = Arc::clone(about);
        if self.notes.try_send(Note { about, reason, text: text.into() }).is_err() {
            let dropped = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
            tracing::debug!(dropped, "an event was dropped: the queue is full");
        }
    }
}
