//! `drover system …`: what operators do to drover itself, from outside.

mod check_upgrade;
mod command;
mod findings;
mod leader;
mod release;

pub(crate) use command::{SystemCommand, run};
