//! Random histories of checks, against a reading of the whole history each time.

use fastrand::Rng;

use super::*;

/// When the restart is due: the first unhealthy result since the last healthy one, or the registration where there was
/// none, at the earliest behind the grace, and the rule's time after it.
fn slow_due(rule: RestartRule, history: &[(CheckState, i64)], spent: bool) -> Option<Timestamp> {
    let is_healthy =
        |state: CheckState| state == CheckState::Success || state == CheckState::Warning && rule.ignores_warnings;
    let grace = i64::try_from(rule.grace.as_millis()).expect("a grace");
    let since = match history.iter().rposition(|(state, _)| is_healthy(*state)) {
        None => Some(0),
        Some(healthy) => history.get(healthy + 1).map(|(_, millis)| *millis),
    };
    let after = i64::try_from(rule.after.as_millis()).expect("a time");
    since.filter(|_| !spent).map(|since| at(since.max(grace) + after))
}

#[test]
fn a_restart_is_due_so_long_after_the_check_became_unhealthy() {
    let mut rng = Rng::with_seed(141);
    let states = [CheckState::Success, CheckState::Warning, CheckState::Pending, CheckState::Failure];
    for _ in 0..2000 {
        let rule = RestartRule {
            after: Duration::from_millis(rng.u64(..300)),
            grace: Duration::from_millis([0, 100, 1000][rng.usize(..3)]),
            ignores_warnings: rng.bool(),
        };
        let mut watch = RestartWatch::new(rule, at(0));
        let (mut history, mut now, mut spent) = (vec![], 0, false);
        for _ in 0..12 {
            assert_eq!(watch.due_at(), slow_due(rule, &history, spent), "{rule:?} {history:?}");
            now += rng.i64(0..200);
            if rng.u8(..20) == 0 {
                watch.spend();
                spent = true;
            } else {
                let state = states[rng.usize(..4)];
                watch.observe(state, at(now));
                history.push((state, now));
            }
        }
    }
}

#[test]
fn a_rule_longer_than_time_is_due_at_its_end() {
    let rule = RestartRule { after: Duration::MAX, grace: Duration::ZERO, ignores_warnings: false };
    assert_eq!(RestartWatch::new(rule, at(0)).due_at(), Some(Timestamp::MAX));
    let rule = RestartRule { after: Duration::ZERO, grace: Duration::MAX, ignores_warnings: false };
    let mut watch = RestartWatch::new(rule, at(0));
    watch.observe(CheckState::Failure, at(5));
    assert_eq!(watch.due_at(), Some(Timestamp::MAX));
}
