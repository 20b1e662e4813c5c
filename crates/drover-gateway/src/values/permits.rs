//! Whether a node may have an object's values, or an identity: asked of the API server each time, so that what has
//! ended is seen.

use std::time::Duration;

use drover_api::value_object::ValueObject;
use drover_api::{Allocation, JobVersion};
use drover_core::task::secret::{PermitError, permit};
use drover_core::task::standing::StandingError;
use kube::Client;

use crate::placed;

/// How long the API server may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Who wants what.
#[derive(Clone, Debug)]
pub(super) struct NodeRequest {
    /// The node, which the token has named.
    pub(super) node: String,
    pub(super) namespace: String,
    pub(super) allocation: String,
    pub(super) uid: String,
    pub(super) object: ValueObject,
}

/// Why it is not given out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Denied {
    /// For good, or until its author does something.
    No(String),
    /// It cannot be asked now.
    Later(String),
}

/// What a request was granted for.
#[derive(Clone, Debug)]
pub(super) struct Granted {
    pub(super) allocation: Allocation,
    pub(super) version: JobVersion,
}

/// Asks whether a request is granted.
pub(super) async fn ask(client: &Client, request: &NodeRequest) -> Result<Granted, Denied> {
    let answer = tokio::time::timeout(TIMEOUT, placed::read(client, &request.namespace, &request.allocation)).await;
    let (allocation, version) = match answer {
        Ok(Ok(read)) => read,
        Ok(Err(error)) => return Err(Denied::Later(format!("the API server cannot be asked: {error}"))),
        Err(_) => return Err(Denied::Later("the API server does not answer".to_owned())),
    };
    let no = |reason: PermitError| Denied::No(reason.to_string());
    permit(allocation.as_ref(), version.as_ref(), (&request.node, &request.uid), &request.object).map_err(no)?;
    let (Some(allocation), Some(version)) = (allocation, version) else {
        return Err(no(StandingError::NoAllocation.into()));
    };
    Ok(Granted { allocation, version })
}
