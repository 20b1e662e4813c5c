//! The create of a launched job.

use drover_api::Job;
use drover_store::{Object, Store, StoreError};

/// Creates a launch. One that exists already is the answer; one of an earlier incarnation of the parent is in the way
/// and goes with it.
pub(crate) async fn create_launch<S: Store>(store: S, child: Job) -> Result<Job, StoreError> {
    match store.create(&child).await {
        Err(StoreError::AlreadyExists(text)) => {
            let existing = store.get::<Job>(&child.key()).await?.ok_or(StoreError::Unavailable(text))?;
            if existing.metadata.owner_references == child.metadata.owner_references {
                return Ok(existing);
            }
            Err(StoreError::Unavailable(format!("{} is a job that was not launched", child.key())))
        }
        other => other,
    }
}
