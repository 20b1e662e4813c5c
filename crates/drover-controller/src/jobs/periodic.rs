//! Launches of periodic jobs: when one is due, the job of that launch is created.
//!
//! What is due is `drover_core::periodic`'s decision. A launch is an object named after its time, so that neither a
//! second leader nor a repeated create makes another; what was left out is noted in the parent's status, so that no
//! later leader makes up for it.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_api::Job;
use drover_api::condition::ConditionStatus;
use drover_api::finalizer;
use drover_api::job::{JobConditionType, JobPhase, JobStatus};
use drover_core::ids::{JobKey, Uid};
use drover_core::periodic::{self, Schedule, ScheduleDue};
use drover_store::events::{Happening, Severity};
use drover_store::{ErrorClass, StoreError, convert};
use jiff::{SignedDuration, Timestamp};

use crate::actions::Action;
use crate::shared::{Notice, RETRY, Shared};
use crate::timers::{TimerId, Wake};

/// Longest wait for a launch in one piece: a step of the machine's clock is noticed then.
const LONGEST_WAIT: SignedDuration = SignedDuration::from_mins(5);
/// How long after the begin of a term the children of a job are known as they are.
const SETTLED: SignedDuration = SignedDuration::from_secs(1);
/// Pause before a launch that the API server refused is tried again.
const REFUSED: Duration = Duration::from_mins(1);

/// What is known of the launches of a job.
#[derive(Debug)]
struct Launches {
    /// Everything up to then was decided.
    considered: Timestamp,
    last: Option<Timestamp>,
    skipped: Option<Timestamp>,
    next: Option<Timestamp>,
    wake: Option<TimerId>,
    /// The launch that is being created.
    under_way: Option<Timestamp>,
}

/// The periodic jobs of a leader.
#[derive(Debug, Default)]
pub(crate) struct PeriodicJobs {
    launches: BTreeMap<JobKey, Launches>,
}

impl PeriodicJobs {
    /// Launches what is due of a job, and plans the next look. A job without a schedule that is on has none of either.
    pub(crate) fn arm(&mut self, shared: &mut Shared, key: &JobKey) {
        let job = shared.view.job(key).cloned();
        let schedule = job.as_ref().and_then(|job| {
            let spec = &job.definition.spec;
            let periodic = spec.periodic.as_ref().filter(|_| periodic::is_armed(spec, job.stopped))?;
            Some((Schedule::of(periodic).ok()?, periodic.prohibit_overlap))
        });
        let Some((schedule, prohibits)) = schedule else { return self.disarm(shared, key) };
        let now = shared.clock.now();
        let mut known = self.launches_known(shared, key, now);
        let runs = prohibits && Self::runs_a_child(shared, key);
        let mut step = periodic::step(&schedule, known.considered, prohibits, runs, now);
        // What an earlier leader wrote of a child may be older than the child's end: this one looks at the child first.
        let is_unsure = runs && matches!(step.due, ScheduleDue::Skip(_)) && Self::has_unseen_child(shared, key);
        if known.under_way.is_some() || is_unsure {
            step.due = ScheduleDue::Nothing;
        }
        known.next = step.next;
        match step.due {
            ScheduleDue::Nothing => {}
            ScheduleDue::Skip(at) => {
                (known.considered, known.skipped) = (at, Some(at));
                Self::report_launch(shared, key, "LaunchSkipped", at, "is left out: an earlier one still runs");
            }
            ScheduleDue::Launch(at) => {
                known.under_way = Self::launch(shared, key, at).then_some(at);
            }
        }
        if let Some(wake) = known.wake.take() {
            shared.timers.cancel(&wake);
        }
        known.wake = step.next.map(|at| {
            let pause = if is_unsure { SETTLED } else { LONGEST_WAIT };
            let soon = now.checked_add(pause).map_or(at, |limit| limit.min(at));
            shared.wake_at(shared.instant_of(soon), Wake::Launch(key.clone()))
        });
        self.launches.insert(key.clone(), known);
        shared.due.jobs.insert(key.clone());
    }

    /// A job has no schedule any more, or it is off.
    pub(crate) fn disarm(&mut self, shared: &mut Shared, key: &JobKey) {
        if let Some(wake) = self.launches.remove(key).and_then(|known| known.wake) {
            shared.timers.cancel(&wake);
        }
    }

    /// What this leader knows, or what earlier ones left in the objects.
    fn launches_known(&mut self, shared: &mut Shared, key: &JobKey, now: Timestamp) -> Launches {
        let object = shared.job(key);
        let uid = object.map_or_else(|| Uid::from(""), |object| convert::uid(&object.metadata));
        let status = object.and_then(|object| object.status.clone()).unwrap_or_default();
        let made = shared.caches.children.children(key, &uid).filter_map(|(_, member)| member.launch).max();
        let since = Self::scheduled_since(shared, key, uid.as_str());
        let mut known = self.launches.remove(key).unwrap_or_else(|| Launches {
            considered: armed_since(&status).unwrap_or(now).max(status.last_skipped_launch.unwrap_or(Timestamp::MIN)),
            last: status.last_launch,
            skipped: status.last_skipped_launch,
            next: None,
            wake: None,
            under_way: None,
        });
        known.last = known.last.max(made);
        known.considered = [known.last, since].into_iter().flatten().fold(known.considered, Timestamp::max);
        known
    }

    /// Since when the schedule is as it is: launches of an earlier one were not missed.
    fn scheduled_since(shared: &Shared, key: &JobKey, uid: &str) -> Option<Timestamp> {
        let versions = shared.versions_of(key, uid);
        let newest = versions.last()?;
        let alike = versions.iter().rev().take_while(|one| one.spec.job.periodic == newest.spec.job.periodic);
        alike.last().map(|oldest| oldest.spec.submitted_at)
    }

    fn runs_a_child(shared: &Shared, key: &JobKey) -> bool {
        let Some(uid) = shared.job(key).map(|object| convert::uid(&object.metadata)) else {
            return false;
        };
        let is_running =
            |child: &JobKey, phase: JobPhase| phase != JobPhase::Dead || shared.evaluations.broker.is_busy(child);
        shared.caches.children.children(key, &uid).any(|(child, member)| is_running(child, member.phase))
    }

    /// Whether this leader has not looked at one of the children yet.
    fn has_unseen_child(shared: &Shared, key: &JobKey) -> bool {
        let Some(uid) = shared.job(key).map(|object| convert::uid(&object.metadata)) else { return false };
        let is_unseen = |child: &JobKey| shared.evaluations.last.get(child).and_then(|last| last.saw).is_none();
        shared.caches.children.children(key, &uid).any(|(child, _)| is_unseen(child))
    }

    /// Begins to create the job of a launch; not before the parent's version is recorded.
    fn launch(shared: &mut Shared, key: &JobKey, at: Timestamp) -> bool {
        let Some(parent) = shared.job(key).cloned() else { return false };
        let versions = shared.versions_of(key, convert::uid(&parent.metadata).as_str());
        let Some(version) = versions.last() else { return false };
        let child = launched(&parent, &version.spec.job, at);
        tracing::info!(job = %key, launch = %at, "a periodic job is launched");
        shared.outbox.push(Action::Launch(key.clone(), at, Box::new(child)));
        true
    }

    pub(crate) fn on_launched(
        &mut self,
        shared: &mut Shared,
        key: &JobKey,
        at: Timestamp,
        result: Result<Job, StoreError>,
    ) {
        let Some(known) = self.launches.get_mut(key) else { return };
        known.under_way = None;
        match result {
            Ok(child) => {
                known.considered = known.considered.max(at);
                known.last = known.last.max(Some(at));
                let name = child.metadata.name.clone().unwrap_or_default();
                let observed = shared.caches.jobs.observe(child);
                shared.notify_all(observed.map(Notice::Job));
                Self::report_launch(shared, key, "PeriodicLaunched", at, &format!("is djob/{name}"));
                // After the others know its child.
                shared.notify(Notice::Scheduled(key.clone()));
            }
            Err(error) => {
                tracing::warn!(job = %key, launch = %at, %error, "a launch could not be created");
                let pause = match error.class() {
                    ErrorClass::Transient | ErrorClass::Conflict => RETRY,
                    ErrorClass::Permanent => REFUSED,
                };
                if error.class() == ErrorClass::Permanent {
                    Self::report_launch(shared, key, "LaunchFailed", at, &format!("could not be created: {error}"));
                }
                shared.wake_in(pause, Wake::Launch(key.clone()));
            }
        }
    }

    fn report_launch(shared: &mut Shared, key: &JobKey, reason: &'static str, at: Timestamp, what: &str) {
        let Some(object) = shared.job(key).cloned() else { return };
        let severity = if reason == "LaunchFailed" { Severity::Warning } else { Severity::Normal };
        let (note, occasion) = (format!("the launch of {at} {what}"), at.to_string());
        shared.report(&*object, &Happening { severity, reason, action: "Launch", note, occasion: &occasion });
    }

    /// Writes what is known of a job's launches and children into its status.
    pub(crate) fn add_to(&self, shared: &Shared, key: &JobKey, object: &Job, status: &mut JobStatus) {
        if !periodic::is_template(&object.spec) {
            return;
        }
        let before = object.status.as_ref();
        let known = self.launches.get(key);
        let uid = convert::uid(&object.metadata);
        status.children = Some(shared.caches.children.summary(key, &uid));
        let made = shared.caches.children.children(key, &uid).filter_map(|(_, member)| member.launch).max();
        let stored = before.and_then(|status| status.last_launch);
        status.last_launch = known.and_then(|known| known.last).max(stored).max(made);
        let skipped = before.and_then(|status| status.last_skipped_launch);
        status.last_skipped_launch = known.and_then(|known| known.skipped).or(skipped);
        status.next_launch = known.and_then(|known| known.next);
        if let Some(next) = status.next_launch {
            status.columns.next_launch = next.to_string();
        }
    }
}

/// Since when a job is armed, by its status.
fn armed_since(status: &JobStatus) -> Option<Timestamp> {
    let mut conditions = status.conditions.iter();
    let is_armed = |r#type, status| r#type == JobConditionType::Armed && status == ConditionStatus::True;
    conditions.find(|one| is_armed(one.r#type, one.status)).map(|one| one.last_transition_time)
}

/// The job of one launch, owned by its parent. It has its finalizer from the start: nothing has to be written before it
/// is placed.
fn launched(parent: &Job, spec: &drover_api::JobSpec, at: Timestamp) -> Job {
    let name = parent.metadata.name.clone().unwrap_or_default();
    let child = periodic::child(&name, spec, at);
    let mut job: Job = drover_api::owner::child(parent, &child.name, child.spec);
    job.metadata.finalizers = Some(vec![finalizer::STOP_ALLOCATIONS.to_owned()]);
    job
}
