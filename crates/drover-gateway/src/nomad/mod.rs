//! Nomad's HTTP API for its clients, below `/v1/` of the users' port and below `gateways/nomad/proxy/v1/` of the
//! aggregated API.
//!
//! `caches` holds what is known of the cluster, `scopes` asks where a caller has which right, `service` brings both to
//! `drover-nomad`, which decides what is answered, `same` makes it once for all who wait for it, `writing` carries out
//! what it orders, `planning` asks the scheduler what would become of a job, `controllers` knows which of them leads,
//! `client` carries calls to the agents of nodes, `events` tells subscribers what changes, `acl` says who asks, and
//! `audit` writes a line for each call. Must never know what an answer says.

mod acl;
mod audit;
mod caches;
mod client;
mod controllers;
mod events;
mod parts;
mod paths;
mod planning;
mod same;
mod scopes;
mod service;
mod submitted;
mod writing;

pub(crate) use caches::Caches;
pub(crate) use controllers::Controllers;
pub(crate) use events::Feed;
pub(crate) use parts::NomadParts;
pub(crate) use paths::path_of;
pub(crate) use service::{Answered, Asked, Nomad};
