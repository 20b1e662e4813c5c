//! Who may learn why a request is refused.
//!
//! That an object is missing, or what state forbids a change, is told to those who may see or write such objects in the
//! namespace. Others learn that they may not, in the same words whether it is there or not.

use drover_api::GROUP;
use serde_json::Value;

use super::endpoint::WriteEndpoint;
use super::order::{Demand, Way};
use crate::query::Query;

/// Any of the rights that a caller must have to be given the reason of a refusal, first the one that the request is
/// about; none: the reason is in the request alone.
pub fn hearing(endpoint: &WriteEndpoint, query: &Query, body: &[u8]) -> Option<Demand> {
    let queried = || query.namespace();
    let named = |pointer: &str| named(body, pointer).unwrap_or_else(queried);
    let (verb, resource, namespace) = match endpoint {
        WriteEndpoint::Parse => return None,
        WriteEndpoint::Register(_) | WriteEndpoint::Validate => ("create", "jobs", named("/Job/Namespace")),
        WriteEndpoint::Deregister(_)
        | WriteEndpoint::Revert(_)
        | WriteEndpoint::Scale(_)
        | WriteEndpoint::Stable(_)
        | WriteEndpoint::ApplyTag(_)
        | WriteEndpoint::UnsetTag(_)
        | WriteEndpoint::Evaluate(_)
        | WriteEndpoint::Dispatch(_)
        | WriteEndpoint::DispatchPayload(_)
        | WriteEndpoint::Force(_) => ("update", "jobs", queried()),
        WriteEndpoint::StopAllocation(_) => ("get", "allocations", queried()),
        WriteEndpoint::Promote(_)
        | WriteEndpoint::Pause(_)
        | WriteEndpoint::Fail(_)
        | WriteEndpoint::AllocationHealth(_) => ("update", "deployments", queried()),
        WriteEndpoint::Drain(_) | WriteEndpoint::Eligibility(_) => ("update", "clientnodes", String::new()),
        WriteEndpoint::Purge(_) => ("delete", "clientnodes", String::new()),
        WriteEndpoint::RegisterVolume(_) | WriteEndpoint::CreateVolume(_) => {
            ("create", "csivolumes", named("/Volumes/0/Namespace"))
        }
        WriteEndpoint::DeregisterVolume(_) | WriteEndpoint::DeleteVolume(_) => ("delete", "csivolumes", queried()),
        WriteEndpoint::DetachVolume(_) | WriteEndpoint::TakeSnapshot | WriteEndpoint::DeleteSnapshot => {
            ("update", "csivolumes", queried())
        }
    };
    let way = |verb| Way { group: GROUP, resource, verb, namespace: namespace.clone(), ..Way::default() };
    let others = ["get", "create", "update"].into_iter().filter(|other| *other != verb);
    Some(Demand { any_of: [verb].into_iter().chain(others).map(way).collect() })
}

/// The namespace that a body names, which counts before that of the query.
fn named(body: &[u8], pointer: &str) -> Option<String> {
    let body: Option<Value> = serde_json::from_slice(body).ok();
    body?.pointer(pointer)?.as_str().filter(|name| !name.is_empty()).map(str::to_owned)
}
