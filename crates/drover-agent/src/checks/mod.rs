//! The probes of checks: connections and requests to the allocation's own ports, commands in its tasks. What is asked,
//! and what an answer means, is `drover-core`'s decision. Must never know which allocation it asks for.

mod connect;
mod grpc;
mod host_prober;
mod http;
mod prober;
mod script;
mod tls;

pub(crate) use host_prober::HostProber;
#[cfg(test)]
pub(crate) use prober::{AlwaysWell, Nowhere};
pub(crate) use prober::{Prober, TaskPlace, TaskPlaces};
