//! Constraints, affinities and spreads.

use std::collections::BTreeSet;

use drover_api::JobSpec;
use drover_api::group::Group;
use drover_api::job::JobType;
use drover_api::placement::{Affinity, Constraint, Operand, Spread};

use super::found::{At, PATTERN_LOOKS_LIMIT, Violations, shown};
use crate::scheduler::version::Requirement;
use crate::scheduler::{class, operand};

/// A regular expression that nodes say is compiled for each class of them: that takes as long as so many looks.
const NODE_PATTERN_LOOKS: usize = 16;
/// Targets that stand for one value of a node.
const NODE_TARGETS: [&str; 5] = ["node.unique.id", "node.unique.name", "node.datacenter", "node.class", "node.pool"];
/// Beginnings of targets that name a key.
const KEYED_TARGETS: [&str; 3] = ["attr.", "meta.", "device."];

impl Violations {
    /// The preferences of a job, a group or a task.
    pub(super) fn preferences(&mut self, at: At<'_>, r#type: JobType, affinities: &[Affinity], spreads: &[Spread]) {
        let is_system = r#type == JobType::System;
        let message = "do not apply to system jobs, which run on every node that fits; use constraints";
        self.when(is_system && !affinities.is_empty(), "SystemAffinity", format_args!("{at}.affinities"), message);
        let message = "do not apply to system jobs, which run on every node that fits; remove them";
        self.when(is_system && !spreads.is_empty(), "SystemSpread", format_args!("{at}.spreads"), message);
        for (n, affinity) in affinities.iter().enumerate() {
            self.affinity(format_args!("{at}.affinities[{n}]"), affinity);
        }
        for (n, spread) in spreads.iter().enumerate() {
            self.spread(format_args!("{at}.spreads[{n}]"), spread);
        }
    }

    pub(super) fn affinity(&mut self, at: At<'_>, affinity: &Affinity) {
        let weight = affinity.weight;
        self.when(
            weight == 0 || !(-100..=100).contains(&weight),
            "AffinityWeight",
            format_args!("{at}.weight"),
            format_args!("{weight} has no effect or is too strong; take -100 to -1, or 1 to 100"),
        );
        let is_wrong = matches!(
            affinity.operand,
            Operand::IsSet | Operand::IsNotSet | Operand::DistinctHosts | Operand::DistinctProperty
        );
        let message = format_args!("{} is for constraints only; compare a value, as with =", affinity.operand);
        self.when(is_wrong, "AffinityOperand", format_args!("{at}.operand"), message);
        if !is_wrong {
            self.comparison(at, &affinity.l_target, affinity.operand, &affinity.r_target);
        }
    }

    fn spread(&mut self, at: At<'_>, spread: &Spread) {
        let message = "is empty; name an attribute, as in ${node.datacenter}";
        self.when(spread.attribute.is_empty(), "SpreadAttribute", format_args!("{at}.attribute"), message);
        let message = format_args!("{} is outside 1 to 100; take a value between", spread.weight);
        self.when(!(1..=100).contains(&spread.weight), "SpreadWeight", format_args!("{at}.weight"), message);
        let mut seen = BTreeSet::new();
        for (n, target) in spread.targets.iter().enumerate() {
            let field = format_args!("{at}.targets[{n}]");
            let message = format_args!("{} is given twice; remove one", shown(&target.value));
            self.when(!seen.insert(&target.value), "SpreadTarget", format_args!("{field}.value"), message);
            let message = format_args!("{} is outside 0 to 100; take a value between", target.percent);
            self.when(!(0..=100).contains(&target.percent), "SpreadTarget", format_args!("{field}.percent"), message);
        }
        let sum = spread.targets.iter().fold(0_i64, |sum, target| sum.saturating_add(target.percent.clamp(0, 101)));
        let message = format_args!("have percents above 100 together ({sum}); lower some");
        self.when(sum > 100, "SpreadTarget", format_args!("{at}.targets"), message);
    }

    pub(super) fn constraint(&mut self, at: At<'_>, constraint: &Constraint) {
        let target = constraint.l_target.as_str();
        let message = format_args!(
            "{} is no target; take ${{attr.<key>}}, ${{meta.<key>}}, ${{device.<key>}} or ${{node.…}}",
            shown(target)
        );
        let is_wrong = target.starts_with('$') && !is_target(target);
        self.when(is_wrong, "ConstraintTarget", format_args!("{at}.lTarget"), message);
        self.comparison(at, target, constraint.operand, &constraint.r_target);
    }

    fn comparison(&mut self, at: At<'_>, left: &str, operand: Operand, right: &str) {
        let message = "is empty; say what is compared, as in ${attr.kernel.name}";
        let is_wrong = left.is_empty() && operand != Operand::DistinctHosts;
        self.when(is_wrong, "ConstraintLTarget", format_args!("{at}.lTarget"), message);
        let field = format_args!("{at}.rTarget");
        match operand {
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
            | Operand::SetContainsAny => {
                let message = "is empty; say what it is compared with, or take operand is_set";
                self.when(right.is_empty(), "ConstraintRTarget", field, message);
            }
            Operand::IsSet | Operand::IsNotSet => {
                let message = format_args!("is not looked at by {operand}; remove it");
                self.when(!right.is_empty(), "ConstraintRTarget", field, message);
            }
            Operand::DistinctProperty => {
                let is_count = right.is_empty() || right.parse::<u64>().is_ok_and(|n| n >= 1);
                let message = format_args!("{} is no number of allocations; take 1 or more", shown(right));
                self.when(!is_count, "DistinctPropertyCount", field, message);
            }
            Operand::Regexp | Operand::Version | Operand::Semver => self.compiled(field, operand, right),
            Operand::DistinctHosts => {}
        }
    }

    /// A right side that is compiled; one that comes from the node is known there only.
    fn compiled(&mut self, field: At<'_>, operand: Operand, right: &str) {
        if is_target(right) {
            let message = "differs from node to node, and a plan would compile it for each; write the expression here, or \
                           take a target that is not unique";
            let is_costly = operand == Operand::Regexp && class::escapes(right);
            return self.when(is_costly, "ConstraintRegexp", field, message);
        }
        let is_long = right.len() > operand::RIGHT_LIMIT_BYTES;
        if operand == Operand::Regexp {
            if self.takes_pattern()
                && let Err(reason) = operand::pattern(right)
            {
                let message = format_args!("is no usable regular expression: {reason}; correct it");
                self.when(true, "ConstraintRegexp", field, message);
            }
        } else if operand == Operand::Semver {
            let is_wrong = is_long || Requirement::parse(right, true).is_none();
            let message =
                format_args!("{} is no SemVer constraint; write it as in >= 6.1.0, < 7.0.0, without ~>", shown(right));
            self.when(is_wrong, "ConstraintSemver", field, message);
        } else {
            let is_wrong = is_long || Requirement::parse(right, false).is_none();
            let message = format_args!("{} is no version constraint; write it as in >= 6.1, < 7", shown(right));
            self.when(is_wrong, "ConstraintVersion", field, message);
        }
    }
}

impl Violations {
    /// What a plan would spend on regular expressions: one job must not hold up those of others.
    pub(super) fn pattern_looks(&mut self, spec: &JobSpec) {
        let of_job = looks(&spec.constraints, &spec.affinities);
        let of_group = |group: &Group| {
            let of_tasks = group.tasks.iter().map(|task| {
                let of_devices =
                    task.resources.devices.iter().map(|device| looks(&device.constraints, &device.affinities));
                looks(&task.constraints, &task.affinities).saturating_add(of_devices.fold(0, usize::saturating_add))
            });
            of_tasks.fold(looks(&group.constraints, &group.affinities), usize::saturating_add)
        };
        let of_groups = spec.groups.iter().map(|group| of_group(group).saturating_add(of_job));
        let all = of_groups.fold(0, usize::saturating_add);
        let message = format_args!(
            "has regular expressions that its groups look at {all} times in all, above {PATTERN_LOOKS_LIMIT} (one of \
             the job counts for each group, one that a node says counts {NODE_PATTERN_LOOKS} times); take = or \
             set_contains_any where that is enough, or split the job"
        );
        self.when(all > PATTERN_LOOKS_LIMIT, "PatternsTooMany", format_args!("spec"), message);
    }
}

/// How often a plan looks at nodes with the regular expressions among these.
fn looks(constraints: &[Constraint], affinities: &[Affinity]) -> usize {
    let sides = constraints.iter().map(|it| (it.operand, &it.r_target));
    let sides = sides.chain(affinities.iter().map(|it| (it.operand, &it.r_target)));
    let patterns = sides.filter(|(operand, _)| *operand == Operand::Regexp);
    patterns
        .map(|(_, right)| if right.starts_with("${") { NODE_PATTERN_LOOKS } else { 1 })
        .fold(0, usize::saturating_add)
}

fn is_target(text: &str) -> bool {
    let Some(inner) = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')) else { return false };
    NODE_TARGETS.contains(&inner) || KEYED_TARGETS.iter().any(|prefix| inner.starts_with(prefix))
}
