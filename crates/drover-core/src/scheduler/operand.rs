//! Comparison of the two sides of a constraint or affinity (`spec/scheduler.md`, 4.3).
//!
//! A comparison is prepared once for a right side and then asked for many nodes: patterns are compiled, sets and
//! version bounds are taken apart. Asking allocates nothing that grows with the right side. Must never know nodes or
//! targets.

use std::cmp::Ordering;

use drover_api::placement::Operand;
use regex::{Regex, RegexBuilder};

use crate::scheduler::version::{Requirement, Version};

/// Longest right side that is prepared; what is longer never matches. The schema's bound for `rTarget`, four times:
/// right sides may also come from a node's attributes.
pub const RIGHT_LIMIT_BYTES: usize = 4096;
/// Largest program that a regular expression may become.
const REGEX_LIMIT_BYTES: usize = 256 * 1024;

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
    /// Items without repetitions, in order.
    Items(Vec<String>),
    /// The right side is missing or does not parse: it never matches.
    Never,
}

/// Compiles a regular expression within fixed limits of length and size.
///
/// # Errors
/// With what is wrong with it.
pub fn pattern(text: &str) -> Result<Regex, String> {
    if text.len() > RIGHT_LIMIT_BYTES {
        return Err(format!("has {} bytes, above {RIGHT_LIMIT_BYTES}", text.len()));
    }
    let compiled = RegexBuilder::new(text).size_limit(REGEX_LIMIT_BYTES).build();
    compiled.map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => "is too large when compiled; use fewer or smaller repetitions".to_owned(),
        other => other.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned(),
    })
}

impl Comparison {
    /// Prepares a comparison. A right side that depends on the node (`${…}`) is prepared again for each node.
    pub fn new(operand: Operand, right: Option<&str>) -> Self {
        let right = right.filter(|text| text.len() <= RIGHT_LIMIT_BYTES || !is_prepared(operand));
        let prepared = match (is_prepared(operand), right) {
            (false, _) => Prepared::Nothing,
            (true, None) => Prepared::Never,
            (true, Some(text)) => prepare(operand, text),
        };
        Self { operand, prepared }
    }

    /// Whether the left side satisfies it; `None` is a side that was not found. `right` is what the comparison was made
    /// with.
    pub fn holds(&self, left: Option<&str>, right: Option<&str>) -> bool {
        match self.operand {
            Operand::Equal | Operand::DoubleEqual | Operand::Is => left.zip(right).is_some_and(|(l, r)| l == r),
            Operand::NotEqual | Operand::Not => left.unwrap_or_default() != right.unwrap_or_default(),
            Operand::Less => order(left, right) == Some(Ordering::Less),
            Operand::LessOrEqual => order(left, right).is_some_and(Ordering::is_le),
            Operand::Greater => order(left, right) == Some(Ordering::Greater),
            Operand::GreaterOrEqual => order(left, right).is_some_and(Ordering::is_ge),
            Operand::IsSet => left.is_some(),
            Operand::IsNotSet => left.is_none(),
            Operand::DistinctHosts | Operand::DistinctProperty => true,
            Operand::Version
            | Operand::Semver
            | Operand::Regexp
            | Operand::SetContains
            | Operand::SetContainsAll
            | Operand::SetContainsAny => left.is_some_and(|left| self.prepared_holds(left)),
        }
    }

    fn prepared_holds(&self, left: &str) -> bool {
        match &self.prepared {
            Prepared::Regex(regex) => regex.is_match(left),
            Prepared::Requirement(requirement) => {
                Version::parse(left).is_some_and(|version| requirement.matches(&version))
            }
            Prepared::Items(wanted) if self.operand == Operand::SetContainsAny => {
                items(left).any(|item| position(wanted, item).is_some())
            }
            Prepared::Items(wanted) => contains_all(left, wanted),
            Prepared::Nothing | Prepared::Never => false,
        }
    }
}

/// Whether the operand looks at its right side in a form that can be made once.
pub(super) fn is_prepared(operand: Operand) -> bool {
    match operand {
        Operand::Version
        | Operand::Semver
        | Operand::Regexp
        | Operand::SetContains
        | Operand::SetContainsAll
        | Operand::SetContainsAny => true,
        Operand::Equal
        | Operand::DoubleEqual
        | Operand::Is
        | Operand::NotEqual
        | Operand::Not
        | Operand::Less
        | Operand::LessOrEqual
        | Operand::Greater
        | Operand::GreaterOrEqual
        | Operand::IsSet
        | Operand::IsNotSet
        | Operand::DistinctHosts
        | Operand::DistinctProperty => false,
    }
}

fn prepare(operand: Operand, right: &str) -> Prepared {
    let is_semver = operand == Operand::Semver;
    match operand {
        Operand::Regexp => pattern(right).map_or(Prepared::Never, Prepared::Regex),
        Operand::Version | Operand::Semver => {
            Requirement::parse(right, is_semver).map_or(Prepared::Never, Prepared::Requirement)
        }
        Operand::SetContains | Operand::SetContainsAll | Operand::SetContainsAny => {
            let mut wanted: Vec<String> = items(right).map(str::to_owned).collect();
            wanted.sort_unstable();
            wanted.dedup();
            Prepared::Items(wanted)
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
        | Operand::IsSet
        | Operand::IsNotSet
        | Operand::DistinctHosts
        | Operand::DistinctProperty => Prepared::Nothing,
    }
}

fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim)
}

fn position(wanted: &[String], item: &str) -> Option<usize> {
    wanted.binary_search_by(|known| known.as_str().cmp(item)).ok()
}

fn contains_all(left: &str, wanted: &[String]) -> bool {
    if let [only] = wanted {
        return items(left).any(|item| item == only);
    }
    let mut is_there = vec![false; wanted.len()];
    for at in items(left).filter_map(|item| position(wanted, item)) {
        is_there[at] = true;
    }
    is_there.into_iter().all(|is_there| is_there)
}

/// As integers where both are, else as numbers, else as text; none when a side is missing, or for what is not a number.
fn order(left: Option<&str>, right: Option<&str>) -> Option<Ordering> {
    let (left, right) = left.zip(right)?;
    if let (Ok(l), Ok(r)) = (left.parse::<i64>(), right.parse::<i64>()) {
        return Some(l.cmp(&r));
    }
    if let (Ok(l), Ok(r)) = (left.parse::<f64>(), right.parse::<f64>()) {
        return l.partial_cmp(&r);
    }
    Some(left.cmp(right))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(left: Option<&str>, operand: Operand, right: Option<&str>, wanted: bool) {
        assert_eq!(Comparison::new(operand, right).holds(left, right), wanted, "{left:?} {operand} {right:?}");
    }

    #[test]
    fn s_104_equal_needs_both_sides() {
        for operand in [Operand::Equal, Operand::DoubleEqual, Operand::Is] {
            check(Some("foo"), operand, Some("foo"), true);
            check(Some("foo"), operand, Some("bar"), false);
            check(Some("foo"), operand, None, false);
            check(None, operand, Some("foo"), false);
            check(None, operand, None, false);
        }
    }

    #[test]
    fn s_105_different_also_when_one_side_is_missing() {
        for operand in [Operand::NotEqual, Operand::Not] {
            check(Some("foo"), operand, Some("bar"), true);
            check(Some("foo"), operand, Some("foo"), false);
            check(None, operand, Some("foo"), true);
            check(Some("foo"), operand, None, true);
            check(None, operand, None, false);
            check(None, operand, Some(""), false);
        }
    }

    #[test]
    fn s_106_order_is_that_of_integers_then_of_numbers_then_of_text() {
        for (left, right, is_less) in
            [("10", "1", false), ("1", "10", true), ("1.5", "10.5", true), ("bar", "foo", true), ("9x", "10x", false)]
        {
            check(Some(left), Operand::Less, Some(right), is_less);
            check(Some(left), Operand::GreaterOrEqual, Some(right), !is_less);
            check(Some(left), Operand::LessOrEqual, Some(right), is_less);
            check(Some(left), Operand::Greater, Some(right), !is_less);
        }
        check(Some("-0.0"), Operand::GreaterOrEqual, Some("0.0"), true);
        check(Some("9223372036854775808"), Operand::Greater, Some("1"), true);
        for operand in [Operand::Less, Operand::LessOrEqual, Operand::Greater, Operand::GreaterOrEqual] {
            check(Some("1"), operand, None, false);
            check(None, operand, Some("1"), false);
            check(Some("nan"), operand, Some("1"), false);
        }
    }

    #[test]
    fn s_107_a_number_and_a_word_compare_as_text() {
        check(Some("1"), Operand::Greater, Some("foo"), false);
        check(Some("1"), Operand::Less, Some("foo"), true);
    }

    #[test]
    fn s_108_versions_satisfy_every_bound_of_a_list() {
        check(Some("1.2.3"), Operand::Version, Some("~> 1.0"), true);
        check(Some("2.0.1"), Operand::Version, Some("~> 1.0"), false);
        check(Some("1.4"), Operand::Version, Some(">= 1.0, < 1.4"), false);
        check(Some("6.1.2"), Operand::Version, Some(">= 6, < 7"), true);
        check(Some("6.1.2"), Operand::Version, None, false);
        check(None, Operand::Version, Some(">= 6"), false);
    }

    #[test]
    fn s_109_a_prerelease_satisfies_a_plain_bound_only_in_semver() {
        check(Some("1.3.0-beta1"), Operand::Version, Some(">= 0.6.1"), false);
        check(Some("1.3.0-beta1"), Operand::Semver, Some(">= 0.6.1"), true);
    }

    #[test]
    fn s_110_semver_knows_no_pessimistic_bound() {
        check(Some("1.2.3"), Operand::Semver, Some("~> 1.0"), false);
        check(Some("1.2.3"), Operand::Semver, Some(">= 1.0, < 1.4"), true);
    }

    #[test]
    fn s_111_sets_are_comma_separated_and_trimmed() {
        for operand in [Operand::SetContains, Operand::SetContainsAll] {
            check(Some("foo,bar,baz"), operand, Some("foo,  bar  "), true);
            check(Some("foo,bar,baz"), operand, Some("foo,bam"), false);
            check(Some("foo , bar"), operand, Some("bar,foo,bar"), true);
            check(Some("foo,foo"), operand, Some("foo,bar"), false);
            check(Some("foo"), operand, Some("foo"), true);
        }
        check(Some("foo,bar,baz"), Operand::SetContainsAny, Some("foo,bam"), true);
        check(Some("foo,bar,baz"), Operand::SetContainsAny, Some("bam"), false);
        for operand in [Operand::SetContains, Operand::SetContainsAny] {
            check(None, operand, Some("foo"), false);
            check(Some("foo"), operand, None, false);
        }
    }

    #[test]
    fn s_112_is_set_looks_at_the_left_side_alone() {
        check(Some(""), Operand::IsSet, None, true);
        check(None, Operand::IsSet, None, false);
        check(Some("x"), Operand::IsNotSet, None, false);
        check(None, Operand::IsNotSet, None, true);
    }

    #[test]
    fn a_pattern_is_found_anywhere_and_a_wrong_one_never() {
        check(Some("linux-6"), Operand::Regexp, Some("x-[0-9]"), true);
        check(Some("linux-6"), Operand::Regexp, Some("^x"), false);
        check(Some("linux"), Operand::Regexp, Some("("), false);
        check(None, Operand::Regexp, Some(".*"), false);
    }

    #[test]
    fn a_right_side_that_would_cost_much_never_matches() {
        for right in ["a".repeat(5_000_000), r"(\w{200}){200}".to_owned(), "(".repeat(4000)] {
            check(Some("aaa"), Operand::Regexp, Some(&right), false);
            assert!(pattern(&right).is_err());
        }
        check(Some("a"), Operand::SetContainsAny, Some(&"a,".repeat(1_000_000)), false);
        check(Some("1"), Operand::Version, Some(&">=1,".repeat(1_000_000)), false);
    }
}
