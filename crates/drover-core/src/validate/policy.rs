//! The blocks that say how allocations are replaced, merged as they will act.

use drover_api::group::Group;
use drover_api::job::JobType;
use drover_api::policy::{DelayFunction, Disconnect, HealthCheck, Migrate, Reschedule, Restart, RestartMode, Update};
use drover_api::{GoDuration, JobSpec};

use super::found::{At, Violations};

const NONE: GoDuration = GoDuration::ZERO;
/// Shortest delay of a reschedule and shortest interval of restarts.
const SHORTEST: GoDuration = GoDuration::from_secs(5);
/// Shortest interval of reschedules.
const SHORTEST_INTERVAL: GoDuration = GoDuration::from_secs(15);

impl Violations {
    /// The update block of a job whose type knows none. (Where it knows one, the groups hold it merged.)
    pub(super) fn job_update(&mut self, spec: &JobSpec) {
        let is_wrong = spec.update.is_some() && matches!(spec.r#type, JobType::Batch | JobType::Sysbatch);
        let message = "is for service and system jobs; remove it, or change type";
        self.when(is_wrong, "UpdateForbidden", format_args!("spec.update"), message);
    }

    pub(super) fn policies(&mut self, spec: &JobSpec, at: At<'_>, group: &Group) {
        let r#type = spec.r#type;
        if let Some(update) = &group.update {
            let field = format_args!("{at}.update");
            let is_wrong = matches!(r#type, JobType::Batch | JobType::Sysbatch);
            let message = "is for service and system jobs; remove it, or change type";
            self.when(is_wrong, "UpdateForbidden", field, message);
            self.update(r#type, field, update);
        }
        if let Some(restart) = &group.restart {
            self.restart(format_args!("{at}.restart"), restart);
        }
        if let Some(reschedule) = &group.reschedule {
            let field = format_args!("{at}.reschedule");
            let is_wrong = matches!(r#type, JobType::System | JobType::Sysbatch);
            let message = "is for service and batch jobs; remove it, or change type";
            self.when(is_wrong, "RescheduleForbidden", field, message);
            self.reschedule(field, reschedule);
        }
        if let Some(migrate) = &group.migrate {
            let field = format_args!("{at}.migrate");
            let message = "is for service jobs; remove it, or change type";
            self.when(r#type != JobType::Service, "MigrateForbidden", field, message);
            self.migrate(field, migrate);
        }
        if let Some(disconnect) = &group.disconnect {
            self.disconnect(r#type, format_args!("{at}.disconnect"), disconnect);
        }
    }

    fn update(&mut self, r#type: JobType, at: At<'_>, update: &Update) {
        let minimum = update.min_healthy_time.unwrap_or_default();
        let healthy = update.healthy_deadline.unwrap_or_default();
        let progress = update.progress_deadline.unwrap_or_default();
        let message = "is negative; set it to 0 or more";
        let is_negative = |value: Option<i64>| value.is_some_and(|value| value < 0);
        let field = format_args!("{at}.maxParallel");
        self.when(is_negative(update.max_parallel), "UpdateMaxParallel", field, message);
        self.when(is_negative(update.canary), "UpdateCanary", format_args!("{at}.canary"), message);
        let canaries = update.canary.unwrap_or(0);
        let message = format_args!("{canaries} is a percentage of the nodes on a system job; set it to at most 100");
        let is_wrong = r#type == JobType::System && canaries > 100;
        self.when(is_wrong, "SystemCanary", format_args!("{at}.canary"), message);
        let is_wrong = update.auto_promote == Some(true) && canaries == 0;
        let message = "needs canaries; set canary to at least 1, or autoPromote to false";
        self.when(is_wrong, "AutoPromoteNoCanary", format_args!("{at}.autoPromote"), message);
        let message = format_args!(
            "{minimum} is negative or not shorter than healthyDeadline {healthy}; shorten it, or raise healthyDeadline"
        );
        let is_wrong = minimum.is_negative() || minimum >= healthy;
        self.when(is_wrong, "MinHealthy", format_args!("{at}.minHealthyTime"), message);
        let field = format_args!("{at}.healthyDeadline");
        self.when(healthy <= NONE, "HealthyDeadline", field, format_args!("{healthy} is not above 0s; raise it"));
        let message = format_args!(
            "{healthy} is not shorter than progressDeadline {progress}; shorten it, or raise progressDeadline"
        );
        self.when(progress > NONE && healthy >= progress, "HealthyDeadline", field, message);
        let message = format_args!("{progress} is negative; set it to 0s or more");
        self.when(progress.is_negative(), "ProgressDeadline", format_args!("{at}.progressDeadline"), message);
        let stagger = update.stagger.unwrap_or_default();
        let message = format_args!("{stagger} is not above 0s; raise it");
        self.when(stagger <= NONE, "Stagger", format_args!("{at}.stagger"), message);
    }

    fn migrate(&mut self, at: At<'_>, migrate: &Migrate) {
        let most = migrate.max_parallel.unwrap_or(0);
        let message = "is negative; set it to 0 or more";
        self.when(most < 0, "MigrateMaxParallel", format_args!("{at}.maxParallel"), message);
        let is_wrong = migrate.health_check == Some(HealthCheck::Manual);
        let message = "manual would wait for a person at every move; take checks or task_states";
        self.when(is_wrong, "MigrateHealthCheck", format_args!("{at}.healthCheck"), message);
        let minimum = migrate.min_healthy_time.unwrap_or_default();
        let healthy = migrate.healthy_deadline.unwrap_or_default();
        let field = format_args!("{at}.minHealthyTime");
        let message = format_args!("{minimum} is negative; set it to 0s or more");
        self.when(minimum.is_negative(), "MigrateTimes", field, message);
        let message = format_args!("{minimum} is longer than healthyDeadline {healthy}; shorten it, or raise that");
        self.when(minimum > healthy, "MigrateTimes", field, message);
        let message = format_args!("{healthy} is negative; set it to 0s or more");
        self.when(healthy.is_negative(), "MigrateTimes", format_args!("{at}.healthyDeadline"), message);
    }

    pub(super) fn restart(&mut self, at: At<'_>, restart: &Restart) {
        let (attempts, delay) = (restart.attempts.unwrap_or(0), restart.delay.unwrap_or_default());
        let interval = restart.interval.unwrap_or_default();
        let message = format_args!("{interval} is below {SHORTEST}; raise it");
        self.when(interval < SHORTEST, "RestartInterval", format_args!("{at}.interval"), message);
        let is_wrong = restart.mode == Some(RestartMode::Delay) && attempts == 0;
        let message = "delay needs attempts; set attempts to at least 1, or mode to fail";
        self.when(is_wrong, "RestartAmbiguous", format_args!("{at}.mode"), message);
        let needed = GoDuration::from_nanos(attempts.saturating_mul(delay.as_nanos()));
        let message = format_args!(
            "{attempts} restarts {delay} apart need {needed}, longer than interval {interval}; raise interval, or lower attempts or delay"
        );
        self.when(needed > interval, "RestartImpossible", format_args!("{at}.attempts"), message);
    }

    fn reschedule(&mut self, at: At<'_>, policy: &Reschedule) {
        let (attempts, is_unlimited) = (policy.attempts.unwrap_or(0), policy.unlimited == Some(true));
        if attempts <= 0 && !is_unlimited {
            return;
        }
        let (delay, longest) = (policy.delay.unwrap_or_default(), policy.max_delay.unwrap_or_default());
        let interval = policy.interval.unwrap_or_default();
        let field = format_args!("{at}.attempts");
        let message = "excludes unlimited; remove attempts, or set unlimited to false";
        self.when(attempts > 0 && is_unlimited, "RescheduleAmbiguous", field, message);
        let is_wrong = attempts > 0 && !is_unlimited && interval <= NONE;
        let message = "needs interval, the span in which attempts are counted; set it";
        self.when(is_wrong, "RescheduleAttemptsInterval", field, message);
        let message = format_args!("{delay} is below {SHORTEST}; raise it");
        self.when(delay < SHORTEST, "RescheduleDelay", format_args!("{at}.delay"), message);
        let grows = policy.delay_function != Some(DelayFunction::Constant);
        let is_short = grows && (longest < SHORTEST || longest < delay);
        let message = format_args!("{longest} is below {SHORTEST} or below delay {delay}; raise it");
        self.when(is_short, "RescheduleMaxDelay", format_args!("{at}.maxDelay"), message);
        if is_unlimited {
            return;
        }
        let message = format_args!("{interval} is below {SHORTEST_INTERVAL}; raise it");
        self.when(interval < SHORTEST_INTERVAL, "RescheduleInterval", format_args!("{at}.interval"), message);
        if delay < SHORTEST || is_short {
            return;
        }
        if let Some((feasible, needed)) = impossible(policy, attempts) {
            let message = format_args!(
                "{attempts} reschedules do not fit into interval {interval}: {feasible} do; lower attempts, or raise interval to at least {needed}"
            );
            self.when(true, "RescheduleImpossible", field, message);
        }
    }

    fn disconnect(&mut self, r#type: JobType, at: At<'_>, disconnect: &Disconnect) {
        let lost = disconnect.lost_after.unwrap_or_default();
        let message = format_args!("{lost} is negative; set it to 0s or more");
        self.when(lost.is_negative(), "DisconnectLostNegative", format_args!("{at}.lostAfter"), message);
        let Some(stop) = disconnect.stop_on_client_after else { return };
        let field = format_args!("{at}.stopOnClientAfter");
        let message = format_args!("{stop} is negative; set it to 0s or more");
        self.when(stop.is_negative(), "DisconnectStopNegative", field, message);
        let message = "and lostAfter exclude each other; remove one of them";
        self.when(lost != NONE, "DisconnectBoth", field, message);
        let is_wrong = matches!(r#type, JobType::System | JobType::Sysbatch);
        let message = "is for service and batch jobs; remove it, or change type";
        self.when(is_wrong, "DisconnectStopType", field, message);
    }
}

/// The times of a policy's reschedules within its interval: a few that grow, and then one every `step`.
struct Slots {
    growing: Vec<i64>,
    step: i64,
}

impl Slots {
    /// Takes `delay` and `longest` of at least [`SHORTEST`], so that the growing part has fewer than 100 slots.
    fn new(policy: &Reschedule) -> Self {
        let delay = policy.delay.unwrap_or_default().as_nanos();
        let longest = policy.max_delay.unwrap_or_default().as_nanos();
        let mut growing = vec![delay];
        match policy.delay_function.unwrap_or_default() {
            DelayFunction::Constant => return Self { growing, step: delay },
            DelayFunction::Exponential => {
                let mut next = delay.saturating_mul(2);
                while next <= longest && next < i64::MAX {
                    growing.push(next);
                    next = next.saturating_mul(2);
                }
            }
            DelayFunction::Fibonacci => {
                let (mut before, mut last) = (delay, delay);
                growing.push(delay);
                loop {
                    let next = before.saturating_add(last);
                    growing.push(next.min(longest));
                    if next > longest || next == i64::MAX {
                        break;
                    }
                    (before, last) = (last, next);
                }
            }
        }
        Self { growing, step: longest }
    }

    /// The `n`th slot, from 0.
    fn at(&self, n: i64) -> i64 {
        let known = i64::try_from(self.growing.len()).unwrap_or(i64::MAX);
        match usize::try_from(n).ok().and_then(|n| self.growing.get(n)) {
            Some(slot) => *slot,
            None => self.last_growing().saturating_add(self.step.saturating_mul(n.saturating_sub(known - 1))),
        }
    }

    /// How many slots are not after `limit`.
    fn count_until(&self, limit: i64) -> i64 {
        let growing = self.growing.iter().filter(|slot| **slot <= limit).count();
        let growing = i64::try_from(growing).unwrap_or(i64::MAX);
        growing + (limit.saturating_sub(self.last_growing()) / self.step.max(1)).max(0)
    }

    fn last_growing(&self) -> i64 {
        self.growing.last().copied().unwrap_or(0)
    }
}

/// When `attempts` do not fit into the interval: how many do, and the smallest interval that holds all
/// (`spec/scheduler.md`, 1.3, `RescheduleImpossible`).
fn impossible(policy: &Reschedule, attempts: i64) -> Option<(i64, GoDuration)> {
    let interval = policy.interval.unwrap_or_default().as_nanos();
    let slots = Slots::new(policy);
    let last = slots.at(attempts - 1);
    // The last slot of an exponential delay must lie before the interval's end; the others may lie on it.
    let rest = i64::from(policy.delay_function.unwrap_or_default() == DelayFunction::Exponential);
    let needed = last.saturating_add(rest);
    (needed > interval).then(|| (slots.count_until(interval.saturating_sub(rest)), GoDuration::from_nanos(needed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(function: DelayFunction, delay: i64, longest: i64, interval: i64) -> Reschedule {
        Reschedule {
            attempts: None,
            interval: Some(GoDuration::from_secs(interval)),
            delay: Some(GoDuration::from_secs(delay)),
            delay_function: Some(function),
            max_delay: Some(GoDuration::from_secs(longest)),
            unlimited: Some(false),
        }
    }

    fn slots(policy: &Reschedule, n: i64) -> Vec<i64> {
        let slots = Slots::new(policy);
        (0..n).map(|n| slots.at(n) / 1_000_000_000).collect()
    }

    #[test]
    fn slots_grow_to_the_longest_delay_and_then_follow_it() {
        assert_eq!(slots(&policy(DelayFunction::Constant, 20, 0, 60), 4), [20, 40, 60, 80]);
        assert_eq!(slots(&policy(DelayFunction::Exponential, 30, 100, 60), 5), [30, 60, 160, 260, 360]);
        assert_eq!(slots(&policy(DelayFunction::Exponential, 30, 120, 60), 4), [30, 60, 120, 240]);
        assert_eq!(slots(&policy(DelayFunction::Fibonacci, 5, 30, 60), 8), [5, 5, 10, 15, 25, 30, 60, 90]);
    }

    #[test]
    fn an_interval_too_short_for_its_attempts_is_named_with_the_smallest_that_fits() {
        for (function, longest, interval, attempts, wanted) in [
            (DelayFunction::Constant, 0, 60, 5, Some((3, GoDuration::from_secs(100)))),
            (DelayFunction::Constant, 0, 100, 5, None),
            (DelayFunction::Exponential, 3600, 60, 2, None),
            (DelayFunction::Exponential, 3600, 60, 3, Some((2, GoDuration::from_nanos(80_000_000_001)))),
            (DelayFunction::Exponential, 3600, 80, 3, Some((2, GoDuration::from_nanos(80_000_000_001)))),
            (DelayFunction::Exponential, 3600, 81, 3, None),
            (DelayFunction::Fibonacci, 3600, 60, 4, None),
            (DelayFunction::Fibonacci, 3600, 59, 4, Some((3, GoDuration::from_secs(60)))),
        ] {
            let policy = policy(function, 20, longest, interval);
            assert_eq!(impossible(&policy, attempts), wanted, "{function} {interval} {attempts}");
        }
    }

    #[test]
    fn any_number_of_attempts_is_judged_at_once() {
        for function in DelayFunction::ALL {
            for (delay, longest) in [(5, 5), (5, i64::MAX), (i64::MAX / 2, i64::MAX)] {
                let policy = policy(*function, delay, longest, 31_536_000);
                let answer = impossible(&policy, i64::MAX).unwrap();
                assert!(answer.0 < 10_000_000, "{function} {answer:?}");
            }
        }
    }
}
