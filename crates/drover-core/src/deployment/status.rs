//! What a deployment's status says, from its state and the allocations that belong to it. Decides nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_api::GoDuration;
use drover_api::allocation::ClientStatus;
use drover_api::condition::{Wanted, merged};
use drover_api::deployment::{
    DeploymentColumns, DeploymentConditionType as Type, DeploymentDescription, DeploymentPhase,
    DeploymentReason as Reason, DeploymentStatus, GroupState, Rollback, RollbackResult,
};
use drover_api::policy::Reschedule;
use jiff::Timestamp;

use super::progress;
use crate::model::Alloc;
use crate::scheduler::reschedule;

/// Where a deployment stands.
#[derive(Clone, Debug)]
pub struct Standing<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its metadata.generation.
    pub generation: i64,
    /// When it was made.
    pub created_at: Timestamp,
    /// Its status as it is stored.
    pub before: &'a DeploymentStatus,
    /// The phase, description, groups, rollback and intents that it is to show; the rest follows from them.
    pub wanted: DeploymentStatus,
}

/// The status as it should be. `allocs` are those of the job.
pub fn status(standing: Standing<'_>, allocs: &[Arc<Alloc>], now: Timestamp) -> DeploymentStatus {
    let Standing { name, generation, created_at, before, mut wanted } = standing;
    let own: Vec<&Arc<Alloc>> = allocs.iter().filter(|one| one.deployment.as_deref() == Some(name)).collect();
    for (group, state) in &mut wanted.groups {
        progress::count(state, own.iter().copied().filter(|one| one.group == *group), created_at, now);
    }
    wanted.conditions = merged(&before.conditions, conditions(&wanted, &own), generation, now);
    wanted.columns = columns(&wanted);
    wanted.observed_generation = generation;
    if wanted != *before {
        wanted.modified_at = Some(now);
    }
    wanted
}

fn columns(status: &DeploymentStatus) -> DeploymentColumns {
    let sum = |pick: fn(&GroupState) -> i64| crate::arithmetic::total(status.groups.values().map(pick)).to_string();
    let dash = || "-".to_owned();
    let canaried = || status.groups.values().filter(|state| state.desired_canaries > 0);
    let promoted = format!("{}/{}", canaried().filter(|state| state.promoted).count(), canaried().count());
    let by = status.groups.values().filter_map(|state| state.require_progress_by).min();
    let conditions = &status.conditions;
    let telling = conditions.iter().find(|one| matches!(one.r#type, Type::Stalled | Type::Reconciling));
    DeploymentColumns {
        desired: sum(|state| state.desired_total),
        placed: sum(|state| state.placed_allocs),
        healthy: sum(|state| state.healthy_allocs),
        unhealthy: sum(|state| state.unhealthy_allocs),
        promoted: if canaried().next().is_none() { dash() } else { promoted },
        progress_by: by.filter(|_| status.phase.is_active()).map_or_else(dash, |at| at.to_string()),
        reason: telling.or(conditions.first()).map_or_else(dash, |one| one.reason.to_string()),
    }
}

fn is_promoted(groups: &BTreeMap<String, GroupState>) -> bool {
    groups.values().all(|state| state.desired_canaries == 0 || state.promoted)
}

fn conditions(status: &DeploymentStatus, allocs: &[&Arc<Alloc>]) -> Vec<Wanted<Type, Reason>> {
    let total = |pick: fn(&GroupState) -> i64| crate::arithmetic::total(status.groups.values().map(pick));
    let (desired, healthy) = (total(|state| state.desired_total), total(|state| state.healthy_allocs));
    let text = format!("{healthy} of {desired} allocations are healthy");
    let (reason, message) = state_of(status, allocs, &text);
    let mut wanted = Vec::new();
    if status.phase == DeploymentPhase::Successful {
        wanted.push(Wanted::yes(Type::Ready, reason, message));
    } else {
        wanted.push(Wanted::no(Type::Ready, reason, message.clone()));
        let kind = if status.phase.is_active() { Type::Reconciling } else { Type::Stalled };
        wanted.push(Wanted::yes(kind, reason, message));
    }
    wanted.push(match status.groups.values().any(|state| state.desired_canaries > 0) {
        false => Wanted::no(Type::Promoted, Reason::NoCanaries, "it has no canaries"),
        true if is_promoted(&status.groups) => {
            Wanted::yes(Type::Promoted, Reason::Promoted, "its canaries are promoted")
        }
        true => Wanted::no(Type::Promoted, Reason::NotPromoted, "its canaries are not promoted"),
    });
    wanted.push(if desired > 0 && healthy >= desired {
        Wanted::yes(Type::Healthy, Reason::AllHealthy, text)
    } else {
        Wanted::no(Type::Healthy, Reason::NotAllHealthy, text)
    });
    wanted
}

/// The reason of the phase, and what helps. `text` says how many are healthy.
fn state_of(status: &DeploymentStatus, allocs: &[&Arc<Alloc>], text: &str) -> (Reason, String) {
    match status.phase {
        DeploymentPhase::Successful => (Reason::Successful, text.to_owned()),
        DeploymentPhase::Failed => failure(status, allocs, text),
        DeploymentPhase::Cancelled if status.description == DeploymentDescription::StoppedJob => {
            (Reason::Cancelled, "the job was stopped".to_owned())
        }
        DeploymentPhase::Cancelled => (Reason::Cancelled, "a newer version of the job took its place".to_owned()),
        DeploymentPhase::Paused => {
            (Reason::Paused, format!("{text}; paused: set spec.paused to false, or drover deployment resume, to go on"))
        }
        DeploymentPhase::Blocked | DeploymentPhase::Unblocking => {
            (Reason::Blocked, "waits for other regions".to_owned())
        }
        DeploymentPhase::Pending | DeploymentPhase::Initializing => {
            (Reason::Blocked, "waits for its region's turn".to_owned())
        }
        DeploymentPhase::Running if is_promoted(&status.groups) => (Reason::InProgress, text.to_owned()),
        DeploymentPhase::Running if status.description == DeploymentDescription::AutoPromotion => {
            (Reason::AwaitingPromotion, format!("{text}; canaries are promoted when all of them are healthy"))
        }
        DeploymentPhase::Running => (
            Reason::AwaitingPromotion,
            format!(
                "{text}; canaries wait to be promoted: set spec.promote to {{all: true}}, or drover deployment promote"
            ),
        ),
    }
}

fn failure(status: &DeploymentStatus, allocs: &[&Arc<Alloc>], text: &str) -> (Reason, String) {
    let culprit = allocs.iter().find(|alloc| is_unhealthy(alloc)).map_or_else(String::new, |alloc| {
        format!("; kubectl describe alloc/{} says why it is unhealthy", alloc.key.name)
    });
    let (reason, why) = match status.description {
        DeploymentDescription::ProgressDeadline => {
            (Reason::ProgressDeadlineExceeded, format!("{text} and no other became so within the progress deadline"))
        }
        DeploymentDescription::FailedByUser => (Reason::FailedByUser, format!("{text}; failed by a person")),
        DeploymentDescription::FailedByPeer => (Reason::FailedByPeer, format!("{text}; failed in another region")),
        DeploymentDescription::Running
        | DeploymentDescription::NeedsPromotion
        | DeploymentDescription::AutoPromotion
        | DeploymentDescription::PendingPeer
        | DeploymentDescription::Paused
        | DeploymentDescription::Successful
        | DeploymentDescription::BlockedOnPeer
        | DeploymentDescription::Unblocking
        | DeploymentDescription::FailedAllocations
        | DeploymentDescription::StoppedJob
        | DeploymentDescription::NewerJob => {
            let unhealthy = crate::arithmetic::total(status.groups.values().map(|state| state.unhealthy_allocs));
            (Reason::UnhealthyAllocations, format!("{text}, {unhealthy} unhealthy"))
        }
    };
    (reason, format!("{why}{culprit}{}", status.rollback.as_ref().map_or_else(String::new, outcome)))
}

/// What became of a wanted rollback.
fn outcome(rollback: &Rollback) -> String {
    let version = rollback.version.unwrap_or(0);
    match rollback.result {
        RollbackResult::RolledBack => format!("; the job goes back to stable version {version}"),
        RollbackResult::RollbackSameSpec => {
            format!("; the newest stable version, {version}, has the same spec, so that there is nothing to go back to")
        }
        RollbackResult::NoStableVersion => {
            "; no version of the job is stable, so that there is none to go back to".to_owned()
        }
    }
}

/// What an unhealthy allocation of an active deployment leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unhealthy {
    /// It may be replaced, as its reschedule policy says.
    MayBeReplaced,
    /// Nothing will replace it: the deployment has failed.
    FailsDeployment,
}

/// Judges an unhealthy allocation (`spec/deployments.md`, unhealthy allocations): without a progress deadline or
/// without an attempt left to replace it, the deployment has failed.
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
