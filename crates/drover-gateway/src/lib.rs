//! The gateway: operations on allocations from anywhere, behind any firewall.
//!
//! Agents dial it and keep a tunnel open ([`tunnels`](self)); people reach it through the API server, as the aggregated
//! API `subresources.drover.dev`. It asks the API server who a caller is and what it may do, finds the allocation's
//! node, and carries the exchange through that node's tunnel. Its certificates are its own and renew themselves.
//!
//! Clients of Nomad read the same objects through it, in their own words ([`nomad`](self)), from caches.
//!
//! Invariants: nothing is carried before a review has allowed it; it dials no node; it keeps no state but caches that
//! age; a gateway that ends harms no task.
//!
//! Must never know: how a task is run, how anything is scheduled, what is in a stream that it carries.

mod answers;
mod apart;
mod api;
mod callers;
mod certificates;
mod compression;
pub mod config;
mod connections;
mod disks;
mod http2;
mod identities;
mod limits;
mod nomad;
mod placed;
mod replies;
mod reviews;
mod run;
mod tunnels;
mod values;
mod websocket;

pub use run::main;
