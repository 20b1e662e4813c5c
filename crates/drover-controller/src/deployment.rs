//! What changes of deployments mean, and their status.

use std::sync::Arc;
use std::time::Duration;

use drover_api::deployment::{
    DeploymentDescription, DeploymentPhase, DeploymentSpec, DeploymentStatus, RollbackResult,
};
use drover_api::job::EvalTrigger;
use drover_api::{Allocation, Deployment, Job, JobVersion, field_manager};
use drover_core::deployment::{self, Effect, EvalRecord, News, Picture, Standing, VersionFacts};
use drover_core::ids::{AllocKey, JobKey, ObjectKey, Uid};
use drover_core::model::Alloc;
use drover_core::scheduler::plan::{DeploymentPlan, Plan};
use futures::StreamExt;
use jiff::Timestamp;
use kube::Resource;
use kube::core::ObjectMeta;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::allocation::found;
use crate::apply::{PARALLEL, key_of};
use crate::cache::Seen;
use crate::prepare;
use crate::status::PAUSE;
use crate::term::{Done, RETRY, Term, Wake, WakeId};
use drover_store::convert;
use drover_store::events::{Happening, Severity};
use drover_store::{Key, Ownership, Part, Precondition, Store, StoreError, status_body};

/// How long a deployment that wants an evaluation waits for more of its allocations (`spec/deployments.md` 6.4).
const BATCH: Duration = Duration::from_secs(1);
/// How long those whose batch is over wait for other deployments, so that all are committed together.
const WINDOW: Duration = Duration::from_millis(250);

/// A write of a deployment that a plan asks for: its object, if it is new, and its status.
#[derive(Debug)]
pub(super) struct DeploymentWrite {
    key: Key,
    object: Option<Box<Deployment>>,
    precondition: Precondition,
    status: DeploymentStatus,
    /// The version that becomes stable by its success.
    stable: Option<Arc<JobVersion>>,
}

/// The writes of deployments that a plan asks for. `versions` are those of the job.
pub(super) fn writes(
    plan: &Plan,
    job: Option<&Job>,
    allocs: &[Arc<Alloc>],
    versions: &[Arc<JobVersion>],
    stored: impl Fn(&ObjectKey) -> Option<Arc<Deployment>>,
    now: Timestamp,
) -> Vec<DeploymentWrite> {
    let ends = plan.deployment_updates.iter().filter_map(|update| {
        let object = stored(&update.deployment)?;
        let status = wanted(&object, Some((update.phase, update.description)), None, allocs, now);
        let is_stable = |version: &JobVersion| version.status.as_ref().is_some_and(|status| status.stable);
        let stable = (update.phase == DeploymentPhase::Successful)
            .then(|| versions.iter().find(|one| one.spec.version == object.spec.job_version && !is_stable(one)))
            .flatten()
            .cloned();
        let precondition = Precondition::unchanged(&object.metadata);
        Some(DeploymentWrite { key: key_of(&update.deployment), object: None, precondition, status, stable })
    });
    let begins = plan.deployment.iter().filter_map(|begun| {
        let object = if begun.is_new {
            new_object(job?, begun)
        } else {
            let namespace = job?.metadata.namespace.clone().unwrap_or_default();
            (*stored(&ObjectKey::new(namespace, Arc::clone(&begun.name)))?).clone()
        };
        // A leader may have died between the object and its first status.
        let is_untold =
            |status: &DeploymentStatus| status.groups.is_empty() && status.phase == DeploymentPhase::Running;
        let is_first = begun.is_new || object.status.as_ref().is_none_or(is_untold);
        let phase = is_first.then_some((DeploymentPhase::Running, begun.description));
        let status = wanted(&object, phase, Some(begun), allocs, now);
        let (key, precondition) = (drover_store::Object::key(&object), Precondition::unchanged(&object.metadata));
        let object = begun.is_new.then(|| Box::new(object));
        Some(DeploymentWrite { key, object, precondition, status, stable: None })
    });
    ends.chain(begins).collect()
}

fn new_object(job: &Job, begun: &DeploymentPlan) -> Deployment {
    let meta = job.meta();
    let spec = DeploymentSpec {
        job_name: meta.name.clone().unwrap_or_default(),
        job_uid: meta.uid.clone().unwrap_or_default(),
        job_version: begun.job_version,
        job_generation: meta.generation.unwrap_or(0),
        eval_priority: job.spec.priority,
        ..DeploymentSpec::default()
    };
    let mut object = Deployment::new(&begun.name, spec);
    object.metadata = ObjectMeta {
        name: object.metadata.name.take(),
        namespace: meta.namespace.clone(),
        labels: Some([(drover_api::label::JOB.to_owned(), meta.name.clone().unwrap_or_default())].into()),
        owner_references: Some(vec![convert::owner(job)]),
        ..ObjectMeta::default()
    };
    object
}

fn wanted(
    object: &Deployment,
    phase: Option<(DeploymentPhase, DeploymentDescription)>,
    begun: Option<&DeploymentPlan>,
    allocs: &[Arc<Alloc>],
    now: Timestamp,
) -> DeploymentStatus {
    let stored = object.status.clone().unwrap_or_default();
    let mut wanted = stored.clone();
    (wanted.phase, wanted.description) = phase.unwrap_or((stored.phase, stored.description));
    for (name, state) in begun.iter().flat_map(|begun| &begun.groups) {
        wanted.groups.insert(name.clone(), state.clone());
    }
    let standing = Standing {
        name: object.metadata.name.as_deref().unwrap_or_default(),
        generation: object.metadata.generation.unwrap_or(1),
        created_at: object.metadata.creation_timestamp.as_ref().map_or(now, |at| at.0),
        before: &stored,
        wanted,
    };
    deployment::status(standing, allocs, now)
}

impl DeploymentWrite {
    /// Creates the object, if it is new, and writes the status. A version becomes stable before its deployment is successful: a
    /// crash between the two leaves a deployment that is found complete once more.
    pub(super) async fn write<S: Store>(self, store: &S) -> Result<(Deployment, Option<JobVersion>), StoreError> {
        let version = match &self.stable {
            Some(version) => Some(prepare::mark_stable(store, version).await?),
            None => None,
        };
        let mut precondition = self.precondition;
        if let Some(object) = &self.object {
            let made = match store.create(&**object).await {
                Err(StoreError::AlreadyExists(text)) => {
                    let made = store.get::<Deployment>(&self.key).await?.ok_or(StoreError::Unavailable(text))?;
                    // An earlier try may have made it; what it has become since is not known to this plan.
                    if made.status.as_ref().is_some_and(|status| status.observed_generation >= 0) {
                        return Err(StoreError::Conflict(format!("{} is under way already", self.key)));
                    }
                    made
                }
                other => other?,
            };
            precondition = Precondition::unchanged(&made.metadata);
        }
        let object = write_status(store, &self.key, &precondition, json!(self.status)).await?;
        Ok((object, version))
    }

    /// The deployment's name.
    pub(super) fn key(&self) -> &Key {
        &self.key
    }
}

async fn write_status<S: Store>(
    store: &S,
    key: &Key,
    precondition: &Precondition,
    status: Value,
) -> Result<Deployment, StoreError> {
    let (manager, body) = (field_manager::CONTROLLER_DEPLOYMENT, status_body(status));
    store.apply(key, Part::Status, manager, Ownership::Force, precondition, body).await
}

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
pub(super) struct Knowledge {
    /// When its status was sent last.
    sent_at: Option<Instant>,
    /// Whether its status is being written.
    is_writing: bool,
    /// Whether something that follows from its status is being written.
    is_acting: bool,
    /// Where it is with the evaluation that it wants.
    batch: Batch,
    /// The timer of its next look.
    armed: Option<(Timestamp, WakeId)>,
}

/// Whether a batch of evaluations is being committed now.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// Something that concerns the deployment changed.
    Change,
    /// The time of its batch has come.
    Batch,
}

impl<S: Store> Term<S> {
    pub(super) fn on_deployment(&mut self, seen: Seen<Deployment>) {
        self.numbers.deployment(&seen);
        match seen {
            Seen::Now(object, before) => {
                let known = convert::deployment(&object);
                let (key, job) = (known.key.clone(), known.job.clone());
                let is_judged = !known.judgements.is_empty();
                let before = before.map(|before| convert::deployment(&before));
                let is_other = before.as_ref().is_none_or(|before| before.judgements != known.judgements);
                let has_moved = before.as_ref().is_some_and(|before| before.phase != known.phase);
                self.view.put_deployment(known);
                if is_judged && is_other {
                    self.judge_again(&job, &key);
                }
                self.dirty_jobs.insert(job.clone());
                self.dirty_deployments.insert(key);
                if has_moved {
                    self.enqueue(&job, EvalTrigger::DeploymentWatcher);
                }
            }
            Seen::Gone(object) => {
                let known = convert::deployment(&object);
                self.forget_deployment(&known.key);
                self.view.remove_deployment(&known.job, &known.key);
                self.dirty_jobs.insert(known.job);
            }
        }
    }

    /// A declaration of health counts for the allocations that are there already.
    fn judge_again(&mut self, job: &JobKey, deployment: &ObjectKey) {
        let own: Vec<AllocKey> = self
            .view
            .allocs_of_job(job)
            .filter(|alloc| alloc.deployment.as_ref() == Some(&deployment.name))
            .map(|alloc| alloc.key.clone())
            .collect();
        for key in own {
            if let Some(object) = self.allocs.get(&key_of(&key)).cloned() {
                self.put_stored(&object);
            }
        }
    }

    fn forget_deployment(&mut self, key: &ObjectKey) {
        if let Some((_, timer)) = self.known_deployments.remove(key).and_then(|known| known.armed) {
            self.wakes.remove(&timer);
        }
    }

    /// Looks at a deployment and does what it needs: its status first, then what follows from it.
    pub(super) fn refresh_deployment(&mut self, key: &ObjectKey, look: Look) {
        let Some(object) = self.deployments.get(&key_of(key)).cloned() else { return };
        let status = object.status.clone().unwrap_or_default();
        if !status.phase.is_active() && status.intent.is_none() {
            return self.forget_deployment(key);
        }
        let job = JobKey::new(Arc::clone(&key.namespace), object.spec.job_name.clone());
        let known = self.known_deployments.entry(key.clone()).or_default();
        // A plan that is being written brings the status of its deployment with it, and the end of each write a new look.
        if known.is_writing || self.broker.is_under_way(&job) {
            return;
        }
        let step = self.step_of(&object, &job, &status);
        self.arm(key, step.wake_at);
        let Some(known) = self.known_deployments.get(key) else { return };
        if step.status != status {
            // What the evaluation of its batch will change again is written after that, once.
            let is_held = step.evaluate_soon && known.batch != Batch::Evaluated;
            let is_urgent = is_urgent(&step.status, &status);
            if is_urgent || !is_held && self.may_write(key, &job) {
                return self.write_step(key, &object, step);
            }
        }
        self.act(key, &object, &job, &step, look);
    }

    fn step_of(&self, object: &Deployment, job: &JobKey, status: &DeploymentStatus) -> deployment::Step {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let uid = Uid::from(object.spec.job_uid.clone());
        let versions = self.versions_of(job, &object.spec.job_uid);
        let facts: Vec<VersionFacts<'_>> = versions
            .iter()
            .map(|version| VersionFacts {
                number: version.spec.version,
                is_stable: version.status.as_ref().is_some_and(|status| status.stable),
                intent: &version.spec.intent,
                spec: &version.spec.job,
            })
            .collect();
        let allocs: Vec<Arc<Alloc>> =
            self.view.allocs_of_job(job).filter(|alloc| alloc.deployment.as_deref() == Some(name)).cloned().collect();
        let counts = self.view.job(job).map(|job| job.counts.clone()).unwrap_or_default();
        deployment::step(&Picture {
            name,
            generation: object.metadata.generation.unwrap_or(1),
            spec: &object.spec,
            stored: status,
            created_at: convert::created_at(&object.metadata),
            definition: self.view.version(job, &uid, object.spec.job_version).map(|known| &**known),
            versions: &facts,
            counts: &counts,
            allocs: &allocs,
            latest_eval: self.latest_eval(job),
            now: self.clock.now(),
        })
    }

    /// Up to where a job was evaluated, or will be by the evaluation that waits.
    fn latest_eval(&self, job: &JobKey) -> u64 {
        let planned = self.known.get(job).and_then(|known| known.planned_at);
        let done =
            planned.map(|index| EvalRecord { snapshot_index: Some(index), create_index: index, is_cancelled: false });
        let waiting = self.broker.is_waiting(job).then_some(EvalRecord {
            snapshot_index: None,
            create_index: self.view_index,
            is_cancelled: false,
        });
        deployment::latest_index(done.into_iter().chain(waiting))
    }

    /// Sets the timer of a deployment's next look, in the place of the one before.
    fn arm(&mut self, key: &ObjectKey, at: Option<Timestamp>) {
        let armed = self.known_deployments.get(key).and_then(|known| known.armed);
        if armed.map(|(at, _)| at) == at {
            return;
        }
        if let Some((_, timer)) = armed {
            self.wakes.remove(&timer);
        }
        let armed = at.map(|at| (at, self.wake_at(self.instant_of(at), Wake::Deployment(key.clone()))));
        if let Some(known) = self.known_deployments.get_mut(key) {
            known.armed = armed;
        }
    }

    /// Whether a status that only counts may be written now: not while an evaluation is on its way that will change the counts
    /// again, and once per second.
    fn may_write(&mut self, key: &ObjectKey, job: &JobKey) -> bool {
        let is_busy = self.broker.is_busy(job);
        let Some(known) = self.known_deployments.get(key) else { return false };
        if known.batch == Batch::Waiting || is_busy {
            return false;
        }
        let due = known.sent_at.map(|at| at + PAUSE);
        match due.filter(|due| *due > Instant::now()) {
            None => true,
            Some(due) => {
                self.wake_at(due, Wake::Deployment(key.clone()));
                false
            }
        }
    }

    fn write_step(&mut self, key: &ObjectKey, object: &Deployment, step: deployment::Step) {
        let news = || step.news.iter().filter(|news| !matches!(news, News::AllocationUnhealthy(_)));
        self.numbers.stepped(news());
        for news in news() {
            self.report_news(object, news, &step.status);
        }
        if let Some(known) = self.known_deployments.get_mut(key) {
            known.is_writing = true;
            if known.batch == Batch::Evaluated {
                known.batch = Batch::Idle;
            }
            known.sent_at = Some(Instant::now());
        }
        let (store, key) = (self.store.clone(), key.clone());
        let (precondition, evaluate) = (Precondition::unchanged(&object.metadata), step.evaluate);
        self.writes.spawn(async move {
            let result = write_status(&store, &key_of(&key), &precondition, json!(step.status)).await;
            Done::DeploymentStatus(key, evaluate, Box::new(result))
        });
    }

    /// What follows from a status that is stored.
    fn act(&mut self, key: &ObjectKey, object: &Deployment, job: &JobKey, step: &deployment::Step, look: Look) {
        let is_replacing = step.effects.iter().any(|effect| matches!(effect, Effect::AllowReplacement(..)));
        let Some(known) = self.known_deployments.get_mut(key) else { return };
        if known.is_acting {
            return;
        }
        if look == Look::Change && (step.evaluate_soon || is_replacing) && known.batch != Batch::Waiting {
            known.batch = Batch::Waiting;
            self.wake_in(BATCH, Wake::DeploymentBatch(key.clone()));
        }
        let due: Vec<Effect> = step
            .effects
            .iter()
            .filter(|effect| look == Look::Batch || !matches!(effect, Effect::AllowReplacement(..)))
            .cloned()
            .collect();
        if look == Look::Batch {
            for news in step.news.iter().filter(|news| matches!(news, News::AllocationUnhealthy(_))) {
                self.numbers.stepped([news].into_iter());
                self.report_news(object, news, &step.status);
            }
            if let Some(known) = self.known_deployments.get_mut(key) {
                known.batch = Batch::Evaluated;
            }
            if step.evaluate_soon && !is_replacing {
                self.enqueue(job, EvalTrigger::DeploymentWatcher);
            }
        }
        if due.is_empty() {
            return;
        }
        let restores: Vec<Restore> = due.iter().filter_map(|effect| self.restore_of(effect, object, job)).collect();
        if let Some(known) = self.known_deployments.get_mut(key) {
            known.is_acting = true;
        }
        let (store, key) = (self.store.clone(), key.clone());
        self.writes.spawn(async move {
            let mut acted = Acted::default();
            for restore in restores {
                acted.versions.push(restore.write(&store).await);
            }
            acted.allocs = futures::stream::iter(due.iter().filter_map(change_of))
                .map(|(key, uid, body)| {
                    let store = store.clone();
                    async move {
                        let same = Precondition { uid: Some(uid.to_string()), resource_version: None };
                        found(store.merge::<Allocation>(&key_of(&key), Part::Spec, &same, body).await)
                    }
                })
                .buffered(PARALLEL)
                .collect()
                .await;
            Done::DeploymentActed(key, Box::new(acted))
        });
    }

    fn restore_of(&self, effect: &Effect, object: &Deployment, job: &JobKey) -> Option<Restore> {
        let Effect::Restore(intent) = effect else { return None };
        let owner = self.jobs.get(&key_of(job)).cloned()?;
        let versions = self.versions_of(job, &object.spec.job_uid);
        // A leader that died in the middle has made it and not yet marked it.
        if let Some(made) = versions.iter().find(|version| version.spec.intent == intent.id) {
            return Some(Restore::Mark(Arc::clone(made)));
        }
        let stable = versions.iter().find(|version| Some(version.spec.version) == intent.rollback_to_version)?;
        let number = versions.last().map_or(0, |newest| newest.spec.version + 1);
        let version = prepare::restored_version(&owner, stable, number, &intent.id, self.clock.now());
        Some(Restore::Make(Box::new(version)))
    }

    /// The time of a deployment's batch: with those of the others whose time comes soon, it is committed.
    pub(super) fn join_window(&mut self, key: ObjectKey) {
        if self.window.is_empty() {
            self.wake_in(WINDOW, Wake::DeploymentWindow);
        }
        self.window.insert(key);
    }

    /// Commits what the deployments of the window want.
    pub(super) fn commit_window(&mut self) {
        for key in std::mem::take(&mut self.window) {
            if let Some(known) = self.known_deployments.get_mut(&key) {
                known.batch = Batch::Idle;
            }
            self.refresh_deployment(&key, Look::Batch);
            self.dirty_deployments.insert(key);
        }
    }

    /// The deployments of a job are looked at again: its evaluation is over. One that failed may still have to restore a version.
    pub(super) fn look_at_deployments(&mut self, job: &JobKey) {
        let known = &self.known_deployments;
        let unfinished =
            self.view.deployments_of_job(job).filter(|one| one.phase.is_active() || known.contains_key(&one.key));
        self.dirty_deployments.extend(unfinished.map(|one| one.key.clone()));
    }

    pub(super) fn on_deployment_status(
        &mut self,
        key: &ObjectKey,
        evaluate: bool,
        result: Result<Deployment, StoreError>,
    ) {
        if let Some(known) = self.known_deployments.get_mut(key) {
            known.is_writing = false;
        }
        match result {
            Ok(object) => {
                let job = JobKey::new(Arc::clone(&key.namespace), object.spec.job_name.clone());
                if let Some(seen) = self.deployments.update(object) {
                    self.on_deployment(seen);
                }
                if evaluate {
                    self.enqueue(&job, EvalTrigger::DeploymentWatcher);
                }
                // The watch may have shown it while the write was under way.
                self.dirty_deployments.insert(key.clone());
            }
            Err(StoreError::NotFound(_)) => {}
            // Somebody else wrote in between; what it is now is on its way here.
            Err(StoreError::Conflict(_)) => self.wake_again(RETRY / 10, key),
            Err(error) => {
                tracing::warn!(deployment = %key, %error, "a deployment's status was not written");
                self.wake_again(RETRY, key);
            }
        }
    }

    fn wake_again(&mut self, after: Duration, key: &ObjectKey) {
        self.wake_in(after, Wake::Deployment(key.clone()));
    }

    pub(super) fn on_deployment_acted(&mut self, key: &ObjectKey, acted: Acted) {
        if let Some(known) = self.known_deployments.get_mut(key) {
            known.is_acting = false;
        }
        let (mut is_failed, mut is_restored) = (false, false);
        for result in acted.allocs {
            match result {
                Ok(Some(object)) => {
                    if let Some(seen) = self.allocs.update(object) {
                        self.on_alloc(seen);
                    }
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
                    if let Some(seen) = self.versions.observe(version) {
                        self.on_version(seen);
                    }
                }
                Err(error) => {
                    tracing::warn!(deployment = %key, %error, "a stable version was not restored yet");
                    is_failed = true;
                }
            }
        }
        if is_restored && let Some(object) = self.deployments.get(&key_of(key)) {
            let job = JobKey::new(Arc::clone(&key.namespace), object.spec.job_name.clone());
            self.enqueue(&job, EvalTrigger::DeploymentWatcher);
            self.dirty_jobs.insert(job);
        }
        if is_failed {
            self.wake_again(RETRY, key);
        } else {
            self.dirty_deployments.insert(key.clone());
        }
    }

    fn report_news(&mut self, object: &Deployment, news: &News, status: &DeploymentStatus) {
        let occasion = object.metadata.generation.unwrap_or(0).to_string();
        let message = || status.conditions.first().map(|one| one.message.clone()).unwrap_or_default();
        let normal = |reason, action, note| (Severity::Normal, reason, action, note);
        let warning = |reason, action, note| (Severity::Warning, reason, action, note);
        let (severity, reason, action, note) = match news {
            News::CanariesHealthy => normal("CanariesHealthy", "Promote", message()),
            News::Promoted(groups) => normal("Promoted", "Promote", format!("promoted group {}", groups.join(", "))),
            News::Paused => normal("Paused", "Pause", message()),
            News::Resumed => normal("Resumed", "Resume", message()),
            News::AllocationUnhealthy(name) => {
                let note = format!("allocation {name} is unhealthy and will be replaced");
                warning("AllocationUnhealthy", "Replace", note)
            }
            News::Failed(DeploymentDescription::ProgressDeadline, why) => {
                warning("ProgressDeadlineExceeded", "Fail", format!("{why}: {}", message()))
            }
            News::Failed(_, why) => warning("Failed", "Fail", format!("{why}: {}", message())),
            News::Refused(refusal) => warning("Refused", "Refuse", refusal.to_string()),
        };
        let occasion = match news {
            News::AllocationUnhealthy(name) => name.clone(),
            _ => occasion,
        };
        self.report(object, &Happening { severity, reason, action, note, occasion: &occasion });
        if let (News::Failed(..), Some(rollback)) = (news, &status.rollback)
            && rollback.result == RollbackResult::RolledBack
        {
            let note = message();
            let (severity, reason, action) = (Severity::Warning, "AutoReverted", "Revert");
            self.report(object, &Happening { severity, reason, action, note, occasion: &occasion });
        }
    }
}

/// The change of an allocation that an effect is.
fn change_of(effect: &Effect) -> Option<(AllocKey, Uid, Value)> {
    match effect {
        Effect::AllowReplacement(key, uid) => {
            let body = json!({ "spec": { "desiredTransition": { "reschedule": true } } });
            Some((key.clone(), uid.clone(), body))
        }
        Effect::EndCanary(key, uid) => Some((key.clone(), uid.clone(), json!({ "spec": { "canary": false } }))),
        Effect::Restore(_) => None,
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

/// A stable version that becomes the newest one.
#[derive(Debug)]
enum Restore {
    Make(Box<JobVersion>),
    /// It is there, and not yet marked.
    Mark(Arc<JobVersion>),
}

impl Restore {
    /// Creates the version, and marks it stable at once: what it runs was deployed successfully.
    async fn write<S: Store>(self, store: &S) -> Result<JobVersion, StoreError> {
        let version = match self {
            Self::Mark(made) => return prepare::mark_stable(store, &made).await,
            Self::Make(version) => version,
        };
        let intent = version.spec.intent.clone();
        let made = prepare::create_version(store, *version).await?;
        if made.spec.intent != intent {
            let name = made.metadata.name.unwrap_or_default();
            return Err(StoreError::Conflict(format!("{name} is a newer spec of the job")));
        }
        prepare::mark_stable(store, &made).await
    }
}

/// What became of what follows from a deployment's status.
#[derive(Debug, Default)]
pub(super) struct Acted {
    allocs: Vec<Result<Option<Allocation>, StoreError>>,
    versions: Vec<Result<JobVersion, StoreError>>,
}

impl Acted {
    /// The first of what did not happen.
    pub(super) fn error(&self) -> Option<&StoreError> {
        let allocs = self.allocs.iter().filter_map(|result| result.as_ref().err());
        allocs.chain(self.versions.iter().filter_map(|result| result.as_ref().err())).next()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use drover_api::deployment::GroupState;
    use futures::stream::BoxStream;

    use super::*;
    use drover_store::{Change, Object, Selection};

    /// An API server with one deployment, which checks preconditions.
    #[derive(Clone)]
    struct OneDeployment(Arc<Mutex<Value>>);

    impl OneDeployment {
        fn new(promoted: bool) -> Self {
            let mut object = Deployment::new("web-1", DeploymentSpec::default());
            object.metadata.resource_version = Some("7".to_owned());
            object.status = Some(status(promoted));
            Self(Arc::new(Mutex::new(json!(object))))
        }

        fn stored<K: Object>(&self) -> K {
            serde_json::from_value(self.0.lock().expect("no panic").clone()).expect("an object")
        }

        fn is_promoted(&self) -> bool {
            self.stored::<Deployment>().status.is_some_and(|status| status.groups["api"].promoted)
        }
    }

    impl Store for OneDeployment {
        async fn get<K: Object>(&self, _key: &Key) -> Result<Option<K>, StoreError> {
            Ok(Some(self.stored()))
        }

        async fn list<K: Object>(&self, _selection: &Selection) -> Result<Vec<K>, StoreError> {
            Ok(vec![self.stored()])
        }

        fn watch<K: Object>(&self, _selection: Selection) -> BoxStream<'static, Change<K>> {
            futures::stream::pending().boxed()
        }

        async fn create<K: Object>(&self, _object: &K) -> Result<K, StoreError> {
            Err(StoreError::AlreadyExists("it is there".to_owned()))
        }

        async fn apply<K: Object>(
            &self,
            key: &Key,
            part: Part,
            _manager: &'static str,
            _ownership: Ownership,
            precondition: &Precondition,
            body: Value,
        ) -> Result<K, StoreError> {
            self.merge(key, part, precondition, body).await
        }

        async fn merge<K: Object>(
            &self,
            _key: &Key,
            _part: Part,
            precondition: &Precondition,
            body: Value,
        ) -> Result<K, StoreError> {
            let mut object = self.0.lock().expect("no panic");
            let wanted = precondition.resource_version.as_deref();
            if wanted.is_some_and(|wanted| object["metadata"]["resourceVersion"] != wanted) {
                return Err(StoreError::Conflict("it was changed".to_owned()));
            }
            object["status"] = body["status"].clone();
            object["metadata"]["resourceVersion"] = json!("8");
            serde_json::from_value(object.clone()).map_err(|error| StoreError::Invalid(error.to_string()))
        }

        async fn replace<K: Object>(&self, _object: &K) -> Result<K, StoreError> {
            Err(StoreError::Forbidden("nobody replaces deployments".to_owned()))
        }

        async fn delete<K: Object>(&self, _key: &Key, _precondition: &Precondition) -> Result<(), StoreError> {
            Err(StoreError::Forbidden("nobody deletes deployments".to_owned()))
        }
    }

    fn status(promoted: bool) -> DeploymentStatus {
        let state = GroupState { promoted, desired_canaries: 1, desired_total: 3, ..GroupState::default() };
        DeploymentStatus {
            observed_generation: 1,
            groups: [("api".to_owned(), state)].into(),
            ..DeploymentStatus::default()
        }
    }

    /// What a plan of a leader that has not seen the promotion would write.
    fn stale(object: Option<Deployment>, precondition: Precondition) -> DeploymentWrite {
        let key = Key::namespaced("default", "web-1");
        DeploymentWrite { key, object: object.map(Box::new), precondition, status: status(false), stable: None }
    }

    #[tokio::test]
    async fn d_032_a_plan_on_a_stale_copy_does_not_take_a_promotion_back() {
        let store = OneDeployment::new(true);
        let seen = Precondition { uid: None, resource_version: Some("6".to_owned()) };
        let refused = stale(None, seen).write(&store).await;
        assert!(matches!(refused, Err(StoreError::Conflict(_))), "{refused:?}");
        // One that believes that it makes the deployment is refused too.
        let refused = stale(Some(store.stored()), Precondition::default()).write(&store).await;
        assert!(matches!(refused, Err(StoreError::Conflict(_))), "{refused:?}");
        assert!(store.is_promoted());
        // A plan that is refused so is made again, on what is there by then.
        assert_eq!(StoreError::Conflict(String::new()).class(), drover_store::ErrorClass::Conflict);
        let seen = Precondition { uid: None, resource_version: Some("7".to_owned()) };
        let write = DeploymentWrite { status: status(true), ..stale(None, seen) };
        assert!(write.write(&store).await.is_ok() && store.is_promoted());
    }
}
