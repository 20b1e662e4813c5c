//! What must never be (I1 to I11 of the simulator's description), asked after every write and every start or end of a
//! task.
//!
//! The cost of a question does not grow with the cluster: each invariant keeps just what the next change can break.

mod all;
mod calm;
mod definitions;
mod endpoints;
mod found;
mod order;
mod rest;
mod rollout;
mod room;
mod slots;
mod tasks;
mod volumes;

pub(crate) use all::Invariants;
pub(crate) use calm::Trouble;
