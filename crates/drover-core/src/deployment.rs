//! What a deployment's status says, from its state and the allocations that belong to it. Decides nothing: what begins, pauses and
//! ends a deployment is decided elsewhere.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_api::GoDuration;
use drover_api::allocation::ClientStatus;
use drover_api::condition::{Wanted, merged};
use drover_api::deployment::{
    DeploymentColumns, DeploymentConditionType as Type, DeploymentDescription, DeploymentPhase,
    DeploymentReason as Reason, DeploymentStatus, GroupState,
};
use drover_api::policy::Reschedule;
use jiff::Timestamp;

use crate::model::Alloc;
use crate::scheduler::reschedule;

/// Where a deployment stands.
#[derive(Clone, Debug)]
pub struct Standing<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its metadata.generation.
    pub generation: i64,
    /// Its status as it is stored.
    pub stored: DeploymentStatus,
    /// Its phase.
    pub phase: DeploymentPhase,
    /// Why it is in that phase.
    pub description: DeploymentDescription,
    /// Where its groups stand.
    pub groups: BTreeMap<String, GroupState>,
}

/// The status as it should be. `allocs` are those of the job.
pub fn status(standing: Standing<'_>, allocs: &[Arc<Alloc>], now: Timestamp) -> DeploymentStatus {
    let Standing { name, generation, stored, phase, description, mut groups } = standing;
    for (group, state) in &mut groups {
        count(state, allocs.iter().filter(|one| one.group == *group && one.deployment.as_deref() == Some(name)));
    }
    let conditions = merged(&stored.conditions, conditions(phase, description, &groups), generation, now);
    let sum = |pick: fn(&GroupState) -> i64| crate::scheduler::total(groups.values().map(pick)).to_string();
    let is_canaried = groups.values().any(|state| state.desired_canaries > 0);
    let dash = || "-".to_owned();
    let columns = DeploymentColumns {
        desired: sum(|state| state.desired_total),
        placed: sum(|state| state.placed_allocs),
        healthy: sum(|state| state.healthy_allocs),
        unhealthy: sum(|state| state.unhealthy_allocs),
        promoted: if is_canaried { is_promoted(&groups).to_string() } else { dash() },
        progress_by: groups
            .values()
            .filter_map(|state| state.require_progress_by)
            .min()
            .map_or_else(dash, |at| at.to_string()),
        reason: conditions
            .iter()
            .find(|one| matches!(one.r#type, Type::Stalled | Type::Reconciling))
            .or(conditions.first())
            .map_or_else(dash, |one| one.reason.to_string()),
    };
    let mut wanted = DeploymentStatus {
        observed_generation: generation,
        phase,
        description,
        groups,
        columns,
        conditions,
        ..stored.clone()
    };
    if wanted != stored {
        wanted.modified_at = Some(now);
    }
    wanted
}

fn count<'a>(state: &mut GroupState, allocs: impl Iterator<Item = &'a Arc<Alloc>>) {
    let (mut placed, mut healthy, mut unhealthy) = (0, 0, 0);
    for alloc in allocs {
        placed += 1;
        match alloc.health_in_deployment() {
            Some(true) => healthy += 1,
            Some(false) => unhealthy += 1,
            None => {}
        }
        let is_new = alloc.canary && !state.placed_canaries.iter().any(|known| **known == *alloc.key.name);
        if is_new && !alloc.is_server_terminal() {
            state.placed_canaries.push(alloc.key.name.to_string());
        }
    }
    state.placed_canaries.sort_unstable();
    // Allocations that were collected since still count as placed.
    state.placed_allocs = state.placed_allocs.max(placed);
    state.healthy_allocs = healthy;
    state.unhealthy_allocs = unhealthy;
}

fn is_promoted(groups: &BTreeMap<String, GroupState>) -> bool {
    groups.values().all(|state| state.desired_canaries == 0 || state.promoted)
}

fn conditions(
    phase: DeploymentPhase,
    description: DeploymentDescription,
    groups: &BTreeMap<String, GroupState>,
) -> Vec<Wanted<Type, Reason>> {
    let (desired, healthy, unhealthy) = groups.values().fold((0_i64, 0_i64, 0_i64), |sums, state| {
        (
            sums.0.saturating_add(state.desired_total),
            sums.1.saturating_add(state.healthy_allocs),
            sums.2.saturating_add(state.unhealthy_allocs),
        )
    });
    let text = format!("{healthy} of {desired} allocations are healthy");
    let mut wanted = Vec::new();
    let (reason, message) = match (phase, description) {
        (DeploymentPhase::Successful, _) => (Reason::Successful, text.clone()),
        (DeploymentPhase::Failed, DeploymentDescription::ProgressDeadline) => {
            (Reason::ProgressDeadlineExceeded, format!("{text} and none became so within the progress deadline"))
        }
        (DeploymentPhase::Failed, DeploymentDescription::FailedByUser) => {
            (Reason::FailedByUser, "failed by a user".to_owned())
        }
        (DeploymentPhase::Failed, DeploymentDescription::FailedByPeer) => {
            (Reason::FailedByPeer, "failed in another region".to_owned())
        }
        (DeploymentPhase::Failed, _) => (Reason::UnhealthyAllocations, format!("{text}, {unhealthy} are unhealthy")),
        (DeploymentPhase::Cancelled, DeploymentDescription::StoppedJob) => {
            (Reason::Cancelled, "the job was stopped".to_owned())
        }
        (DeploymentPhase::Cancelled, _) => (Reason::Cancelled, "a newer version of the job took its place".to_owned()),
        (DeploymentPhase::Paused, _) => (Reason::Paused, format!("{text}; paused, set spec.paused to false to go on")),
        (DeploymentPhase::Blocked | DeploymentPhase::Unblocking, _) => {
            (Reason::Blocked, "waits for other regions".to_owned())
        }
        _ if !is_promoted(groups) => (Reason::AwaitingPromotion, format!("{text}; its canaries wait to be promoted")),
        _ => (Reason::InProgress, text.clone()),
    };
    if phase == DeploymentPhase::Successful {
        wanted.push(Wanted::yes(Type::Ready, reason, message));
    } else {
        wanted.push(Wanted::no(Type::Ready, reason, message.clone()));
        let kind = if phase.is_active() { Type::Reconciling } else { Type::Stalled };
        wanted.push(Wanted::yes(kind, reason, message));
    }
    wanted.push(match groups.values().any(|state| state.desired_canaries > 0) {
        false => Wanted::no(Type::Promoted, Reason::NoCanaries, "it has no canaries"),
        true if is_promoted(groups) => Wanted::yes(Type::Promoted, Reason::Promoted, "its canaries are promoted"),
        true => Wanted::no(Type::Promoted, Reason::NotPromoted, "its canaries are not promoted"),
    });
    wanted.push(if desired > 0 && healthy >= desired {
        Wanted::yes(Type::Healthy, Reason::AllHealthy, text)
    } else {
        Wanted::no(Type::Healthy, Reason::NotAllHealthy, text)
    });
    wanted
}

/// What an unhealthy allocation of an active deployment leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unhealthy {
    /// It may be replaced, as its reschedule policy says.
    MayBeReplaced,
    /// Nothing will replace it: the deployment has failed.
    FailsDeployment,
}

/// Judges an unhealthy allocation (`spec/deployments.md`, unhealthy allocations): without a progress deadline or without an attempt
/// left to replace it, the deployment has failed.
pub fn judge_unhealthy(alloc: &Alloc, state: &GroupState, policy: Option<&Reschedule>) -> Unhealthy {
    let next = policy.and_then(|policy| reschedule::next_time(alloc, policy, alloc.last_event_at));
    if state.progress_deadline == GoDuration::ZERO || next.is_none() {
        return Unhealthy::FailsDeployment;
    }
    Unhealthy::MayBeReplaced
}

/// Whether an allocation counts against its deployment: it is to run, and is unhealthy or has failed.
pub fn is_unhealthy(alloc: &Alloc) -> bool {
    let has_failed = alloc.client == ClientStatus::Failed;
    !alloc.is_server_terminal() && (has_failed || alloc.health_in_deployment() == Some(false))
}
