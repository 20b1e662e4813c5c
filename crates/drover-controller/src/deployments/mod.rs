//! Deployments: their status, what follows from it, and the writes of both.

#[cfg(test)]
mod tests;
mod watcher;
mod writes;

pub(crate) use watcher::{Deployments, Pass};
pub(crate) use writes::{Acted, DeploymentWrite, Restore, act, name_plan, write_status, writes};
