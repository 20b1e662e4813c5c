//! I4 and I5: how far a rollout may go, and what its end may say.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use drover_api::allocation::DesiredStatus;
use drover_api::deployment::{DeploymentDescription, DeploymentPhase};
use drover_api::{Allocation, Deployment};
use drover_core::scheduler::plan::StopReason;
use drover_store::Key;
use drover_store::memory::StoredChange;

use super::definitions::Definitions;

/// How old what a leader decides on may be.
const LAG: Duration = Duration::from_secs(15);

/// An allocation of a deployment.
#[derive(Clone, Copy, Debug)]
struct Member {
    is_healthy: bool,
    /// When it stopped being healthy.
    until: Option<Duration>,
    is_unhealthy: bool,
}

/// What rollouts have taken away and not brought back.
#[derive(Debug, Default)]
pub(super) struct Rollouts {
    /// For each job (by uid) and group, the slots that an update has emptied and that no healthy allocation fills yet.
    away: HashMap<(String, String), BTreeSet<i64>>,
    /// The allocations of each such group that are to run and were judged healthy, canaries aside.
    up: HashMap<(String, String), BTreeSet<Key>>,
    /// The allocations of each deployment.
    members: HashMap<Key, BTreeMap<Key, Member>>,
    /// How many allocations of each group each job (by uid) wants now.
    counts: HashMap<String, BTreeMap<String, i64>>,
}

impl Rollouts {
    /// What a job's groups are to count now, scale included.
    pub(super) fn note_counts(&mut self, job_uid: String, counts: BTreeMap<String, i64>) {
        let before = self.counts.get(&job_uid);
        for (group, count) in &counts {
            let fewer = before.and_then(|before| before.get(group)).map_or(0, |before| before - count);
            // Of a group that shrinks, what is away is missed the least.
            if let Some(away) = self.away.get_mut(&(job_uid.clone(), group.clone())) {
                for _ in 0..fewer {
                    away.pop_last();
                }
            }
        }
        self.counts.insert(job_uid, counts);
    }

    pub(super) fn observe_alloc(
        &mut self,
        at: Duration,
        change: &StoredChange,
        definitions: &Definitions,
        found: &mut Vec<String>,
    ) {
        let key = &change.object().key;
        let Some(alloc) = change.after.as_ref().and_then(|after| after.typed::<Allocation>().ok()) else {
            if let Ok(gone) = change.object().typed::<Allocation>()
                && let Some(up) = self.up.get_mut(&(gone.spec.job_uid.clone(), gone.spec.group.clone()))
            {
                up.remove(key);
            }
            return;
        };
        let spec = &alloc.spec;
        let status = alloc.status.as_ref();
        let health = status.and_then(|status| status.health.as_ref()).map(|health| health.healthy);
        let is_live = spec.desired_status == DesiredStatus::Run && !alloc.has_ended();
        self.note_member(at, key, alloc, (is_live && health == Some(true), health == Some(false)));
        let before = change.before.as_ref().and_then(|before| before.typed::<Allocation>().ok());
        let was_run = before.is_some_and(|before| before.spec.desired_status == DesiredStatus::Run);
        let of = (spec.job_uid.clone(), spec.group.clone());
        let up = self.up.entry(of.clone()).or_default();
        if is_live && health == Some(true) && !spec.canary {
            up.insert(key.clone());
        } else {
            up.remove(key);
        }
        let n_up = i64::try_from(up.len()).unwrap_or(i64::MAX);
        let is_update =
            spec.desired_status == DesiredStatus::Stop && spec.desired_description == StopReason::Updating.to_string();
        // An allocation that was not running was not taken away.
        let was_up = before.and_then(|before| before.status.as_ref()).is_some_and(|status| {
            status.client_status == drover_api::allocation::ClientStatus::Running
                && status.health.as_ref().is_none_or(|health| health.healthy)
        });
        if is_update && was_run && was_up && !spec.canary {
            let away = self.away.entry(of).or_default();
            away.insert(spec.index);
            let limit = definitions
                .get(&spec.job_uid)
                .and_then(|definition| definition.group(&spec.group)?.update.as_ref()?.max_parallel);
            let n_away = i64::try_from(away.len()).unwrap_or(i64::MAX);
            // A group that has shrunk may need fewer slots than were emptied: enough of it are up then.
            let count = self.counts.get(&spec.job_uid).and_then(|counts| counts.get(&spec.group));
            let are_enough = |limit: i64| count.is_some_and(|count| n_up >= count - limit);
            if let Some(limit) = limit.filter(|limit| *limit > 0 && n_away > *limit && !are_enough(*limit)) {
                found.push(format!(
                    "I4: {n_away} allocations of {}.{} are away for an update at once, at most {limit} may be",
                    spec.job_name, spec.group
                ));
            }
        } else if is_live && health == Some(true) && !spec.canary {
            if let Some(away) = self.away.get_mut(&of) {
                away.remove(&spec.index);
            }
        } else if !is_update
            && spec.desired_status != DesiredStatus::Run
            && was_run
            && let Some(away) = self.away.get_mut(&of)
        {
            // It is not wanted any more, or something else took it away.
            away.remove(&spec.index);
        }
    }

    fn note_member(&mut self, at: Duration, key: &Key, alloc: &Allocation, health: (bool, bool)) {
        let (is_healthy, is_unhealthy) = health;
        if alloc.spec.deployment_name.is_empty() {
            return;
        }
        let of = Key { namespace: key.namespace.clone(), name: alloc.spec.deployment_name.clone() };
        let members = self.members.entry(of).or_default();
        let known = members.entry(key.clone()).or_insert(Member { is_healthy, until: None, is_unhealthy });
        if known.is_healthy && !is_healthy {
            known.until = Some(at);
        }
        known.is_healthy = is_healthy;
        known.is_unhealthy |= is_unhealthy || alloc.has_ended();
    }

    pub(super) fn observe_deployment(&mut self, at: Duration, change: &StoredChange, found: &mut Vec<String>) {
        let key = &change.object().key;
        let Some(deployment) = change.after.as_ref().and_then(|after| after.typed::<Deployment>().ok()) else {
            self.members.remove(key);
            return;
        };
        let status = deployment.status.clone().unwrap_or_default();
        let before = change.before.as_ref().and_then(|before| before.typed::<Deployment>().ok());
        let was = before.and_then(|before| before.status.as_ref()).map(|status| status.phase);
        if was == Some(status.phase) {
            return;
        }
        let members = self.members.get(key);
        match status.phase {
            DeploymentPhase::Successful => {
                let recently = |member: &&Member| {
                    member.is_healthy || member.until.is_some_and(|until| at.saturating_sub(until) < LAG)
                };
                let healthy = members.map_or(0, |members| members.values().filter(recently).count());
                let counts = self.counts.get(&deployment.spec.job_uid);
                let wanted = status.groups.iter().map(|(name, group)| {
                    // A job that was scaled down meanwhile wants fewer.
                    let count = counts.and_then(|counts| counts.get(name)).copied();
                    count.map_or(group.desired_total, |count| count.min(group.desired_total))
                });
                let wanted: i64 = wanted.sum();
                if i64::try_from(healthy).is_ok_and(|healthy| healthy < wanted) {
                    found.push(format!(
                        "I5: deployment {key} is successful with {healthy} healthy allocations, it wants {wanted}"
                    ));
                }
            }
            DeploymentPhase::Failed if status.description == DeploymentDescription::FailedAllocations => {
                let has_cause = members.is_some_and(|members| members.values().any(|member| member.is_unhealthy));
                let by_hand = deployment.spec.allocation_health.as_ref();
                if !has_cause && by_hand.is_none_or(|declared| declared.unhealthy.is_empty()) {
                    found.push(format!("I5: deployment {key} has failed and no allocation of it is unhealthy"));
                }
            }
            _ => {}
        }
    }
}
