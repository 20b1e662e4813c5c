//! Allocations, as the API server has them at this moment.

use std::time::Duration;

use drover_api::Allocation;
use kube::{Api, Client};

use crate::answers::Refusal;

/// How long the API server may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// An allocation; none: there is none.
///
/// # Errors
/// 503 when the API server cannot be asked.
pub(super) async fn find(client: &Client, namespace: &str, name: &str) -> Result<Option<Allocation>, Refusal> {
    let allocations: Api<Allocation> = Api::namespaced(client.clone(), namespace);
    let unavailable = |why: &str| Refusal::new(503, format!("the API server cannot be asked for it: {why}"));
    let found = tokio::time::timeout(TIMEOUT, allocations.get_opt(name)).await;
    found.map_err(|_| unavailable("it does not answer"))?.map_err(|error| unavailable(&error.to_string()))
}
