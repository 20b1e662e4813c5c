//! A whole Kubernetes cluster on this machine, with real kubelets.
//!
//! A node is a process 1 with namespaces of its own (network, mounts, processes, control groups, host name) and its own
//! `/var/lib`, `/var/log` and `/run`; else it shows the machine's files. It ends with the process that started it. Must
//! never know what drover does: it is what `tests/e2e` stand on.

mod cgroups;
pub mod init;
pub mod network;
mod plan;
mod programs;
mod running;
mod service_network;
mod settings;

pub use programs::{find_or_build as node_programs, require_headers};
pub use running::{Cluster, ClusterOptions};
pub use service_network::REQUESTS_IMAGE;
