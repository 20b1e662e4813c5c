//! Comparison of the two sides of a constraint or affinity (`spec/scheduler.md`, 4.3).

use std::cmp::Ordering;

use drover_api::placement::Operand;
use regex::Regex;

use crate::scheduler::version::{Requirement, Version};

/// A comparison with what can be prepared of its right side.
#[derive(Clone, Debug)]
pub struct Comparison {
    operand: Operand,
    prepared: Prepared,
}

#[derive(Clone, Debug)]
enum Prepared {
    Nothing,
    Regex(Regex),
    Requirement(Requirement),
    /// The right side does not parse: it never matches.
    Never,
}

impl Comparison {
    /// Prepares a comparison. A right side that depends on the node (`${…}`) is prepared anew for each node.
    pub fn new(operand: Operand, right: Option<&str>) -> Self {
        let prepared = match (operand, right) {
            (Operand::Regexp, Some(text)) => Regex::new(text).map_or(Prepared::Never, Prepared::Regex),
            (Operand::Version, Some(text)) => {
                Requirement::parse(text, false).map_or(Prepared::Never, Prepared::Requirement)
            }
            (Operand::Semver, Some(text)) => {
                Requirement::parse(text, true).map_or(Prepared::Never, Prepared::Requirement)
            }
            _ => Prepared::Nothing,
        };
        Self { operand, prepared }
    }

    /// Whether the left side satisfies it; `None` is a side that was not found.
    pub fn holds(&self, left: Option<&str>, right: Option<&str>) -> bool {
        let both = left.zip(right);
        match self.operand {
            Operand::Equal | Operand::DoubleEqual | Operand::Is => both.is_some_and(|(l, r)| l == r),
            Operand::NotEqual | Operand::Not => left.unwrap_or_default() != right.unwrap_or_default(),
            Operand::Less => both.is_some_and(|(l, r)| order(l, r) == Ordering::Less),
            Operand::LessOrEqual => both.is_some_and(|(l, r)| order(l, r) != Ordering::Greater),
            Operand::Greater => both.is_some_and(|(l, r)| order(l, r) == Ordering::Greater),
            Operand::GreaterOrEqual => both.is_some_and(|(l, r)| order(l, r) != Ordering::Less),
            Operand::Version | Operand::Semver => match (&self.prepared, left) {
                (Prepared::Requirement(requirement), Some(l)) => {
                    Version::parse(l).is_some_and(|version| requirement.matches(&version))
                }
                _ => false,
            },
            Operand::Regexp => match (&self.prepared, left) {
                (Prepared::Regex(regex), Some(l)) => regex.is_match(l),
                _ => false,
            },
            Operand::SetContains | Operand::SetContainsAll => {
                both.is_some_and(|(l, r)| items(r).all(|wanted| items(l).any(|item| item == wanted)))
            }
            Operand::SetContainsAny => {
                both.is_some_and(|(l, r)| items(r).any(|wanted| items(l).any(|item| item == wanted)))
            }
            Operand::IsSet => left.is_some(),
            Operand::IsNotSet => left.is_none(),
            Operand::DistinctHosts | Operand::DistinctProperty => true,
        }
    }
}

fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim)
}

/// As integers where both are, else as numbers, else as text.
fn order(left: &str, right: &str) -> Ordering {
    if let (Ok(l), Ok(r)) = (left.parse::<i64>(), right.parse::<i64>()) {
        return l.cmp(&r);
    }
    if let (Ok(l), Ok(r)) = (left.parse::<f64>(), right.parse::<f64>()) {
        return l.total_cmp(&r);
    }
    left.cmp(right)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(operand: Operand, left: Option<&str>, right: Option<&str>, wanted: bool) {
        assert_eq!(Comparison::new(operand, right).holds(left, right), wanted, "{left:?} {operand} {right:?}");
    }

    #[test]
    fn operands_follow_the_table() {
        check(Operand::Equal, Some("a"), Some("a"), true);
        check(Operand::Is, Some("a"), None, false);
        check(Operand::NotEqual, Some("a"), None, true);
        check(Operand::Not, None, None, false);
        check(Operand::Less, Some("9"), Some("10"), true);
        check(Operand::Less, Some("9.5"), Some("10"), true);
        check(Operand::Less, Some("9x"), Some("10x"), false);
        check(Operand::GreaterOrEqual, Some("10"), Some("10"), true);
        check(Operand::Regexp, Some("linux-6"), Some("x-[0-9]"), true);
        check(Operand::Regexp, Some("linux"), Some("("), false);
        check(Operand::SetContains, Some("a, b,c"), Some("c,a"), true);
        check(Operand::SetContainsAll, Some("a,b"), Some("a,x"), false);
        check(Operand::SetContainsAny, Some("a,b"), Some("x,b"), true);
        check(Operand::IsSet, None, None, false);
        check(Operand::IsNotSet, None, None, true);
        check(Operand::Version, Some("6.1.2"), Some(">= 6, < 7"), true);
        check(Operand::Version, Some("1.3.0-beta1"), Some(">= 0.6.1"), false);
        check(Operand::Semver, Some("1.3.0-beta1"), Some(">= 0.6.1"), true);
        check(Operand::Semver, Some("1.3.0"), Some("~> 1.2"), false);
    }
}
