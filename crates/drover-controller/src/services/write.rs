//! Writes of Services and slices. Each may be made twice: names are derived, and what is decided from a read carries
//! its precondition.

use drover_store::{Key, Object, Part, Precondition, Store, StoreError};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::Value;

use super::objects;

/// How often a Service that others change at the same time is read again.
const TRIES: usize = 3;

/// A write of an allocation's endpoints.
#[derive(Debug)]
pub(crate) enum EndpointsWrite {
    /// Makes the Service, if it has to be made or completed, and then the slice.
    Make { service: Option<Box<Service>>, slice: Box<EndpointSlice> },
    /// Changes a slice, after its Service.
    Change { service: Option<Box<Service>>, precondition: Precondition, body: Value },
    /// Deletes a slice.
    Delete(Precondition),
}

/// Why endpoints were not written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EndpointsError {
    /// The Service of that name is not drover's.
    #[error(
        "there is a Service {0} that drover has not made: rename one of them, or, if that Service has no selector, \
         annotate it with drover.dev/endpoints=true"
    )]
    NameTaken(String),
    /// A call failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl EndpointsWrite {
    /// Does it: the slice as it is then, or none.
    pub(crate) async fn write<S: Store>(self, store: &S, key: &Key) -> Result<Option<EndpointSlice>, EndpointsError> {
        match self {
            Self::Make { service, slice } => {
                ensure(store, service).await?;
                match store.create(&*slice).await {
                    Ok(made) => Ok(Some(made)),
                    // A leader before has made it.
                    Err(StoreError::AlreadyExists(_)) => Ok(store.get(key).await?),
                    Err(error) => Err(error.into()),
                }
            }
            Self::Change { service, precondition, body } => {
                ensure(store, service).await?;
                Ok(Some(store.merge(key, Part::Spec, &precondition, body).await?))
            }
            Self::Delete(precondition) => match store.delete::<EndpointSlice>(key, &precondition).await {
                Ok(()) | Err(StoreError::NotFound(_)) => Ok(None),
                Err(error) => Err(error.into()),
            },
        }
    }
}

/// Makes a Service, or completes what is there: each job that uses it is an owner, and each port is there.
async fn ensure<S: Store>(store: &S, wanted: Option<Box<Service>>) -> Result<(), EndpointsError> {
    let Some(wanted) = wanted else { return Ok(()) };
    let key = wanted.key();
    let mut last = None;
    for _ in 0..TRIES {
        match store.create(&*wanted).await {
            Ok(_) => return Ok(()),
            Err(StoreError::AlreadyExists(_)) => {}
            Err(error) => return Err(error.into()),
        }
        // It may go between the two calls.
        let Some(stored) = store.get::<Service>(&key).await? else { continue };
        if !objects::is_ours(&stored) {
            let is_lent = objects::takes_slices(&stored);
            return if is_lent { Ok(()) } else { Err(EndpointsError::NameTaken(key.name)) };
        }
        let Some(change) = objects::missing(&stored, &wanted) else { return Ok(()) };
        let unchanged = Precondition::unchanged(&stored.metadata);
        match store.merge::<Service>(&key, Part::Spec, &unchanged, change).await {
            Ok(_) => return Ok(()),
            Err(error @ (StoreError::Conflict(_) | StoreError::NotFound(_))) => last = Some(error),
            Err(error) => return Err(error.into()),
        }
    }
    Err(last.unwrap_or_else(|| StoreError::Unavailable(format!("{key} comes and goes"))).into())
}

/// Deletes slices before their allocation is stopped. One that cannot be deleted does not keep the allocation from its
/// stop: its agent takes the services away too, and the leader tries again.
pub(crate) async fn delete_all<S: Store>(store: &S, slices: &[Key]) {
    for key in slices {
        match store.delete::<EndpointSlice>(key, &Precondition::default()).await {
            Ok(()) | Err(StoreError::NotFound(_)) => {}
            Err(error) => tracing::warn!(slice = %key, %error, "a slice is still there while its allocation stops"),
        }
    }
}
