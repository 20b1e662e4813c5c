//! What the state file holds, and what may be wrong with it.

use std::collections::BTreeMap;

use drover_api::{Allocation, JobSpec};
use drover_network::NetworkTable;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::csi::Mounts;
use crate::node::facts::MetaChanges;
use crate::node::host_volume_record::VolumeRecord;
use crate::node::task_user_table::TaskUserTable;
use crate::reporting::report::Report;
use crate::tasks::record::TaskRecord;

/// What is kept of an allocation.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AllocRecord {
    /// The object as the agent last took it in.
    pub(crate) allocation: Allocation,
    /// What the API server last accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) acknowledged: Option<Report>,
    /// What was told last where that is not what the API server is known to have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tried: Option<Report>,
}

/// Everything that was in the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Saved {
    /// By allocation uid.
    pub(crate) allocs: BTreeMap<String, AllocRecord>,
    /// By allocation uid, then task.
    pub(crate) tasks: BTreeMap<String, BTreeMap<String, TaskRecord>>,
    /// By job key.
    pub(crate) jobs: BTreeMap<String, JobSpec>,
    /// The last heartbeat that was accepted, as far as it was worth keeping.
    pub(crate) last_heartbeat: Option<Timestamp>,
    /// Node metadata that was set at run time; none hides a configured key.
    pub(crate) dynamic_meta: MetaChanges,
    /// Host volumes that were made at run time, by name.
    pub(crate) volumes: BTreeMap<String, VolumeRecord>,
    /// What is mounted of CSI volumes.
    pub(crate) mounts: Mounts,
    /// The users of allocations.
    pub(crate) task_users: TaskUserTable,
    /// The networks of allocations.
    pub(crate) networks: NetworkTable,
    /// An earlier life lost its state and ended before it knew all of its tasks again.
    pub(crate) is_rebuilding: bool,
}

/// What is wrong with the state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flaws {
    /// The file was damaged and nothing of it is used: what ran is known to the API server and the supervisor alone.
    pub(crate) lost: Option<String>,
    /// It cannot be written: nothing new may be started.
    pub(crate) unwritable: Option<String>,
}
