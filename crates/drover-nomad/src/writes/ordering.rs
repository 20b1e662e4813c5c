//! From a write to its order.

use super::endpoint::WriteEndpoint;
use super::hearing::hearing;
use super::order::{WriteOrder, WriteView};
use super::{allocations, deployments, jobs, launches, nodes, register, snapshots, versions, volume_register, volumes};
use crate::fault::Fault;

/// Orders a write. Who is refused learns why where [`hearing`] allows it.
///
/// # Errors
/// 400 for a body or a parameter that cannot be acted on, and where the state of the object forbids the change; 404
/// where there is no such object; 500 for a request to a deployment that is over, as clients expect.
pub fn order(endpoint: &WriteEndpoint, view: WriteView<'_>) -> Result<WriteOrder, Fault> {
    let heard = || hearing(endpoint, view.query, view.body);
    match endpoint {
        WriteEndpoint::Register(id) => register::register(id.as_deref(), view),
        WriteEndpoint::Validate => Ok(register::validate(view, heard())),
        WriteEndpoint::Parse => register::parse(view),
        WriteEndpoint::Deregister(id) => jobs::deregister(id, view, heard()),
        WriteEndpoint::Revert(id) => versions::revert(id, view),
        WriteEndpoint::Scale(id) => jobs::scale(id, view),
        WriteEndpoint::Stable(id) => versions::stable(id, view),
        WriteEndpoint::ApplyTag(tag) => versions::apply_tag(tag, view),
        WriteEndpoint::UnsetTag(tag) => versions::unset_tag(tag, view),
        WriteEndpoint::Evaluate(id) => jobs::evaluate(id, view),
        WriteEndpoint::Dispatch(id) => launches::dispatch(id, view),
        WriteEndpoint::DispatchPayload(id) => launches::dispatch_payload(id, view),
        WriteEndpoint::Force(id) => launches::force(id, view),
        WriteEndpoint::StopAllocation(id) => allocations::stop(id, view),
        WriteEndpoint::Promote(id) => deployments::promote(id, view),
        WriteEndpoint::Pause(id) => deployments::pause(id, view),
        WriteEndpoint::Fail(id) => deployments::fail(id, view),
        WriteEndpoint::AllocationHealth(id) => deployments::allocation_health(id, view),
        WriteEndpoint::Drain(id) => nodes::drain(id, view),
        WriteEndpoint::Eligibility(id) => nodes::eligibility(id, view),
        WriteEndpoint::Purge(id) => nodes::purge(id, view),
        WriteEndpoint::DeregisterVolume(id) => volumes::deregister(id, view),
        WriteEndpoint::DetachVolume(id) => volumes::detach(id, view),
        WriteEndpoint::RegisterVolume(id) => volume_register::register(id, view),
        WriteEndpoint::CreateVolume(id) => volume_register::create(id, view),
        WriteEndpoint::DeleteVolume(id) => volumes::delete(id, view),
        WriteEndpoint::TakeSnapshot => snapshots::take(view),
        WriteEndpoint::DeleteSnapshot => snapshots::delete(view),
    }
}
