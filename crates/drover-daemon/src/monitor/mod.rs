//! What operators and Kubernetes see of a running daemon: `/healthz`, `/readyz` and `/metrics`.
//!
//! Numbers and states come from who knows them; nothing here asks the API server, but `watch_cluster`, which looks
//! whether the installation is whole. Must never know what jobs, nodes or tasks are.

mod agent_metrics;
mod health;
mod installation;
mod metrics;
mod requests;
mod server;

pub use agent_metrics::AgentMetrics;
pub use health::Health;
pub use installation::{Installation, parts, watch_cluster};
pub use metrics::Metrics;
pub use requests::{CountRequests, counting_client};
pub use server::serve;
