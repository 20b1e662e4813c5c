//! `drover deployment …`: look at roll-outs, and say what is to become of them.

mod act;
mod command;
mod list;
mod status;

pub(crate) use act::{PromoteArgs, promote};
pub(crate) use command::{DeploymentCommand, run};
