//! What changes of deployments mean, and their status.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use drover_api::Deployment;
use drover_api::deployment::{DeploymentDescription, DeploymentStatus, RollbackResult};
use drover_api::job::EvalTrigger;
use drover_core::deployment::{self, DeploymentEffect, DeploymentView, EvalRecord, StepNotice, VersionFacts};
use drover_core::ids::{AllocKey, JobKey, ObjectKey, Uid};
use drover_core::model::Alloc;
use drover_store::events::{Happening, Severity};
use drover_store::{Precondition, StoreError, convert};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::writes::{Acted, Restore};
use crate::actions::{Action, DeploymentAct, DeploymentStatusWrite};
use crate::cache::Observed;
use crate::jobs;
use crate::keys::key_of;
use crate::shared::{Notice, RETRY, Shared};
use crate::status_writes::PAUSE;
use crate::timers::{TimerId, Wake};

/// How long a deployment that wants an evaluation waits for more of its allocations (`spec/deployments.md` 6.4).
const BATCH: Duration = Duration::from_secs(1);
/// How long those whose batch is over wait for other deployments, so that all are committed together.
const WINDOW: Duration = Duration::from_millis(250);

/// Where a deployment is with an evaluation that may wait for others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Batch {
    /// None was asked for.
    #[default]
    Idle,
    /// It waits for others that want one too.
    Waiting,
    /// It was asked for, and the status not written since.
    Evaluated,
}

/// What the leader knows of an active deployment besides its objects.
#[derive(Debug, Default)]
struct Knowledge {
    /// When its status was sent last.
    sent_at: Option<Instant>,
    /// Whether its status is being written.
    is_writing: bool,
    /// Whether something that follows from its status is being written.
    is_acting: bool,
    /// Where it is with the evaluation that it wants.
    batch: Batch,
    /// The timer of its next look.
    armed: Option<(Timestamp, TimerId)>,
}

/// A deployment that is looked at.
#[derive(Clone, Copy, Debug)]
struct WatchedDeployment<'a> {
    key: &'a ObjectKey,
    object: &'a Deployment,
    job: &'a JobKey,
}

/// Whether a batch of evaluations is being committed now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// Something that concerns the deployment changed.
    Change,
    /// The time of its batch has come.
    Batch,
}

/// The deployments of a leader: what it knows of each that is under way.
#[derive(Debug, Default)]
pub(crate) struct Deployments {
    known: HashMap<ObjectKey, Knowledge>,
    /// Deployments that are committed together soon.
    window: BTreeSet<ObjectKey>,
}

impl Deployments {
    pub(crate) fn on_change(&mut self, shared: &mut Shared, seen: Observed<Deployment>) {
        shared.recorder.deployment(&seen);
        match seen {
            Observed::Now(object, before) => {
                let known = convert::deployment(&object);
                let (key, job) = (known.key.clone(), known.job.clone());
                let is_judged = !known.judgements.is_empty();
                let before = before.map(|before| convert::deployment(&before));
                let is_other = before.as_ref().is_none_or(|before| before.judgements != known.judgements);
                let has_moved = before.as_ref().is_some_and(|before| before.phase != known.phase);
                shared.view.put_deployment(known);
                if is_judged && is_other {
                    Self::judge_again(shared, &job, &key);
                }
                shared.due.jobs.insert(job.clone());
                shared.due.deployments.insert(key);
                if has_moved {
                    shared.enqueue(&job, EvalTrigger::DeploymentWatcher);
                }
            }
            Observed::Gone(object) => {
                let known = convert::deployment(&object);
                self.forget_deployment(shared, &known.key);
                shared.view.remove_deployment(&known.job, &known.key);
                if known.phase.is_active() {
                    shared.enqueue(&known.job, EvalTrigger::DeploymentWatcher);
                }
                shared.due.jobs.insert(known.job);
            }
        }
    }

    /// A declaration of health counts for the allocations that are there already.
    fn judge_again(shared: &mut Shared, job: &JobKey, deployment: &ObjectKey) {
        let own: Vec<AllocKey> = shared
            .view
            .allocs_of_job(job)
            .filter(|alloc| alloc.deployment.as_ref() == Some(&deployment.name))
            .map(|alloc| alloc.key.clone())
            .collect();
        for key in own {
            if let Some(object) = shared.caches.allocs.get(&key_of(&key)).cloned() {
                shared.put_stored(&object);
            }
        }
    }

    fn forget_deployment(&mut self, shared: &mut Shared, key: &ObjectKey) {
        if let Some((_, timer)) = self.known.remove(key).and_then(|known| known.armed) {
            shared.timers.cancel(&timer);
        }
    }

    /// Passs at a deployment and does what it needs: its status first, then what follows from it.
    pub(crate) fn refresh(&mut self, shared: &mut Shared, key: &ObjectKey, look: Pass) {
        let Some(object) = shared.caches.deployments.get(&key_of(key)).cloned() else { return };
        let status = object.status.clone().unwrap_or_default();
        if !status.phase.is_active() && status.intent.is_none() {
            return self.forget_deployment(shared, key);
        }
        let job = JobKey::new(Arc::clone(&key.namespace), object.spec.job_name.clone());
        let known = self.known.entry(key.clone()).or_default();
        // A plan that is being written brings the status of its deployment with it, and the end of each write a new
        // look.
        if known.is_writing || shared.evaluations.broker.is_under_way(&job) {
            return;
        }
        let step = Self::step_of(shared, &object, &job, &status);
        self.arm(shared, key, step.wake_at);
        let Some(known) = self.known.get(key) else { return };
        if step.status != status {
            // What the evaluation of its batch will change again is written after that, once.
            let is_held = step.evaluate_soon && known.batch != Batch::Evaluated;
            let is_urgent = is_urgent(&step.status, &status);
            if is_urgent || !is_held && self.may_write(shared, key, &job) {
                return self.write_step(shared, key, &object, step);
            }
        }
        self.act(shared, WatchedDeployment { key, object: &object, job: &job }, &step, look);
    }

    fn step_of(
        shared: &Shared,
        object: &Deployment,
        job: &JobKey,
        status: &DeploymentStatus,
    ) -> deployment::DeploymentStep {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let uid = Uid::from(object.spec.job_uid.clone());
        let versions = shared.versions_of(job, &object.spec.job_uid);
        let facts: Vec<VersionFacts<'_>> = versions.iter().map(|version| VersionFacts::of(version)).collect();
        let allocs: Vec<Arc<Alloc>> =
            shared.view.allocs_of_job(job).filter(|alloc| alloc.deployment.as_deref() == Some(name)).cloned().collect();
        let counts = shared.view.job(job).map(|job| job.counts.clone()).unwrap_or_default();
        deployment::step(&DeploymentView {
            name,
            generation: object.metadata.generation.unwrap_or(1),
            spec: &object.spec,
            stored: status,
            created_at: convert::created_at(&object.metadata),
            definition: shared.view.version(job, &uid, object.spec.job_version).map(|known| &**known),
            versions: &facts,
            counts: &counts,
            allocs: &allocs,
            latest_eval: Self::latest_eval(shared, job),
            now: shared.clock.now(),
        })
    }

    /// Up to where a job was evaluated, or will be by the evaluation that waits.
    fn latest_eval(shared: &Shared, job: &JobKey) -> u64 {
        let planned = shared.evaluations.last.get(job).and_then(|last| last.saw);
        let done =
            planned.map(|index| EvalRecord { snapshot_index: Some(index), create_index: index, is_cancelled: false });
        let waiting = shared.evaluations.broker.is_waiting(job).then_some(EvalRecord {
            snapshot_index: None,
            create_index: shared.view_index,
            is_cancelled: false,
        });
        deployment::latest_index(done.into_iter().chain(waiting))
    }

    /// Sets the timer of a deployment's next look, in the place of the one before.
    fn arm(&mut self, shared: &mut Shared, key: &ObjectKey, at: Option<Timestamp>) {
        let armed = self.known.get(key).and_then(|known| known.armed);
        if armed.map(|(at, _)| at) == at {
            return;
        }
        if let Some((_, timer)) = armed {
            shared.timers.cancel(&timer);
        }
        let armed = at.map(|at| (at, shared.wake_at(shared.instant_of(at), Wake::Deployment(key.clone()))));
        if let Some(known) = self.known.get_mut(key) {
            known.armed = armed;
        }
    }

    /// Whether a status that only counts may be written now: not while an evaluation is on its way that will change the
    /// counts again, and once per second.
    fn may_write(&mut self, shared: &mut Shared, key: &ObjectKey, job: &JobKey) -> bool {
        let is_busy = shared.evaluations.broker.is_busy(job);
        let Some(known) = self.known.get(key) else { return false };
        if known.batch == Batch::Waiting || is_busy {
            return false;
        }
        let due = known.sent_at.map(|at| at + PAUSE);
        match due.filter(|due| *due > Instant::now()) {
            None => true,
            Some(due) => {
                shared.wake_at(due, Wake::Deployment(key.clone()));
                false
            }
        }
    }

    fn write_step(
        &mut self,
        shared: &mut Shared,
        key: &ObjectKey,
        object: &Deployment,
        step: deployment::DeploymentStep,
    ) {
        let notices = || step.notices.iter().filter(|notice| !matches!(notice, StepNotice::AllocationUnhealthy(_)));
        shared.recorder.stepped(notices());
        for notice in notices() {
            Self::report_notice(shared, object, notice, &step.status);
        }
        if let Some(known) = self.known.get_mut(key) {
            known.is_writing = true;
            if known.batch == Batch::Evaluated {
                known.batch = Batch::Idle;
            }
            known.sent_at = Some(Instant::now());
        }
        let (precondition, evaluate) = (Precondition::unchanged(&object.metadata), step.evaluate);
        let of_canaries = step.effects.iter().filter(|effect| matches!(effect, DeploymentEffect::EndCanary(..)));
        let promoted = of_canaries.filter_map(change_of).collect();
        let status = Box::new(step.status);
        let write = DeploymentStatusWrite { key: key.clone(), precondition, status, evaluate, promoted };
        shared.outbox.push(Action::DeploymentStatus(write));
    }

    /// What follows from a status that is stored.
    fn act(
        &mut self,
        shared: &mut Shared,
        about: WatchedDeployment<'_>,
        step: &deployment::DeploymentStep,
        look: Pass,
    ) {
        let WatchedDeployment { key, object, job } = about;
        let is_replacing = step.effects.iter().any(|effect| matches!(effect, DeploymentEffect::AllowReplacement(..)));
        let Some(known) = self.known.get_mut(key) else { return };
        if known.is_acting {
            return;
        }
        if look == Pass::Change && (step.evaluate_soon || is_replacing) && known.batch != Batch::Waiting {
            known.batch = Batch::Waiting;
            shared.wake_in(BATCH, Wake::DeploymentBatch(key.clone()));
        }
        let due: Vec<DeploymentEffect> = step
            .effects
            .iter()
            .filter(|effect| look == Pass::Batch || !matches!(effect, DeploymentEffect::AllowReplacement(..)))
            .cloned()
            .collect();
        if look == Pass::Batch {
            for notice in step.notices.iter().filter(|notice| matches!(notice, StepNotice::AllocationUnhealthy(_))) {
                shared.recorder.stepped([notice].into_iter());
                Self::report_notice(shared, object, notice, &step.status);
            }
            if let Some(known) = self.known.get_mut(key) {
                known.batch = Batch::Evaluated;
            }
            if step.evaluate_soon && !is_replacing {
                shared.enqueue(job, EvalTrigger::DeploymentWatcher);
            }
        }
        if due.is_empty() {
            return;
        }
        let restores: Vec<Restore> =
            due.iter().filter_map(|effect| Self::restore_of(shared, effect, object, job)).collect();
        if let Some(known) = self.known.get_mut(key) {
            known.is_acting = true;
        }
        let changes = due.iter().filter_map(change_of).collect();
        shared.outbox.push(Action::Act(Box::new(DeploymentAct { key: key.clone(), restores, changes })));
    }

    fn restore_of(shared: &Shared, effect: &DeploymentEffect, object: &Deployment, job: &JobKey) -> Option<Restore> {
        let DeploymentEffect::Restore(intent) = effect else { return None };
        let owner = shared.job(job).cloned()?;
        let versions = shared.versions_of(job, &object.spec.job_uid);
        // A leader that died in the middle has made it and not yet marked it.
        if let Some(made) = versions.iter().find(|version| version.spec.intent == intent.id) {
            return Some(Restore::Mark(Arc::clone(made)));
        }
        let stable = versions.iter().find(|version| Some(version.spec.version) == intent.rollback_to_version)?;
        let number = versions.last().map_or(0, |newest| newest.spec.version + 1);
        let version = jobs::restored_version(&owner, stable, number, &intent.id, shared.clock.now());
        Some(Restore::Make(Box::new(version)))
    }

    /// The time of a deployment's batch: with those of the others whose time comes soon, it is committed.
    pub(crate) fn join_window(&mut self, shared: &mut Shared, key: ObjectKey) {
        if self.window.is_empty() {
            shared.wake_in(WINDOW, Wake::DeploymentWindow);
        }
        self.window.insert(key);
    }

    /// Commits what the deployments of the window want.
    pub(crate) fn commit_window(&mut self, shared: &mut Shared) {
        for key in std::mem::take(&mut self.window) {
            if let Some(known) = self.known.get_mut(&key) {
                known.batch = Batch::Idle;
            }
            self.refresh(shared, &key, Pass::Batch);
            shared.due.deployments.insert(key);
        }
    }

    /// The deployments of a job are looked at again: its evaluation is over. One that failed may still have to restore
    /// a version.
    pub(crate) fn on_evaluated(&mut self, shared: &mut Shared, job: &JobKey) {
        let known = &self.known;
        let unfinished =
            shared.view.deployments_of_job(job).filter(|one| one.phase.is_active() || known.contains_key(&one.key));
        shared.due.deployments.extend(unfinished.map(|one| one.key.clone()));
    }

    pub(crate) fn on_status(
        &mut self,
        shared: &mut Shared,
        key: &ObjectKey,
        evaluate: bool,
        (result, acted): (Result<Deployment, StoreError>, Acted),
    ) {
        if let Some(known) = self.known.get_mut(key) {
            known.is_writing = false;
        }
        // Those that were not changed are found again by the next look.
        Self::take_acted(shared, key, acted);
        match result {
            Ok(object) => {
                let job = JobKey::new(Arc::clone(&key.namespace), object.spec.job_name.clone());
                let observed = shared.caches.deployments.update(object);
                shared.notify_all(observed.map(Notice::Deployment));
                if evaluate {
                    shared.enqueue(&job, EvalTrigger::DeploymentWatcher);
                }
                // The watch may have shown it while the write was under way.
                shared.due.deployments.insert(key.clone());
            }
            Err(StoreError::NotFound(_)) => {}
            // Somebody else wrote in between; what it is now is on its way here.
            Err(StoreError::Conflict(_)) => Self::wake_again(shared, RETRY / 10, key),
            Err(error) => {
                tracing::warn!(deployment = %key, %error, "a deployment's status was not written");
                Self::wake_again(shared, RETRY, key);
            }
        }
    }

    fn wake_again(shared: &mut Shared, after: Duration, key: &ObjectKey) {
        shared.wake_in(after, Wake::Deployment(key.clone()));
    }

    pub(crate) fn on_acted(&mut self, shared: &mut Shared, key: &ObjectKey, acted: Acted) {
        if let Some(known) = self.known.get_mut(key) {
            known.is_acting = false;
        }
        if Self::take_acted(shared, key, acted) {
            shared.due.deployments.insert(key.clone());
        } else {
            Self::wake_again(shared, RETRY, key);
        }
    }

    /// Takes in what became of changes that follow from a deployment's status; whether all happened.
    fn take_acted(shared: &mut Shared, key: &ObjectKey, acted: Acted) -> bool {
        let (mut is_failed, mut is_restored) = (false, false);
        for result in acted.allocs {
            match result {
                Ok(Some(object)) => {
                    let observed = shared.caches.allocs.update(object);
                    shared.notify_all(observed.map(Notice::Allocation));
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(deployment = %key, %error, "an allocation of a deployment was not changed");
                    is_failed = true;
                }
            }
        }
        for result in acted.versions {
            match result {
                Ok(version) => {
                    is_restored = true;
                    let observed = shared.caches.versions.observe(version);
                    shared.notify_all(observed.map(Notice::Version));
                }
                Err(error) => {
                    tracing::warn!(deployment = %key, %error, "a stable version was not restored yet");
                    is_failed = true;
                }
            }
        }
        if is_restored && let Some(object) = shared.caches.deployments.get(&key_of(key)) {
            let job = JobKey::new(Arc::clone(&key.namespace), object.spec.job_name.clone());
            shared.enqueue(&job, EvalTrigger::DeploymentWatcher);
            shared.due.jobs.insert(job);
        }
        !is_failed
    }

    fn report_notice(shared: &mut Shared, object: &Deployment, notice: &StepNotice, status: &DeploymentStatus) {
        let occasion = object.metadata.generation.unwrap_or(0).to_string();
        let message = || status.conditions.first().map(|one| one.message.clone()).unwrap_or_default();
        let normal = |reason, action, note| (Severity::Normal, reason, action, note);
        let warning = |reason, action, note| (Severity::Warning, reason, action, note);
        let (severity, reason, action, note) = match notice {
            StepNotice::CanariesHealthy => normal("CanariesHealthy", "Promote", message()),
            StepNotice::Promoted(groups) => {
                normal("Promoted", "Promote", format!("promoted group {}", groups.join(", ")))
            }
            StepNotice::Paused => normal("Paused", "Pause", message()),
            StepNotice::Resumed => normal("Resumed", "Resume", message()),
            StepNotice::AllocationUnhealthy(name) => {
                let note = format!("allocation {name} is unhealthy and will be replaced");
                warning("AllocationUnhealthy", "Replace", note)
            }
            StepNotice::Failed(DeploymentDescription::ProgressDeadline, why) => {
                warning("ProgressDeadlineExceeded", "Fail", format!("{why}: {}", message()))
            }
            StepNotice::Failed(_, why) => warning("Failed", "Fail", format!("{why}: {}", message())),
            StepNotice::Refused(refusal) => warning("Refused", "Refuse", refusal.to_string()),
        };
        let occasion = match notice {
            StepNotice::AllocationUnhealthy(name) => name.clone(),
            _ => occasion,
        };
        shared.report(object, &Happening { severity, reason, action, note, occasion: &occasion });
        if let (StepNotice::Failed(..), Some(rollback)) = (notice, &status.rollback)
            && rollback.result == RollbackResult::RolledBack
        {
            let note = message();
            let (severity, reason, action) = (Severity::Warning, "AutoReverted", "Revert");
            shared.report(object, &Happening { severity, reason, action, note, occasion: &occasion });
        }
    }
}

/// The change of an allocation that an effect is.
fn change_of(effect: &DeploymentEffect) -> Option<(AllocKey, Precondition, Value)> {
    let same = |uid: &Uid| Precondition { uid: Some(uid.to_string()), resource_version: None };
    match effect {
        DeploymentEffect::AllowReplacement(key, uid) => {
            let body = json!({ "spec": { "desiredTransition": { "reschedule": true } } });
            Some((key.clone(), same(uid), body))
        }
        DeploymentEffect::EndCanary(key, uid) => Some((key.clone(), same(uid), json!({ "spec": { "canary": false } }))),
        DeploymentEffect::Restore(_) => None,
    }
}

/// Whether a status says something else than how many there are.
fn is_urgent(wanted: &DeploymentStatus, stored: &DeploymentStatus) -> bool {
    let telling = |status: &DeploymentStatus| {
        let conditions: Vec<_> = status.conditions.iter().map(|one| (one.r#type, one.status, one.reason)).collect();
        let promoted: Vec<_> = status.groups.iter().map(|(name, state)| (name.clone(), state.promoted)).collect();
        let (acted, intent) = (status.acted.clone(), status.intent.clone());
        (status.observed_generation, status.phase, status.description, conditions, promoted, acted, intent)
    };
    telling(wanted) != telling(stored)
}
