//! The tables of the state file and the keys of its single records.

use redb::TableDefinition;

pub(super) const ALLOCS: TableDefinition<&str, &[u8]> = TableDefinition::new("allocs");
pub(super) const TASKS: TableDefinition<&str, &[u8]> = TableDefinition::new("tasks");
pub(super) const JOBS: TableDefinition<&str, &[u8]> = TableDefinition::new("jobs");
pub(super) const LAST_HEARTBEAT: &str = "lastHeartbeat";
pub(super) const DYNAMIC_META: &str = "dynamicMeta";
pub(super) const VOLUMES: &str = "hostVolumes";
pub(super) const MOUNTS: &str = "csiMounts";
/// Of a build that kept all users in one record.
pub(super) const TASK_USERS: &str = "taskUsers";
/// Before the uid of an allocation: its user. `/` comes before `0` in the order of keys.
pub(super) const TASK_USER: &str = "taskUser/";
/// Where the keys of users end.
pub(super) const TASK_USER_END: &str = "taskUser0";
pub(super) const LAST_TASK_USER: &str = "lastTaskUser";
pub(super) const NETWORKS: &str = "networks";
pub(super) const REBUILDING: &str = "rebuilding";
pub(super) const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");

/// The layout of the records; a file of a newer layout is refused.
pub(super) const LAYOUT: u32 = 1;
