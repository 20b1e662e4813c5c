//! The node and its machine: what it is and has, its object and Lease at the API server, and one life of its agent.

pub(crate) mod alloc_dir;
pub(crate) mod beneath;
pub(crate) mod devices;
pub(crate) mod disk;
pub(crate) mod disk_reader;
pub(crate) mod disk_writer;
pub(crate) mod earlier_life;
pub(crate) mod facts;
pub(crate) mod fingerprint;
pub(crate) mod hand_over;
pub(crate) mod heartbeat;
pub(crate) mod host_stats;
pub(crate) mod host_volume_record;
pub(crate) mod host_volumes;
pub(crate) mod machine_parts;
#[cfg(any(test, feature = "simulated"))]
pub(crate) mod memory_disk;
pub(crate) mod pod;
pub(crate) mod registration;
pub(crate) mod removal;
pub(crate) mod run_node;
pub(crate) mod secrets;
pub(crate) mod stats;
pub(crate) mod task_file;
pub(crate) mod task_user_table;
pub(crate) mod task_users;
pub(crate) mod view;
