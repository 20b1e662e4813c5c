//! How much a task may ask: so many calls in a second, and so many at a time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::refusals::ApiRefusal;

/// Calls in a second (`spec/gateway.md` 8).
const CALLS: u32 = 50;
/// Calls that have not ended.
const STREAMS: usize = 8;

/// What a task has asked of late.
#[derive(Debug)]
pub(super) struct Pace {
    streams: Arc<Semaphore>,
    /// Since when calls are counted, and how many there were.
    second: Mutex<(Instant, u32)>,
}

impl Pace {
    /// Nothing yet.
    pub(super) fn new() -> Self {
        Self { streams: Arc::new(Semaphore::new(STREAMS)), second: Mutex::new((Instant::now(), 0)) }
    }

    /// Begins a call, which ends when what is returned is dropped.
    ///
    /// # Errors
    /// 429, with what there is too much of.
    pub(super) fn begin(&self) -> Result<OwnedSemaphorePermit, ApiRefusal> {
        let too_many = |what: &str| ApiRefusal::new(StatusCode::TOO_MANY_REQUESTS, what);
        {
            let mut second = self.second.lock().unwrap_or_else(PoisonError::into_inner);
            if second.0.elapsed() >= Duration::from_secs(1) {
                *second = (Instant::now(), 0);
            }
            second.1 += 1;
            if second.1 > CALLS {
                return Err(too_many("the task has made 50 calls in this second: make fewer"));
            }
        }
        let permit = Arc::clone(&self.streams).try_acquire_owned();
        permit.map_err(|_| too_many("8 calls of the task have not ended: end one"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_makes_fifty_calls_in_a_second_and_eight_at_a_time() {
        let pace = Pace::new();
        let open: Vec<_> = (0..STREAMS).map(|_| pace.begin().expect("a call")).collect();
        assert_eq!(pace.begin().expect_err("one too many").code(), 429);
        drop(open);
        let n_more = (0..100).filter(|_| pace.begin().is_ok()).count();
        assert_eq!(n_more, 41);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(pace.begin().is_ok());
    }
}
