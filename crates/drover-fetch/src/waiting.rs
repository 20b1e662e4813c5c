//! Waits for the network, as long as a fetch may take.

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

/// Waits, until the time of a fetch is up.
#[derive(Debug)]
pub(crate) struct Waiting {
    runtime: Runtime,
    whole: Duration,
    until: Instant,
}

impl Waiting {
    /// The time begins now.
    pub(crate) fn new(whole: Duration) -> Result<Self, String> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| format!("the download cannot begin: {error}"))?;
        Ok(Self { runtime, whole, until: Instant::now() + whole })
    }

    /// Waits for this.
    pub(crate) fn on<T>(&self, what: impl Future<Output = Result<T, String>>) -> Result<T, String> {
        let done = self.runtime.block_on(async { tokio::time::timeout_at(self.until, what).await });
        done.map_err(|_| {
            format!("it took longer than {}s, which is the node's limit (artifacts.timeout)", self.whole.as_secs())
        })?
    }

    /// Nothing more is waited for, also no look-up that hangs.
    pub(crate) fn end(self) {
        self.runtime.shutdown_background();
    }
}
