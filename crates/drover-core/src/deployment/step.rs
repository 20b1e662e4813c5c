//! One look at one deployment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drover_api::deployment::{
    Acted, AllocationHealth, DeploymentDescription, DeploymentPhase, DeploymentSpec, DeploymentStatus, GroupState,
    Intent, Rollback,
};
use drover_api::group::Group;
use jiff::Timestamp;
use sha2::{Digest, Sha256};

use super::progress;
use super::request::{self, RequestRefusal};
use super::rollback::{Target, VersionFacts, goes_back_to};
use super::status::{Standing, Unhealthy, is_unhealthy, judge_unhealthy, status};
use crate::definition::Definition;
use crate::ids::{AllocKey, Uid};
use crate::model::{Alloc, Health};

/// All that a deployment's next step depends on.
#[derive(Clone, Copy, Debug)]
pub struct DeploymentView<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its metadata.generation.
    pub generation: i64,
    /// What it is for, and what people asked of it.
    pub spec: &'a DeploymentSpec,
    /// Its status as it is stored.
    pub stored: &'a DeploymentStatus,
    /// When it was made.
    pub created_at: Timestamp,
    /// What its version runs, where the version still exists.
    pub definition: Option<&'a Definition>,
    /// The versions of the job's present incarnation, in any order.
    pub versions: &'a [VersionFacts<'a>],
    /// The allocations wanted now, by group.
    pub counts: &'a BTreeMap<String, i64>,
    /// The allocations that belong to it.
    pub allocs: &'a [Arc<Alloc>],
    /// Up to where the job was evaluated (see [`super::latest_index`]).
    pub latest_eval: u64,
    /// Now.
    pub now: Timestamp,
}

/// What a deployment needs now.
#[derive(Clone, Debug, PartialEq)]
pub struct DeploymentStep {
    /// Its status; written first, under the precondition that no one else wrote since.
    pub status: DeploymentStatus,
    /// What follows the status, each of it idempotent.
    pub effects: Vec<DeploymentEffect>,
    /// Whether the job must be evaluated at once.
    pub evaluate: bool,
    /// Whether it must be evaluated, which may wait for others that want it too.
    pub evaluate_soon: bool,
    /// When to look again if nothing happens.
    pub wake_at: Option<Timestamp>,
    /// What people are told.
    pub notices: Vec<StepNotice>,
}

/// Something that follows from a deployment's status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeploymentEffect {
    /// An unhealthy allocation may be replaced, as its reschedule policy says. May wait for others.
    AllowReplacement(AllocKey, Uid),
    /// A canary has become an ordinary allocation.
    EndCanary(AllocKey, Uid),
    /// A stable version becomes the job's newest one. The intent goes when that is done.
    Restore(Intent),
}

/// What happened to a deployment, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepNotice {
    /// All canaries are healthy and wait for a person.
    CanariesHealthy,
    /// The canaries of these groups took over.
    Promoted(Vec<String>),
    /// A person paused it.
    Paused,
    /// A person let it go on.
    Resumed,
    /// An allocation is unhealthy, and will be replaced.
    AllocationUnhealthy(String),
    /// It failed.
    Failed(DeploymentDescription, String),
    /// What a person asked was refused.
    Refused(RequestRefusal),
}

/// Decides what a deployment needs now. One that is over needs nothing but the end of what its end began.
#[must_use]
pub fn step(view: &DeploymentView<'_>) -> DeploymentStep {
    let mut pass = StepPass::new(view);
    if view.stored.phase.is_active() {
        pass.judge_by_call();
        pass.pause_or_resume();
        pass.promote();
        pass.count();
        pass.look_at_allocations();
        pass.fail_by_call();
        pass.look_at_the_clock();
        pass.promote_automatically();
        pass.tell_of_canaries();
    }
    pass.finish()
}

/// What was declared of allocations and accepted, by uid.
pub fn judgements(spec: &DeploymentSpec, status: &DeploymentStatus) -> BTreeMap<String, Health> {
    let (Some(request), Some(acted)) = (&spec.allocation_health, &status.acted) else { return BTreeMap::new() };
    let Some(at) = acted.allocation_health_at.filter(|_| acted.allocation_health == digest(request)) else {
        return BTreeMap::new();
    };
    declared(request, at)
}

fn declared(request: &AllocationHealth, at: Timestamp) -> BTreeMap<String, Health> {
    let health = |is_healthy| Health { is_healthy, deployment: None, at };
    let healthy = request.healthy.iter().map(|uid| (uid.clone(), health(true)));
    healthy.chain(request.unhealthy.iter().map(|uid| (uid.clone(), health(false)))).collect()
}

/// Tells one declaration of allocations' health from another.
pub fn digest(request: &AllocationHealth) -> String {
    let mut hasher = Sha256::new();
    for (mark, uids) in [("healthy", &request.healthy), ("unhealthy", &request.unhealthy)] {
        let sorted: BTreeSet<&String> = uids.iter().collect();
        hasher.update(mark);
        for uid in sorted {
            hasher.update(uid);
            hasher.update([0]);
        }
    }
    drover_api::names::hex(&hasher.finalize()[..16])
}

struct StepPass<'a> {
    view: &'a DeploymentView<'a>,
    allocs: Vec<Arc<Alloc>>,
    status: DeploymentStatus,
    acted: Acted,
    effects: Vec<DeploymentEffect>,
    evaluate: bool,
    evaluate_soon: bool,
    notices: Vec<StepNotice>,
}

/// Whether and how a failure requests the version before back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Revert {
    Wanted,
    /// As wanted, but that there is no stable version is not told.
    WantedQuietly,
    Unwanted,
}

impl<'a> StepPass<'a> {
    fn new(view: &'a DeploymentView<'a>) -> Self {
        Self {
            view,
            allocs: view.allocs.to_vec(),
            status: view.stored.clone(),
            acted: view.stored.acted.clone().unwrap_or_default(),
            effects: Vec::new(),
            evaluate: false,
            evaluate_soon: false,
            notices: Vec::new(),
        }
    }

    fn is_active(&self) -> bool {
        self.status.phase.is_active()
    }

    /// A declaration of health counts whole or not at all.
    fn judge_by_call(&mut self) {
        let Some(request) = &self.view.spec.allocation_health else {
            self.acted.allocation_health.clear();
            self.acted.allocation_health_at = None;
            return;
        };
        if self.acted.allocation_health == digest(request) {
            return;
        }
        self.acted.allocation_health = digest(request);
        self.acted.allocation_health_at = None;
        let named: Vec<&String> = request.healthy.iter().chain(&request.unhealthy).collect();
        let foreign: Vec<String> = named
            .iter()
            .filter(|uid| !self.allocs.iter().any(|alloc| alloc.uid.as_str() == uid.as_str()))
            .map(ToString::to_string)
            .collect();
        if named.is_empty() {
            return self.notices.push(StepNotice::Refused(RequestRefusal::NoAllocations));
        }
        if !foreign.is_empty() {
            return self.notices.push(StepNotice::Refused(RequestRefusal::ForeignAllocations(foreign)));
        }
        self.acted.allocation_health_at = Some(self.view.now);
        self.evaluate = true;
        let declared = declared(request, self.view.now);
        for alloc in &mut self.allocs {
            if let Some(health) = declared.get(alloc.uid.as_str()) {
                let health = Some(Health { deployment: alloc.deployment.clone(), ..health.clone() });
                *alloc = Arc::new(Alloc { health, ..(**alloc).clone() });
            }
        }
        let unhealthy: Vec<Arc<Alloc>> = self
            .allocs
            .iter()
            .filter(|alloc| request.unhealthy.iter().any(|uid| uid.as_str() == alloc.uid.as_str()))
            .cloned()
            .collect();
        if let Some(first) = unhealthy.first() {
            let reverts = unhealthy.iter().any(|alloc| self.reverts(&alloc.group));
            let revert = if reverts { Revert::WantedQuietly } else { Revert::Unwanted };
            let text = format!("allocation {} was declared unhealthy", first.key.name);
            self.fail(DeploymentDescription::FailedAllocations, revert, text);
        }
    }

    fn reverts(&self, group: &str) -> bool {
        self.status.groups.get(group).is_some_and(|state| state.auto_revert)
    }

    fn pause_or_resume(&mut self) {
        let (phase, description, notice) = match (self.view.spec.paused, self.status.phase) {
            (true, phase) if phase.is_active() && phase != DeploymentPhase::Paused => {
                (DeploymentPhase::Paused, DeploymentDescription::Paused, StepNotice::Paused)
            }
            (false, DeploymentPhase::Paused) => {
                self.evaluate = true;
                (DeploymentPhase::Running, DeploymentDescription::Running, StepNotice::Resumed)
            }
            _ => return,
        };
        self.status.phase = phase;
        self.status.description = description;
        progress::renew(self.status.groups.values_mut(), self.view.now);
        self.notices.push(notice);
    }

    /// The live healthy canaries of each group.
    fn healthy_canaries(&self) -> BTreeMap<String, i64> {
        let mut healthy = BTreeMap::new();
        for alloc in self.allocs.iter().filter(|alloc| !alloc.is_terminal()) {
            let is_listed = self
                .status
                .groups
                .get(&alloc.group)
                .is_some_and(|state| state.placed_canaries.iter().any(|name| **name == *alloc.key.name));
            if (alloc.canary || is_listed) && alloc.health_in_deployment() == Some(true) {
                *healthy.entry(alloc.group.clone()).or_insert(0) += 1;
            }
        }
        healthy
    }

    fn promote(&mut self) {
        let request = self.view.spec.promote.clone();
        if !self.is_active() || self.acted.promote == request {
            return;
        }
        self.acted.promote.clone_from(&request);
        let Some(request) = request else { return };
        match request::promoted_groups(&request, &self.status.groups, &self.healthy_canaries()) {
            Ok(groups) => self.promote_groups(groups),
            Err(refusal) => self.notices.push(StepNotice::Refused(refusal)),
        }
    }

    fn promote_groups(&mut self, groups: Vec<String>) {
        let now = self.view.now;
        for (_, state) in self.status.groups.iter_mut().filter(|(name, _)| groups.contains(name)) {
            state.promoted = true;
            if state.require_progress_by.is_some() {
                progress::renew(std::iter::once(state), now);
            }
        }
        let is_waiting = self.status.groups.values().any(progress::awaits_promotion);
        if !is_waiting && self.status.phase == DeploymentPhase::Running {
            self.status.description = DeploymentDescription::Running;
        }
        self.evaluate = true;
        self.notices.push(StepNotice::Promoted(groups));
    }

    /// Every group with canaries must promote itself, and have all of them healthy; then all groups are promoted.
    fn promote_automatically(&mut self) {
        let healthy = self.healthy_canaries();
        let canaried: Vec<_> = self.status.groups.iter().filter(|(_, state)| state.desired_canaries > 0).collect();
        let is_ready = canaried.iter().all(|(name, state)| {
            let placed = i64::try_from(state.placed_canaries.len()).unwrap_or(i64::MAX);
            state.auto_promote
                && placed >= state.desired_canaries
                && healthy.get(*name).copied().unwrap_or(0) == state.desired_canaries
        });
        let is_wanted = canaried.iter().any(|(_, state)| !state.promoted);
        if self.status.phase == DeploymentPhase::Running && is_wanted && is_ready {
            self.promote_groups(self.status.groups.keys().cloned().collect());
        }
    }

    fn count(&mut self) {
        let (began_at, now) = (self.view.created_at, self.view.now);
        for (name, state) in &mut self.status.groups {
            progress::count(state, self.allocs.iter().filter(|alloc| alloc.group == *name), began_at, now);
        }
    }

    /// 6.2: what each allocation means for the deployment.
    fn look_at_allocations(&mut self) {
        let (mut failing, mut reverts) = (None, false);
        for alloc in self.allocs.clone() {
            let Some(state) = self.status.groups.get(&alloc.group) else { continue };
            if state.promoted && alloc.canary && !alloc.is_terminal() {
                self.effects.push(DeploymentEffect::EndCanary(alloc.key.clone(), alloc.uid.clone()));
            }
            if is_unhealthy(&alloc) && self.is_active() {
                let policy = self.group(&alloc.group).and_then(|group| group.reschedule.as_ref());
                if judge_unhealthy(&alloc, state, policy) == Unhealthy::FailsDeployment {
                    reverts |= state.auto_revert;
                    failing.get_or_insert_with(|| alloc.key.name.to_string());
                } else if !alloc.transition.reschedule {
                    self.effects.push(DeploymentEffect::AllowReplacement(alloc.key.clone(), alloc.uid.clone()));
                    self.notices.push(StepNotice::AllocationUnhealthy(alloc.key.name.to_string()));
                }
            }
            let is_progress = alloc.health_in_deployment() == Some(true) && alloc.health_index > self.view.latest_eval;
            self.evaluate_soon |= is_progress && self.status.phase != DeploymentPhase::Paused;
        }
        if let Some(name) = failing {
            let revert = if reverts { Revert::Wanted } else { Revert::Unwanted };
            self.fail(DeploymentDescription::FailedAllocations, revert, format!("allocation {name} is unhealthy"));
        }
    }

    fn group(&self, name: &str) -> Option<&'a Group> {
        self.view.definition?.group(name)
    }

    fn fail_by_call(&mut self) {
        if self.view.spec.fail {
            let reverts = self.status.groups.values().any(|state| state.auto_revert);
            let revert = if reverts { Revert::Wanted } else { Revert::Unwanted };
            self.fail(DeploymentDescription::FailedByUser, revert, "a person failed it".to_owned());
        }
    }

    fn look_at_the_clock(&mut self) {
        if !self.is_late() {
            return;
        }
        let overdue: Vec<(String, bool)> = progress::overdue(&self.status.groups, self.view.counts, self.view.now)
            .map(|(name, state)| (name.to_owned(), state.auto_revert))
            .collect();
        if overdue.is_empty() {
            return;
        }
        let reverts = overdue.iter().any(|(_, reverts)| *reverts);
        let names: Vec<&str> = overdue.iter().map(|(name, _)| name.as_str()).collect();
        let text = format!("no progress in time in group {}", names.join(", "));
        let revert = if reverts { Revert::Wanted } else { Revert::Unwanted };
        self.fail(DeploymentDescription::ProgressDeadline, revert, text);
    }

    /// Whether a deadline has passed that was neither met nor moved since.
    fn is_late(&self) -> bool {
        let cutoff = progress::cutoff(&self.status.groups, self.view.counts);
        self.status.phase != DeploymentPhase::Paused && cutoff.is_some_and(|cutoff| cutoff <= self.view.now)
    }

    /// 8.1. Once a deadline has passed, it is the reason whatever else happens; one that was met or moved is forgotten.
    fn fail(&mut self, description: DeploymentDescription, revert: Revert, text: String) {
        if !self.is_active() {
            return;
        }
        let is_late = description == DeploymentDescription::FailedAllocations && self.is_late();
        let description = if is_late { DeploymentDescription::ProgressDeadline } else { description };
        self.status.phase = DeploymentPhase::Failed;
        self.status.description = description;
        self.status.rollback = self.roll_back(revert);
        self.effects.retain(|effect| matches!(effect, DeploymentEffect::EndCanary(..)));
        self.evaluate = true;
        self.notices.push(StepNotice::Failed(description, text));
    }

    fn roll_back(&mut self, revert: Revert) -> Option<Rollback> {
        if revert == Revert::Unwanted {
            return None;
        }
        let target = goes_back_to(self.view.versions, self.view.spec.job_version)?;
        if target == Target::None && revert == Revert::WantedQuietly {
            return None;
        }
        if let Target::Restore(number) = target {
            let id = format!("{}-revert", self.view.name);
            self.status.intent = Some(Intent { id, rollback_to_version: Some(number) });
        }
        Some(target.outcome())
    }

    fn tell_of_canaries(&mut self) {
        let is_ready = |groups: &BTreeMap<String, GroupState>| {
            let mut waiting = groups.values().filter(|state| progress::awaits_promotion(state)).peekable();
            waiting.peek().is_some() && waiting.all(|state| state.healthy_allocs >= state.desired_canaries)
        };
        let live = self.healthy_canaries();
        let waiting = || self.status.groups.iter().filter(|(_, state)| progress::awaits_promotion(state));
        let is_live = waiting().all(|(name, state)| live.get(name).copied().unwrap_or(0) >= state.desired_canaries);
        if self.is_active() && is_live && is_ready(&self.status.groups) && !is_ready(&self.view.stored.groups) {
            self.notices.push(StepNotice::CanariesHealthy);
        }
    }

    fn finish(mut self) -> DeploymentStep {
        let view = self.view;
        self.status.acted = (self.acted != Acted::default()).then_some(self.acted);
        let is_restored = |intent: &Intent| view.versions.iter().any(|one| one.is_stable && one.intent == intent.id);
        // A spec that came after the failure is what the user wants now.
        let is_overtaken = |intent: &Intent| {
            let newest = view.versions.iter().max_by_key(|version| version.number);
            newest.is_some_and(|newest| newest.number > view.spec.job_version && newest.intent != intent.id)
        };
        match self.status.intent.take_if(|intent| is_restored(intent) || is_overtaken(intent)) {
            Some(_) => self.evaluate = true,
            None => self.effects.extend(self.status.intent.clone().map(DeploymentEffect::Restore)),
        }
        let is_active = self.status.phase.is_active();
        let is_paused = self.status.phase == DeploymentPhase::Paused;
        let wake_at =
            progress::cutoff(&self.status.groups, view.counts).filter(|at| is_active && !is_paused && *at > view.now);
        let is_change = view.stored.phase.is_active() || self.status != *view.stored;
        let written = if is_change {
            let (name, generation, created_at) = (view.name, view.generation, view.created_at);
            let standing = Standing { name, generation, created_at, before: view.stored, wanted: self.status };
            status(standing, &self.allocs, view.now)
        } else {
            self.status
        };
        DeploymentStep {
            status: written,
            effects: self.effects,
            evaluate: self.evaluate,
            evaluate_soon: self.evaluate_soon && is_active,
            wake_at,
            notices: self.notices,
        }
    }
}
