//! The Container Storage Interface: messages, clients and services as its proto file has them, and how a driver
//! registers with a kubelet.
//!
//! Knows nothing of drover. Both sides use it: the agent as a client of drivers, and drivers that are written in Rust.

#![allow(missing_docs, clippy::all, clippy::pedantic, rustdoc::all, reason = "all of it is generated")]

tonic::include_proto!("csi.v1");

/// How a driver tells a kubelet of itself: it serves this at a socket in the kubelet's folder `plugins_registry`.
pub mod registration {
    tonic::include_proto!("pluginregistration");
}
