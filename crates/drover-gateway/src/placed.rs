//! An allocation as the API server has it now, with the version of its job that it runs: what a node's requests are
//! judged by.

use drover_api::{Allocation, JobVersion, names};
use kube::{Api, Client};

/// Reads both; none where one is not there.
///
/// # Errors
/// When the API server cannot be asked.
pub(crate) async fn read(
    client: &Client,
    namespace: &str,
    name: &str,
) -> kube::Result<(Option<Allocation>, Option<JobVersion>)> {
    let allocations: Api<Allocation> = Api::namespaced(client.clone(), namespace);
    let Some(allocation) = allocations.get_opt(name).await? else { return Ok((None, None)) };
    let versions: Api<JobVersion> = Api::namespaced(client.clone(), namespace);
    let version = names::job_version_name(&allocation.spec.job_name, allocation.spec.job_version);
    Ok((Some(allocation), versions.get_opt(&version).await?))
}
