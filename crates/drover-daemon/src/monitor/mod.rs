//! What operators and Kubernetes see of a running daemon: `/healthz`, `/readyz` and `/metrics`.
//!
//! Numbers and states come from who knows them; nothing here asks the API server, but `watch_cluster`, which looks
//! whether the installation is whole. A process that makes no progress ends itself: no probe from outside has to ask
//! it whether it lives, and so no other process can keep the answer from coming. Must never know what jobs, nodes or
//! tasks are.

mod agent_metrics;
mod gateway_metrics;
mod health;
mod installation;
mod metrics;
mod policies;
mod requests;
mod server;
mod watchdog;
mod watched;

pub use agent_metrics::AgentMetrics;
pub use gateway_metrics::GatewayMetrics;
pub use health::{Health, Problems};
pub use installation::{Installation, parts, watch_cluster};
pub use metrics::Metrics;
pub use policies::{POLICIES, RequiredPolicy};
pub use requests::{CountRequests, counting_client};
pub use server::{METRICS_TYPE, PORT, serve};
pub use watchdog::{watch_progress, watch_progress_beside};
