//! Callers of what stays open: asked again, while it is open, who they are and whether they still may.
//!
//! Input: an identity, a way to ask for it again, an object. Output: a refusal, once it is one. Must never know what is
//! open, and by what a caller has proved who it is.

use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use crate::answers::Refusal;
use crate::limits::Limits;
use crate::reviews::{Identity, Meanwhile, Object, Reviews};

/// Who asks for something that stays open.
pub(crate) struct Caller {
    pub(crate) identity: Identity,
    /// Asks whether it is still this one.
    pub(crate) is_still: Box<dyn Fn() -> BoxFuture<'static, Result<(), Refusal>> + Send + Sync>,
    /// How often that is asked, and for its rights.
    pub(crate) recheck_every: Duration,
    pub(crate) limits: Limits,
}

/// The question that is asked again and again.
pub(crate) struct Recheck {
    caller: Caller,
    reviews: Reviews,
    object: Object,
    meanwhile: Meanwhile,
    ticks: Interval,
}

impl Recheck {
    /// Asks every so often, from now on, whether the caller may do this.
    pub(crate) fn new(caller: Caller, reviews: Reviews, object: Object, meanwhile: Meanwhile) -> Self {
        let ticks = every(caller.recheck_every);
        Self { caller, reviews, object, meanwhile, ticks }
    }

    /// Waits until the answer is no. May be dropped and called again.
    pub(crate) async fn refused(&mut self) -> Refusal {
        loop {
            self.ticks.tick().await;
            // In its own memory, which is free again between two questions: what waits for one waits for long.
            match Box::pin(self.once()).await {
                // Too many others are asked for: this one is asked for again at the next tick.
                Err(refusal) if refusal.code != 429 => return refusal,
                Ok(()) | Err(_) => {}
            }
        }
    }

    async fn once(&self) -> Result<(), Refusal> {
        (self.caller.is_still)().await?;
        self.reviews.allow(&self.caller.identity, &self.object, self.meanwhile).await
    }
}

/// Ticks of which the first comes after one period.
pub(crate) fn every(period: Duration) -> Interval {
    let mut ticks = interval_at(Instant::now() + period, period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
