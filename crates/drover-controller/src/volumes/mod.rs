//! Volumes: claims are taken for what is placed, attached, and released when their allocations are over.
//!
//! Input: changes of volumes, allocations, nodes and jobs, and the answers of agents. Output: the status of each
//! `CSIVolume`, written as a whole by this leader alone, and what agents are asked for, in the status of their
//! `ClientNode`s. Every decision is `drover_core::volume`'s. Nothing is kept of a volume to which nothing happens.
//!
//! `change` says what changes mean, `work` carries claims from step to step, `call` asks agents and takes their
//! answers, `cluster` has volumes of the cluster's own drivers attached by `VolumeAttachment`s, `provider` has volumes
//! made, enlarged, copied to snapshots and deleted, `status` writes.

mod call;
mod change;
mod cluster;
mod index;
mod provider;
mod request;
mod sealing;
mod state;
mod status;
#[cfg(test)]
mod tests;
mod work;

pub(crate) use change::{assume_claims, unassume_claims};
pub(crate) use state::Volumes;
