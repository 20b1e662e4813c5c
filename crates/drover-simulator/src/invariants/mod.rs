//! What must never be (I1 to I9 of the simulator's description), asked after every write and every start or end of a
//! task.
//!
//! The cost of a question does not grow with the cluster: each invariant keeps just what the next change can break.

mod all;
mod definitions;
mod order;
mod rest;
mod rollout;
mod room;
mod slots;
mod tasks;
mod volumes;

pub(crate) use all::Invariants;
