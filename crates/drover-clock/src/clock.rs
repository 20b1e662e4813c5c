//! Clocks, and waits on tokio's time.

use std::fmt::Debug;
use std::sync::Arc;

use jiff::Timestamp;
use tokio::time::Instant;

/// Tells the time of day. Waits use tokio's time instead, which tests can pause.
pub trait Clock: Debug + Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Timestamp;
}

/// A clock that many parts share.
pub type SharedClock = Arc<dyn Clock>;

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        #[expect(clippy::disallowed_methods, reason = "this is the one place that asks the machine")]
        Timestamp::now()
    }
}

/// Waits until then; forever where there is nothing to wait for.
pub async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
