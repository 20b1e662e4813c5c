//! Services of allocations: where each is found, what its checks ask, and when it is ready (`spec/containers.md` 3,
//! `spec/agent.md` 7.4).
//!
//! Input: an allocation with the group that it runs, the states of its tasks, what probes were answered. Output: the
//! probes to send, registrations and results as the allocation's status holds them, restarts that checks ask for.
//!
//! Invariants: a service is ready only while its tasks run and the last answer to each of its checks was a success or a
//! warning; only ports that the allocation holds are probed, by a check as by a redirect. Node and controller take
//! names and ports from the same function.
//!
//! Must never know: connections, the API server, a clock.

mod address;
mod answer;
mod endpoints;
mod plan;
mod redirect;
mod restart_watch;
mod states;

pub use address::{Cidr, is_permitted};
pub use answer::{CheckAnswer, GrpcHealth, MAX_BODY_BYTES, grpc_answer, http_answer, script_answer};
pub use endpoints::{Endpoints, EndpointsFault, EndpointsInput, EndpointsPort, endpoints, tag_labels};
pub use plan::{
    GrpcProbe, HttpProbe, PlannedCheck, PlannedService, Probe, ScriptProbe, ServiceError, ServicePort, ServiceShape,
    planned,
};
pub(crate) use plan::{HTTP_PORT, is_own, object_name, service_port};
pub use redirect::{HttpTarget, RedirectError, redirect};
pub use restart_watch::{RestartRule, RestartWatch};
pub use states::{CheckRestart, ProbeStart, ServiceStates, TaskSeen};
