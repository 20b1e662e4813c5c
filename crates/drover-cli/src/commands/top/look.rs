//! What `drover top` is about, and what a look at the cluster found for it.

use std::collections::BTreeMap;

use drover_api::allocation::ClientStatus;
use drover_api::{Allocation, ClientNode, Job};
use drover_socket::protocol::AllocStats;

/// What the lines are about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Subject {
    /// One line for each node.
    #[default]
    Nodes,
    /// One line for each job.
    Jobs,
    /// One line for each allocation that has not ended.
    Allocs,
}

/// What was found at one moment.
#[derive(Debug)]
pub(super) struct Look {
    /// All nodes, or why they are not known.
    pub(super) nodes: Result<Vec<ClientNode>, String>,
    /// Only where jobs are shown.
    pub(super) jobs: Vec<Job>,
    /// Those that have not ended.
    pub(super) allocs: Vec<Allocation>,
    /// What those that may run use, or why that is not known, by uid.
    pub(super) samples: BTreeMap<String, Result<AllocStats, String>>,
    /// Whether names are shown with their namespaces.
    pub(super) is_of_all_namespaces: bool,
}

/// How an allocation fares, as its agent has reported.
pub(super) fn status_of(alloc: &Allocation) -> ClientStatus {
    alloc.status.as_ref().map_or(ClientStatus::Pending, |status| status.client_status)
}
