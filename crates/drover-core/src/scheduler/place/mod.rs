//! Finds nodes for what is missing, one allocation after the other (`spec/scheduler.md` 3.13, 5, 6). Decides nothing
//! about what should exist.

mod candidates;
mod evictions;
pub mod fit;
mod node_table;
mod planner;
mod ports;
mod score_index;
mod spread;
#[cfg(test)]
mod tests;

pub(super) use candidates::fullness;
pub(super) use planner::Planner;
