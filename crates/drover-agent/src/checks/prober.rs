//! Who sends probes.

use std::fmt::Debug;
use std::path::PathBuf;

use drover_core::service::{CheckAnswer, Probe};
use futures::future::BoxFuture;
use tokio::time::Instant;

use crate::drivers::TaskHandle;

/// Sends probes. The caller bounds the wait.
pub(crate) trait Prober: Debug + Send + Sync {
    /// Sends one, and says what was answered. A script runs in one of these tasks.
    fn probe<'a>(&'a self, probe: &'a Probe, tasks: &'a dyn TaskPlaces) -> BoxFuture<'a, CheckAnswer>;

    /// When a probe that is due then is sent.
    fn slot(&self, due: Instant) -> Instant {
        due
    }
}

/// Where the tasks of an allocation run.
pub(crate) trait TaskPlaces: Send + Sync {
    /// Where a task runs now, or why it does not.
    fn place<'a>(&'a self, task: &'a str) -> BoxFuture<'a, Result<TaskPlace, String>>;
}

/// Where a task runs.
#[derive(Clone, Debug)]
pub(crate) struct TaskPlace {
    /// Finds its process.
    pub(crate) handle: TaskHandle,
    /// Its directory on the node.
    pub(crate) dir: PathBuf,
}

/// One task, whichever is asked for.
impl TaskPlaces for TaskPlace {
    fn place<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<TaskPlace, String>> {
        Box::pin(std::future::ready(Ok(self.clone())))
    }
}

/// No task runs.
#[cfg(test)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nowhere;

#[cfg(test)]
impl TaskPlaces for Nowhere {
    fn place<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<TaskPlace, String>> {
        Box::pin(std::future::ready(Err("it does not run".to_owned())))
    }
}

/// Answers every probe with a success, and asks nothing: for machines without ports.
#[cfg(test)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct AlwaysWell;

#[cfg(test)]
impl Prober for AlwaysWell {
    fn probe<'a>(&'a self, _: &'a Probe, _: &'a dyn TaskPlaces) -> BoxFuture<'a, CheckAnswer> {
        Box::pin(std::future::ready(CheckAnswer::connected()))
    }
}
