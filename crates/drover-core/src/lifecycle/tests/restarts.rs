//! The rows of `spec/agent.md` 5.4 in their order, over every combination of inputs, policies and counts.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::lifecycle::{
    Decision, ExitFacts, NotRestarting, RestartCount, RestartMode, RestartPolicy, RestartReason, RestartTracker,
};

const INTERVAL: i64 = 300;
const DELAY: Duration = Duration::from_secs(8);

fn at(seconds: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
}

/// What happened since the last decision.
#[derive(Clone, Copy, Debug)]
struct RunEnd {
    killed: bool,
    requested: bool,
    /// Whether another try may mend the error of a start.
    start_error: Option<bool>,
    /// Whether it ended well.
    exit: Option<bool>,
}

impl RunEnd {
    fn every() -> Vec<Self> {
        let mut all = Vec::new();
        for (killed, requested) in [(false, false), (false, true), (true, false), (true, true)] {
            for start_error in [None, Some(false), Some(true)] {
                for exit in [None, Some(false), Some(true)] {
                    all.push(Self { killed, requested, start_error, exit });
                }
            }
        }
        all
    }

    fn tell(self, tracker: &mut RestartTracker) {
        if self.killed {
            tracker.observe_kill();
        }
        if self.requested {
            tracker.observe_restart_request();
        }
        if let Some(is_recoverable) = self.start_error {
            tracker.observe_start_error(is_recoverable);
        }
        if let Some(success) = self.exit {
            tracker.observe_exit(ExitFacts { success });
        }
    }
}

/// The first row that matches, and how many restarts are counted then, in an interval that began when.
fn decided(happened: RunEnd, policy: RestartPolicy, counted: (u32, i64), now: i64) -> (Decision, (u32, i64)) {
    let attempts = policy.attempts;
    let is_well = happened.exit == Some(true) && happened.start_error.is_none() && !policy.on_success;
    if happened.killed {
        return (Decision::Killed, counted);
    }
    if happened.requested {
        return (Decision::Restart { delay: Duration::ZERO, reason: RestartReason::Requested }, counted);
    }
    if attempts == 0 {
        let failed = Decision::Fail(NotRestarting::NoneAllowed);
        return (if is_well { Decision::Done } else { failed }, counted);
    }
    let (before, began) = if now - counted.1 > INTERVAL { (0, now) } else { counted };
    let (count, interval) = (before + 1, policy.interval);
    let decision = if happened.start_error == Some(false) {
        Decision::Fail(NotRestarting::Unrecoverable)
    } else if is_well {
        Decision::Done
    } else if count <= attempts {
        Decision::Restart { delay: DELAY, reason: RestartReason::WithinPolicy }
    } else if policy.mode == RestartMode::Fail {
        Decision::Fail(NotRestarting::Exhausted { attempts, interval })
    } else {
        let rest = u64::try_from(began + INTERVAL - now).unwrap();
        let reason = RestartReason::IntervalExhausted { attempts, interval };
        Decision::Restart { delay: Duration::from_secs(rest), reason }
    };
    (decision, (count, began))
}

#[test]
fn each_end_of_a_run_is_followed_by_what_its_row_says() {
    let interval = Duration::from_secs(INTERVAL.unsigned_abs());
    let mut n = 0;
    for happened in RunEnd::every() {
        for (attempts, mode) in [0, 1, 3].into_iter().flat_map(|n| [(n, RestartMode::Fail), (n, RestartMode::Delay)]) {
            for on_success in [false, true] {
                let policy = RestartPolicy { attempts, interval, delay: DELAY, mode, on_success };
                for (count, now) in [0, 1, 2, 3, 4].into_iter().flat_map(|n| [0, 299, 300, 301].map(|now| (n, now))) {
                    let began = RestartCount { count, interval_start: at(0) };
                    let mut tracker = RestartTracker::resumed(policy, began);
                    happened.tell(&mut tracker);
                    assert_eq!(tracker.is_killed(), happened.killed);
                    let (wanted, (count, began)) = decided(happened, policy, (count, 0), now);
                    assert_eq!(tracker.decide(at(now), 0.0), wanted, "{happened:?} {policy:?} {count} at {now}");
                    let counted = RestartCount { count, interval_start: at(began) };
                    assert_eq!(tracker.counted(), counted, "{happened:?} {policy:?} at {now}");
                    assert!(!tracker.is_killed(), "the inputs are cleared");
                    n += 1;
                }
            }
        }
    }
    assert_eq!(n, 36 * 6 * 2 * 20);
}

#[test]
fn counts_and_intervals_stay_within_what_they_can_hold() {
    let policy = RestartPolicy {
        attempts: u32::MAX,
        interval: Duration::MAX,
        delay: DELAY,
        mode: RestartMode::Delay,
        on_success: true,
    };
    let mut tracker = RestartTracker::resumed(policy, RestartCount { count: u32::MAX, interval_start: at(0) });
    tracker.observe_exit(ExitFacts { success: false });
    let within = |delay| Decision::Restart { delay, reason: RestartReason::WithinPolicy };
    assert_eq!(tracker.decide(Timestamp::MAX, 0.0), within(DELAY));
    assert_eq!(tracker.counted(), RestartCount { count: u32::MAX, interval_start: at(0) });
    for (unit, delay) in [(0.0, 8), (0.5, 9), (1.0, 10), (7.0, 10), (-1.0, 8)] {
        tracker.observe_exit(ExitFacts { success: false });
        assert_eq!(tracker.decide(at(1), unit), within(Duration::from_secs(delay)), "a random part of {unit}");
    }
}
