//! Waiting for what a bench needs before it goes on.

use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::Instant;

/// Nothing is waited for longer than that.
pub(super) const PATIENCE: Duration = Duration::from_mins(5);

/// Waits for what must happen; returns when it was seen.
pub(super) async fn until(what: &str, check: impl AsyncFn() -> Result<bool>) -> Result<Instant> {
    let deadline = Instant::now() + PATIENCE;
    while !check().await? {
        if Instant::now() > deadline {
            bail!("it did not happen within {} s that {what}", PATIENCE.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(Instant::now())
}
