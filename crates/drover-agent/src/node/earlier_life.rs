//! What an earlier life of the agent has left.

use crate::state::Saved;
use crate::tasks::plan::Recovering;

/// What an agent that starts goes on with.
#[derive(Debug)]
pub(crate) struct EarlierLife {
    /// What it has kept.
    pub(crate) saved: Saved,
    /// Its records, or some of them, are lost.
    pub(crate) is_state_lost: bool,
    /// Held until every one of its tasks was found again or given up.
    pub(crate) recovering: Recovering,
}
