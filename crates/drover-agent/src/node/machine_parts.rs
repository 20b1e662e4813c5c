//! What an agent asks of its machine: how tasks are run, which devices and disk there are, what the machine is.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_api::client_node::Fingerprint;
use drover_api::host_volume::HostVolumeRequest;

use super::devices::Devices;
use super::disk::Disk;
use super::task_users::TaskUsers;
use crate::artifacts::Fetcher;
use crate::checks::Prober;
use crate::drivers::Drivers;
use crate::networks::AllocNetworks;
use crate::remote_disks::RemoteDisks;
use crate::renderer::Renderer;
use crate::task_api::TaskApis;
use crate::values::Values;
use crate::watch;

/// The parts of a machine, real or simulated.
#[derive(Clone, Debug)]
pub(crate) struct MachineParts {
    pub(crate) drivers: Drivers,
    pub(crate) devices: Devices,
    pub(crate) disk: Arc<dyn Disk>,
    /// Gives out what sticky disks keep on other nodes.
    pub(crate) disks: Arc<dyn RemoteDisks>,
    /// Whose the allocations' files and tasks are.
    pub(crate) users: TaskUsers,
    /// What the machine is and has.
    pub(crate) fingerprint: watch::Receiver<Fingerprint>,
    /// The host's variables that tasks may get.
    pub(crate) host_env: BTreeMap<String, String>,
    /// Sends the probes of checks.
    pub(crate) prober: Arc<dyn Prober>,
    /// Fetches artifacts.
    pub(crate) fetcher: Arc<dyn Fetcher>,
    /// Renders templates.
    pub(crate) renderer: Arc<dyn Renderer>,
    /// Gives out what Secrets hold.
    pub(crate) values: Arc<dyn Values>,
    /// Gives tasks the API.
    pub(crate) api: Arc<dyn TaskApis>,
    /// What the controller asks of the machine's host volumes.
    pub(crate) host_volumes: watch::Sender<BTreeMap<String, HostVolumeRequest>>,
    /// The networks of allocations.
    pub(crate) networks: AllocNetworks,
}
