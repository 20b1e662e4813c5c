//! What tests start, and how: a real control plane ([`control_plane`]), clusters of real nodes ([`cluster`]), programs
//! of other projects that are built once, and the processes themselves. [`documents`] and [`shell`] run what documents
//! show.
//!
//! `cargo xtask` starts the same for people. Must never know what drover does with any of it.

pub mod agent_door;
pub mod alerts;
pub mod cargo;
pub mod cluster;
pub mod consul_template;
pub mod containerd;
pub mod control_plane;
pub mod csi_mock;
pub mod csi_sanity;
pub mod csi_sidecars;
pub mod documents;
pub mod examples;
pub mod helm;
pub mod image;
pub mod kubeconform;
pub mod manifests;
pub mod network_plugins;
pub mod nomad_cli;
pub mod nomad_sdk;
pub mod probe;
pub mod process;
pub mod progress;
pub mod shell;
pub mod spawner;
pub mod workspace;

mod programs;
mod sys;
