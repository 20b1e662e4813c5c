//! The project's own commands and the pieces of them that tests use.
//!
//! [`control_plane`] runs a real etcd and kube-apiserver on loopback; the root package's integration tests start it, and so does
//! `cargo xtask up`. The rest turns the tree into files (`crds`), a running system (`up`, `down`, `status`) or a verdict (`test`,
//! `bench`, `ci`). Nothing here decides anything about jobs: it must never know what a scheduler does.

pub mod alerts;
pub mod bench;
pub mod cargo;
pub mod ci;
pub mod cluster;
pub mod control_plane;
pub mod crds;
pub mod csi_mock;
pub mod csi_sanity;
pub mod csi_sidecars;
pub mod docs;
pub mod helm;
pub mod image;
pub mod kubeconform;
pub mod manifests;
pub mod planted;
pub mod probe;
pub mod process;
pub mod progress;
pub mod test_runner;
pub mod up;
pub mod workspace;

mod detach;
mod programs;
mod spawner;
mod sys;
