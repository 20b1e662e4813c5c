//! What changes of jobs mean, and what an evaluation does: prepare, plan, assume, write; then the status.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use drover_api::allocation::DesiredStatus;
use drover_api::condition::{ConditionStatus, Wanted};
use drover_api::job::{BlockedEvaluation, EvalTrigger, EvaluationStatus, JobConditionType, JobReason, JobType};
use drover_api::{Job, JobVersion};
use drover_core::broker::blocked::BlockedVerdict;
use drover_core::broker::queue::{GivenBack, NextEvaluation};
use drover_core::definition::Definition;
use drover_core::evaluation_id::{self, Point};
use drover_core::ids::{AllocKey, EvalId, JobKey, Uid};
use drover_core::job_status::{self, Input, Reverted};
use drover_core::limits::Asked;
use drover_core::model::{self, Alloc};
use drover_core::periodic;
use drover_core::scheduler::attempts::{self, Attempts, Submitted};
use drover_core::scheduler::{self, explain::explain, plan::Evaluation, plan::Plan};
use drover_core::triggers::{self, JobFacts};
use drover_core::validate::{lacks_only_gateway, texts};
use drover_store::events::{Happening, Severity};
use drover_store::{ErrorClass, Key, Object, Precondition, StoreError, convert};
use k8s_openapi::api::core::v1::Namespace;
use serde_json::json;
use tokio::time::Instant;

use super::failures;
use super::periodic::PeriodicJobs;
use super::status::{self, Checked, Facts, JobState, pod_security};
use super::versions::{self, Prepared};
use crate::actions::{Action, GarbageKind};
use crate::cache::Observed;
use crate::finalizers;
use crate::keys::key_of;
use crate::plan_writes::{Writes, Written};
use crate::shared::{LastEvaluation, Notice, RETRY, Shared};
use crate::status_writes::{self, Last, Pending, WriteDue};
use crate::stored::Stored;
use crate::timers::Wake;
use crate::volumes;

/// When an evaluation whose plans were all refused is made again (`spec/scheduler.md` 2.5).
const EXHAUSTED: Duration = Duration::from_mins(1);

/// The jobs of a leader.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    pub(super) known: BTreeMap<JobKey, JobState>,
    /// How many allocations they ask for, against the limits.
    pub(super) asked: Asked,
}

impl Jobs {
    /// Takes in a job that is new, changed or gone.
    pub(crate) fn on_change(&mut self, shared: &mut Shared, observed: Observed<Job>) {
        shared.recorder.job(&observed);
        match observed {
            Observed::Now(object, before) => {
                let key = convert::object_key(&object.metadata);
                let parent = shared.caches.children.observe(&object);
                shared.due.jobs.extend(parent);
                if status::is_done(&object) {
                    self.release(shared, &key);
                }
                if let Some(trigger) = triggers::of_job(before.as_deref().map(facts), facts(&object)) {
                    self.adopt(shared, &key);
                    Self::report_scaling(shared, &object, before.as_deref());
                    shared.enqueue(&key, trigger);
                    if object.spec.parameterized.is_some() {
                        Self::look_at_dispatches(shared, &key);
                    }
                }
                shared.due.jobs.insert(key.clone());
                finalizers::free_job(shared, &key);
            }
            Observed::Gone(object) => {
                let key = convert::object_key(&object.metadata);
                shared.view.remove_job(&key);
                shared.evaluations.blocked.untrack(&key);
                shared.evaluations.last.remove(&key);
                self.known.remove(&key);
                self.release(shared, &key);
                shared.notify(Notice::Unscheduled(key.clone()));
                let parent = shared.caches.children.forget(&key);
                shared.due.jobs.extend(parent);
                shared.enqueue(&key, EvalTrigger::JobDeregister);
            }
        }
    }

    fn report_scaling(shared: &mut Shared, job: &Job, before: Option<&Job>) {
        let scaled = convert::scale(&job.spec);
        let Some((group, count)) = scaled.clone() else { return };
        if before.is_some_and(|before| convert::scale(&before.spec) != scaled) {
            let occasion = job.metadata.generation.unwrap_or(0).to_string();
            let note = format!("group {group} is scaled to {count}");
            shared.report(
                job,
                &Happening { severity: Severity::Normal, reason: "Scaled", action: "Scale", note, occasion: &occasion },
            );
        }
    }

    /// Takes in a version of a job; the job, where the version is new and its groups use volumes.
    pub(crate) fn on_version(&mut self, shared: &mut Shared, observed: &Observed<JobVersion>) -> Option<JobKey> {
        match observed {
            Observed::Now(object, before) => {
                let (job, uid) = version_owner(object);
                let number = object.spec.version;
                // A user may have called it stable, or not: the job's status shows it.
                if before.as_deref().is_some_and(|before| before.is_stable() != object.is_stable()) {
                    shared.due.jobs.insert(job.clone());
                }
                shared.caches.version_keys.entry(job.clone()).or_default().insert(Object::key(&**object));
                if shared.view.version(&job, &uid, number).is_some() {
                    return None;
                }
                let definition = Definition::new(&object.spec.job, &object.spec.job_name);
                self.restore(shared, &job, &definition);
                let has_volumes = definition.spec.groups.iter().any(|group| !group.volumes.is_empty());
                shared.view.put_version(job.clone(), uid, number, definition);
                has_volumes.then_some(job)
            }
            Observed::Gone(object) => {
                let (job, uid) = version_owner(object);
                if let Some(keys) = shared.caches.version_keys.get_mut(&job) {
                    keys.remove(&Object::key(&**object));
                    if keys.is_empty() {
                        shared.caches.version_keys.remove(&job);
                    }
                }
                shared.view.remove_version(&job, &uid, object.spec.version);
                None
            }
        }
    }

    pub(crate) fn on_namespace(shared: &mut Shared, seen: &Observed<Namespace>) {
        let Observed::Now(namespace, before) = seen else { return };
        let trigger = if namespace.metadata.deletion_timestamp.is_some() {
            EvalTrigger::JobDeregister
        } else if before.as_ref().is_some_and(|before| pod_security(before) != pod_security(namespace)) {
            EvalTrigger::JobRegister
        } else {
            return;
        };
        let name = namespace.metadata.name.clone().unwrap_or_default();
        let inside: Vec<JobKey> =
            shared.view.jobs().map(|job| job.key.clone()).filter(|job| *job.namespace == *name).collect();
        for job in inside {
            shared.enqueue(&job, trigger);
            shared.due.jobs.insert(job);
        }
    }

    fn namespace<'a>(shared: &'a Shared, name: &str) -> Option<&'a Namespace> {
        shared.caches.namespaces.get(&Key::cluster(name)).map(|namespace| &**namespace)
    }

    fn is_namespace_going(shared: &Shared, name: &str) -> bool {
        Self::namespace(shared, name).is_some_and(|namespace| namespace.metadata.deletion_timestamp.is_some())
    }

    /// The scheduler's settings are others: what waited for room may find some.
    pub(crate) fn on_settings(&mut self, shared: &mut Shared) {
        shared.view.set_settings(shared.config.scheduler.clone());
        for (job, _) in self.known.iter().filter(|(_, known)| known.blocked.is_some()) {
            shared.enqueue(job, EvalTrigger::QueuedAllocs);
        }
    }

    /// What an earlier leader wrote down of a job is where this one goes on.
    pub(crate) fn adopt(&mut self, shared: &mut Shared, key: &JobKey) {
        if self.known.contains_key(key) {
            return;
        }
        let stored = shared.job(key).and_then(|job| job.status.clone()).unwrap_or_default();
        let known = JobState { evaluations: stored.evaluations, blocked: stored.blocked, ..JobState::default() };
        self.known.insert(key.clone(), known);
    }

    /// Looks at one job and does what is needed.
    pub(crate) fn evaluate(&mut self, shared: &mut Shared, next: &NextEvaluation) {
        let key = next.job.clone();
        let Some(object) = shared.job(&key).cloned() else {
            shared.view.remove_job(&key);
            return self.carry_out(shared, next, None, &[]);
        };
        self.adopt(shared, &key);
        let versions = shared.versions_of(&key, convert::uid(&object.metadata).as_str());
        if versions::is_behind(&object, &versions) {
            // The watch brings the job as it is now, and that queues the evaluation.
            return Self::finish(shared, &key);
        }
        let is_namespace_going = Self::is_namespace_going(shared, &key.namespace);
        let is_going = object.spec.stop || object.metadata.deletion_timestamp.is_some() || is_namespace_going;
        let Some((object, checked)) = self.checked(shared, &key, &object, &versions) else { return };
        let (fresh, mut violations) = (
            Arc::clone(&checked.definition),
            checked.here(shared.config.has_gateway, Self::namespace(shared, &key.namespace)),
        );
        if is_going {
            self.release(shared, &key);
        } else if violations.is_empty() {
            violations = self.admit(shared, &key, &object, &fresh);
        }
        if is_going || !violations.is_empty() {
            let (number, definition) = versions.last().map_or((0, Arc::clone(&fresh)), |version| {
                let stored = shared.view.version(&key, &convert::uid(&object.metadata), version.spec.version).cloned();
                (version.spec.version, stored.unwrap_or_else(|| Arc::clone(&fresh)))
            });
            shared.view.put_job(convert::job(&object, number, definition, is_namespace_going).0);
            shared.notify(Notice::Unscheduled(key.clone()));
            if is_going {
                return self.carry_out(shared, next, Some(&object), &versions);
            }
            let note = texts(&violations);
            let reason = if lacks_only_gateway(&violations) { "PlacementFailed" } else { "InvalidSpec" };
            let (severity, action) = (Severity::Warning, "Validate");
            Self::report_for_generation(shared, &object, Happening { severity, reason, action, note, occasion: "" });
            // It has seen all that there is: its deployment must not ask again for what it knows already.
            shared.evaluations.last.entry(key.clone()).or_default().saw = Some(shared.view_index);
            return Self::finish(shared, &key);
        }
        let uid = convert::uid(&object.metadata);
        let known = |version: &JobVersion| {
            let stored = shared.view.version(&key, &uid, version.spec.version).cloned();
            stored.unwrap_or_else(|| Definition::new(&version.spec.job, &key.name))
        };
        match versions::prepare(&key, &object, &versions, shared.clock.now(), known) {
            Ok(version) => {
                let definition = known(&version);
                let is_template = periodic::is_template(&definition.spec);
                shared.view.put_job(convert::job(&object, version.spec.version, definition, false).0);
                if is_template {
                    return Self::keep_template(shared, &key, &object, &versions);
                }
                self.carry_out(shared, next, Some(&object), &versions);
            }
            Err(preparation) => {
                shared.outbox.push(Action::Prepare(preparation, next.trigger));
            }
        }
    }

    /// A periodic or parameterized job places nothing itself: it launches others.
    fn keep_template(shared: &mut Shared, key: &JobKey, object: &Job, versions: &[Arc<JobVersion>]) {
        Self::prune(shared, key, object, versions);
        shared.notify(Notice::Scheduled(key.clone()));
        Self::finish(shared, key);
    }

    /// Reports a happening of the job's present generation: the same one again is the same event.
    fn report_for_generation(shared: &mut Shared, job: &Job, happening: Happening<'_>) {
        let occasion = job.metadata.generation.unwrap_or(0).to_string();
        shared.report(job, &Happening { occasion: &occasion, ..happening });
    }

    pub(crate) fn on_prepared(shared: &mut Shared, job: &JobKey, trigger: EvalTrigger, prepared: Box<Prepared>) {
        if let Some(object) = prepared.job
            && let Some(Observed::Now(object, _)) = shared.caches.jobs.update(object)
        {
            shared.due.jobs.insert(convert::object_key(&object.metadata));
        }
        if let Some(version) = prepared.version {
            if let (0, Some(object)) = (version.spec.version, shared.job(job).cloned()) {
                let note = "drover has taken the job on".to_owned();
                let (severity, reason, action) = (Severity::Normal, "Registered", "Register");
                Self::report_for_generation(
                    shared,
                    &object,
                    Happening { severity, reason, action, note, occasion: "" },
                );
                Self::report_dispatch(shared, job);
            }
            let observed = shared.caches.versions.observe(version);
            shared.notify_all(observed.map(Notice::Version));
        }
        Self::finish(shared, job);
        match prepared.error {
            None => shared.enqueue(job, trigger),
            // The watch brings what is there now, and that queues the evaluation where it still matters.
            Some(StoreError::NotFound(_)) => {}
            Some(error) => {
                tracing::warn!(%job, %error, "a job could not be prepared");
                Self::make_again(shared, job, trigger, error.class());
            }
        }
    }

    /// Makes an evaluation again that could not be carried out: soon where the API server could not be reached or
    /// another writer was first, ever later where it refuses what is written.
    fn make_again(shared: &mut Shared, job: &JobKey, trigger: EvalTrigger, class: ErrorClass) {
        let (pause, trigger) = match class {
            ErrorClass::Conflict => (RETRY / 10, trigger),
            ErrorClass::Transient => (RETRY, trigger),
            ErrorClass::Permanent => match shared.evaluations.broker.give_back(job, &mut shared.rng) {
                GivenBack::Again(pause) => (pause, trigger),
                GivenBack::Failed(pause) => (pause, EvalTrigger::FailedFollowUp),
            },
        };
        shared.wake_in(pause, Wake::Evaluate(job.clone(), trigger));
    }

    /// The evaluation of a job is done: another one may follow, and a deleted job may go.
    fn finish(shared: &mut Shared, job: &JobKey) {
        shared.evaluations.broker.finish(job);
        shared.due.jobs.insert(job.clone());
        shared.notify(Notice::Evaluated(job.clone()));
        finalizers::free_job(shared, job);
    }

    /// Plans, and writes what the plan says.
    fn carry_out(
        &mut self,
        shared: &mut Shared,
        next: &NextEvaluation,
        object: Option<&Job>,
        versions: &[Arc<JobVersion>],
    ) {
        let now = shared.clock.now();
        let job = &next.job;
        let priority = shared.view.job(job).map_or(50, |job| job.definition.spec.priority);
        tracing::debug!(%job, trigger = %next.trigger, "a job is evaluated");
        let evaluation = Evaluation {
            id: self.id(shared, next, object),
            job: job.clone(),
            trigger: next.trigger,
            priority,
            now,
            wait_until: next.wait_until,
        };
        let mut plan = scheduler::plan(&shared.view, &evaluation, &mut shared.rng);
        let planned = shared.view.job(job).cloned();
        let refused = scheduler::apply::admit(&shared.view, planned.as_deref(), &mut plan);
        for (node, why) in &refused {
            tracing::warn!(%job, %node, %why, "a node takes nothing of a plan");
        }
        scheduler::apply::finish_lost(&shared.view, job, &mut plan);
        if let Some(reason) = &plan.refused {
            tracing::warn!(%job, reason, "an evaluation was refused");
        }
        shared.count_search(job, &plan);
        for follow_up in &plan.follow_ups {
            shared.evaluations.broker.delay(job, follow_up);
        }
        if let Some(object) = object {
            self.remember(shared, &evaluation, &plan, object);
            Self::prune(shared, job, object, versions);
        }
        shared.due.jobs.insert(job.clone());
        if !refused.is_empty() {
            // Nothing else would come back to what is missing.
            Self::make_again(shared, job, next.trigger, ErrorClass::Permanent);
        }
        if plan.is_empty() {
            Self::finish(shared, job);
            return;
        }
        let siblings: Vec<Arc<Alloc>> = shared.view.allocs_of_job(job).cloned().collect();
        let is_per_node = shared
            .view
            .job(job)
            .is_some_and(|job| matches!(job.definition.job_type(), JobType::System | JobType::Sysbatch));
        let eval_id = evaluation.id.as_str();
        let stored = Stored { job: object, siblings: &siblings, versions, caches: &shared.caches, eval_id };
        let writes = Writes::new(job, &plan, &stored, is_per_node, now);
        let created = Self::assume(shared, &plan, &writes);
        shared.evaluations.n_plans += 1;
        shared.outbox.push(Action::Plan(Box::new(writes), created));
    }

    /// The id of an evaluation: that of the job's state, which others may wait for, where none has seen it yet.
    fn id(&self, shared: &Shared, next: &NextEvaluation, object: Option<&Job>) -> EvalId {
        let job_uid = object.and_then(|job| job.metadata.uid.as_deref()).unwrap_or_default();
        let id = match object {
            Some(object) if self.is_new(&next.job, Point::of(object)) => {
                evaluation_id::of_point(job_uid, Point::of(object))
            }
            Some(_) | None => evaluation_id::of_leader(job_uid, &shared.identity, next.number),
        };
        EvalId::from(id)
    }

    /// Whether no evaluation that is shown has seen this state of a job.
    fn is_new(&self, job: &JobKey, point: Point) -> bool {
        let shown = self.known.get(job).map(|known| &known.evaluations[..]).unwrap_or_default();
        !shown.iter().any(|one| Point { generation: one.generation, asked: one.asked }.covers(point))
    }

    /// Puts what is about to be written into the view, so that no other plan gives the same room away.
    fn assume(shared: &mut Shared, plan: &Plan, writes: &Writes) -> Vec<AllocKey> {
        for stop in plan.stops.iter().chain(plan.replaced()) {
            let client = stop.client.unwrap_or(stop.alloc.client);
            let follow_up = stop.follow_up.clone().or_else(|| stop.alloc.follow_up.clone());
            shared.view.put_alloc(Alloc { desired: stop.desired, client, follow_up, ..(*stop.alloc).clone() });
        }
        for (victim, _) in plan.preempted() {
            shared.view.put_alloc(Alloc { desired: DesiredStatus::Evict, ..(**victim).clone() });
        }
        for update in &plan.in_place {
            let (resources, deployment) = (Arc::clone(&update.resources), update.deployment.clone());
            let job_version = update.job_version;
            shared.view.put_alloc(Alloc { job_version, resources, deployment, ..(*update.alloc).clone() });
        }
        let now = shared.clock.now();
        let mut created = Vec::new();
        for object in writes.creates() {
            let mut alloc = convert::alloc(object);
            alloc.created_at = now;
            let key = alloc.key.clone();
            shared.view.put_alloc(alloc);
            volumes::assume_claims(shared, &key);
            created.push(key);
        }
        created
    }

    /// Notes the outcome of an evaluation for the status.
    fn remember(&mut self, shared: &mut Shared, evaluation: &Evaluation, plan: &Plan, object: &Job) {
        let job = &evaluation.job;
        let job_type = shared.view.job(job).map_or(JobType::Service, |job| job.definition.job_type());
        let index = shared.view_index;
        let (point, deployment_name) = (Point::of(object), deployment_of(shared, job, plan));
        let is_new = self.is_new(job, point);
        let Some(known) = self.known.get_mut(job) else { return };
        let last = LastEvaluation { saw: Some(index), held_back: plan.held_back };
        shared.evaluations.last.insert(job.clone(), last);
        if !plan.is_blocked {
            shared.evaluations.blocked.untrack(job);
        } else if shared.evaluations.blocked.block(job, plan.waits_for.clone(), index) == BlockedVerdict::Again {
            shared.recorder.asked(job);
            shared.evaluations.broker.enqueue(job, EvalTrigger::QueuedAllocs, evaluation.priority);
        }
        let waited = known.blocked.as_ref().map(|blocked| EvalId::from(blocked.id.clone()));
        let ended = attempts::end(job_type, evaluation, plan, attempts::NextAttempt::Done, waited.as_ref());
        known.queued.clone_from(&plan.queued);
        let is_news = match &known.blocked {
            None => !plan.failed.is_empty(),
            Some(blocked) => causes(&blocked.failed) != causes(&plan.failed),
        };
        known.blocked = (!plan.failed.is_empty()).then(|| BlockedEvaluation {
            id: known.blocked.as_ref().map_or_else(|| evaluation.id.to_string(), |blocked| blocked.id.clone()),
            since: known.blocked.as_ref().map_or(evaluation.now, |blocked| blocked.since),
            failed: plan.failed.clone(),
        });
        // Clients wait for the first one of each state, whatever it does.
        if plan.is_empty() && !is_news && !is_new {
            return;
        }
        known.record(EvaluationStatus {
            id: evaluation.id.to_string(),
            trigger: evaluation.trigger,
            status: ended.status,
            description: plan.refused.clone().unwrap_or_default(),
            priority: evaluation.priority,
            time: evaluation.now,
            failed: plan.failed.clone(),
            generation: point.generation,
            asked: point.asked,
            deployment_name,
        });
        if is_news && !plan.failed.is_empty() {
            let note: Vec<String> =
                plan.failed.iter().map(|(group, metric)| format!("group {group}: {}", explain(metric))).collect();
            let occasion = format!("{} {}", object.metadata.generation.unwrap_or(0), causes(&plan.failed));
            let happening = Happening {
                severity: Severity::Warning,
                reason: "PlacementFailed",
                action: "Place",
                note: note.join("; "),
                occasion: &occasion,
            };
            shared.report(object, &happening);
        }
    }

    /// Deletes versions that nothing keeps any more.
    fn prune(shared: &mut Shared, job: &JobKey, object: &Job, versions: &[Arc<JobVersion>]) {
        if versions.len() <= versions::KEPT_VERSIONS {
            return;
        }
        let in_use: std::collections::BTreeSet<i64> =
            shared.view.allocs_of_job(job).map(|alloc| alloc.job_version).collect();
        for version in versions::surplus(versions, |number| in_use.contains(&number)) {
            let (key, precondition) = (Object::key(&**version), Precondition::same_object(&version.metadata));
            tracing::debug!(job = %job, version = version.spec.version, generation = object.metadata.generation, "a version is no longer kept");
            shared.outbox.push(Action::Collect(GarbageKind::Version, key, precondition));
        }
    }

    pub(crate) fn on_applied(&mut self, shared: &mut Shared, job: &JobKey, created: Vec<AllocKey>, written: Written) {
        shared.count_plan(job, &written);
        let n_written = written.created.len() + written.changed.len();
        shared.evaluations.n_plans = shared.evaluations.n_plans.saturating_sub(1);
        for object in written.deployments {
            let observed = shared.caches.deployments.observe(object);
            shared.notify_all(observed.map(Notice::Deployment));
        }
        for version in written.versions {
            let observed = shared.caches.versions.observe(version);
            shared.notify_all(observed.map(Notice::Version));
        }
        for object in written.created {
            let observed = shared.caches.allocs.observe(object);
            shared.notify_all(observed.map(Notice::Allocation));
        }
        for object in written.changed {
            let observed = shared.caches.allocs.update(object);
            shared.notify_all(observed.map(Notice::Allocation));
        }
        for key in written.gone {
            if let Some(last) = shared.caches.allocs.forget(&key) {
                shared.recorder.allocation(&Observed::Gone(last));
            }
            if let Some(namespace) = &key.namespace {
                shared.view.remove_alloc(&AllocKey::new(namespace.as_str(), key.name.as_str()));
            }
        }
        let mut missing = written.failed.len();
        let is_refusal = |error: &StoreError| matches!(error, StoreError::Conflict(_));
        let fault = written.failed.iter().find(|(_, error)| !is_refusal(error)).map(|(_, error)| error.class());
        for (key, error) in &written.failed {
            tracing::warn!(%job, allocation = %key, %error, "a part of a plan was not written");
            Self::unassume(shared, key);
        }
        for key in &written.untouched {
            Self::unassume(shared, key);
        }
        let unmade: Vec<AllocKey> =
            created.into_iter().filter(|key| shared.caches.allocs.get(&key_of(key)).is_none()).collect();
        shared.count_unmade(job, unmade.len());
        missing += unmade.len();
        for key in &unmade {
            volumes::unassume_claims(shared, key);
            shared.view.remove_alloc(key);
        }
        Self::finish(shared, job);
        shared.due.jobs.insert(job.clone());
        let submitted = match (missing, n_written) {
            (0, _) => Submitted::Whole,
            (_, 0) => Submitted::Nothing,
            _ => Submitted::Part,
        };
        self.try_again(shared, job, submitted, fault);
    }

    /// Plans again what could not be written: at once where another writer came in between, but not without end; after
    /// a pause where the API server could not be reached, which says nothing of the plan.
    fn try_again(&mut self, shared: &mut Shared, job: &JobKey, submitted: Submitted, fault: Option<ErrorClass>) {
        let job_type = shared.view.job(job).map_or(JobType::Service, |job| job.definition.job_type());
        let Some(known) = self.known.get_mut(job) else { return };
        match fault {
            Some(class) if submitted != Submitted::Whole => {
                return Self::make_again(shared, job, EvalTrigger::QueuedAllocs, class);
            }
            Some(_) | None => shared.evaluations.broker.acknowledge(job),
        }
        match known.attempts.get_or_insert(Attempts::of(job_type)).after(submitted) {
            attempts::NextAttempt::Done => known.attempts = None,
            attempts::NextAttempt::Again => {
                shared.wake_in(RETRY / 10, Wake::Evaluate(job.clone(), EvalTrigger::QueuedAllocs));
            }
            attempts::NextAttempt::Exhausted => {
                known.attempts = None;
                tracing::warn!(%job, "every plan of an evaluation was refused; it is made again later");
                if scheduler::accepts(job_type, EvalTrigger::MaxPlanAttempts) {
                    shared.wake_in(EXHAUSTED, Wake::Evaluate(job.clone(), EvalTrigger::MaxPlanAttempts));
                }
            }
        }
    }

    /// Takes an assumption back: what is stored counts.
    fn unassume(shared: &mut Shared, key: &drover_store::Key) {
        match shared.caches.allocs.get(key).cloned() {
            Some(object) => shared.put_stored(&object),
            None => {
                if let Some(namespace) = &key.namespace {
                    let alloc = AllocKey::new(namespace.as_str(), key.name.as_str());
                    // What it was to hold is known as long as it is in the view.
                    volumes::unassume_claims(shared, &alloc);
                    shared.view.remove_alloc(&alloc);
                }
            }
        }
    }

    /// Takes in what keeps a job's services from being found, or that nothing does any more.
    pub(crate) fn on_services(
        &mut self,
        shared: &mut Shared,
        job: &JobKey,
        condition: Option<Wanted<JobConditionType, JobReason>>,
    ) {
        let Some(known) = self.known.get_mut(job) else { return };
        if known.services != condition {
            known.services = condition;
            shared.due.jobs.insert(job.clone());
        }
    }

    /// Writes a job's status where it differs.
    pub(crate) fn refresh(&mut self, shared: &mut Shared, launches: &PeriodicJobs, key: &JobKey) {
        let Some(object) = shared.job(key).cloned() else { return };
        let Some(job) = shared.view.job(key).cloned() else { return };
        if shared.evaluations.broker.is_busy(key) && job.generation != object.metadata.generation.unwrap_or(0) {
            return;
        }
        if let Some(newer) = object.status.as_ref().and_then(|status| status.version).filter(|told| *told > job.version)
            && self.known.get(key).is_some_and(|known| known.fetched_version != Some(newer))
        {
            return self.fetch_version(shared, key, newer);
        }
        let Some(wanted) = self.wanted_status(shared, launches, &object, &job) else { return };
        let Some(known) = self.known.get_mut(key) else { return };
        if known.is_writing {
            return;
        }
        let stored = object.status.as_ref().filter(|status| known.sent.is_none() && status.observed_generation >= 0);
        let stored = stored.map(|status| json!(status));
        let (last, sent_at) = match &known.sent {
            Some((sent, at)) => (Some(&**sent), Some(*at)),
            None => (stored.as_ref(), None),
        };
        let is_rolling = shared.view.latest_deployment(key).is_some_and(|latest| latest.phase.is_active());
        let pending = Pending { is_planning: shared.evaluations.broker.is_under_way(key), is_rolling };
        let now = Instant::now();
        let differs_since = *known.differs_since.get_or_insert(now);
        match status_writes::due(&wanted, Last { status: last, sent_at, differs_since }, pending, now) {
            WriteDue::Never => known.differs_since = None,
            WriteDue::At(at) => drop(shared.wake_at(at, Wake::JobStatus(key.clone()))),
            WriteDue::Now => {
                known.is_writing = true;
                known.differs_since = None;
                known.sent = Some((Arc::clone(&wanted), now));
                let unchanged = Precondition::unchanged(&object.metadata);
                shared.outbox.push(Action::JobStatus(key.clone(), unchanged, wanted));
            }
        }
    }

    /// Asks for a version that the stored status names, and that the watch of versions has not brought yet: what is
    /// known without it is older than what was told before.
    fn fetch_version(&mut self, shared: &mut Shared, job: &JobKey, number: i64) {
        let Some(known) = self.known.get_mut(job).filter(|known| !known.is_writing) else { return };
        known.is_writing = true;
        shared.outbox.push(Action::FetchVersion(job.clone(), number));
    }

    pub(crate) fn on_version_fetched(
        &mut self,
        shared: &mut Shared,
        job: &JobKey,
        number: i64,
        result: Result<Option<JobVersion>, StoreError>,
    ) {
        let Some(known) = self.known.get_mut(job) else { return };
        known.is_writing = false;
        let found = match result {
            Ok(found) => found,
            Err(error) => {
                tracing::debug!(%job, number, %error, "a version could not be read");
                return shared.wake_in(RETRY, Wake::JobStatus(job.clone()));
            }
        };
        known.fetched_version = Some(number);
        shared.due.jobs.insert(job.clone());
        if let Some(version) = found {
            let observed = shared.caches.versions.observe(version);
            shared.notify_all(observed.map(Notice::Version));
            shared.enqueue(job, EvalTrigger::JobRegister);
        }
    }

    /// A job with its whole spec, complete, and all that is wrong with it.
    fn checked(
        &mut self,
        shared: &mut Shared,
        key: &JobKey,
        object: &Arc<Job>,
        versions: &[Arc<JobVersion>],
    ) -> Option<(Arc<Job>, Checked)> {
        let (whole, of_dispatch) = Self::whole(shared, key, object, versions);
        if Arc::ptr_eq(&whole, object) && of_dispatch.is_empty() {
            return Some((whole, self.known.get_mut(key)?.checked(object, &key.name).clone()));
        }
        // What a dispatch is depends on its parent too, so that no earlier look at it counts.
        let mut checked = Checked::new(&whole, &key.name);
        if !of_dispatch.is_empty() {
            checked.violations = of_dispatch.into();
        }
        Some((whole, checked))
    }

    fn wanted_status(
        &mut self,
        shared: &mut Shared,
        launches: &PeriodicJobs,
        object: &Arc<Job>,
        job: &model::Job,
    ) -> Option<Arc<serde_json::Value>> {
        let key = &job.key;
        let uid = convert::uid(&object.metadata);
        let versions = shared.versions_of(key, uid.as_str());
        let (whole, checked) = self.checked(shared, key, object, &versions)?;
        let over_limit = self.known.get(key).and_then(|known| known.over_limit.clone());
        let violations = match over_limit {
            _ if job.stopped => [].into(),
            over_limit => {
                let here = checked.here(shared.config.has_gateway, Self::namespace(shared, &key.namespace));
                if here.is_empty() { over_limit.into_iter().collect() } else { here }
            }
        };
        let object = &*whole;
        let allocs: Vec<Arc<Alloc>> =
            shared.view.allocs_of_job(key).filter(|alloc| alloc.job_uid == uid).cloned().collect();
        let (_, override_) = convert::job(object, job.version, Arc::clone(&job.definition), false);
        let version = versions
            .iter()
            .find(|version| version.spec.version == job.version)
            .map(|version| (job.version, version.is_stable()));
        let (now, known) = (shared.clock.now(), self.known.get(key)?);
        let failed = known.blocked.as_ref().map(|blocked| blocked.failed.clone()).unwrap_or_default();
        let deployment = shared.view.latest_deployment(key).map(|latest| &**latest);
        let deployment = deployment.filter(|one| one.job_uid == uid && one.job_version == job.version);
        let reverted = versions
            .last()
            .filter(|newest| newest.spec.version == job.version && versions::stands_for(newest, &versions, object))
            .map(|newest| Reverted { version: job.version, restored: newest.spec.revert_of.unwrap_or(0) });
        let failure = failures::last_failure(shared, job, &allocs, reverted);
        let stopper = convert::stopper(&object.metadata);
        let mut verdict = job_status::judge(Input {
            job,
            // Stopped although its spec does not say so: it goes with its namespace.
            is_ending: object.metadata.deletion_timestamp.is_some() || (job.stopped && !object.spec.stop),
            allocs: &allocs,
            is_evaluating: shared.evaluations.broker.is_busy(key),
            failed: &failed,
            queued: &known.queued,
            held_back: shared.evaluations.last.get(key).map_or(0, |last| last.held_back),
            deployment,
            reverted,
            stopper: stopper.as_ref(),
            failure: failure.as_ref(),
            blocked_since: known.blocked.as_ref().map(|blocked| blocked.since),
            violations: &violations,
            children: shared.caches.children.summary(key, &uid),
            scaled: override_.as_ref().map(|(group, count, manifest)| (group.as_str(), *count, *manifest)),
            now,
        });
        verdict.conditions.extend(self.known.get(key).and_then(|known| known.services.clone()));
        let wake_at = verdict.wake_at;
        let group = convert::scale(&object.spec).or_else(|| {
            let only = job.definition.spec.groups.first()?;
            Some((only.name.clone(), only.count))
        });
        let scaled = group.map(|(group, _)| {
            let count = job.counts.get(&group).copied().unwrap_or(0);
            (group, count)
        });
        let is_complete = verdict.conditions.iter().any(|condition| {
            condition.r#type == JobConditionType::Complete && condition.status == ConditionStatus::True
        });
        let was_complete = object.status.iter().flat_map(|status| &status.conditions).any(|condition| {
            condition.r#type == JobConditionType::Complete && condition.status == ConditionStatus::True
        });
        let is_unsettled = verdict
            .conditions
            .iter()
            .any(|condition| condition.r#type == JobConditionType::Ready && condition.status != ConditionStatus::True);
        let mut wanted = status::desired(object, verdict, known, &Facts { version, scaled, deployment, now });
        wanted.reverted_generation = reverted.and(versions.last()).map(|newest| newest.spec.job_generation);
        launches.add_to(shared, key, object, &mut wanted);
        if let Some(at) = wake_at {
            let at = shared.instant_of(at);
            shared.wake_at(at, Wake::JobStatus(key.clone()));
        }
        let told = failure.filter(|_| is_unsettled).zip(self.known.get_mut(key));
        if let Some((failure, known)) = told {
            failures::report(known, shared, object, &failure);
        }
        if is_complete && !was_complete {
            let note = "all allocations are complete".to_owned();
            let (severity, reason, action) = (Severity::Normal, "Completed", "Run");
            Self::report_for_generation(shared, object, Happening { severity, reason, action, note, occasion: "" });
        }
        Some(self.known.get_mut(key)?.wanted.json(wanted))
    }

    pub(crate) fn on_job_status(&mut self, shared: &mut Shared, key: &JobKey, result: Result<Job, StoreError>) {
        if let Some(known) = self.known.get_mut(key) {
            known.is_writing = false;
            if result.is_err() {
                known.sent = None;
            }
        }
        match result {
            Ok(object) => {
                // The watch says nothing of what the answer has told already.
                let observed = shared.caches.jobs.update(object);
                shared.notify_all(observed.map(Notice::Job));
                shared.due.jobs.insert(key.clone());
            }
            Err(StoreError::NotFound(_)) => {}
            // Somebody else wrote in between. The watch may have shown it while this write was under way, so nothing
            // else asks again.
            Err(StoreError::Conflict(_)) => shared.wake_in(RETRY / 10, Wake::JobStatus(key.clone())),
            Err(error) => {
                tracing::warn!(job = %key, %error, "a job's status was not written");
                shared.wake_in(RETRY, Wake::JobStatus(key.clone()));
            }
        }
    }

    pub(crate) fn on_job_freed(shared: &mut Shared, key: &JobKey, result: Result<Option<Job>, StoreError>) {
        match result {
            Ok(Some(object)) => drop(shared.caches.jobs.update(object)),
            Ok(None) => {}
            Err(StoreError::Conflict(_)) => shared.wake_in(RETRY / 10, Wake::FreeJob(key.clone())),
            Err(error) => {
                tracing::warn!(job = %key, %error, "the finalizer of a job could not be removed");
                shared.wake_in(RETRY, Wake::FreeJob(key.clone()));
            }
        }
    }
}

fn facts(job: &Job) -> JobFacts<'_> {
    JobFacts {
        uid: job.metadata.uid.as_deref().unwrap_or_default(),
        point: Point::of(job),
        is_deleting: job.metadata.deletion_timestamp.is_some(),
        is_stopped: job.spec.stop,
        is_launch: periodic::launch_of(&job.spec.id).is_some(),
    }
}

/// The deployment that a plan makes, or that rolls out what it is about.
fn deployment_of(shared: &Shared, key: &JobKey, plan: &Plan) -> String {
    if let Some(made) = &plan.deployment {
        return made.name.to_string();
    }
    let version = shared.view.job(key).map(|job| job.version);
    let latest = shared
        .view
        .latest_deployment(key)
        .filter(|latest| latest.phase.is_active() && Some(latest.job_version) == version);
    latest.map(|latest| latest.key.name.to_string()).unwrap_or_default()
}

fn version_owner(version: &JobVersion) -> (JobKey, Uid) {
    let namespace = version.metadata.namespace.clone().unwrap_or_default();
    (JobKey::new(namespace, version.spec.job_name.clone()), Uid::from(version.spec.job_uid.clone()))
}

/// Why groups found no place, without the counts that move with every look: what left nodes out and what ran out. Which
/// nodes are not there is told where none is: a node that registers or goes is no news of the others.
fn causes(failed: &BTreeMap<String, drover_api::metric::AllocMetric>) -> String {
    let of_group = failed.iter().map(|(group, metric)| {
        let causes = metric.constraint_filtered.keys().chain(metric.dimension_exhausted.keys());
        let unavailable = metric.nodes_unavailable.keys().filter(|_| metric.nodes_evaluated == 0);
        let causes: Vec<&str> = causes.chain(unavailable).map(String::as_str).collect();
        format!("{group}: {}", causes.join(", "))
    });
    of_group.collect::<Vec<_>>().join("; ")
}
