//! What should exist of a service or batch job: which allocations stay, stop, change, are replaced or are missing
//! (`spec/scheduler.md` 3). Never looks at what nodes have room for, but for one question about allocations that may go
//! on where they are.

mod ending;
mod group;
mod job;
mod names;
mod outcome;
mod reconnect;
mod rollout;
mod sort;
mod update_kind;

pub use job::reconcile;
pub use outcome::{Fits, GroupOutcome, JobOutcome, Missing};
pub use update_kind::{UpdateKind, update_kind};

pub(in crate::scheduler) use ending::{marks, stop_all};
pub(in crate::scheduler) use rollout::Rollout;
pub(crate) use sort::{
    expires_at, is_expired, is_lost, is_reconnecting, is_replaced_while_away, lost_after, reason_to_move,
};

#[cfg(test)]
mod tests;
