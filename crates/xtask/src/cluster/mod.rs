//! `cargo xtask cluster`: a whole Kubernetes cluster on this machine, with real kubelets, and drover installed by Helm
//! when asked.
//!
//! The cluster itself is [`drover_testkit::cluster`]; this is how people start, use and end one.

mod args;
mod node;
mod session;

pub use args::{ClusterCommand, ClusterUpArgs};
pub use node::{NodeArgs, node};
pub use session::run;
