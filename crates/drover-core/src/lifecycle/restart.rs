//! Decides whether and when a task runs again after it ended.
//!
//! Inputs gather in the tracker and are cleared by each decision. The interval begins when the tracker is made, and
//! again with the first decision after it has passed.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// What happens once the attempts of an interval are used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartMode {
    /// The task fails.
    Fail,
    /// The task starts again with the next interval.
    Delay,
}

/// The merged restart block of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartPolicy {
    /// Restarts per interval.
    pub attempts: u32,
    /// The length of an interval.
    pub interval: Duration,
    /// The wait before a restart, to which up to a quarter is added.
    pub delay: Duration,
    /// What follows on the last attempt.
    pub mode: RestartMode,
    /// Whether an exit with code 0 is followed by a restart.
    pub on_success: bool,
}

/// How a run ended, as far as the policy asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitFacts {
    /// The exit code was 0, without signal or error.
    pub success: bool,
}

/// Why a task starts again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestartReason {
    /// A person or a template asked for it.
    Requested,
    /// The policy allows another attempt.
    WithinPolicy,
    /// The attempts are used up and the rest of the interval is waited for.
    IntervalExhausted {
        /// The attempts of the policy.
        attempts: u32,
        /// Its interval.
        interval: Duration,
    },
}

/// Why a task does not start again although it should run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRestarting {
    /// The policy has no attempts.
    #[error("the restart policy allows no restart")]
    NoneAllowed,
    /// Starting it failed in a way that another try does not mend.
    #[error("the start error cannot be mended by another try")]
    Unrecoverable,
    /// The attempts of the interval are used up.
    #[error("all {attempts} restarts within {}s are used up", interval.as_secs())]
    Exhausted {
        /// The attempts of the policy.
        attempts: u32,
        /// Its interval.
        interval: Duration,
    },
}

/// What follows on the end of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It was killed and stays dead.
    Killed,
    /// It ended well and is done.
    Done,
    /// It failed for good.
    Fail(NotRestarting),
    /// It starts again after the delay.
    Restart {
        /// The wait.
        delay: Duration,
        /// Why.
        reason: RestartReason,
    },
}

#[derive(Clone, Copy, Debug, Default)]
struct Inputs {
    killed: bool,
    requested: bool,
    start_error: Option<Recoverable>,
    exit: Option<ExitFacts>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Recoverable(bool);

/// The restarts of an interval, as they are kept over an agent's death.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestartCount {
    /// How many.
    pub count: u32,
    /// When the interval began.
    pub interval_start: Timestamp,
}

/// Counts restarts within the policy's interval.
#[derive(Clone, Debug)]
pub struct RestartTracker {
    policy: RestartPolicy,
    count: u32,
    interval_start: Timestamp,
    inputs: Inputs,
}

impl RestartTracker {
    /// A tracker whose first interval begins now.
    pub fn new(policy: RestartPolicy, now: Timestamp) -> Self {
        Self { policy, count: 0, interval_start: now, inputs: Inputs::default() }
    }

    /// The same, going on from the restarts that were counted in an interval which began then.
    pub fn resumed(policy: RestartPolicy, counted: RestartCount) -> Self {
        Self { policy, count: counted.count, interval_start: counted.interval_start, inputs: Inputs::default() }
    }

    /// What [`RestartTracker::resumed`] goes on from.
    pub fn counted(&self) -> RestartCount {
        RestartCount { count: self.count, interval_start: self.interval_start }
    }

    /// Takes over another policy (after an update of the allocation); the count stays.
    pub fn adopt_policy(&mut self, policy: RestartPolicy) {
        self.policy = policy;
    }

    /// The task was killed on purpose.
    pub fn observe_kill(&mut self) {
        self.inputs.killed = true;
    }

    /// Whether a kill waits for its decision.
    pub fn is_killed(&self) -> bool {
        self.inputs.killed
    }

    /// Starting the task failed.
    pub fn observe_start_error(&mut self, recoverable: bool) {
        self.inputs.start_error = Some(Recoverable(recoverable));
    }

    /// The task ended.
    pub fn observe_exit(&mut self, exit: ExitFacts) {
        self.inputs.exit = Some(exit);
    }

    /// A person or a template asked for a restart, which does not count.
    pub fn observe_restart_request(&mut self) {
        self.inputs.requested = true;
    }

    /// A failing check asked for a restart, which counts.
    pub fn observe_failure_restart(&mut self) {
        self.inputs.exit = Some(ExitFacts { success: false });
    }

    /// Decides and clears the inputs. `unit` is a random number in [0, 1) that spreads the delay.
    pub fn decide(&mut self, now: Timestamp, unit: f64) -> Decision {
        let inputs = std::mem::take(&mut self.inputs);
        let done_well =
            !self.policy.on_success && inputs.exit.is_some_and(|exit| exit.success) && inputs.start_error.is_none();
        if inputs.killed {
            return Decision::Killed;
        }
        if inputs.requested {
            return Decision::Restart { delay: Duration::ZERO, reason: RestartReason::Requested };
        }
        if self.policy.attempts == 0 {
            return if done_well { Decision::Done } else { Decision::Fail(NotRestarting::NoneAllowed) };
        }
        if now > self.interval_end() {
            self.count = 0;
            self.interval_start = now;
        }
        self.count = self.count.saturating_add(1);
        if inputs.start_error == Some(Recoverable(false)) {
            return Decision::Fail(NotRestarting::Unrecoverable);
        }
        if done_well {
            return Decision::Done;
        }
        if self.count > self.policy.attempts { self.exhausted(now) } else { self.within_policy(unit) }
    }

    fn exhausted(&self, now: Timestamp) -> Decision {
        let RestartPolicy { attempts, interval, mode, .. } = self.policy;
        match mode {
            RestartMode::Fail => Decision::Fail(NotRestarting::Exhausted { attempts, interval }),
            RestartMode::Delay => Decision::Restart {
                delay: Duration::try_from(self.interval_end().duration_since(now)).unwrap_or_default(),
                reason: RestartReason::IntervalExhausted { attempts, interval },
            },
        }
    }

    fn within_policy(&self, unit: f64) -> Decision {
        let delay = self.policy.delay + self.policy.delay.mul_f64(unit.clamp(0.0, 1.0) * 0.25);
        Decision::Restart { delay, reason: RestartReason::WithinPolicy }
    }

    fn interval_end(&self) -> Timestamp {
        let interval = SignedDuration::try_from(self.policy.interval).unwrap_or(SignedDuration::MAX);
        self.interval_start.checked_add(interval).unwrap_or(Timestamp::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIVE_MINUTES: Duration = Duration::from_mins(5);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + seconds).expect("a time")
    }

    fn tracker(attempts: u32, mode: RestartMode, on_success: bool) -> RestartTracker {
        let policy =
            RestartPolicy { attempts, interval: FIVE_MINUTES, delay: Duration::from_secs(1), mode, on_success };
        RestartTracker::new(policy, at(0))
    }

    fn after_exit(tracker: &mut RestartTracker, success: bool, now: Timestamp) -> Decision {
        tracker.observe_exit(ExitFacts { success });
        tracker.decide(now, 0.5)
    }

    fn delay(decision: &Decision) -> Duration {
        match decision {
            Decision::Restart { delay, .. } => *delay,
            Decision::Killed | Decision::Done | Decision::Fail(_) => panic!("not a restart: {decision:?}"),
        }
    }

    #[test]
    fn a_082_mode_delay_waits_for_the_rest_of_the_interval() {
        let mut it = tracker(3, RestartMode::Delay, true);
        for n in 1..=3 {
            let wait = delay(&after_exit(&mut it, false, at(n)));
            assert!((Duration::from_secs(1)..=Duration::from_millis(1250)).contains(&wait), "{wait:?}");
        }
        for n in 4..=6 {
            let wait = delay(&after_exit(&mut it, false, at(n)));
            assert!(wait > Duration::from_secs(1) && wait <= FIVE_MINUTES, "{wait:?}");
        }
    }

    #[test]
    fn a_083_mode_fail_fails_after_the_last_attempt() {
        let mut it = tracker(3, RestartMode::Fail, true);
        for n in 1..=3 {
            let _: Duration = delay(&after_exit(&mut it, false, at(n)));
        }
        assert_eq!(
            after_exit(&mut it, false, at(4)),
            Decision::Fail(NotRestarting::Exhausted { attempts: 3, interval: FIVE_MINUTES })
        );
    }

    #[test]
    fn an_agents_death_gives_no_new_attempts() {
        let mut it = tracker(1, RestartMode::Fail, true);
        let _: Duration = delay(&after_exit(&mut it, false, at(1)));
        let mut again = RestartTracker::resumed(it.policy, it.counted());
        assert!(matches!(after_exit(&mut again, false, at(2)), Decision::Fail(NotRestarting::Exhausted { .. })));
    }

    #[test]
    fn a_084_a_batch_task_that_ends_well_is_done() {
        assert_eq!(after_exit(&mut tracker(3, RestartMode::Fail, false), true, at(1)), Decision::Done);
    }

    #[test]
    fn a_085_without_attempts_a_service_fails_whatever_its_exit() {
        for success in [false, true] {
            let decision = after_exit(&mut tracker(0, RestartMode::Fail, true), success, at(1));
            assert_eq!(decision, Decision::Fail(NotRestarting::NoneAllowed));
        }
    }

    #[test]
    fn a_086_without_attempts_a_batch_task_ends_by_its_exit() {
        assert_eq!(after_exit(&mut tracker(0, RestartMode::Fail, false), true, at(1)), Decision::Done);
        assert_eq!(
            after_exit(&mut tracker(0, RestartMode::Fail, false), false, at(1)),
            Decision::Fail(NotRestarting::NoneAllowed)
        );
    }

    #[test]
    fn a_087_a_requested_restart_does_not_count() {
        let mut it = tracker(0, RestartMode::Fail, true);
        it.observe_restart_request();
        it.observe_exit(ExitFacts { success: false });
        let wanted = Decision::Restart { delay: Duration::ZERO, reason: RestartReason::Requested };
        assert_eq!(it.decide(at(1), 0.0), wanted);
        assert_eq!(after_exit(&mut it, false, at(2)), Decision::Fail(NotRestarting::NoneAllowed), "inputs are cleared");
    }

    #[test]
    fn a_088_restarts_by_checks_count() {
        let mut it = tracker(1, RestartMode::Fail, true);
        it.observe_failure_restart();
        assert!(delay(&it.decide(at(1), 0.0)) > Duration::ZERO);
        it.observe_failure_restart();
        assert_eq!(
            it.decide(at(2), 0.0),
            Decision::Fail(NotRestarting::Exhausted { attempts: 1, interval: FIVE_MINUTES })
        );
    }

    #[test]
    fn a_089_a_recoverable_start_error_uses_an_attempt() {
        let mut it = tracker(1, RestartMode::Fail, true);
        it.observe_start_error(true);
        assert_eq!(delay(&it.decide(at(1), 0.0)), Duration::from_secs(1));
        it.observe_start_error(true);
        assert_eq!(
            it.decide(at(2), 0.0),
            Decision::Fail(NotRestarting::Exhausted { attempts: 1, interval: FIVE_MINUTES })
        );
    }

    #[test]
    fn a_090_an_unrecoverable_start_error_fails_at_once() {
        let mut it = tracker(3, RestartMode::Delay, true);
        it.observe_start_error(false);
        assert_eq!(it.decide(at(1), 0.0), Decision::Fail(NotRestarting::Unrecoverable));
    }

    #[test]
    fn a_kill_wins_over_everything() {
        let mut it = tracker(3, RestartMode::Fail, true);
        it.observe_kill();
        it.observe_restart_request();
        it.observe_exit(ExitFacts { success: false });
        assert_eq!(it.decide(at(1), 0.0), Decision::Killed);
    }

    #[test]
    fn a_new_interval_gives_new_attempts() {
        let mut it = tracker(1, RestartMode::Fail, true);
        let _: Duration = delay(&after_exit(&mut it, false, at(1)));
        let _: Duration = delay(&after_exit(&mut it, false, at(301)));
        assert!(matches!(after_exit(&mut it, false, at(302)), Decision::Fail(_)));
    }

    #[test]
    fn the_jitter_is_at_most_a_quarter() {
        let mut it = tracker(1, RestartMode::Fail, true);
        it.observe_exit(ExitFacts { success: false });
        assert_eq!(delay(&it.decide(at(1), 1.0)), Duration::from_millis(1250));
    }

    mod any_order {
        use proptest::prelude::*;

        use super::*;

        /// What happens to a task, and how long after the last time.
        #[derive(Clone, Copy, Debug)]
        enum Happens {
            Exits(bool),
            FailsToStart(bool),
            IsRequested,
            IsKilled,
        }

        fn happens() -> impl Strategy<Value = (u64, Happens)> {
            let what = prop_oneof![
                6 => any::<bool>().prop_map(Happens::Exits),
                2 => any::<bool>().prop_map(Happens::FailsToStart),
                1 => Just(Happens::IsRequested),
                1 => Just(Happens::IsKilled),
            ];
            (0_u64..40_000, what)
        }

        fn policies() -> impl Strategy<Value = RestartPolicy> {
            let mode = prop_oneof![Just(RestartMode::Fail), Just(RestartMode::Delay)];
            (0_u32..5, 1_u64..60, 0_u64..10, mode, any::<bool>()).prop_map(
                |(attempts, interval, delay, mode, on_success)| RestartPolicy {
                    attempts,
                    interval: Duration::from_secs(interval),
                    delay: Duration::from_secs(delay),
                    mode,
                    on_success,
                },
            )
        }

        fn observe(tracker: &mut RestartTracker, what: Happens) {
            match what {
                Happens::Exits(success) => tracker.observe_exit(ExitFacts { success }),
                Happens::FailsToStart(recoverable) => tracker.observe_start_error(recoverable),
                Happens::IsRequested => tracker.observe_restart_request(),
                Happens::IsKilled => tracker.observe_kill(),
            }
        }

        proptest! {
            #[test]
            fn no_interval_has_more_restarts_than_attempts_and_an_agents_death_changes_no_decision(
                policy in policies(),
                happened in proptest::collection::vec(happens(), 1..60),
                unit in 0.0_f64..1.0,
            ) {
                let mut now = Timestamp::UNIX_EPOCH;
                let mut tracker = RestartTracker::new(policy, now);
                let mut within = 0_u32;
                let mut interval_start = tracker.counted().interval_start;
                for (after_ms, what) in happened {
                    now += SignedDuration::from_millis(i64::try_from(after_ms).unwrap_or(0));
                    let mut next_agents = RestartTracker::resumed(policy, tracker.counted());
                    observe(&mut tracker, what);
                    observe(&mut next_agents, what);
                    let decision = tracker.decide(now, unit);
                    prop_assert_eq!(&decision, &next_agents.decide(now, unit));
                    if tracker.counted().interval_start != interval_start {
                        (within, interval_start) = (0, tracker.counted().interval_start);
                    }
                    match (&decision, what) {
                        (Decision::Killed, Happens::IsKilled) => {}
                        (Decision::Restart { delay, reason: RestartReason::Requested }, Happens::IsRequested) => {
                            prop_assert_eq!(*delay, Duration::ZERO);
                        }
                        (Decision::Restart { delay, reason: RestartReason::WithinPolicy }, _) => {
                            within += 1;
                            prop_assert!(within <= policy.attempts);
                            prop_assert!((policy.delay..=policy.delay.mul_f64(1.25)).contains(delay), "{:?}", delay);
                        }
                        (Decision::Restart { delay, reason: RestartReason::IntervalExhausted { .. } }, _) => {
                            prop_assert_eq!(policy.mode, RestartMode::Delay);
                            prop_assert!(*delay <= policy.interval);
                        }
                        (Decision::Done, Happens::Exits(success)) => prop_assert!(success && !policy.on_success),
                        (Decision::Fail(NotRestarting::Exhausted { .. }), _) => {
                            prop_assert_eq!(policy.mode, RestartMode::Fail);
                        }
                        (Decision::Fail(NotRestarting::Unrecoverable), what) => {
                            prop_assert!(matches!(what, Happens::FailsToStart(false)));
                        }
                        (Decision::Fail(NotRestarting::NoneAllowed), _) => prop_assert_eq!(policy.attempts, 0),
                        (decision, what) => prop_assert!(false, "{:?} decides {:?}", what, decision),
                    }
                }
            }
        }
    }
}
