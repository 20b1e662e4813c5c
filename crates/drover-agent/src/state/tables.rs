//! The tables of the state file and the keys of its single records.

use redb::TableDefinition;

pub(super) const ALLOCS: TableDefinition<&str, &[u8]> = TableDefinition::new("allocs");
pub(super) const TASKS: TableDefinition<&str, &[u8]> = TableDefinition::new("tasks");
pub(super) const JOBS: TableDefinition<&str, &[u8]> = TableDefinition::new("jobs");
pub(super) const LAST_HEARTBEAT: &str = "lastHeartbeat";
pub(super) const DYNAMIC_META: &str = "dynamicMeta";
pub(super) const VOLUMES: &str = "hostVolumes";
pub(super) const MOUNTS: &str = "csiMounts";
pub(super) const TASK_USERS: &str = "taskUsers";
pub(super) const NETWORKS: &str = "networks";
pub(super) const REBUILDING: &str = "rebuilding";
pub(super) const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");

/// The layout of the records; a file of a newer layout is refused.
pub(super) const LAYOUT: u32 = 1;
