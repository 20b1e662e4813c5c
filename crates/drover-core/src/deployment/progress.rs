//! Counters and progress deadlines (`spec/deployments.md` 4.1 and 5).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drover_api::GoDuration;
use drover_api::allocation::ClientStatus;
use drover_api::deployment::GroupState;
use jiff::Timestamp;

use crate::arithmetic::as_count;
use crate::model::Alloc;
use crate::scheduler::reschedule;

/// Counts a group's allocations of the deployment, and moves its deadline as they say.
///
/// Healthy are the slots in which one has become healthy, whatever was lost there since: what is lost with its node
/// later takes no progress back, and its replacement adds none. `began_at` is when
/// the deployment was made: an allocation that joined it in place is older.
pub(super) fn count<'a>(
    state: &mut GroupState,
    allocs: impl Iterator<Item = &'a Arc<Alloc>>,
    began_at: Timestamp,
    now: Timestamp,
) {
    let allocs: Vec<&Arc<Alloc>> = allocs.collect();
    let healthy = healthy_slots(&allocs);
    let (mut placed, mut unhealthy) = (0, 0);
    let (mut first, mut last_progress): (Option<Timestamp>, Option<Timestamp>) = (None, None);
    for alloc in allocs {
        placed += 1;
        let at = alloc.created_at.max(began_at);
        first = Some(first.map_or(at, |first| first.min(at)));
        match alloc.health_in_deployment() {
            Some(true) => {
                // An agent's clock that runs ahead gives no longer deadline.
                let since = alloc.health.as_ref().map(|health| health.at.min(now));
                last_progress = last_progress.max(since);
            }
            Some(false) => unhealthy += 1,
            None => {}
        }
        // The list only grows at its end: the API server keeps the order of a set, whatever order is written.
        let is_new = alloc.canary && !state.placed_canaries.iter().any(|known| **known == *alloc.key.name);
        if is_new && !alloc.is_server_terminal() {
            state.placed_canaries.push(alloc.key.name.to_string());
        }
    }
    // Allocations that were collected since still count as placed.
    state.placed_allocs = state.placed_allocs.max(placed);
    state.healthy_allocs = healthy;
    state.unhealthy_allocs = unhealthy;
    if state.progress_deadline > GoDuration::ZERO {
        let by = |at: Option<Timestamp>| at.map(|at| reschedule::after(at, state.progress_deadline));
        state.require_progress_by = state.require_progress_by.or(by(first)).max(by(last_progress));
    }
}

/// In how many slots an allocation has become healthy and did not fail since. Those that replaced one another held one
/// slot.
fn healthy_slots(allocs: &[&Arc<Alloc>]) -> i64 {
    let previous: BTreeMap<&str, &str> =
        allocs.iter().filter_map(|alloc| Some((&*alloc.key.name, alloc.previous.as_deref()?))).collect();
    let known: BTreeSet<&str> = allocs.iter().map(|alloc| &*alloc.key.name).collect();
    let first_of_slot = |alloc: &&&Arc<Alloc>| {
        let mut first = &*alloc.key.name;
        // A chain that a person wrote may close on itself.
        for _ in 0..previous.len() {
            match previous.get(first).filter(|before| known.contains(**before)) {
                Some(before) => first = before,
                None => break,
            }
        }
        first.to_owned()
    };
    let is_healthy =
        |alloc: &&&Arc<Alloc>| alloc.health_in_deployment() == Some(true) && alloc.client != ClientStatus::Failed;
    let slots: BTreeSet<String> = allocs.iter().filter(is_healthy).map(|alloc| first_of_slot(&alloc)).collect();
    as_count(slots.len())
}

/// Gives every group its whole progress deadline again, from `now` on.
pub(super) fn renew<'a>(groups: impl Iterator<Item = &'a mut GroupState>, now: Timestamp) {
    for state in groups.filter(|state| state.progress_deadline > GoDuration::ZERO) {
        state.require_progress_by = Some(reschedule::after(now, state.progress_deadline));
    }
}

/// How many healthy allocations a group needs: what it entered with, or what is wanted now if that is less.
pub fn needed(state: &GroupState, wanted_now: Option<i64>) -> i64 {
    wanted_now.map_or(state.desired_total, |count| state.desired_total.min(count))
}

/// Whether a group's canaries wait to be promoted.
pub fn awaits_promotion(state: &GroupState) -> bool {
    state.desired_canaries > 0 && !state.promoted
}

/// Whether nothing of a group is left to do, so that its deadline means nothing any more.
pub fn is_done(state: &GroupState, wanted_now: Option<i64>) -> bool {
    !awaits_promotion(state) && state.healthy_allocs >= needed(state, wanted_now)
}

/// When the deployment must have progressed: the first deadline of the groups that are not done; none where no group
/// has one. `counts` are the allocations wanted now, by group.
pub fn cutoff(groups: &BTreeMap<String, GroupState>, counts: &BTreeMap<String, i64>) -> Option<Timestamp> {
    let open = groups.iter().filter(|(name, state)| !is_done(state, counts.get(*name).copied()));
    open.filter_map(|(_, state)| state.require_progress_by).min()
}

/// The groups for which a deployment fails at its cutoff: all but those that are complete, those whose healthy canaries
/// wait for a person, and those that have time left.
pub(super) fn overdue<'a>(
    groups: &'a BTreeMap<String, GroupState>,
    counts: &'a BTreeMap<String, i64>,
    now: Timestamp,
) -> impl Iterator<Item = (&'a str, &'a GroupState)> {
    groups.iter().map(|(name, state)| (name.as_str(), state)).filter(move |(name, state)| {
        let waits_for_a_person = awaits_promotion(state) && state.healthy_allocs >= state.desired_canaries;
        let has_time = state.require_progress_by.is_some_and(|by| by > now);
        !waits_for_a_person && !is_done(state, counts.get(*name).copied()) && !has_time
    })
}
