//! `drover plan` and `drover job plan`: one evaluation of the real scheduler on a saved state or on the cluster as it
//! is. Nothing is written anywhere.

mod command;
mod difference;
mod report;
mod text;

pub(crate) use command::{JobArgs, StateArgs, run_job, run_state};
pub(crate) use text::scores;
