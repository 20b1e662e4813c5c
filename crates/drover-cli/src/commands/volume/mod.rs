//! `drover volume …`: volumes are registered, made and deleted, copied, and shown with who holds them and what each
//! claim waits for; and an operator helps where a release gets stuck.
//!
//! Input: a manifest, or a volume's name and a request. Output: the manifest applied, one annotation, or a deletion;
//! the controller does what they say. Must never touch claims.

mod args;
mod claims;
mod command;
mod deregister;
mod detach;
mod host;
mod kind;
mod register;
mod snapshot;
mod status;

pub(crate) use command::{VolumeCommand, run};
