//! Who asks, by what it has proved that, and whether the proof still holds.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;

use super::trust::{Trust, Worth};
use super::workload::Workloads;
use crate::answers::Refusal;
use crate::reviews::{Identity, Reviews};

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
