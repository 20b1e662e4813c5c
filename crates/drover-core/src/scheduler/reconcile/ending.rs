//! Stops of a job or group that is not wanted any more, and of allocations whose node is gone.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::outcome::GroupOutcome;
use super::sort::{self, is_lost};
use crate::arithmetic::as_count;
use crate::model::Alloc;
use crate::scheduler::plan::{DesiredUpdates, Evaluation, Stop, StopReason};
use crate::snapshot::ClusterView;

/// Stops everything of a job or group that is not wanted any more.
pub(in crate::scheduler) fn stop_all(view: &ClusterView, allocs: &[Arc<Alloc>], eval: &Evaluation) -> GroupOutcome {
    let stops: Vec<Stop> = allocs
        .iter()
        .filter(|alloc| !alloc.is_terminal())
        .map(|alloc| {
            let is_over = is_lost(view, alloc) || sort::classify(view, alloc, eval.now) == sort::Class::Lost;
            if is_over { Stop::lost(alloc) } else { Stop::new(alloc, StopReason::NotNeeded) }
        })
        .collect();
    let desired = DesiredUpdates { stop: as_count(stops.len()), ..DesiredUpdates::default() };
    GroupOutcome { stops, desired, is_complete: true, ..GroupOutcome::default() }
}

/// Marks of allocations that are to end already and whose node will never say so.
pub(in crate::scheduler) fn marks(view: &ClusterView, allocs: &[Arc<Alloc>], stops: &[Stop]) -> Vec<Stop> {
    let decided: BTreeSet<_> = stops.iter().map(|stop| &stop.alloc.key).collect();
    let is_stuck = |alloc: &&Arc<Alloc>| {
        alloc.is_server_terminal()
            && !alloc.is_client_terminal()
            && is_lost(view, alloc)
            && !decided.contains(&alloc.key)
    };
    allocs.iter().filter(is_stuck).map(Stop::lost).collect()
}
