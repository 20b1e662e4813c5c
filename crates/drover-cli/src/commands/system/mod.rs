//! `drover system …`: what operators do to drover itself, from outside.

mod command;
mod leader;
mod release;

pub(crate) use command::{SystemCommand, run};
