//! What changes of jobs mean, and what an evaluation does: prepare, plan, assume, write; then the status.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use drover_api::allocation::DesiredStatus;
use drover_api::condition::ConditionStatus;
use drover_api::job::{BlockedEvaluation, EvalTrigger, EvaluationStatus, JobConditionType, JobType};
use drover_api::{Allocation, Job, JobVersion, finalizer, names};
use drover_core::broker::blocked::Verdict;
use drover_core::broker::queue::{GivenBack, Next};
use drover_core::definition::Definition;
use drover_core::ids::{AllocKey, EvalId, JobKey, Uid};
use drover_core::job_status::{self, Input, Reverted};
use drover_core::model::{self, Alloc};
use drover_core::periodic;
use drover_core::scheduler::attempts::{self, Attempts, Submitted};
use drover_core::scheduler::{self, explain::explain, plan::Evaluation, plan::Plan};
use k8s_openapi::api::core::v1::Namespace;
use serde_json::json;
use tokio::time::Instant;

use crate::allocation::found;
use crate::apply::{Writes, Written, key_of};
use crate::cache::Seen;
use crate::prepare::{self, Prepared};
use crate::status::{self, Calm, Checked, Due, Knowledge};
use crate::term::{Done, RETRY, Term, Wake, there};
use drover_store::convert;
use drover_store::events::{Happening, Severity};
use drover_store::{ErrorClass, Part, Precondition, Store, StoreError};

/// When an evaluation whose plans were all refused is made again (`spec/scheduler.md` 2.5).
const EXHAUSTED: Duration = Duration::from_mins(1);

impl<S: Store> Term<S> {
    pub(super) fn on_job(&mut self, seen: Seen<Job>) {
        self.numbers.job(&seen);
        match seen {
            Seen::Now(object, before) => {
                let key = convert::object_key(&object.metadata);
                self.dirty_jobs.extend(self.families.observe(&object));
                let is_other = before.as_ref().is_none_or(|before| {
                    before.metadata.generation != object.metadata.generation
                        || before.metadata.uid != object.metadata.uid
                        || before.metadata.deletion_timestamp != object.metadata.deletion_timestamp
                });
                if is_other {
                    self.adopt_knowledge(&key);
                    self.report_scaling(&object, before.as_deref());
                    let is_going = object.spec.stop || object.metadata.deletion_timestamp.is_some();
                    let is_launch = before.is_none() && periodic::launch_of(&object.spec.id).is_some();
                    let trigger = match (is_going, is_launch) {
                        (true, _) => EvalTrigger::JobDeregister,
                        (false, true) => EvalTrigger::PeriodicJob,
                        (false, false) => EvalTrigger::JobRegister,
                    };
                    self.enqueue(&key, trigger);
                    if object.spec.parameterized.is_some() {
                        self.look_at_dispatches(&key);
                    }
                }
                self.dirty_jobs.insert(key.clone());
                self.free_job(&key);
            }
            Seen::Gone(object) => {
                let key = convert::object_key(&object.metadata);
                self.view.remove_job(&key);
                self.forget_plugin_job(&key);
                self.blocked.untrack(&key);
                self.known.remove(&key);
                self.disarm_launches(&key);
                self.dirty_jobs.extend(self.families.forget(&key));
                self.enqueue(&key, EvalTrigger::JobDeregister);
            }
        }
    }

    fn report_scaling(&mut self, job: &Job, before: Option<&Job>) {
        let scaled = convert::scale(&job.spec);
        let Some((group, count)) = scaled.clone() else { return };
        if before.is_some_and(|before| convert::scale(&before.spec) != scaled) {
            let occasion = job.metadata.generation.unwrap_or(0).to_string();
            let note = format!("group {group} is scaled to {count}");
            self.report(
                job,
                &Happening { severity: Severity::Normal, reason: "Scaled", action: "Scale", note, occasion: &occasion },
            );
        }
    }

    pub(super) fn on_version(&mut self, seen: Seen<JobVersion>) {
        match seen {
            Seen::Now(object, _) => {
                let (job, uid) = version_owner(&object);
                let number = object.spec.version;
                self.version_keys.entry(job.clone()).or_default().insert(drover_store::Object::key(&*object));
                if self.view.version(&job, &uid, number).is_none() {
                    let definition = Definition::new(&object.spec.job, &object.spec.job_name);
                    let has_volumes = definition.spec.groups.iter().any(|group| !group.volumes.is_empty());
                    self.view.put_version(job.clone(), uid, number, definition);
                    if has_volumes {
                        self.note_claims_of(&job);
                    }
                }
            }
            Seen::Gone(object) => {
                let (job, uid) = version_owner(&object);
                if let Some(keys) = self.version_keys.get_mut(&job) {
                    keys.remove(&drover_store::Object::key(&*object));
                    if keys.is_empty() {
                        self.version_keys.remove(&job);
                    }
                }
                self.view.remove_version(&job, &uid, object.spec.version);
            }
        }
    }

    pub(super) fn on_namespace(&mut self, seen: &Seen<Namespace>) {
        let Some(namespace) = there(seen) else { return };
        if namespace.metadata.deletion_timestamp.is_none() {
            return;
        }
        let name = namespace.metadata.name.clone().unwrap_or_default();
        let inside: Vec<JobKey> =
            self.view.jobs().map(|job| job.key.clone()).filter(|job| *job.namespace == *name).collect();
        for job in inside {
            self.enqueue(&job, EvalTrigger::JobDeregister);
        }
    }

    fn is_namespace_going(&self, name: &str) -> bool {
        let namespace = self.namespaces.get(&drover_store::Key::cluster(name));
        namespace.is_some_and(|namespace| namespace.metadata.deletion_timestamp.is_some())
    }

    /// What an earlier leader wrote down of a job is where this one goes on.
    pub(super) fn adopt_knowledge(&mut self, key: &JobKey) {
        if self.known.contains_key(key) {
            return;
        }
        let stored = self.jobs.get(&key_of(key)).and_then(|job| job.status.clone()).unwrap_or_default();
        let known = Knowledge { evaluations: stored.evaluations, blocked: stored.blocked, ..Knowledge::default() };
        self.known.insert(key.clone(), known);
    }

    /// The versions of an incarnation of a job, oldest first.
    pub(super) fn versions_of(&self, job: &JobKey, uid: &str) -> Vec<Arc<JobVersion>> {
        let keys = self.version_keys.get(job).into_iter().flatten();
        let mut versions: Vec<_> = keys
            .filter_map(|key| self.versions.get(key))
            .filter(|version| version.spec.job_uid == uid)
            .cloned()
            .collect();
        versions.sort_by_key(|version| version.spec.version);
        versions
    }

    /// Looks at one job and does what is needed.
    pub(super) fn evaluate(&mut self, next: &Next) {
        let key = next.job.clone();
        let Some(object) = self.jobs.get(&key_of(&key)).cloned() else {
            self.view.remove_job(&key);
            return self.carry_out(next, None, &[]);
        };
        self.adopt_knowledge(&key);
        let versions = self.versions_of(&key, convert::uid(&object.metadata).as_str());
        if prepare::is_behind(&object, &versions) {
            // The watch brings the job as it is now, and that queues the evaluation.
            return self.finish(&key);
        }
        let is_namespace_going = self.is_namespace_going(&key.namespace);
        let is_going = object.spec.stop || object.metadata.deletion_timestamp.is_some() || is_namespace_going;
        let Some((object, checked)) = self.checked(&key, &object, &versions) else { return };
        let (fresh, violations) = (checked.definition, checked.violations);
        if is_going || !violations.is_empty() {
            let (number, definition) = versions.last().map_or((0, Arc::clone(&fresh)), |version| {
                let stored = self.view.version(&key, &convert::uid(&object.metadata), version.spec.version).cloned();
                (version.spec.version, stored.unwrap_or_else(|| Arc::clone(&fresh)))
            });
            self.view.put_job(convert::job(&object, number, definition, is_namespace_going).0);
            self.disarm_launches(&key);
            if is_going {
                return self.carry_out(next, Some(&object), &versions);
            }
            let note = violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            self.report_for_generation(&object, Severity::Warning, "InvalidSpec", "Validate", note);
            // It has seen all that there is: its deployment must not ask again for what it knows already.
            let index = self.view_index;
            if let Some(known) = self.known.get_mut(&key) {
                known.planned_at = Some(index);
            }
            return self.finish(&key);
        }
        match prepare::prepare(&key, &object, &versions, self.clock.now()) {
            Ok(version) => {
                let uid = convert::uid(&object.metadata);
                let stored = self.view.version(&key, &uid, version.spec.version).cloned();
                let definition = stored.unwrap_or_else(|| Definition::new(&version.spec.job, &key.name));
                let is_template = periodic::is_template(&definition.spec);
                self.view.put_job(convert::job(&object, version.spec.version, definition, false).0);
                if is_template {
                    return self.tend(&key, &object, &versions);
                }
                self.carry_out(next, Some(&object), &versions);
            }
            Err(preparation) => {
                let (store, trigger) = (self.store.clone(), next.trigger);
                self.writes.spawn(async move {
                    let (job, prepared) = preparation.write(store).await;
                    Done::Prepared(job, trigger, Box::new(prepared))
                });
            }
        }
    }

    /// A periodic or parameterized job places nothing itself: it launches others.
    fn tend(&mut self, key: &JobKey, object: &Job, versions: &[Arc<JobVersion>]) {
        self.prune(key, object, versions);
        self.arm_launches(key);
        self.finish(key);
    }

    fn report_for_generation(
        &mut self,
        job: &Job,
        severity: Severity,
        reason: &'static str,
        action: &'static str,
        note: String,
    ) {
        let occasion = job.metadata.generation.unwrap_or(0).to_string();
        self.report(job, &Happening { severity, reason, action, note, occasion: &occasion });
    }

    pub(super) fn on_prepared(&mut self, job: &JobKey, trigger: EvalTrigger, prepared: Box<Prepared>) {
        if let Some(object) = prepared.job
            && let Some(Seen::Now(object, _)) = self.jobs.update(object)
        {
            self.dirty_jobs.insert(convert::object_key(&object.metadata));
        }
        if let Some(version) = prepared.version {
            if let (0, Some(object)) = (version.spec.version, self.jobs.get(&key_of(job)).cloned()) {
                let note = "drover has taken the job on".to_owned();
                self.report_for_generation(&object, Severity::Normal, "Registered", "Register", note);
                self.report_dispatch(job);
            }
            if let Some(seen) = self.versions.observe(version) {
                self.on_version(seen);
            }
        }
        self.finish(job);
        match prepared.error {
            None => self.enqueue(job, trigger),
            // The watch brings what is there now, and that queues the evaluation where it still matters.
            Some(StoreError::NotFound(_)) => {}
            Some(error) => {
                tracing::warn!(%job, %error, "a job could not be prepared");
                self.make_again(job, trigger, error.class());
            }
        }
    }

    /// Makes an evaluation again that could not be carried out: soon where the API server could not be reached or another writer
    /// was first, ever later where it refuses what is written.
    fn make_again(&mut self, job: &JobKey, trigger: EvalTrigger, class: ErrorClass) {
        let (pause, trigger) = match class {
            ErrorClass::Conflict => (RETRY / 10, trigger),
            ErrorClass::Transient => (RETRY, trigger),
            ErrorClass::Permanent => match self.broker.give_back(job, &mut self.rng) {
                GivenBack::Again(pause) => (pause, trigger),
                GivenBack::Failed(pause) => (pause, EvalTrigger::FailedFollowUp),
            },
        };
        self.wake_in(pause, Wake::Evaluate(job.clone(), trigger));
    }

    /// The evaluation of a job is done: another one may follow, and a deleted job may go.
    fn finish(&mut self, job: &JobKey) {
        self.broker.finish(job);
        self.dirty_jobs.insert(job.clone());
        self.look_at_deployments(job);
        self.free_job(job);
    }

    /// Plans, and writes what the plan says.
    fn carry_out(&mut self, next: &Next, object: Option<&Job>, versions: &[Arc<JobVersion>]) {
        let now = self.clock.now();
        let job = &next.job;
        let priority = self.view.job(job).map_or(50, |job| job.definition.spec.priority);
        tracing::debug!(%job, trigger = %next.trigger, "a job is evaluated");
        let evaluation = Evaluation {
            id: EvalId::from(format!("{}-{}", self.identity, next.number)),
            job: job.clone(),
            trigger: next.trigger,
            priority,
            now,
            wait_until: next.wait_until,
        };
        let mut plan = scheduler::plan(&self.view, &evaluation, &mut self.rng);
        let planned = self.view.job(job).cloned();
        for (node, why) in scheduler::apply::admit(&self.view, planned.as_deref(), &mut plan) {
            tracing::warn!(%job, %node, %why, "a node takes nothing of a plan");
        }
        scheduler::apply::finish_lost(&self.view, job, &mut plan);
        if let Some(reason) = &plan.refused {
            tracing::warn!(%job, reason, "an evaluation was refused");
        }
        self.count_search(job, &plan);
        for follow_up in &plan.follow_ups {
            self.broker.delay(job, follow_up);
        }
        if let Some(object) = object {
            self.remember(&evaluation, &plan, object);
            self.prune(job, object, versions);
        }
        self.dirty_jobs.insert(job.clone());
        if plan.is_empty() {
            self.finish(job);
            return;
        }
        let siblings: Vec<Arc<Alloc>> = self.view.allocs_of_job(job).cloned().collect();
        let is_per_node = self
            .view
            .job(job)
            .is_some_and(|job| matches!(job.definition.job_type(), JobType::System | JobType::Sysbatch));
        let (allocs, deployments) = (&self.allocs, &self.deployments);
        let writes = Writes::new(
            job,
            object,
            &plan,
            &siblings,
            versions,
            |key| allocs.get(&key_of(key)).cloned(),
            |key| deployments.get(&key_of(key)).cloned(),
            is_per_node,
            now,
        );
        let created = self.assume(&plan, &writes);
        let store = self.store.clone();
        self.n_plans += 1;
        self.writes.spawn(async move {
            let (job, written) = writes.write(store).await;
            Done::Applied(job, created, written)
        });
    }

    /// Puts what is about to be written into the view, so that no other plan gives the same room away.
    fn assume(&mut self, plan: &Plan, writes: &Writes) -> Vec<AllocKey> {
        for stop in plan.stops.iter().chain(plan.replaced()) {
            let client = stop.client.unwrap_or(stop.alloc.client);
            let follow_up = stop.follow_up.clone().or_else(|| stop.alloc.follow_up.clone());
            self.view.put_alloc(Alloc { desired: stop.desired, client, follow_up, ..(*stop.alloc).clone() });
        }
        for (victim, _) in plan.preempted() {
            self.view.put_alloc(Alloc { desired: DesiredStatus::Evict, ..(**victim).clone() });
        }
        for update in &plan.in_place {
            let (resources, deployment) = (Arc::clone(&update.resources), update.deployment.clone());
            let job_version = update.job_version;
            self.view.put_alloc(Alloc { job_version, resources, deployment, ..(*update.alloc).clone() });
        }
        let now = self.clock.now();
        let mut created = Vec::new();
        for object in writes.creates() {
            let mut alloc = convert::alloc(object);
            alloc.created_at = now;
            let key = alloc.key.clone();
            self.view.put_alloc(alloc);
            self.assume_claims(&key);
            created.push(key);
        }
        created
    }

    /// Notes the outcome of an evaluation for the status.
    fn remember(&mut self, evaluation: &Evaluation, plan: &Plan, object: &Job) {
        let job = &evaluation.job;
        let job_type = self.view.job(job).map_or(JobType::Service, |job| job.definition.job_type());
        let index = self.view_index;
        let Some(known) = self.known.get_mut(job) else { return };
        known.planned_at = Some(index);
        if plan.failed.is_empty() {
            self.blocked.untrack(job);
        } else if self.blocked.block(job, plan.waits_for.clone(), index) == Verdict::Again {
            self.numbers.asked(job);
            self.broker.enqueue(job, EvalTrigger::QueuedAllocs, evaluation.priority);
        }
        let waited = known.blocked.as_ref().map(|blocked| EvalId::from(blocked.id.clone()));
        let ended = attempts::end(job_type, evaluation, plan, attempts::Next::Done, waited.as_ref());
        known.queued.clone_from(&plan.queued);
        known.held_back = plan.held_back;
        let is_news = match &known.blocked {
            None => !plan.failed.is_empty(),
            Some(blocked) => reasons(&blocked.failed) != reasons(&plan.failed),
        };
        known.blocked = (!plan.failed.is_empty()).then(|| BlockedEvaluation {
            id: known.blocked.as_ref().map_or_else(|| evaluation.id.to_string(), |blocked| blocked.id.clone()),
            since: known.blocked.as_ref().map_or(evaluation.now, |blocked| blocked.since),
            failed: plan.failed.clone(),
        });
        if plan.is_empty() && !is_news {
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
        });
        if is_news && !plan.failed.is_empty() {
            let note: Vec<String> =
                plan.failed.iter().map(|(group, metric)| format!("group {group}: {}", explain(metric))).collect();
            let occasion = evaluation.id.to_string();
            let happening = Happening {
                severity: Severity::Warning,
                reason: "PlacementFailed",
                action: "Place",
                note: note.join("; "),
                occasion: &occasion,
            };
            self.report(object, &happening);
        }
    }

    /// Deletes versions that nothing keeps any more.
    fn prune(&mut self, job: &JobKey, object: &Job, versions: &[Arc<JobVersion>]) {
        if versions.len() <= prepare::KEPT_VERSIONS {
            return;
        }
        let in_use: std::collections::BTreeSet<i64> =
            self.view.allocs_of_job(job).map(|alloc| alloc.job_version).collect();
        for version in prepare::surplus(versions, |number| in_use.contains(&number)) {
            let (store, key) = (self.store.clone(), drover_store::Object::key(&**version));
            let precondition = Precondition::same_object(&version.metadata);
            tracing::debug!(job = %job, version = version.spec.version, generation = object.metadata.generation, "a version is no longer kept");
            self.writes
                .spawn(async move { Done::Other("version", store.delete::<JobVersion>(&key, &precondition).await) });
        }
    }

    pub(super) fn on_applied(&mut self, job: &JobKey, created: Vec<AllocKey>, written: Written) {
        self.count_plan(job, &written);
        let n_written = written.created.len() + written.changed.len();
        self.n_plans = self.n_plans.saturating_sub(1);
        for object in written.deployments {
            if let Some(seen) = self.deployments.observe(object) {
                self.on_deployment(seen);
            }
        }
        for version in written.versions {
            if let Some(seen) = self.versions.observe(version) {
                self.on_version(seen);
            }
        }
        for object in written.created {
            if let Some(seen) = self.allocs.observe(object) {
                self.on_alloc(seen);
            }
        }
        for object in written.changed {
            if let Some(seen) = self.allocs.update(object) {
                self.on_alloc(seen);
            }
        }
        for key in written.gone {
            if let Some(last) = self.allocs.forget(&key) {
                self.numbers.allocation(&Seen::Gone(last));
            }
            if let Some(namespace) = &key.namespace {
                self.view.remove_alloc(&AllocKey::new(namespace.as_str(), key.name.as_str()));
            }
        }
        let mut missing = written.failed.len();
        let is_refusal = |error: &StoreError| matches!(error, StoreError::Conflict(_));
        let fault = written.failed.iter().find(|(_, error)| !is_refusal(error)).map(|(_, error)| error.class());
        for (key, error) in &written.failed {
            tracing::warn!(%job, allocation = %key, %error, "a part of a plan was not written");
            self.unassume(key);
        }
        for key in &written.untouched {
            self.unassume(key);
        }
        let unmade: Vec<AllocKey> = created.into_iter().filter(|key| self.allocs.get(&key_of(key)).is_none()).collect();
        self.count_unmade(job, unmade.len());
        missing += unmade.len();
        for key in &unmade {
            self.unassume_claims(key);
            self.view.remove_alloc(key);
        }
        self.finish(job);
        self.dirty_jobs.insert(job.clone());
        let submitted = match (missing, n_written) {
            (0, _) => Submitted::Whole,
            (_, 0) => Submitted::Nothing,
            _ => Submitted::Part,
        };
        self.try_again(job, submitted, fault);
    }

    /// Plans again what could not be written: at once where somebody else wrote in between, but not for ever; after a pause
    /// where the API server could not be reached, which says nothing of the plan.
    fn try_again(&mut self, job: &JobKey, submitted: Submitted, fault: Option<ErrorClass>) {
        let job_type = self.view.job(job).map_or(JobType::Service, |job| job.definition.job_type());
        let Some(known) = self.known.get_mut(job) else { return };
        match fault {
            Some(class) if submitted != Submitted::Whole => {
                return self.make_again(job, EvalTrigger::QueuedAllocs, class);
            }
            Some(_) | None => self.broker.acknowledge(job),
        }
        match known.attempts.get_or_insert(Attempts::of(job_type)).after(submitted) {
            attempts::Next::Done => known.attempts = None,
            attempts::Next::Again => {
                self.wake_in(RETRY / 10, Wake::Evaluate(job.clone(), EvalTrigger::QueuedAllocs));
            }
            attempts::Next::Exhausted => {
                known.attempts = None;
                tracing::warn!(%job, "every plan of an evaluation was refused; it is made again later");
                if scheduler::accepts(job_type, EvalTrigger::MaxPlanAttempts) {
                    self.wake_in(EXHAUSTED, Wake::Evaluate(job.clone(), EvalTrigger::MaxPlanAttempts));
                }
            }
        }
    }

    /// Takes an assumption back: what is stored counts.
    fn unassume(&mut self, key: &drover_store::Key) {
        match self.allocs.get(key).cloned() {
            Some(object) => self.put_stored(&object),
            None => {
                if let Some(namespace) = &key.namespace {
                    self.view.remove_alloc(&AllocKey::new(namespace.as_str(), key.name.as_str()));
                }
            }
        }
    }

    /// Writes a job's status where it differs.
    pub(super) fn refresh_job(&mut self, key: &JobKey) {
        let Some(object) = self.jobs.get(&key_of(key)).cloned() else { return };
        let Some(job) = self.view.job(key).cloned() else { return };
        self.note_plugin_job(&job, &object);
        if self.broker.is_busy(key) && job.generation != object.metadata.generation.unwrap_or(0) {
            return;
        }
        if let Some(newer) = object.status.as_ref().and_then(|status| status.version).filter(|told| *told > job.version)
            && self.known.get(key).is_some_and(|known| known.sought_version != Some(newer))
        {
            return self.seek_version(key, newer);
        }
        let Some(wanted) = self.wanted_status(key, &object, &job) else { return };
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
        let is_rolling = self.view.latest_deployment(key).is_some_and(|latest| latest.phase.is_active());
        let calm = Calm { is_planning: self.broker.is_under_way(key), is_rolling };
        let now = Instant::now();
        let differs_since = *known.differs_since.get_or_insert(now);
        match status::due(&wanted, last, sent_at, differs_since, calm, now) {
            Due::Never => known.differs_since = None,
            Due::At(at) => drop(self.wake_at(at, Wake::JobStatus(key.clone()))),
            Due::Now => {
                known.is_writing = true;
                known.differs_since = None;
                known.sent = Some((Arc::clone(&wanted), now));
                let (store, key) = (self.store.clone(), key.clone());
                let unchanged = Precondition::unchanged(&object.metadata);
                self.writes.spawn(async move {
                    let (job, result) = status::write(store, key, unchanged, wanted).await;
                    Done::JobStatus(job, Box::new(result))
                });
            }
        }
    }

    /// Asks for a version that the stored status names, and that the watch of versions has not brought yet: what is known without
    /// it is older than what was told before.
    fn seek_version(&mut self, job: &JobKey, number: i64) {
        let Some(known) = self.known.get_mut(job).filter(|known| !known.is_writing) else { return };
        known.is_writing = true;
        let (store, job) = (self.store.clone(), job.clone());
        self.writes.spawn(async move {
            let key = drover_store::Key::namespaced(&*job.namespace, names::job_version_name(&job.name, number));
            let result = store.get::<JobVersion>(&key).await;
            Done::VersionSought(job, number, Box::new(result))
        });
    }

    pub(super) fn on_version_sought(
        &mut self,
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
                return self.wake_in(RETRY, Wake::JobStatus(job.clone()));
            }
        };
        known.sought_version = Some(number);
        self.dirty_jobs.insert(job.clone());
        if let Some(version) = found {
            if let Some(seen) = self.versions.observe(version) {
                self.on_version(seen);
            }
            self.enqueue(job, EvalTrigger::JobRegister);
        }
    }

    /// A job with its whole spec, complete, and all that is wrong with it.
    fn checked(
        &mut self,
        key: &JobKey,
        object: &Arc<Job>,
        versions: &[Arc<JobVersion>],
    ) -> Option<(Arc<Job>, Checked)> {
        let (whole, of_dispatch) = self.whole(key, object, versions);
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

    fn wanted_status(&mut self, key: &JobKey, object: &Arc<Job>, job: &model::Job) -> Option<Arc<serde_json::Value>> {
        let uid = convert::uid(&object.metadata);
        let versions = self.versions_of(key, uid.as_str());
        let (whole, checked) = self.checked(key, object, &versions)?;
        let (object, violations) = (&*whole, if job.stopped { [].into() } else { checked.violations });
        let allocs: Vec<Arc<Alloc>> =
            self.view.allocs_of_job(key).filter(|alloc| alloc.job_uid == uid).cloned().collect();
        let (_, scaled) = convert::job(object, job.version, Arc::clone(&job.definition), false);
        let version = versions
            .iter()
            .find(|version| version.spec.version == job.version)
            .map(|version| (job.version, version.status.as_ref().is_some_and(|status| status.stable)));
        let (now, known) = (self.clock.now(), self.known.get(key)?);
        let failed = known.blocked.as_ref().map(|blocked| blocked.failed.clone()).unwrap_or_default();
        let deployment = self.view.latest_deployment(key).map(|latest| &**latest);
        let deployment = deployment.filter(|one| one.job_uid == uid && one.job_version == job.version);
        let reverted = versions
            .last()
            .filter(|newest| newest.spec.version == job.version && prepare::stands_for(newest, &versions, object))
            .map(|newest| Reverted { version: job.version, restored: newest.spec.revert_of.unwrap_or(0) });
        let verdict = job_status::judge(Input {
            job,
            // Stopped although its spec does not say so: it goes with its namespace.
            is_ending: object.metadata.deletion_timestamp.is_some() || (job.stopped && !object.spec.stop),
            allocs: &allocs,
            is_evaluating: self.broker.is_busy(key),
            failed: &failed,
            queued: &known.queued,
            held_back: known.held_back,
            deployment,
            reverted,
            blocked_since: known.blocked.as_ref().map(|blocked| blocked.since),
            violations: &violations,
            children: self.families.summary(key, &uid),
            scaled: scaled.as_ref().map(|(group, count, manifest)| (group.as_str(), *count, *manifest)),
            now,
        });
        let wake_at = verdict.wake_at;
        let group = convert::scale(&object.spec).or_else(|| {
            let only = job.definition.spec.groups.first()?;
            Some((only.name.clone(), only.count))
        });
        let scale = group.map(|(group, _)| {
            let count = job.counts.get(&group).copied().unwrap_or(0);
            (group, count)
        });
        let is_complete = verdict.conditions.iter().any(|condition| {
            condition.r#type == JobConditionType::Complete && condition.status == ConditionStatus::True
        });
        let was_complete = object.status.iter().flat_map(|status| &status.conditions).any(|condition| {
            condition.r#type == JobConditionType::Complete && condition.status == ConditionStatus::True
        });
        let mut wanted = status::desired(object, version, verdict, known, scale, deployment, now);
        wanted.reverted_generation = reverted.and(versions.last()).map(|newest| newest.spec.job_generation);
        self.add_launches(key, object, &mut wanted);
        if let Some(at) = wake_at {
            let at = self.instant_of(at);
            self.wake_at(at, Wake::JobStatus(key.clone()));
        }
        if is_complete && !was_complete {
            let note = "all allocations are complete".to_owned();
            self.report_for_generation(object, Severity::Normal, "Completed", "Run", note);
        }
        Some(self.known.get_mut(key)?.wanted.json(wanted))
    }

    pub(super) fn on_job_status(&mut self, key: &JobKey, result: Result<Job, StoreError>) {
        if let Some(known) = self.known.get_mut(key) {
            known.is_writing = false;
            if result.is_err() {
                known.sent = None;
            }
        }
        match result {
            Ok(object) => {
                // The watch says nothing of what the answer has told already.
                if let Some(seen) = self.jobs.update(object) {
                    self.on_job(seen);
                }
                self.dirty_jobs.insert(key.clone());
            }
            Err(StoreError::NotFound(_)) => {}
            // Somebody else wrote in between. The watch may have shown it while this write was under way, so nothing else asks again.
            Err(StoreError::Conflict(_)) => self.wake_in(RETRY / 10, Wake::JobStatus(key.clone())),
            Err(error) => {
                tracing::warn!(job = %key, %error, "a job's status was not written");
                self.wake_in(RETRY, Wake::JobStatus(key.clone()));
            }
        }
    }

    /// Removes the finalizer of a job that is being deleted when nothing of it is left.
    pub(super) fn free_job(&mut self, key: &JobKey) {
        let Some(object) = self.jobs.get(&key_of(key)).cloned() else { return };
        let held = finalizer::is_held(&object.metadata, finalizer::STOP_ALLOCATIONS);
        if object.metadata.deletion_timestamp.is_none() || !held || !self.allocs.is_synced() || self.broker.is_busy(key)
        {
            return;
        }
        if self.view.allocs_of_job(key).any(|alloc| !self.is_over(&alloc.key)) {
            return;
        }
        let (store, key) = (self.store.clone(), key.clone());
        self.writes.spawn(async move {
            let body = json!({ "metadata": { "finalizers": finalizer::without(&object.metadata, finalizer::STOP_ALLOCATIONS) } });
            let precondition = Precondition::unchanged(&object.metadata);
            let result = store.merge::<Job>(&key_of(&key), Part::Spec, &precondition, body).await;
            Done::JobFreed(key, Box::new(found(result)))
        });
    }

    /// Whether nothing of an allocation is left on its node.
    fn is_over(&self, key: &AllocKey) -> bool {
        let Some(object): Option<&Arc<Allocation>> = self.allocs.get(&key_of(key)) else { return false };
        !finalizer::is_held(&object.metadata, finalizer::NODE_CLEANUP)
    }

    pub(super) fn on_job_freed(&mut self, key: &JobKey, result: Result<Option<Job>, StoreError>) {
        match result {
            Ok(Some(object)) => drop(self.jobs.update(object)),
            Ok(None) => {}
            Err(StoreError::Conflict(_)) => self.wake_in(RETRY / 10, Wake::FreeJob(key.clone())),
            Err(error) => {
                tracing::warn!(job = %key, %error, "the finalizer of a job could not be removed");
                self.wake_in(RETRY, Wake::FreeJob(key.clone()));
            }
        }
    }
}

fn version_owner(version: &JobVersion) -> (JobKey, Uid) {
    let namespace = version.metadata.namespace.clone().unwrap_or_default();
    (JobKey::new(namespace, version.spec.job_name.clone()), Uid::from(version.spec.job_uid.clone()))
}

/// Why groups found no place, without the counts that move with every look.
fn reasons(failed: &BTreeMap<String, drover_api::metric::AllocMetric>) -> BTreeMap<&str, String> {
    failed.iter().map(|(group, metric)| (group.as_str(), explain(metric))).collect()
}
