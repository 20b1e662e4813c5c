//! CSI volumes on this node: plugins that run here, what is mounted for whom, and what the controller asks for.
//!
//! `plugin` is what is needed of a driver, `client` a driver behind its socket, `tasks` follows the tasks that are
//! drivers, `kubelet` the drivers that the cluster runs, `registry` knows which of them serves. `objects` reads
//! `CSIVolume`s, `claim` waits until an allocation may mount one, `mounts` mounts and unmounts and remembers both over
//! restarts, `answers` carries out what the controller asks for. Must never know who else holds a volume, nor why.

mod answers;
mod claim;
mod client;
mod kubelet;
mod mounts;
mod objects;
mod plugin;
mod registry;
mod tasks;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use drover_api::client_node::{CsiAnswer, CsiInfo};

pub(crate) use claim::Granted;
#[cfg(any(test, feature = "simulated"))]
pub(crate) use client::{Failure, Tries};
pub(crate) use mounts::{Csi, CsiParts, Mounts};
pub(crate) use objects::StoredVolumes;
#[cfg(any(test, feature = "simulated"))]
pub(crate) use plugin::{
    Attachment, ErrorKind, Grown, KnownVolume, MadeVolume, NewVolume, Plugin, PluginError, PluginFacts, VolumeUse,
};
pub(crate) use registry::Instance;
pub(crate) use tasks::{PluginHealth, PluginRun, endpoint};
#[cfg(test)]
pub(crate) use tests::{with_a_mount, without_volumes};

/// What a node says of its CSI plugins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CsiPrint {
    /// The plugins, by id.
    pub(crate) plugins: BTreeMap<String, CsiInfo>,
    /// Answers, by the name of the request.
    pub(crate) answers: BTreeMap<String, CsiAnswer>,
}
