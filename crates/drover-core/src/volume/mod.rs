//! Decisions about CSI volumes (`spec/volumes.md`): who may use one (`access`, `claim`), how it is released (`release`,
//! `plugin_lock`) and when anybody looks whether it is to be (`watcher`, `wait`, `batch`, `user_actions`), what is
//! known of its plugin (`plugin`, `instances`), which of several of one handle may be used (`handle`), what its
//! provider is asked for (`provision`), and what may be registered (`register`, `expand`, `quantity`) or copied
//! (`snapshot`). `attach` says when an allocation may mount what it holds, `current` puts all of it together to the
//! status that is to be stored, and `columns` says what people see of it.

pub mod access;
pub mod attach;
pub mod batch;
pub mod claim;
pub mod cluster;
pub mod columns;
pub mod current;
pub mod expand;
pub mod handle;
pub mod instances;
pub mod mount_flags;
pub mod plugin;
pub mod plugin_lock;
pub mod provision;
pub mod quantity;
pub mod register;
pub mod release;
pub mod snapshot;
pub mod user_actions;
pub mod wait;
pub mod watcher;

#[cfg(test)]
mod tests;
