//! What the state file holds of a task.

use std::collections::BTreeSet;

use drover_api::allocation::TaskState;
use drover_core::lifecycle::RestartCount;
use serde::{Deserialize, Serialize};

use crate::drivers::TaskHandle;

/// Why the agent ends a run of its own accord, and what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum EndReason {
    /// Another one was asked for: it follows, and does not count.
    Restart,
    /// It is of no use: the restart policy says what follows.
    Failure,
    /// What its job wants cannot be done: none follows.
    Final,
}

/// What is kept of a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TaskRecord {
    /// The part that is reported.
    pub(crate) state: TaskState,
    /// What finds the running process again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) handle: Option<TaskHandle>,
    /// The id of a run that was about to begin: it may have begun although its handle was not written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) starting: Option<String>,
    /// The run is being ended: an agent that dies meanwhile must not take its end for the task's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ending: Option<EndReason>,
    /// The restarts that count against its policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) restarts: Option<RestartCount>,
    /// The artifacts that were fetched, by their place in the task's list.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) artifacts: BTreeSet<usize>,
    /// Everything was done for it, cleaning up included.
    #[serde(default)]
    pub(crate) run_complete: bool,
}
