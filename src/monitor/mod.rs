//! What operators and Kubernetes see of a running daemon: `/healthz`, `/readyz` and `/metrics`.
//!
//! Numbers and states come from who knows them; nothing here asks the API server, but `watch_cluster`, which looks whether the
//! installation is whole. Must never know what jobs, nodes or tasks are.

mod agent_metrics;
mod health;
mod installation;
mod metrics;
mod requests;
mod server;

pub(crate) use agent_metrics::AgentMetrics;
pub use health::Health;
pub(crate) use installation::{parts, watch_cluster};
pub use metrics::Metrics;
pub(crate) use requests::CountRequests;
pub use server::serve;
