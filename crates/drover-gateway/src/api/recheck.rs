//! Whether the user of an open stream still may: asked again while it is open.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::trust::{Trust, Worth};
use super::workload::Workloads;
use crate::answers::Refusal;
use crate::reviews::{Identity, Meanwhile, Object, Reviews};

/// By what a caller has proved who it is.
#[derive(Clone)]
pub(super) enum Proof {
    /// The API server has vouched for it, or its certificate: the connection's certificates.
    Certificates(Arc<Vec<CertificateDer<'static>>>),
    /// A token.
    Token(String),
    /// A token of a task's identity.
    Workload(Workloads, String),
    /// Nothing.
    Nothing,
}

/// A caller.
#[derive(Clone)]
pub(super) struct Asker {
    pub(super) identity: Identity,
    pub(super) proof: Proof,
}

impl Asker {
    /// Whether what has proved who it is still does.
    ///
    /// # Errors
    /// 401 when it does not, 429 when too many are asked for, 503 when the API server does not answer.
    pub(super) async fn is_still(&self, reviews: &Reviews, trust: &Trust) -> Result<(), Refusal> {
        match &self.proof {
            Proof::Certificates(chain) => {
                if matches!(trust.worth(chain), Worth::Nothing) {
                    return Err(Refusal::new(401, "the certificate holds no more"));
                }
            }
            Proof::Token(token) => {
                let found = reviews.identify(token, None).await?;
                if found != self.identity {
                    return Err(Refusal::new(401, "the token is another user's now"));
                }
            }
            Proof::Workload(workloads, token) => {
                if let Err(refusal) = workloads.identify(token).await
                    && refusal.code != 503
                {
                    return Err(refusal);
                }
            }
            Proof::Nothing => {}
        }
        Ok(())
    }
}

/// The question that is asked again and again.
pub(super) struct Recheck {
    pub(super) reviews: Reviews,
    pub(super) trust: Trust,
    pub(super) asker: Asker,
    pub(super) object: Object,
    pub(super) meanwhile: Meanwhile,
    ticks: Interval,
}

impl Recheck {
    /// Asks every so often, from now on.
    pub(super) fn new(
        (reviews, trust): (Reviews, Trust),
        asker: Asker,
        object: Object,
        meanwhile: Meanwhile,
        every: Duration,
    ) -> Self {
        let mut ticks = interval_at(Instant::now() + every, every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { reviews, trust, asker, object, meanwhile, ticks }
    }

    /// Waits until the answer is no. May be dropped and called again.
    pub(super) async fn refused(&mut self) -> Refusal {
        loop {
            self.ticks.tick().await;
            match self.once().await {
                // Too many others are asked for: this one is asked for again at the next tick.
                Err(refusal) if refusal.code != 429 => return refusal,
                Ok(()) | Err(_) => {}
            }
        }
    }

    async fn once(&self) -> Result<(), Refusal> {
        self.asker.is_still(&self.reviews, &self.trust).await?;
        self.reviews.allow(&self.asker.identity, &self.object, self.meanwhile).await
    }
}
