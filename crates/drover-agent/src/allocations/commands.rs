//! Requests to a running allocation: restarts, signals, its end, where a task's process is.

use tokio::sync::oneshot;

use crate::tasks::commands::{CommandError, Located};

/// Which tasks are restarted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RestartScope {
    /// One that runs.
    Task(String),
    /// All that run.
    Running,
    /// All but poststop ones, dead ones too, in the order of their lifecycle.
    All,
}

/// A request to an allocation's runner.
#[derive(Debug)]
pub(crate) enum AllocCommand {
    /// Ends runs and starts others.
    Restart {
        /// Which.
        scope: RestartScope,
        /// How it went.
        answer: oneshot::Sender<Result<(), CommandError>>,
    },
    /// Sends a signal to one task or to all; of all, those that do not run are an error that names them.
    Signal {
        /// Which; none for all.
        task: Option<String>,
        /// The signal's name.
        signal: String,
        /// How it went.
        answer: oneshot::Sender<Result<(), CommandError>>,
    },
    /// Asks the controller to stop it.
    Stop {
        /// Whether that is being reported.
        answer: oneshot::Sender<Result<(), CommandError>>,
    },
    /// Asks where a task's process is.
    Locate {
        /// Which.
        task: String,
        /// Its run.
        answer: oneshot::Sender<Result<Located, CommandError>>,
    },
}

impl AllocCommand {
    /// Nothing of the allocation runs.
    pub(super) fn refuse(self) {
        // Who has gone does not ask for the answer.
        match self {
            Self::Restart { answer, .. } | Self::Signal { answer, .. } | Self::Stop { answer } => {
                drop(answer.send(Err(CommandError::NotRunning)));
            }
            Self::Locate { answer, .. } => drop(answer.send(Err(CommandError::NotRunning))),
        }
    }
}
