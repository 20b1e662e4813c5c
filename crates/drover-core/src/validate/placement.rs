//! Constraints, affinities and spreads.

use std::collections::BTreeSet;

use drover_api::job::JobType;
use drover_api::placement::{Affinity, Constraint, Operand, Spread};

use super::found::{At, Violations, shown};
use crate::scheduler::operand;
use crate::scheduler::version::Requirement;

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
            return;
        }
        let is_long = right.len() > operand::RIGHT_LIMIT_BYTES;
        if operand == Operand::Regexp {
            if let Err(reason) = operand::pattern(right) {
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

fn is_target(text: &str) -> bool {
    let Some(inner) = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')) else { return false };
    NODE_TARGETS.contains(&inner) || KEYED_TARGETS.iter().any(|prefix| inner.starts_with(prefix))
}
