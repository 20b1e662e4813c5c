//! Services: what is found of allocations by name. A Service for each name, and a slice of endpoints for each
//! allocation below it; what they hold is `drover_core::service`'s decision.

mod component;
mod objects;
mod plans;
mod slice_index;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use component::Services;
pub(crate) use slice_index::SliceIndex;
pub(crate) use write::{EndpointsError, EndpointsWrite, delete_all};
