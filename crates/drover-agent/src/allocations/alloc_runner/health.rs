//! The allocation's health and status, and the report that says them.

use std::collections::BTreeMap;

use drover_api::allocation::{ClientStatus, Health, TaskEventType as Type, TaskRunState, TaskState};
use drover_api::job::JobType;
use drover_core::defaults;
use drover_core::health::{CheckFacts, CheckState, HealthVerdict, Observation, TaskFacts, Tracker, health_policy};
use drover_core::lifecycle::{DerivedStatus, Progress, StatusInput, derive_status};
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::AllocRunner;
use crate::drivers::Vouches;
use crate::reporting::report::{self, Report};
use crate::tasks::policy;
use crate::tasks::task_event;

/// The tracking of an allocation's health, while it has no verdict.
#[derive(Debug, Default)]
pub(super) struct HealthWatch {
    tracker: Option<Tracker>,
    /// When to look again if nothing changes.
    pub(super) wake_at: Option<Instant>,
    /// The deployment that the verdict is for.
    deployment: String,
}

impl AllocRunner {
    /// Begins to track the health, unless there is a verdict for this deployment.
    pub(super) fn track_health(&mut self) {
        let deployment = self.allocation().spec.deployment_name.clone();
        if self.health.as_ref().is_some_and(|health| health.deployment_name != deployment) {
            self.health = None;
        }
        let group = &self.plan.group;
        let update = defaults::update(self.plan.job.r#type, self.plan.job.update.as_ref(), group.update.as_ref());
        let policy =
            health_policy(self.plan.job.r#type, !deployment.is_empty(), update.as_ref(), group.migrate.as_ref());
        let is_open = self.health.is_none() && self.is_wanted();
        let tracker = policy.filter(|_| is_open).map(|policy| Tracker::new(policy, self.now()));
        self.watch = HealthWatch { tracker, wake_at: None, deployment };
    }

    /// A verdict counts for one deployment only.
    pub(super) fn follow_deployment(&mut self) {
        if self.allocation().spec.deployment_name != self.watch.deployment {
            self.track_health();
        }
    }

    /// Asks the tracker. An allocation that is to end gets no verdict any more.
    pub(super) fn judge_health(&mut self) {
        if !self.is_wanted() {
            self.watch.tracker = None;
        }
        self.watch.wake_at = None;
        let now = self.now();
        let (seen, vouched_at) = self.observation(now);
        let Some(tracker) = &mut self.watch.tracker else { return };
        let step = tracker.observe(&seen, now);
        self.watch.wake_at = step.wake_at.into_iter().chain(vouched_at).min().map(|at| {
            let after = std::time::Duration::try_from(at.duration_since(now)).unwrap_or_default();
            Instant::now() + after
        });
        let Some(verdict) = step.verdict else { return };
        self.watch.tracker = None;
        let healthy = match verdict {
            HealthVerdict::Healthy => true,
            HealthVerdict::Unhealthy { because } => {
                // Only a deployment asks why.
                let told = because.into_iter().filter(|_| !self.watch.deployment.is_empty());
                for blamed in told {
                    let said = task_event::plain(Type::AllocUnhealthy, now, blamed.reason);
                    self.said.entry(blamed.task).or_default().push(said);
                }
                false
            }
        };
        self.set_health(healthy, now);
    }

    fn set_health(&mut self, healthy: bool, timestamp: Timestamp) {
        tracing::info!(allocation = self.plan.uid, healthy, "health is judged");
        self.health = Some(Health { healthy, timestamp, deployment_name: self.watch.deployment.clone() });
    }

    /// What the tracker sees, and when a driver will vouch for one more task.
    fn observation(&self, now: Timestamp) -> (Observation, Option<Timestamp>) {
        let tasks = self.states.iter().filter_map(|(name, state)| {
            let stage = self.places.get(name)?.stage;
            Some((name.clone(), TaskFacts { stage, progress: policy::progress(state), started_at: state.started_at }))
        });
        let failed_task = self.states.values().any(|state| state.failed);
        let has_failed = !failed_task && self.status().0 == DerivedStatus::Failed;
        let running = |name: &String| self.states.get(name).filter(|state| state.state == TaskRunState::Running);
        let (mut checks, mut next) = (Vec::new(), None);
        for (name, vouches) in &self.vouched {
            let Some(started) = running(name).and_then(|state| state.started_at) else { continue };
            let state = match vouches {
                Vouches::AtOnce => continue,
                Vouches::Never => CheckState::Failure,
                Vouches::After(span) => {
                    let span = SignedDuration::try_from(*span).unwrap_or(SignedDuration::MAX);
                    let at = started.checked_add(span).unwrap_or(Timestamp::MAX);
                    if at > now {
                        next = [next, Some(at)].into_iter().flatten().min();
                        CheckState::Pending
                    } else {
                        CheckState::Success
                    }
                }
            };
            checks.push(CheckFacts { state, is_readiness: false });
        }
        (Observation { tasks: tasks.collect(), checks, has_failed }, next)
    }

    fn status(&self) -> (DerivedStatus, &'static str) {
        let progress: Vec<Progress> = self.progress().into_values().collect();
        let input = StatusInput { max_run_exceeded: self.max_run_exceeded, forced: None, tasks: &progress };
        derive_status(&input).unwrap_or((DerivedStatus::Pending, "no task started"))
    }

    /// Leaves a report of how the allocation fares now.
    pub(super) fn report(&mut self) {
        self.judge_health();
        let report = self.make_report();
        self.plan.reports.put(&self.plan.uid, report);
    }

    fn make_report(&mut self) -> Report {
        let (status, description) = self.status();
        let health_matters = matches!(self.plan.job.r#type, JobType::Service | JobType::System);
        let allocation = self.allocation();
        if health_matters && status == DerivedStatus::Failed {
            // A deployment's verdict stays as it was given; without one a failed allocation is not healthy any more.
            let is_open = self.health.as_ref().is_none_or(|it| it.healthy && self.watch.deployment.is_empty());
            if is_open {
                self.set_health(false, self.now());
            }
        }
        Report {
            generation: allocation.metadata.generation.unwrap_or_default(),
            client_status: match status {
                DerivedStatus::Pending => ClientStatus::Pending,
                DerivedStatus::Running => ClientStatus::Running,
                DerivedStatus::Complete => ClientStatus::Complete,
                DerivedStatus::Failed => ClientStatus::Failed,
            },
            description: description.to_owned(),
            task_states: self.states.iter().map(|(name, state)| (name.clone(), self.with_said(name, state))).collect(),
            health: self.health.clone(),
            ended_at: self.ended_at(),
            health_matters,
            stopping: !self.is_wanted() && !status.is_terminal(),
            volumes: crate::allocations::hooks::statuses(&self.plan, self.is_over()),
        }
    }

    /// What is said of the task by the allocation, among what its own runner says.
    fn with_said(&self, name: &str, state: &TaskState) -> TaskState {
        let mut state = state.clone();
        for said in self.said.get(name).into_iter().flatten() {
            task_event::insert(&mut state.events, said.clone());
        }
        state
    }

    /// The last end of its tasks, once all have ended and nothing is mounted any more.
    fn ended_at(&self) -> Option<Timestamp> {
        let last = || self.states.values().filter_map(|state| state.finished_at).max().unwrap_or_else(|| self.now());
        (self.is_over() && self.plan.env.csi.is_clear(&self.plan.uid)).then(last)
    }

    /// Whether every task is dead.
    pub(super) fn is_over(&self) -> bool {
        self.states.values().all(|state| state.state == TaskRunState::Dead)
    }

    pub(super) fn progress(&self) -> BTreeMap<String, Progress> {
        self.states.iter().map(|(name, task)| (name.clone(), policy::progress(task))).collect()
    }

    /// Whether its tasks are to run.
    pub(super) fn is_wanted(&self) -> bool {
        let wanted = self.plan.wanted.borrow();
        !self.is_stopped_here && !wanted.is_destroyed && !wanted.is_cut_off && report::is_wanted(&wanted.allocation)
    }
}
