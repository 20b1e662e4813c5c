//! What a write is for, where others have to do it: waited for when all is written, before it is answered.

use std::time::Duration;

use serde_json::Value;

use super::written::Written;
use crate::fault::Fault;
use crate::world::{Kind, World};

/// How long is waited for what a provider is asked for.
pub(super) const PROVIDER: Duration = Duration::from_secs(30);

/// Finds in what is known that it is done, or that it will not be; none: it is under way.
type SeenOutcome = dyn Fn(&World, &[Written]) -> Option<Result<Value, Fault>> + Send + Sync;
/// Says what there is when the time is over.
type LateOutcome = dyn Fn(&World) -> Result<Value, Fault> + Send + Sync;

/// What is waited for.
pub struct Outcome {
    /// Objects of which kind show it.
    pub kind: Kind,
    /// For how long it is waited.
    pub within: Duration,
    seen: Box<SeenOutcome>,
    late: Box<LateOutcome>,
}

impl std::fmt::Debug for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outcome").field("kind", &self.kind).field("within", &self.within).finish_non_exhaustive()
    }
}

impl Outcome {
    pub(super) fn new(
        (kind, within): (Kind, Duration),
        seen: impl Fn(&World, &[Written]) -> Option<Result<Value, Fault>> + Send + Sync + 'static,
        late: impl Fn(&World) -> Result<Value, Fault> + Send + Sync + 'static,
    ) -> Self {
        Self { kind, within, seen: Box::new(seen), late: Box::new(late) }
    }

    /// The answer, once it is known.
    pub fn seen(&self, world: &World, written: &[Written]) -> Option<Result<Value, Fault>> {
        (self.seen)(world, written)
    }

    /// What is answered when the time is over.
    ///
    /// # Errors
    /// It is not done, and the answer cannot be given without.
    pub fn late(&self, world: &World) -> Result<Value, Fault> {
        (self.late)(world)
    }
}
