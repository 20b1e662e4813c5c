//! Follows the tasks and checks of one allocation until they were well for long enough, or cannot be any more.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::{HealthMode, HealthPolicy};
use crate::lifecycle::{Progress, RunState, Stage};

/// What is known of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskFacts {
    /// Its place in the lifecycle.
    pub stage: Stage,
    /// How far it has come.
    pub progress: Progress,
    /// The start of its last run.
    pub started_at: Option<Timestamp>,
}

/// What a check found last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckState {
    /// Nothing yet.
    Pending,
    /// It passes.
    Success,
    /// It passes, but something is not as it should be: who asks is served, and the allocation is not healthy.
    Warning,
    /// It does not.
    Failure,
}

/// What is known of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckFacts {
    /// What it found last.
    pub state: CheckState,
    /// It only says whether requests should come (`onUpdate: ignore`): its failure or warning is no illness.
    pub is_readiness: bool,
}

impl CheckFacts {
    fn passes(self) -> bool {
        match self.state {
            CheckState::Success => true,
            CheckState::Warning | CheckState::Failure => self.is_readiness,
            CheckState::Pending => false,
        }
    }
}

/// An allocation at one moment.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    /// Its tasks by name.
    pub tasks: BTreeMap<String, TaskFacts>,
    /// Its checks.
    pub checks: Vec<CheckFacts>,
    /// What is wrong with the first of them that does not pass, for people.
    pub check_fault: Option<String>,
    /// Its status is failed, whatever its tasks say.
    pub has_failed: bool,
}

/// A task because of which an allocation is unhealthy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Responsible {
    /// The task.
    pub task: String,
    /// What is wrong with it, for people.
    pub reason: String,
}

/// The end of the tracking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HealthVerdict {
    /// Everything was well for long enough.
    Healthy,
    /// It was not, or cannot be any more.
    Unhealthy {
        /// The tasks that are to blame; none when the allocation failed as a whole.
        because: Vec<Responsible>,
    },
}

/// What follows from an observation.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthStep {
    /// The verdict, once there is one.
    pub verdict: Option<HealthVerdict>,
    /// When to look again if nothing changes before.
    pub wake_at: Option<Timestamp>,
}

/// Tracks one allocation for one deployment, or for none.
#[derive(Clone, Debug)]
pub struct Tracker {
    policy: HealthPolicy,
    began_at: Timestamp,
    /// Since when all checks pass.
    checks_since: Option<Timestamp>,
    /// The youngest start seen: a later one is a restart.
    youngest_start: Option<Timestamp>,
}

enum Tasks {
    /// All have run since then.
    WellSince(Timestamp),
    /// Some do not run.
    NotYet,
    Unhealthy(Vec<Responsible>),
}

impl Tracker {
    /// A tracker that begins now.
    pub fn new(policy: HealthPolicy, now: Timestamp) -> Self {
        Self { policy, began_at: now, checks_since: None, youngest_start: None }
    }

    /// Judges what is seen. O(tasks + checks).
    pub fn observe(&mut self, seen: &Observation, now: Timestamp) -> HealthStep {
        let tasks = self.judge_tasks(&seen.tasks);
        if let Tasks::Unhealthy(because) = tasks {
            return ended(HealthVerdict::Unhealthy { because });
        }
        if seen.has_failed {
            return ended(HealthVerdict::Unhealthy { because: Vec::new() });
        }
        let checks_since = self.judge_checks(&seen.checks, now);
        let well_at = match (&tasks, checks_since) {
            (Tasks::WellSince(since), Some(checks)) => Some(later((*since).max(checks), self.policy.min_healthy_for)),
            (Tasks::WellSince(_), None) | (Tasks::NotYet | Tasks::Unhealthy(_), _) => None,
        };
        let deadline = later(self.began_at, self.policy.deadline_after);
        if let Some(well_at) = well_at
            && well_at <= now
            && well_at <= deadline
        {
            return ended(HealthVerdict::Healthy);
        }
        if deadline <= now {
            return ended(HealthVerdict::Unhealthy { because: self.blame(seen, checks_since) });
        }
        HealthStep { verdict: None, wake_at: Some(well_at.map_or(deadline, |well_at| well_at.min(deadline))) }
    }

    fn judge_tasks(&mut self, tasks: &BTreeMap<String, TaskFacts>) -> Tasks {
        let (mut youngest, mut waits, mut dead) = (None, false, Vec::new());
        for (name, task) in tasks {
            let is_done_well = task.progress.is_done_well();
            match (task.stage, task.progress.state) {
                (Stage::Poststop, _) => continue,
                (Stage::PoststartEphemeral, RunState::Dead) if is_done_well => continue,
                (Stage::PrestartEphemeral, RunState::Dead) if is_done_well => {}
                (
                    Stage::PrestartEphemeral
                    | Stage::PrestartSidecar
                    | Stage::Main
                    | Stage::PoststartEphemeral
                    | Stage::PoststartSidecar,
                    state,
                ) => match state {
                    RunState::Dead => {
                        let reason = if task.progress.failed { "the task failed" } else { "the task is dead" };
                        dead.push(Responsible { task: name.clone(), reason: reason.to_owned() });
                    }
                    RunState::Pending => waits = true,
                    RunState::Running => {}
                },
            }
            youngest = youngest.max(task.started_at);
        }
        if youngest > self.youngest_start {
            // What the checks have found of an earlier run says nothing of this one.
            self.checks_since = None;
            self.youngest_start = youngest;
        }
        match (dead.is_empty(), waits, youngest) {
            (false, _, _) => Tasks::Unhealthy(dead),
            (true, false, Some(youngest)) => Tasks::WellSince(youngest.max(self.began_at)),
            (true, true, _) | (true, false, None) => Tasks::NotYet,
        }
    }

    fn judge_checks(&mut self, checks: &[CheckFacts], now: Timestamp) -> Option<Timestamp> {
        if self.policy.mode == HealthMode::TaskStates || checks.is_empty() {
            return Some(self.began_at);
        }
        if checks.iter().all(|check| check.passes()) {
            self.checks_since.get_or_insert(now);
        } else {
            self.checks_since = None;
        }
        self.checks_since
    }

    /// Who is to blame when the deadline has passed.
    fn blame(&self, seen: &Observation, checks_since: Option<Timestamp>) -> Vec<Responsible> {
        let minutes = self.policy.deadline_after.as_secs_f64();
        let minimum = self.policy.min_healthy_for.as_secs_f64();
        let reason = |task: &TaskFacts| match (task.stage, task.progress.state) {
            (Stage::Poststop, _) => None,
            (_, RunState::Pending) => Some(format!("the task does not run by its healthy deadline of {minutes}s")),
            (_, RunState::Running) if checks_since.is_none() => {
                let fault = seen.check_fault.as_deref().unwrap_or("checks do not pass");
                Some(format!("not healthy by the deadline of {minutes}s: {fault}"))
            }
            (_, RunState::Running) if task.started_at == self.youngest_start => Some(format!(
                "the task has not run for {minimum}s without a break by its healthy deadline of {minutes}s"
            )),
            (_, RunState::Running | RunState::Dead) => None,
        };
        seen.tasks
            .iter()
            .filter_map(|(name, task)| Some(Responsible { task: name.clone(), reason: reason(task)? }))
            .collect()
    }
}

fn ended(verdict: HealthVerdict) -> HealthStep {
    HealthStep { verdict: Some(verdict), wake_at: None }
}

fn later(at: Timestamp, by: std::time::Duration) -> Timestamp {
    let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
    at.checked_add(by).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const RUNNING: Progress = Progress { state: RunState::Running, failed: false };
    const DONE: Progress = Progress { state: RunState::Dead, failed: false };
    const FAILED: Progress = Progress { state: RunState::Dead, failed: true };

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(1_700_000_000_000 + millis).expect("a time")
    }

    fn tracker(mode: HealthMode, min_ms: u64, deadline_ms: u64) -> Tracker {
        let policy = HealthPolicy {
            mode,
            min_healthy_for: Duration::from_millis(min_ms),
            deadline_after: Duration::from_millis(deadline_ms),
        };
        Tracker::new(policy, at(0))
    }

    fn seen(tasks: &[(&str, Stage, Progress, Option<i64>)], checks: &[(CheckState, bool)]) -> Observation {
        Observation {
            tasks: tasks
                .iter()
                .map(|(name, stage, progress, started)| {
                    let facts = TaskFacts { stage: *stage, progress: *progress, started_at: started.map(at) };
                    ((*name).to_owned(), facts)
                })
                .collect(),
            checks: checks
                .iter()
                .map(|(state, is_readiness)| CheckFacts { state: *state, is_readiness: *is_readiness })
                .collect(),
            check_fault: None,
            has_failed: false,
        }
    }

    fn main(progress: Progress, started: Option<i64>) -> Observation {
        seen(&[("web", Stage::Main, progress, started)], &[])
    }

    fn is_healthy(step: &HealthStep) -> bool {
        step.verdict == Some(HealthVerdict::Healthy)
    }

    fn blamed(step: HealthStep) -> Vec<(String, String)> {
        match step.verdict {
            Some(HealthVerdict::Unhealthy { because }) => because.into_iter().map(|it| (it.task, it.reason)).collect(),
            other => panic!("not unhealthy: {other:?}"),
        }
    }

    #[test]
    fn a_070_healthy_after_the_minimum_time() {
        let mut it = tracker(HealthMode::TaskStates, 100, 10_000);
        assert_eq!(it.observe(&main(Progress::PENDING, None), at(1)).wake_at, Some(at(10_000)));
        let step = it.observe(&main(RUNNING, Some(5)), at(6));
        assert_eq!((step.verdict.clone(), step.wake_at), (None, Some(at(105))));
        assert_eq!(it.observe(&main(RUNNING, Some(5)), at(104)).verdict, None);
        assert!(is_healthy(&it.observe(&main(RUNNING, Some(5)), at(105))));
    }

    #[test]
    fn a_071_a_restart_puts_the_verdict_off() {
        let mut it = tracker(HealthMode::TaskStates, 100, 10_000);
        assert_eq!(it.observe(&main(RUNNING, Some(0)), at(0)).verdict, None);
        assert_eq!(it.observe(&main(Progress::PENDING, Some(0)), at(80)).verdict, None);
        assert_eq!(it.observe(&main(RUNNING, Some(81)), at(100)).verdict, None, "not healthy at 100 ms");
        assert!(is_healthy(&it.observe(&main(RUNNING, Some(81)), at(181))));
        let mut late = tracker(HealthMode::TaskStates, 100, 150);
        assert_eq!(late.observe(&main(RUNNING, Some(81)), at(100)).wake_at, Some(at(150)));
        let because = blamed(late.observe(&main(RUNNING, Some(81)), at(181)));
        assert!(because[0].1.contains("without a break"), "the deadline came first: {because:?}");
    }

    #[test]
    fn a_072_a_check_that_never_passes_is_unhealthy_at_the_deadline() {
        let mut it = tracker(HealthMode::Checks, 10, 200);
        let failing = seen(&[("web", Stage::Main, RUNNING, Some(0))], &[(CheckState::Failure, false)]);
        assert_eq!(it.observe(&failing, at(199)).wake_at, Some(at(200)));
        let because = blamed(it.observe(&failing, at(200)));
        assert_eq!(because[0].0, "web");
        assert!(because[0].1.contains("checks do not pass"), "{because:?}");
    }

    #[test]
    fn a_073_a_check_that_passes_later_is_healthy_soon() {
        let mut it = tracker(HealthMode::Checks, 0, 10_000);
        let with = |state| seen(&[("web", Stage::Main, RUNNING, Some(0))], &[(state, false)]);
        for now in [0, 10] {
            assert_eq!(it.observe(&with(CheckState::Pending), at(now)).verdict, None);
        }
        assert!(is_healthy(&it.observe(&with(CheckState::Success), at(20))), "within 40 ms");
    }

    #[test]
    fn a_074_a_failing_readiness_check_is_no_illness() {
        let mut it = tracker(HealthMode::Checks, 0, 10_000);
        let ignored = seen(&[("web", Stage::Main, RUNNING, Some(0))], &[(CheckState::Failure, true)]);
        assert!(is_healthy(&it.observe(&ignored, at(1))));
    }

    #[test]
    fn a_075_no_verdict_until_every_task_runs() {
        let mut it = tracker(HealthMode::Checks, 5, 10_000);
        let second = |progress, started| {
            seen(
                &[("web", Stage::Main, RUNNING, Some(0)), ("db", Stage::Main, progress, started)],
                &[(CheckState::Success, false)],
            )
        };
        assert_eq!(it.observe(&second(Progress::PENDING, None), at(500)).verdict, None);
        assert_eq!(it.observe(&second(RUNNING, Some(501)), at(502)).verdict, None);
        assert!(is_healthy(&it.observe(&second(RUNNING, Some(501)), at(507))));
    }

    #[test]
    fn a_076_and_a_077_tasks_around_the_main_ones() {
        // the second row.
        let table = [
            ("a pending poststop task is ignored", Stage::Poststop, Progress::PENDING, None, true),
            ("a poststart task that ended well is ignored", Stage::PoststartEphemeral, DONE, Some(90), true),
            ("a prestart task that ended well counts by its start", Stage::PrestartEphemeral, DONE, Some(90), false),
            ("a sidecar that does not run yet is waited for", Stage::PrestartSidecar, Progress::PENDING, None, false),
        ];
        for (what, stage, progress, started, healthy) in table {
            let mut it = tracker(HealthMode::TaskStates, 50, 10_000);
            let seen = seen(&[("web", Stage::Main, RUNNING, Some(0)), ("other", stage, progress, started)], &[]);
            assert_eq!(is_healthy(&it.observe(&seen, at(100))), healthy, "{what}");
        }
    }

    #[test]
    fn a_task_that_fails_or_ends_is_unhealthy_at_once() {
        for (progress, reason) in [(FAILED, "the task failed"), (DONE, "the task is dead")] {
            let mut it = tracker(HealthMode::TaskStates, 50, 10_000);
            assert_eq!(blamed(it.observe(&main(progress, Some(0)), at(1))), [("web".to_owned(), reason.to_owned())]);
        }
        let mut it = tracker(HealthMode::TaskStates, 50, 10_000);
        let failed = Observation { has_failed: true, ..main(Progress::PENDING, None) };
        assert_eq!(blamed(it.observe(&failed, at(1))), []);
    }

    #[test]
    fn checks_and_tasks_have_to_be_well_together() {
        let mut it = tracker(HealthMode::Checks, 100, 10_000);
        let with = |started, state| seen(&[("web", Stage::Main, RUNNING, Some(started))], &[(state, false)]);
        assert_eq!(it.observe(&with(0, CheckState::Success), at(50)).verdict, None);
        assert_eq!(it.observe(&with(60, CheckState::Success), at(140)).verdict, None, "the restart resets the checks");
        assert_eq!(it.observe(&with(60, CheckState::Success), at(239)).verdict, None);
        assert!(is_healthy(&it.observe(&with(60, CheckState::Success), at(240))));
    }

    #[test]
    fn what_each_check_finds_lets_an_allocation_be_healthy_or_not() {
        for (state, is_readiness, wanted) in [
            (CheckState::Success, false, true),
            (CheckState::Success, true, true),
            (CheckState::Warning, false, false),
            (CheckState::Warning, true, true),
            (CheckState::Failure, false, false),
            (CheckState::Failure, true, true),
            (CheckState::Pending, false, false),
            (CheckState::Pending, true, false),
        ] {
            let checks = [(CheckState::Success, false), (state, is_readiness)];
            let seen = seen(&[("web", Stage::Main, RUNNING, Some(0))], &checks);
            let mut by_checks = tracker(HealthMode::Checks, 0, 10_000);
            assert_eq!(is_healthy(&by_checks.observe(&seen, at(1))), wanted, "{state:?}, readiness {is_readiness}");
            let mut by_tasks = tracker(HealthMode::TaskStates, 0, 10_000);
            assert!(is_healthy(&by_tasks.observe(&seen, at(1))), "{state:?}: checks have no say in task states");
        }
    }

    #[test]
    fn one_that_is_well_exactly_at_its_deadline_is_healthy_whenever_that_is_seen() {
        for (min, seen_at, wanted) in [(200, 200, true), (200, 900, true), (201, 200, false), (201, 900, false)] {
            let mut it = tracker(HealthMode::TaskStates, min, 200);
            let step = it.observe(&main(RUNNING, Some(0)), at(seen_at));
            assert_eq!(is_healthy(&step), wanted, "{min} ms, seen at {seen_at}");
            assert_eq!((step.verdict.is_some(), step.wake_at), (true, None), "{min} ms, seen at {seen_at}");
        }
    }

    #[test]
    fn a_run_from_before_the_tracking_counts_from_its_beginning() {
        let mut it = tracker(HealthMode::TaskStates, 100, 10_000);
        let step = it.observe(&main(RUNNING, Some(-5_000)), at(99));
        assert_eq!((step.verdict, step.wake_at), (None, Some(at(100))));
    }

    #[test]
    fn a_time_beyond_all_time_is_never_reached() {
        let mut it = tracker(HealthMode::TaskStates, u64::MAX, u64::MAX);
        let step = it.observe(&main(RUNNING, Some(0)), at(1));
        assert_eq!((step.verdict, step.wake_at), (None, Some(Timestamp::MAX)));
    }

    #[test]
    fn at_the_deadline_each_task_that_kept_it_from_health_is_told_why() {
        let tasks = [
            ("after", Stage::Poststop, Progress::PENDING, None),
            ("late", Stage::Main, Progress::PENDING, None),
            ("old", Stage::Main, RUNNING, Some(0)),
            ("young", Stage::Main, RUNNING, Some(150)),
        ];
        let told = |seen: &Observation| {
            let mut it = tracker(HealthMode::Checks, 100, 200);
            blamed(it.observe(seen, at(200)))
        };
        let line = |task: &str, reason: &str| (task.to_owned(), reason.to_owned());
        let pending = line("late", "the task does not run by its healthy deadline of 0.2s");
        let short = "the task has not run for 0.1s without a break by its healthy deadline of 0.2s";
        assert_eq!(told(&seen(&tasks, &[])), [pending.clone(), line("young", short)]);
        let failing = seen(&tasks, &[(CheckState::Failure, false)]);
        let fault = "not healthy by the deadline of 0.2s: checks do not pass";
        assert_eq!(told(&failing), [pending.clone(), line("old", fault), line("young", fault)]);
        let named = Observation { check_fault: Some("http: 503".to_owned()), ..failing };
        let fault = "not healthy by the deadline of 0.2s: http: 503";
        assert_eq!(told(&named), [pending, line("old", fault), line("young", fault)]);
    }

    /// The starts that count for the minimum time: all but those of tasks that run after the others, and of poststart
    /// tasks that are done.
    fn youngest_of(seen: &Observation) -> Option<Timestamp> {
        let counts = |it: &&TaskFacts| match it.stage {
            Stage::Poststop => false,
            Stage::PoststartEphemeral => it.progress != DONE,
            _ => true,
        };
        seen.tasks.values().filter(counts).filter_map(|it| it.started_at).max()
    }

    /// Since when all checks pass, from all that was seen: back to the first of the last row of good observations, and
    /// not behind the last restart.
    fn passing_since(history: &[(Timestamp, Observation)]) -> Option<Timestamp> {
        let mut since = None;
        for (n, (now, seen)) in history.iter().enumerate().rev() {
            let passes = |it: &CheckFacts| {
                it.state == CheckState::Success || (it.is_readiness && it.state != CheckState::Pending)
            };
            if seen.checks.is_empty() || !seen.checks.iter().all(passes) {
                break;
            }
            since = Some(*now);
            let before = history[..n].iter().filter_map(|(_, seen)| youngest_of(seen)).max();
            if youngest_of(seen) > before {
                break;
            }
        }
        since
    }

    /// The verdict that all that was seen leads to, with the names of the tasks to blame before the deadline.
    fn expected(history: &[(Timestamp, Observation)], mode: HealthMode, min: i64, deadline: i64) -> Option<String> {
        let (now, seen) = history.last().expect("an observation");
        let is_ephemeral = |it: &TaskFacts| matches!(it.stage, Stage::PrestartEphemeral | Stage::PoststartEphemeral);
        let may_be_dead = |it: &TaskFacts| it.stage == Stage::Poststop || (is_ephemeral(it) && it.progress == DONE);
        let is_dead = |it: &TaskFacts| it.progress.state == RunState::Dead && !may_be_dead(it);
        let dead: Vec<&str> = seen.tasks.iter().filter(|(_, it)| is_dead(it)).map(|(name, _)| name.as_str()).collect();
        if !dead.is_empty() {
            return Some(format!("dead {}", dead.join(" ")));
        }
        let waits = |it: &TaskFacts| it.stage != Stage::Poststop && it.progress.state == RunState::Pending;
        let runs_since = youngest_of(seen).filter(|_| !seen.tasks.values().any(waits));
        let has_checks = mode == HealthMode::Checks && !seen.checks.is_empty();
        let checks_since = if has_checks { passing_since(history) } else { Some(at(0)) };
        if let (Some(runs), Some(passes)) = (runs_since, checks_since) {
            let well_at = runs.max(passes).max(at(0)) + SignedDuration::from_millis(min);
            if well_at <= *now && well_at <= at(deadline) {
                return Some("healthy".to_owned());
            }
        }
        (*now >= at(deadline)).then(|| "late".to_owned())
    }

    fn random_task(rng: &mut fastrand::Rng, now: i64) -> TaskFacts {
        let stage = Stage::ALL[rng.usize(..Stage::ALL.len())];
        let is_ephemeral = matches!(stage, Stage::PrestartEphemeral | Stage::PoststartEphemeral);
        let (progress, started_at) = match rng.usize(0..60) {
            0..=7 => (Progress::PENDING, None),
            8 => (FAILED, Some(at(now))),
            9..=30 if is_ephemeral => (DONE, Some(at(rng.i64(-5..=now)))),
            _ => (RUNNING, Some(at(rng.i64(-5..=now)))),
        };
        TaskFacts { stage, progress, started_at }
    }

    #[test]
    fn a_verdict_follows_from_all_that_was_seen() {
        let (mut n_healthy, mut n_dead, mut n_late) = (0, 0, 0);
        for seed in 0..4_000 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mode = if rng.bool() { HealthMode::Checks } else { HealthMode::TaskStates };
            let (min, deadline) = (rng.u64(0..12), rng.u64(8..30));
            let mut it = tracker(mode, min, deadline);
            let (mut history, mut now) = (Vec::new(), 0);
            let mut seen = Observation::default();
            loop {
                let name = ["a", "b", "c"][rng.usize(..3)];
                if seen.tasks.is_empty() || rng.usize(..3) == 0 {
                    seen.tasks.insert(name.to_owned(), random_task(&mut rng, now));
                }
                if rng.usize(..4) == 0 {
                    let states = [CheckState::Pending, CheckState::Success, CheckState::Warning, CheckState::Failure];
                    let state = if rng.bool() { CheckState::Success } else { states[rng.usize(..4)] };
                    seen.checks = vec![CheckFacts { state, is_readiness: rng.usize(..4) == 0 }; rng.usize(1..3)];
                }
                history.push((at(now), seen.clone()));
                let min = i64::try_from(min).expect("a short time");
                let deadline = i64::try_from(deadline).expect("a short time");
                let wanted = expected(&history, mode, min, deadline);
                let step = it.observe(&seen, at(now));
                let found = step.verdict.clone().map(|verdict| match verdict {
                    HealthVerdict::Healthy => "healthy".to_owned(),
                    HealthVerdict::Unhealthy { because } if wanted.as_deref() != Some("late") => {
                        let names: Vec<&str> = because.iter().map(|it| it.task.as_str()).collect();
                        format!("dead {}", names.join(" "))
                    }
                    HealthVerdict::Unhealthy { .. } => "late".to_owned(),
                });
                assert_eq!(found, wanted, "seed {seed} at {now}: {history:#?}");
                match wanted.as_deref() {
                    Some("healthy") => n_healthy += 1,
                    Some("late") => n_late += 1,
                    Some(_) => n_dead += 1,
                    None => {
                        let wake_at = step.wake_at.expect("a time to look again");
                        assert!(wake_at > at(now) && wake_at <= at(deadline), "seed {seed} at {now}: {wake_at}");
                        now += rng.i64(1..5);
                        continue;
                    }
                }
                break;
            }
        }
        assert!(n_healthy > 500 && n_dead > 100 && n_late > 100, "{n_healthy} {n_dead} {n_late}");
    }
}
