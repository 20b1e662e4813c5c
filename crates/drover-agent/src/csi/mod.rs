//! CSI volumes on this node: plugins that run here, what is mounted for whom, and what the controller asks for.
//!
//! `plugin` is what is needed of a driver, `client` a driver behind its socket, `tasks` follows the tasks that are
//! drivers, `kubelet` the drivers that the cluster runs, `registry` knows which of them serves. `objects` reads
//! `CSIVolume`s, `claim` waits until an allocation may mount one, `mounts` mounts and unmounts and remembers both over
//! restarts, `answers` carries out what the controller asks for. Must never know who else holds a volume, nor why.

mod answers;
mod claim;
mod client;
#[cfg(feature = "fuzzing")]
mod fuzz;
mod kubelet;
mod mount_record;
mod mount_table;
mod mounts;
mod objects;
mod operation_locks;
mod plugin;
mod plugin_table;
mod plugin_task;
mod print;
mod registry;
mod run;
mod sealing_key;
mod shared;
mod tasks;
#[cfg(test)]
mod tests;

pub(crate) use claim::Granted;
#[cfg(any(test, feature = "simulated"))]
pub(crate) use client::{CallFailure, Tries};
#[cfg(feature = "fuzzing")]
pub(crate) use fuzz::fuzz;
pub(crate) use mount_record::Mounts;
pub(crate) use objects::StoredVolumes;
#[cfg(any(test, feature = "simulated"))]
pub(crate) use plugin::{
    Attachment, ErrorKind, Grown, KnownVolume, MadeVolume, NewVolume, Plugin, PluginError, PluginFacts, VolumeUse,
};
pub(crate) use plugin_task::{PluginHealth, PluginRun, endpoint};
pub(crate) use registry::Instance;
pub(crate) use sealing_key::load_or_make as sealing_key;
pub(crate) use shared::{Csi, CsiParts};
#[cfg(test)]
pub(crate) use tests::{with_a_mount, without_volumes};
