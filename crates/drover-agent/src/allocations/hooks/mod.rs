//! What is done around an allocation's tasks: one file per hook, and one ordered table of those that run before.

mod admission;
mod alloc_dir;
mod await_previous;
mod hook_error;
mod migrate_disk;
mod network;
mod postrun;
mod prerun;
mod services;
mod volumes;

pub(super) use postrun::postrun;
pub(super) use prerun::prerun;
pub(super) use volumes::statuses;
