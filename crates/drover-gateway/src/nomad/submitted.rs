//! Requests that would change something: whether their callers may, and who of those that may not learns why.
//!
//! A refusal's reason tells what is there, so that it is only for those who may know of such objects
//! ([`drover_nomad::hearing`]); who that is takes reading the request once more, and only refused ones need it.

use std::sync::Arc;

use drover_nomad::{Demand, Query, Way, WriteEndpoint, hearing};

use crate::answers::Refusal;
use crate::reviews::{Access, Identity, Meanwhile, Reviews};

/// A request as its client sends it.
#[derive(Clone, Debug)]
pub(super) struct Submitted {
    /// What is to be changed.
    pub(super) endpoint: WriteEndpoint,
    /// The parameters.
    pub(super) query: Query,
    /// The body.
    pub(super) body: Arc<[u8]>,
}

impl Submitted {
    /// Whether the caller has each of the rights. Which one is missing for an object those learn who may know of it.
    ///
    /// # Errors
    /// 403 when one is missing, 503 when the API server does not answer.
    pub(super) async fn permit_all(
        &self,
        reviews: &Reviews,
        identity: &Identity,
        demands: &[Demand],
    ) -> Result<(), Refusal> {
        for demand in demands {
            if let Err(refusal) = permit(reviews, identity, demand).await {
                return Err(self.refused(reviews, identity, refusal).await);
            }
        }
        Ok(())
    }

    /// Why the request is refused, as far as its caller may learn that.
    pub(super) async fn refused(&self, reviews: &Reviews, identity: &Identity, refusal: Refusal) -> Refusal {
        let Self { endpoint, query, body } = self.clone();
        match aside(move || hearing(&endpoint, &query, &body)).await {
            Ok(Some(demand)) => permit(reviews, identity, &demand).await.err().unwrap_or(refusal),
            Ok(None) => refusal,
            Err(unknown) => unknown,
        }
    }
}

/// Whether the caller has one of the rights.
async fn permit(reviews: &Reviews, identity: &Identity, demand: &Demand) -> Result<(), Refusal> {
    let mut first = None;
    for way in &demand.any_of {
        match reviews.permit(identity, &access(way), Meanwhile::Stops).await {
            Ok(()) => return Ok(()),
            Err(refusal) if refusal.code == 403 => drop(first.get_or_insert(refusal)),
            Err(refusal) => return Err(refusal),
        }
    }
    Err(first.unwrap_or_else(|| Refusal::new(403, "Permission denied")))
}

fn access(way: &Way) -> Access {
    let Way { group, resource, subresource, verb, namespace, name } = way.clone();
    Access { group, resource, subresource, verb, namespace, name }
}

/// Works beside the threads that carry requests.
///
/// # Errors
/// 500 when the work cannot end.
pub(super) async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Refusal::new(500, format!("the request cannot be worked on: {error}")))
}
