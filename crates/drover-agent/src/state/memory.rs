//! The state of agents on virtual time, in memory, with what can go wrong there.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::records::Saved;

/// What becomes of a write of an agent on virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateWrite {
    /// It is kept.
    Kept,
    /// The agent has ended before it.
    DiedBefore,
    /// It is kept, and the agent ends before it knows.
    DiedAfter,
}

/// Says what becomes of each write of one life of an agent on virtual time.
#[derive(Clone)]
pub struct StateFaults(Arc<dyn Fn() -> StateWrite + Send + Sync>);

impl StateFaults {
    /// As this says.
    pub fn new(fate: impl Fn() -> StateWrite + Send + Sync + 'static) -> Self {
        Self(Arc::new(fate))
    }
}

impl std::fmt::Debug for StateFaults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StateFaults")
    }
}

/// State that lives as long as its last handle: of agents on virtual time, whose machines never lose power by surprise.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryState {
    saved: Arc<Mutex<Saved>>,
    faults: Option<StateFaults>,
}

impl MemoryState {
    pub(super) fn lock(&self) -> MutexGuard<'_, Saved> {
        self.saved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a change, unless the agent dies before; it is never ready in an agent that dies.
    pub(super) async fn write(&self, change: impl FnOnce(&mut Saved) + Send) {
        let fate = self.faults.as_ref().map_or(StateWrite::Kept, |faults| (faults.0)());
        if fate != StateWrite::DiedBefore {
            change(&mut self.lock());
        }
        if fate != StateWrite::Kept {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(any(test, feature = "simulated"))]
impl MemoryState {
    /// The same with what becomes of writes.
    pub(crate) fn with_faults(self, faults: Option<StateFaults>) -> Self {
        Self { faults, ..self }
    }

    /// What an agent that starts now finds.
    pub(crate) fn saved(&self) -> Saved {
        self.lock().clone()
    }
}
