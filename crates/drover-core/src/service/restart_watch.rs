//! When a check that stays unhealthy restarts its task (`spec/agent.md` 7.4, checkRestart).

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::health::CheckState;

/// When a check restarts its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartRule {
    /// How long it has to be unhealthy: its interval, once less than the limit.
    pub after: Duration,
    /// How long after a start its failures do not count.
    pub grace: Duration,
    /// Whether a warning is healthy.
    pub ignores_warnings: bool,
}

/// Watches one check from the registration of its service on.
#[derive(Clone, Copy, Debug)]
pub struct RestartWatch {
    rule: RestartRule,
    counts_from: Timestamp,
    unhealthy_since: Option<Timestamp>,
    is_spent: bool,
}

impl RestartWatch {
    /// A watch of a check whose service was registered now. What has no result yet is unhealthy.
    pub fn new(rule: RestartRule, registered_at: Timestamp) -> Self {
        let counts_from = later(registered_at, rule.grace);
        Self { rule, counts_from, unhealthy_since: Some(counts_from), is_spent: false }
    }

    /// Takes in what the check found. What has no result yet is unhealthy.
    pub fn observe(&mut self, found: CheckState, now: Timestamp) {
        let is_healthy = match found {
            CheckState::Success => true,
            CheckState::Warning => self.rule.ignores_warnings,
            CheckState::Pending | CheckState::Failure => false,
        };
        if is_healthy {
            self.unhealthy_since = None;
        } else {
            self.unhealthy_since.get_or_insert(now.max(self.counts_from));
        }
    }

    /// When the restart is due, if nothing changes before; none once it was asked for.
    pub fn due_at(&self) -> Option<Timestamp> {
        let since = self.unhealthy_since.filter(|_| !self.is_spent)?;
        Some(later(since, self.rule.after))
    }

    /// Its task is being restarted: it says nothing more until its service is registered again.
    pub fn spend(&mut self) {
        self.is_spent = true;
    }
}

fn later(at: Timestamp, by: Duration) -> Timestamp {
    let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
    at.checked_add(by).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    mod histories;

    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(1_700_000_000_000 + millis).expect("a time")
    }

    fn watch(interval: u64, limit: u32, grace: u64) -> RestartWatch {
        let after = Duration::from_millis(interval) * (limit - 1);
        RestartWatch::new(RestartRule { after, grace: Duration::from_millis(grace), ignores_warnings: false }, at(0))
    }

    #[test]
    fn a_141_a_check_that_recovers_in_time_restarts_nothing() {
        let mut it = watch(100, 3, 0);
        assert_eq!(it.due_at(), Some(at(200)), "failing from the begin");
        it.observe(CheckState::Success, at(150));
        assert_eq!(it.due_at(), None);
        it.observe(CheckState::Failure, at(160));
        it.observe(CheckState::Failure, at(250));
        assert_eq!(it.due_at(), Some(at(360)), "since the first failure, not since the last");
        it.observe(CheckState::Success, at(310));
        assert_eq!(it.due_at(), None);
    }

    #[test]
    fn a_142_a_check_that_fails_for_good_restarts_once() {
        let mut it = watch(100, 3, 0);
        it.observe(CheckState::Failure, at(0));
        assert_eq!(it.due_at(), Some(at(200)));
        it.spend();
        it.observe(CheckState::Failure, at(900));
        assert_eq!(it.due_at(), None);
    }

    #[test]
    fn a_warning_is_unhealthy_unless_the_rule_ignores_it() {
        for (ignores_warnings, due) in [(false, Some(at(200))), (true, None)] {
            let rule = RestartRule { after: Duration::from_millis(200), grace: Duration::ZERO, ignores_warnings };
            let mut it = RestartWatch::new(rule, at(0));
            it.observe(CheckState::Warning, at(10));
            assert_eq!(it.due_at(), due);
        }
    }

    #[test]
    fn nothing_counts_before_the_grace_is_over() {
        let mut it = watch(100, 1, 1000);
        assert_eq!(it.due_at(), Some(at(1000)), "pending counts as unhealthy");
        it.observe(CheckState::Success, at(50));
        it.observe(CheckState::Failure, at(60));
        assert_eq!(it.due_at(), Some(at(1000)));
        let mut it = watch(100, 2, 1000);
        it.observe(CheckState::Success, at(50));
        it.observe(CheckState::Failure, at(2000));
        assert_eq!(it.due_at(), Some(at(2100)));
    }
}
