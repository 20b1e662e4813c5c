//! Requests to a running task: restart, signal, where its process is.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::drivers::{Driver, TaskHandle};

/// Whether a dead task is started again too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Force {
    Yes,
    No,
}

/// A request to a task's runner.
#[derive(Debug)]
pub(crate) enum TaskCommand {
    /// Ends the run and starts another one.
    Restart { force: Force, answer: oneshot::Sender<Result<(), CommandError>> },
    /// Ends the run because a check finds it unwell: a failure that its restart policy counts.
    EndUnhealthy { reason: String },
    /// Sends a signal by its name.
    Signal { signal: String, answer: oneshot::Sender<Result<(), CommandError>> },
    /// Asks where the process is.
    Locate { answer: oneshot::Sender<Result<Located, CommandError>> },
}

/// Where a run is, and who knows it.
#[derive(Clone, Debug)]
pub(crate) struct Located {
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) handle: TaskHandle,
}

impl TaskCommand {
    /// There is no process.
    pub(super) fn refuse(self) {
        // Who has gone does not ask for the answer.
        match self {
            Self::Restart { answer, .. } | Self::Signal { answer, .. } => {
                drop(answer.send(Err(CommandError::NotRunning)));
            }
            Self::Locate { answer } => drop(answer.send(Err(CommandError::NotRunning))),
            // Its run is over already, which is all that was asked.
            Self::EndUnhealthy { .. } => {}
        }
    }
}

/// Why a request was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CommandError {
    /// The task does not run.
    #[error("Task not running")]
    NotRunning,
    /// The allocation has no such task.
    #[error("unknown task {0:?}: see `kubectl describe alloc` for its tasks")]
    UnknownTask(String),
    /// Nothing of the allocation is to run.
    #[error("the allocation is to be stopped: nothing of it is started again")]
    NotWanted,
    /// Too many requests wait.
    #[error("the task is busy with earlier requests: try again")]
    Busy,
    /// The driver refused.
    #[error("{0}")]
    Driver(String),
    /// Of several tasks.
    #[error("{0}")]
    Several(String),
}
