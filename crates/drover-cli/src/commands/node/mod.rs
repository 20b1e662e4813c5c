//! `drover node …`: look at nodes, drain them, and say whether new allocations may be placed on them.
//!
//! Input: a node's name and a request. Output: one write of the node's spec; the controller does what it says. Must
//! never touch allocations.

mod command;
mod drain;
mod eligibility;
mod status;
mod target;

pub(crate) use command::{NodeCommand, run};
