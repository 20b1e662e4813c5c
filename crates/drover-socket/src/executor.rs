//! Where HTTP/2 runs what it needs beside: in a set that is waited for.

use std::future::Future;

use tokio_util::task::TaskTracker;

/// Tasks of connections; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Executor(pub TaskTracker);

impl<F> hyper::rt::Executor<F> for Executor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, task: F) {
        drop(self.0.spawn(task));
    }
}
