//! A thread with tasks of its own: they wake no other thread, and no other's work holds them up.

use std::io;

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::AbortOnDropHandle;

/// A thread that runs what it is given, and what that spawns, until this is dropped.
#[derive(Debug)]
pub(crate) struct Apart {
    tasks: Handle,
    _until: DropGuard,
}

impl Apart {
    /// Starts it.
    ///
    /// # Errors
    /// When the system has no thread for it.
    pub(crate) fn start(name: &str) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        let (tasks, until) = (runtime.handle().clone(), CancellationToken::new());
        let ends = until.clone().cancelled_owned();
        std::thread::Builder::new().name(name.to_owned()).spawn(move || runtime.block_on(ends))?;
        Ok(Self { tasks, _until: until.drop_guard() })
    }

    /// Runs it there; it ends where this future is dropped.
    ///
    /// # Panics
    /// When `work` does.
    pub(crate) async fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        match AbortOnDropHandle::new(self.tasks.spawn(work)).await {
            Ok(value) => value,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}
