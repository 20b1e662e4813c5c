//! Which allocations a scenario means.

use drover_api::Allocation;

use super::scenario::AllocFilter;

/// Whether an allocation is one of those that the filter means.
pub(super) fn matches(filter: &AllocFilter, alloc: &Allocation) -> bool {
    let (meta, spec) = (&alloc.metadata, &alloc.spec);
    let status = alloc.status.as_ref();
    let client = status.map(|status| status.client_status).unwrap_or_default();
    let health = status.and_then(|status| status.health.as_ref()).map(|health| health.healthy);
    is(&filter.namespace, meta.namespace.as_ref())
        && is(&filter.job, Some(&spec.job_name))
        && is(&filter.group, Some(&spec.group))
        && is(&filter.index, Some(&spec.index))
        && is(&filter.version, Some(&spec.job_version))
        && is(&filter.node, Some(&spec.node_name))
        && is(&filter.canary, Some(&spec.canary))
        && is(&filter.desired_status, Some(&spec.desired_status))
        && is(&filter.client_status, Some(&client))
        && is(&filter.healthy, health.as_ref())
        && is(&filter.uid, meta.uid.as_ref())
}

fn is<T: PartialEq>(wanted: &Option<T>, found: Option<&T>) -> bool {
    wanted.is_none() || wanted.as_ref() == found
}
