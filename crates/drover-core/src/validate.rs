//! What is wrong with a job's spec as a whole (`spec/scheduler.md`, 1.3): all violations, each with code, field, reason and
//! remedy. The API server refuses what one block shows; here are the rules on merged blocks and those that no CEL rule can say.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use drover_api::group::Group;
use drover_api::job::JobType;
use drover_api::placement::{Constraint, Operand};
use drover_api::policy::{DelayFunction, Reschedule, Restart, RestartMode, Update};
use drover_api::{GoDuration, JobSpec};
use regex::Regex;

use crate::definition::Definition;
use crate::scheduler::version::Requirement;

/// Most allocations of a job, over all groups.
pub const JOB_MAX_COUNT: i64 = 50_000;
/// Largest spec, as JSON.
pub const SPEC_LIMIT_BYTES: usize = 256 * 1024;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its name, as in `spec/scheduler.md` 1.3.
    pub code: &'static str,
    /// The field, as `spec.groups[0].count`.
    pub field: String,
    /// What is wrong, and how to mend it.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.field, self.message, self.code)
    }
}

/// All that is wrong with a complete definition.
pub fn violations(definition: &Definition) -> Vec<Violation> {
    let mut found = Found::default();
    let spec = &definition.spec;
    found.job(spec);
    for (n, group) in spec.groups.iter().enumerate() {
        found.group(spec, &format!("spec.groups[{n}]"), group);
    }
    found.0
}

#[derive(Default)]
struct Found(Vec<Violation>);

impl Found {
    fn when(&mut self, is_wrong: bool, code: &'static str, field: String, message: impl Into<String>) {
        if is_wrong {
            self.0.push(Violation { code, field, message: message.into() });
        }
    }

    fn job(&mut self, spec: &JobSpec) {
        let size = serde_json::to_vec(spec).map_or(0, |bytes| bytes.len());
        self.when(
            size > SPEC_LIMIT_BYTES,
            "SpecTooLarge",
            "spec".into(),
            format!("has {size} bytes as JSON, above {SPEC_LIMIT_BYTES}; move files into artifacts"),
        );
        self.when(spec.id.contains(' '), "JobIdSpace", "spec.id".into(), "contains a space; remove it");
        self.when(spec.id.contains('\0'), "JobIdNul", "spec.id".into(), "contains a NUL character; remove it");
        let total = spec.groups.iter().fold(0_i64, |sum, group| sum.saturating_add(group.count));
        self.when(
            total > JOB_MAX_COUNT,
            "CountTotal",
            "spec.groups".into(),
            format!("asks for {total} allocations, above {JOB_MAX_COUNT}; lower the counts, or split the job"),
        );
        let mut seen = BTreeMap::new();
        for (n, group) in spec.groups.iter().enumerate() {
            if let Some(first) = seen.insert(&group.name, n) {
                let message = format!("group {} is also number {first}; rename one of them", group.name);
                self.when(true, "GroupDuplicate", format!("spec.groups[{n}].name"), message);
            }
        }
        for (block, is_given) in [
            ("periodic", spec.periodic.is_some()),
            ("parameterized", spec.parameterized.is_some()),
            ("multiregion", spec.multiregion.is_some()),
        ] {
            let message = "is known and not acted on by this version of drover; remove it";
            self.when(is_given, "NotSupportedYet", format!("spec.{block}"), message);
        }
        for (n, constraint) in spec.constraints.iter().enumerate() {
            self.constraint(&format!("spec.constraints[{n}]"), constraint);
        }
    }

    fn group(&mut self, spec: &JobSpec, at: &str, group: &Group) {
        self.when(group.count < 0, "CountNegative", format!("{at}.count"), "is negative; set it to 0 or more");
        let is_system = spec.r#type == JobType::System;
        self.when(is_system && group.count > 1, "SystemCount", format!("{at}.count"), "must be 0 or 1 on a system job");
        for (n, constraint) in group.constraints.iter().enumerate() {
            self.constraint(&format!("{at}.constraints[{n}]"), constraint);
        }
        if let Some(update) = &group.update {
            self.update(&format!("{at}.update"), update, group);
        }
        if let Some(restart) = &group.restart {
            self.restart(&format!("{at}.restart"), restart);
        }
        if let Some(reschedule) = &group.reschedule {
            self.reschedule(&format!("{at}.reschedule"), reschedule);
        }
        self.ports(at, group);
        for (n, task) in group.tasks.iter().enumerate() {
            let at = format!("{at}.tasks[{n}]");
            if let Some(restart) = &task.restart {
                self.restart(&format!("{at}.restart"), restart);
            }
            for (m, constraint) in task.constraints.iter().enumerate() {
                self.constraint(&format!("{at}.constraints[{m}]"), constraint);
            }
            let deadline = group.update.as_ref().and_then(|update| update.progress_deadline).unwrap_or_default();
            self.when(
                deadline > GoDuration::ZERO && task.kill_timeout > deadline,
                "KillTimeoutTooLong",
                format!("{at}.killTimeout"),
                format!("{} is longer than update.progressDeadline {deadline}; shorten it", task.kill_timeout),
            );
        }
    }

    fn update(&mut self, at: &str, update: &Update, group: &Group) {
        if update.max_parallel == Some(0) {
            return;
        }
        let (minimum, healthy) =
            (update.min_healthy_time.unwrap_or_default(), update.healthy_deadline.unwrap_or_default());
        let progress = update.progress_deadline.unwrap_or_default();
        self.when(
            minimum >= healthy,
            "MinHealthy",
            format!("{at}.minHealthyTime"),
            format!("{minimum} is not shorter than healthyDeadline {healthy}; shorten it, or raise healthyDeadline"),
        );
        self.when(
            progress > GoDuration::ZERO && healthy >= progress,
            "HealthyDeadline",
            format!("{at}.healthyDeadline"),
            format!("{healthy} is not shorter than progressDeadline {progress}; shorten it, or raise progressDeadline"),
        );
        let canaries = update.canary.unwrap_or(0);
        self.when(
            update.auto_promote == Some(true) && canaries == 0,
            "AutoPromoteNoCanary",
            format!("{at}.autoPromote"),
            "needs canaries; set canary to at least 1",
        );
        let per_alloc = group.volumes.iter().any(|volume| volume.per_alloc);
        self.when(
            canaries > 0 && per_alloc,
            "PerAllocCanary",
            format!("{at}.canary"),
            "excludes volumes with perAlloc; set it to 0, or share the volume",
        );
    }

    fn restart(&mut self, at: &str, restart: &Restart) {
        let (attempts, delay) = (restart.attempts.unwrap_or(0), restart.delay.unwrap_or_default());
        let interval = restart.interval.unwrap_or_default();
        self.when(
            interval < GoDuration::from_secs(5),
            "RestartInterval",
            format!("{at}.interval"),
            format!("{interval} is below 5s; raise it"),
        );
        self.when(
            restart.mode == Some(RestartMode::Delay) && attempts == 0,
            "RestartAmbiguous",
            format!("{at}.mode"),
            "delay needs attempts; set attempts to at least 1, or mode to fail",
        );
        let needed = GoDuration::from_nanos(attempts.saturating_mul(delay.as_nanos()));
        self.when(
            needed > interval,
            "RestartImpossible",
            format!("{at}.attempts"),
            format!("{attempts} restarts {delay} apart need {needed}, longer than interval {interval}; raise interval, or lower attempts or delay"),
        );
    }

    fn reschedule(&mut self, at: &str, policy: &Reschedule) {
        let (attempts, is_unlimited) = (policy.attempts.unwrap_or(0), policy.unlimited == Some(true));
        if attempts == 0 && !is_unlimited {
            return;
        }
        let (delay, longest) = (policy.delay.unwrap_or_default(), policy.max_delay.unwrap_or_default());
        let interval = policy.interval.unwrap_or_default();
        self.when(
            attempts > 0 && is_unlimited,
            "RescheduleAmbiguous",
            format!("{at}.attempts"),
            "excludes unlimited; remove attempts, or set unlimited to false",
        );
        self.when(
            delay < GoDuration::from_secs(5),
            "RescheduleDelay",
            format!("{at}.delay"),
            format!("{delay} is below 5s; raise it"),
        );
        let is_constant = policy.delay_function == Some(DelayFunction::Constant);
        self.when(
            !is_constant && (longest < GoDuration::from_secs(5) || longest < delay),
            "RescheduleMaxDelay",
            format!("{at}.maxDelay"),
            format!("{longest} is below 5s or below delay {delay}; raise it"),
        );
        if is_unlimited {
            return;
        }
        self.when(
            interval < GoDuration::from_secs(15),
            "RescheduleInterval",
            format!("{at}.interval"),
            format!("{interval} is below 15s; raise it"),
        );
        if let Some((feasible, needed)) = impossible(policy, attempts) {
            let message = format!(
                "{attempts} reschedules do not fit into interval {interval}: {feasible} do; lower attempts, or raise interval to at least {needed}"
            );
            self.when(true, "RescheduleImpossible", format!("{at}.attempts"), message);
        }
    }

    fn ports(&mut self, at: &str, group: &Group) {
        let (mut labels, mut statics) = (BTreeSet::new(), BTreeSet::new());
        for (n, network) in group.networks.iter().enumerate() {
            for (m, port) in network.ports.iter().enumerate() {
                let field = format!("{at}.networks[{n}].ports[{m}]");
                let is_new = labels.insert(port.label.as_str());
                self.when(
                    !is_new,
                    "PortLabelDuplicate",
                    format!("{field}.label"),
                    format!("{} is used twice; rename one", port.label),
                );
                let host = port.host_network.as_deref().unwrap_or("default");
                if let Some(value) = port.r#static.filter(|_| !port.ignore_collision) {
                    let is_new = statics.insert((host, value));
                    let message = format!("{value} is asked for twice on host network {host}; change one");
                    self.when(!is_new, "StaticPortDuplicate", format!("{field}.static"), message);
                }
            }
        }
    }

    fn constraint(&mut self, at: &str, constraint: &Constraint) {
        let target = constraint.l_target.as_str();
        if target.starts_with('$') {
            let inner = target.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')).unwrap_or_default();
            let exact = ["node.unique.id", "node.unique.name", "node.datacenter", "node.class", "node.pool"];
            let is_known =
                exact.contains(&inner) || ["attr.", "meta.", "device."].iter().any(|prefix| inner.starts_with(prefix));
            let message = format!(
                "{target} is no target; take ${{attr.<key>}}, ${{meta.<key>}}, ${{device.<key>}} or ${{node.…}}"
            );
            self.when(!is_known, "ConstraintTarget", format!("{at}.lTarget"), message);
        }
        let (field, right) = (format!("{at}.rTarget"), constraint.r_target.as_str());
        match constraint.operand {
            Operand::Regexp => {
                if let Err(error) = Regex::new(right) {
                    let text = error.to_string().lines().last().unwrap_or_default().to_owned();
                    self.when(true, "ConstraintRegexp", field, format!("is no regular expression: {text}"));
                }
            }
            Operand::Version => {
                let message = format!("{right} is no version constraint; write it as in >= 6.1, < 7");
                self.when(Requirement::parse(right, false).is_none(), "ConstraintVersion", field, message);
            }
            Operand::Semver => {
                let message = format!("{right} is no SemVer constraint; write it as in >= 6.1.0, < 7.0.0, without ~>");
                self.when(Requirement::parse(right, true).is_none(), "ConstraintSemver", field, message);
            }
            Operand::DistinctProperty => {
                let is_count = right.is_empty() || right.parse::<u64>().is_ok_and(|n| n >= 1);
                let message = format!("{right} is no number of allocations; take 1 or more");
                self.when(!is_count, "DistinctPropertyCount", field, message);
            }
            Operand::Equal
            | Operand::DoubleEqual
            | Operand::Is
            | Operand::NotEqual
            | Operand::Not
            | Operand::Less
            | Operand::LessOrEqual
            | Operand::Greater
            | Operand::GreaterOrEqual
            | Operand::SetContains
            | Operand::SetContainsAll
            | Operand::SetContainsAny
            | Operand::IsSet
            | Operand::IsNotSet
            | Operand::DistinctHosts => {}
        }
    }
}

/// When `attempts` do not fit into the interval: how many do, and the smallest interval that holds all
/// (`spec/scheduler.md`, 1.3, `RescheduleImpossible`).
fn impossible(policy: &Reschedule, attempts: i64) -> Option<(i64, GoDuration)> {
    let interval = policy.interval.unwrap_or_default().as_nanos();
    let delay = policy.delay.unwrap_or_default().as_nanos();
    let longest = policy.max_delay.unwrap_or_default().as_nanos();
    let function = policy.delay_function.unwrap_or_default();
    if function == DelayFunction::Constant {
        let needed = attempts.saturating_mul(delay);
        let feasible = if delay > 0 { interval / delay } else { attempts };
        return (needed > interval).then(|| (feasible, GoDuration::from_nanos(needed)));
    }
    let mut slots: Vec<i64> = Vec::new();
    for n in 0..usize::try_from(attempts.min(10_000)).unwrap_or(0) {
        let back = |by: usize| n.checked_sub(by).map(|at| slots[at]);
        let slot = match function {
            DelayFunction::Constant => delay,
            DelayFunction::Exponential => match back(1) {
                None => delay,
                Some(last) if last >= longest => last.saturating_add(longest),
                Some(last) => last.saturating_mul(2),
            },
            DelayFunction::Fibonacci => match (back(2), back(1)) {
                (_, None) | (None, Some(_)) => delay,
                (Some(_), Some(last)) if last >= longest => last.saturating_add(longest),
                (Some(before), Some(last)) => before.saturating_add(last).min(longest.max(delay)),
            },
        };
        slots.push(slot);
    }
    let last = slots.last().copied().unwrap_or(0);
    let (fits, needed): (fn(i64, i64) -> bool, i64) = match function {
        DelayFunction::Fibonacci => (|slot, interval| slot <= interval, last),
        DelayFunction::Constant | DelayFunction::Exponential => {
            (|slot, interval| slot < interval, last.saturating_add(1))
        }
    };
    if fits(last, interval) {
        return None;
    }
    let feasible = slots.iter().filter(|slot| fits(**slot, interval)).count();
    Some((i64::try_from(feasible).unwrap_or(0), GoDuration::from_nanos(needed)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn codes(change: impl FnOnce(&mut Value)) -> Vec<&'static str> {
        let mut spec = json!({ "groups": [{ "name": "g", "count": 1, "tasks": [{ "name": "t", "driver": "mock" }] }] });
        change(&mut spec);
        violations(&Definition::new(&serde_json::from_value(spec).unwrap(), "j")).into_iter().map(|v| v.code).collect()
    }

    #[test]
    fn a_plain_job_has_no_violation() {
        for kind in JobType::ALL {
            assert_eq!(codes(|spec| spec["type"] = json!(kind)), Vec::<&str>::new(), "{kind}");
        }
    }

    #[test]
    fn all_violations_are_found_together() {
        let found = codes(|spec| {
            spec["id"] = json!("a b");
            spec["groups"][0]["count"] = json!(60_000);
            spec["constraints"] = json!([{ "lTarget": "${nod.x}", "operand": "regexp", "rTarget": "(" }]);
        });
        assert_eq!(found, ["JobIdSpace", "CountTotal", "ConstraintTarget", "ConstraintRegexp"]);
    }

    #[test]
    fn merged_blocks_are_judged_as_a_whole() {
        let found = codes(|spec| {
            spec["update"] = json!({ "minHealthyTime": "6m" });
            spec["groups"][0]["restart"] = json!({ "attempts": 1000 });
        });
        assert_eq!(found, ["MinHealthy", "RestartImpossible", "RestartImpossible"]);
    }

    #[test]
    fn an_interval_too_short_for_its_attempts_is_named_with_the_smallest_that_fits() {
        let policy = Reschedule {
            attempts: Some(5),
            interval: Some(GoDuration::from_secs(60)),
            delay: Some(GoDuration::from_secs(20)),
            delay_function: Some(DelayFunction::Constant),
            max_delay: None,
            unlimited: Some(false),
        };
        assert_eq!(impossible(&policy, 5), Some((3, GoDuration::from_secs(100))));
        let exponential = Reschedule {
            delay_function: Some(DelayFunction::Exponential),
            max_delay: Some(GoDuration::from_secs(3600)),
            ..policy
        };
        assert_eq!(impossible(&exponential, 2), None);
        assert_eq!(impossible(&exponential, 3), Some((2, GoDuration::from_nanos(80_000_000_001))));
    }
}
