//! `drover top`: what nodes, jobs and allocations use now, beside what they were given.
//!
//! Input: objects of the API server and samples of agents, by the gateway. Output: a table, on a terminal a live one.
//! Must never write anything to the cluster.

mod command;
mod look;
mod observer;
mod rows;

pub(crate) use command::{TopArgs, run};
