//! What should exist of a system or sysbatch job: the same on every node that fits (`spec/scheduler.md` 7).

mod pass;
mod properties;

pub(super) use pass::plan;
