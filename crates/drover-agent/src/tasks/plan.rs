//! What a task's runner is made from, and what it tells the runner of its allocation.

use std::convert::Infallible;
use std::sync::Arc;

use drover_api::allocation::TaskState;
use drover_api::group::Group;
use drover_api::task::Task;
use drover_api::{Allocation, JobSpec};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::commands::TaskCommand;
use super::orders::Orders;
use super::record::TaskRecord;
use crate::allocations::volume_sources::VolumeSources;
use crate::drivers::{HealthReport, users};
use crate::node::alloc_dir::AllocDir;
use crate::node::beneath::Owner;
use crate::watch;

/// Held by whatever still has to find its process again; when the last one is dropped, all have been found or given up.
pub(crate) type Recovering = mpsc::Sender<Infallible>;

/// What connects a task's runner with that of its allocation.
#[derive(Debug)]
pub(crate) struct TaskHandles {
    pub(crate) orders: watch::Receiver<Orders>,
    pub(crate) commands: mpsc::Receiver<TaskCommand>,
    pub(crate) updates: mpsc::Sender<TaskUpdate>,
    pub(crate) shutdown: CancellationToken,
}

/// A task's state after a change.
#[derive(Clone, Debug)]
pub(crate) struct TaskUpdate {
    pub(crate) task: String,
    pub(crate) state: TaskState,
    /// What its driver says of its health.
    pub(crate) health: HealthReport,
}

/// How a task runner ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskEnd {
    /// Nothing is left of the task.
    Done,
    /// The agent ends and the task goes on.
    Detached,
}

/// What a task runner is told at its start.
#[derive(Clone, Debug)]
pub(crate) struct TaskPlan {
    pub(crate) uid: String,
    pub(crate) allocation: Arc<Allocation>,
    pub(crate) job: Arc<JobSpec>,
    pub(crate) group: Arc<Group>,
    pub(crate) task: Arc<Task>,
    pub(crate) dir: AllocDir,
    /// The user of its allocation. None: the allocation has none.
    pub(crate) owner: Option<Owner>,
    /// Its record of an earlier life of the agent.
    pub(crate) restored: Option<TaskRecord>,
    /// Held until its process has been found again or given up.
    pub(crate) recovering: Option<Recovering>,
    /// Where the group's volumes are.
    pub(crate) volumes: VolumeSources,
}

impl TaskPlan {
    /// Whose files are that the agent makes for the task: its user's. None: they stay the agent's.
    ///
    /// # Errors
    /// When the node has no such user.
    pub(crate) fn owner_of_files(&self) -> Result<Option<Owner>, String> {
        if self.task.user.is_empty() {
            return Ok(self.owner);
        }
        let credentials = users::find(&self.task.user)?.credentials;
        Ok(Some(Owner { uid: credentials.uid, gid: credentials.gid }))
    }
}
