//! Which allocations a scenario means.

use drover_api::Allocation;

use super::scenario::AllocFilter;

/// Whether an allocation is one of those that the filter means.
pub(super) fn matches(filter: &AllocFilter, alloc: &Allocation) -> bool {
    let (meta, spec) = (&alloc.metadata, &alloc.spec);
    let status = alloc.status.as_ref();
    let client = status.map(|status| status.client_status).unwrap_or_default();
    let health = status.and_then(|status| status.health.as_ref()).map(|health| health.healthy);
    is(filter.namespace.as_ref(), meta.namespace.as_ref())
        && is(filter.job.as_ref(), Some(&spec.job_name))
        && is(filter.group.as_ref(), Some(&spec.group))
        && is(filter.index.as_ref(), Some(&spec.index))
        && is(filter.version.as_ref(), Some(&spec.job_version))
        && is(filter.node.as_ref(), Some(&spec.node_name))
        && is(filter.canary.as_ref(), Some(&spec.canary))
        && is(filter.desired_status.as_ref(), Some(&spec.desired_status))
        && is(filter.client_status.as_ref(), Some(&client))
        && is(filter.healthy.as_ref(), health.as_ref())
        && is(filter.uid.as_ref(), meta.uid.as_ref())
}

fn is<T: PartialEq>(wanted: Option<&T>, found: Option<&T>) -> bool {
    wanted.is_none() || wanted == found
}
