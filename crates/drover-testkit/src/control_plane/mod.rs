//! A real control plane on loopback: etcd, kube-apiserver and kube-controller-manager under one data folder.
//!
//! Everything it writes lies in that folder; everything it starts ends with the [`ControlPlane`], and with the process
//! that holds it when asked so ([`Lifetime`]). Started again on the same folder it serves the same objects. Each
//! program can be ended, held and brought back on its own, because outages are what tests are about. It must never know
//! what drover does with the API server.

mod audit;
mod binaries;
mod component;
mod credentials;
mod front_proxy;
mod plane;
mod port;

pub use audit::{AuditEvent, AuditLog};
pub use binaries::Binaries;
pub use component::{Component, Launch, Lifetime, Role};
pub use credentials::{Account, User};
pub use front_proxy::dial_as_api_server;
pub use plane::{ControlPlane, Durability, Options, Place, client_of};
pub use port::ReservedPort;
