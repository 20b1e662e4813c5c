//! What the runner of an allocation orders of its tasks.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_api::JobSpec;
use drover_api::allocation::TaskEvent;
use drover_api::group::Group;
use drover_core::lifecycle::Gates;

/// A kill that the allocation's runner has ordered.
#[derive(Clone, Debug)]
pub(crate) struct KillOrder {
    /// Reported of the task before it is killed, unless it has ended.
    pub(crate) events: Vec<TaskEvent>,
    /// Leave out the shutdown delay.
    pub(crate) skip_delay: bool,
    /// The task counts as failed.
    pub(crate) fails: bool,
    /// The kill itself is not reported: it only cleans up.
    pub(crate) is_cleanup: bool,
}

/// What the allocation's runner wants of its tasks now.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    /// The job in the version that the allocation has now.
    pub(crate) job: Arc<JobSpec>,
    /// Its group in that version.
    pub(crate) group: Arc<Group>,
    /// The gates that are open.
    pub(crate) gates: Gates,
    /// Kills by task name.
    pub(crate) kills: BTreeMap<String, KillOrder>,
    /// The controller no longer wants the allocation to run.
    pub(crate) is_stopped: bool,
    /// No task waits for another run any more.
    pub(crate) is_released: bool,
    /// Shutdown delays are left out from now on.
    pub(crate) skip_delay: bool,
}

impl Orders {
    /// All gates shut and nothing else.
    pub(crate) fn new(job: Arc<JobSpec>, group: Arc<Group>) -> Self {
        Self {
            job,
            group,
            gates: Gates::default(),
            kills: BTreeMap::new(),
            is_stopped: false,
            is_released: false,
            skip_delay: false,
        }
    }
}
