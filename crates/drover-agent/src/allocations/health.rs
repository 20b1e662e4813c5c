//! The health of an allocation: tracked until there is a verdict, which counts for one deployment only.

use std::time::Duration;

use drover_api::JobSpec;
use drover_api::allocation::{Health, TaskEventType as Type};
use drover_api::group::Group;
use drover_core::defaults;
use drover_core::health::{CheckFacts, CheckState, HealthVerdict, Observation, TaskFacts, Tracker, health_policy};
use drover_core::lifecycle::{DerivedStatus, Progress};
use drover_core::service::ServiceStates;
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::task_states::TaskStates;
use crate::drivers::HealthReport;
use crate::tasks::task_event;

/// The verdict on an allocation's health, and its tracking while there is none.
#[derive(Debug, Default)]
pub(super) struct HealthTracking {
    verdict: Option<Health>,
    tracker: Option<Tracker>,
    wake_at: Option<Instant>,
    /// The deployment that the verdict is for.
    deployment: String,
}

impl HealthTracking {
    /// With the verdict of an earlier life of the agent.
    pub(super) fn new(verdict: Option<Health>) -> Self {
        Self { verdict, ..Self::default() }
    }

    /// The verdict, once there is one.
    pub(super) fn verdict(&self) -> Option<&Health> {
        self.verdict.as_ref()
    }

    /// When to look again if nothing changes.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.wake_at
    }

    /// Whether it is tracked for this deployment, or was.
    pub(super) fn is_for(&self, deployment: &str) -> bool {
        self.deployment == deployment
    }

    /// Begins to track an allocation of this group, unless there is a verdict for this deployment.
    pub(super) fn track(&mut self, job: &JobSpec, group: &Group, deployment: String, now: Timestamp) {
        self.expect(deployment);
        if self.verdict.is_none() {
            let update = defaults::update(job.r#type, job.update.as_ref(), group.update.as_ref());
            let is_deployed = !self.deployment.is_empty();
            let policy = health_policy(job.r#type, is_deployed, update.as_ref(), group.migrate.as_ref());
            self.tracker = policy.map(|policy| Tracker::new(policy, now));
        }
    }

    /// Tracks nothing: the allocation is not to run.
    pub(super) fn expect(&mut self, deployment: String) {
        if self.verdict.as_ref().is_some_and(|verdict| verdict.deployment_name != deployment) {
            self.verdict = None;
        }
        (self.tracker, self.wake_at, self.deployment) = (None, None, deployment);
    }

    /// An allocation that is to end gets no verdict any more.
    pub(super) fn stop(&mut self) {
        (self.tracker, self.wake_at) = (None, None);
    }

    /// Asks the tracker. Why an allocation is unhealthy is reported of the tasks to blame, where a deployment asks.
    pub(super) fn judge(
        &mut self,
        tasks: &mut TaskStates,
        services: &ServiceStates,
        status: DerivedStatus,
        now: Timestamp,
    ) -> Option<Health> {
        self.wake_at = None;
        let tracker = self.tracker.as_mut()?;
        let (mut seen, reported_at) = observation(tasks, status, now);
        seen.checks.extend(services.facts());
        seen.check_fault = services.first_fault();
        let step = tracker.observe(&seen, now);
        self.wake_at = step.wake_at.into_iter().chain(reported_at).min().map(|at| {
            let after = Duration::try_from(at.duration_since(now)).unwrap_or_default();
            Instant::now() + after
        });
        let verdict = step.verdict?;
        self.tracker = None;
        let healthy = match verdict {
            HealthVerdict::Healthy => true,
            HealthVerdict::Unhealthy { because } => {
                for blamed in because.into_iter().filter(|_| !self.deployment.is_empty()) {
                    // What is dead has its end as its last event, which says more.
                    if tasks.is_dead(&blamed.task) {
                        continue;
                    }
                    tasks.add_event(&blamed.task, task_event::plain(Type::AllocUnhealthy, now, blamed.reason));
                }
                false
            }
        };
        Some(self.set(healthy, now))
    }

    /// A deployment's verdict stays as it was given; without one a failed allocation is not healthy any more.
    pub(super) fn note_failure(&mut self, now: Timestamp) -> Option<Health> {
        let is_open = self.verdict.as_ref().is_none_or(|it| it.healthy && self.deployment.is_empty());
        is_open.then(|| self.set(false, now))
    }

    fn set(&mut self, healthy: bool, timestamp: Timestamp) -> Health {
        let verdict = Health { healthy, timestamp, deployment_name: self.deployment.clone() };
        self.verdict.insert(verdict).clone()
    }
}

/// What the tracker sees, and when a driver will report one more task healthy.
fn observation(tasks: &TaskStates, status: DerivedStatus, now: Timestamp) -> (Observation, Option<Timestamp>) {
    let facts = tasks.stages().map(|(name, stage, state)| {
        (name.clone(), TaskFacts { stage, progress: Progress::of(state), started_at: state.started_at })
    });
    let has_failed = !tasks.has_failed() && status == DerivedStatus::Failed;
    let (mut checks, mut next) = (Vec::new(), None);
    for (health, started) in tasks.reported_health() {
        let state = match health {
            HealthReport::AtOnce => continue,
            HealthReport::Never => CheckState::Failure,
            HealthReport::After(span) => {
                let span = SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX);
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
    (Observation { tasks: facts.collect(), checks, check_fault: None, has_failed }, next)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use drover_api::allocation::{TaskRunState, TaskState};
    use drover_api::job::JobType;
    use serde_json::json;

    use super::*;
    use crate::tasks::plan::TaskUpdate;

    const START: Timestamp = Timestamp::constant(1_000, 0);

    fn after(seconds: i64) -> Timestamp {
        START + SignedDuration::from_secs(seconds)
    }

    fn tracked(deployment: &str, check: &str) -> (HealthTracking, TaskStates) {
        let group: Group = serde_json::from_value(json!({
            "name": "g",
            "tasks": [{ "name": "web", "driver": "mock" }],
            "update": { "healthCheck": check, "minHealthyTime": "10s", "healthyDeadline": "1m" },
        }))
        .expect("a group");
        let job = JobSpec { r#type: JobType::Service, ..JobSpec::default() };
        let mut health = HealthTracking::default();
        health.track(&job, &group, deployment.to_owned(), START);
        (health, TaskStates::new(&group, &BTreeMap::new()))
    }

    fn run(tasks: &mut TaskStates, health: HealthReport) {
        let state = TaskState { state: TaskRunState::Running, started_at: Some(START), ..TaskState::default() };
        tasks.observe(TaskUpdate { task: "web".to_owned(), state, health });
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_runs_long_enough_is_healthy_for_its_deployment() {
        let (mut health, mut tasks) = tracked("d-1", "task_states");
        run(&mut tasks, HealthReport::AtOnce);
        assert_eq!(health.judge(&mut tasks, &ServiceStates::default(), DerivedStatus::Running, after(1)), None);
        assert_eq!(health.wake_at(), Some(Instant::now() + Duration::from_secs(9)));
        let verdict =
            health.judge(&mut tasks, &ServiceStates::default(), DerivedStatus::Running, after(10)).expect("a verdict");
        assert_eq!((verdict.healthy, &*verdict.deployment_name, verdict.timestamp), (true, "d-1", after(10)));
        assert_eq!(
            health.judge(&mut tasks, &ServiceStates::default(), DerivedStatus::Running, after(99)),
            None,
            "one verdict only"
        );
        assert_eq!(health.note_failure(after(99)), None, "the deployment's verdict stays");
    }

    #[tokio::test(start_paused = true)]
    async fn the_deadline_makes_it_unhealthy_and_the_task_says_why_to_a_deployment_alone() {
        for (deployment, n_events) in [("d-1", 1), ("", 0)] {
            let (mut health, mut tasks) = tracked(deployment, "task_states");
            let verdict = health.judge(&mut tasks, &ServiceStates::default(), DerivedStatus::Pending, after(61));
            let n_found = tasks.reported()["web"].events.len();
            let expected = (!deployment.is_empty()).then_some(false);
            assert_eq!((verdict.map(|it| it.healthy), n_found), (expected, n_events), "{deployment:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_driver_that_reports_health_later_is_waited_for() {
        let (mut health, mut tasks) = tracked("d-1", "checks");
        run(&mut tasks, HealthReport::After(Duration::from_secs(30)));
        assert_eq!(health.judge(&mut tasks, &ServiceStates::default(), DerivedStatus::Running, after(15)), None);
        assert_eq!(health.wake_at(), Some(Instant::now() + Duration::from_secs(15)));
        assert_eq!(health.judge(&mut tasks, &ServiceStates::default(), DerivedStatus::Running, after(30)), None);
        let verdict = health.judge(&mut tasks, &ServiceStates::default(), DerivedStatus::Running, after(40));
        assert_eq!(verdict.map(|it| it.healthy), Some(true));
    }

    #[test]
    fn a_verdict_of_another_deployment_is_forgotten() {
        let verdict = Health { healthy: true, timestamp: START, deployment_name: "d-1".to_owned() };
        let mut health = HealthTracking::new(Some(verdict.clone()));
        health.expect("d-1".to_owned());
        assert_eq!((health.verdict(), health.is_for("d-1")), (Some(&verdict), true));
        health.expect("d-2".to_owned());
        assert_eq!((health.verdict(), health.is_for("d-1")), (None, false));
    }

    #[test]
    fn a_failure_counts_where_no_deployment_has_judged() {
        let mut health = HealthTracking::default();
        health.expect(String::new());
        let verdict = health.note_failure(after(3)).expect("a verdict");
        assert_eq!((verdict.healthy, verdict.timestamp), (false, after(3)));
        assert_eq!(health.note_failure(after(4)), None, "once");
    }
}
