//! Versions and version requirements as constraints use them (`spec/scheduler.md`, 4.3): `>= 6.1, < 7`, `~> 1.2`.
//!
//! Looser than SemVer on the left (missing parts read as 0, a leading `v` is allowed), so that kernel versions compare
//! too.

use std::borrow::Cow;
use std::cmp::Ordering;

/// Most numbers of a version.
const PARTS: usize = 8;

/// A version: numbers, then an optional prerelease. Build metadata is dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version<'a> {
    numbers: [u64; PARTS],
    given: usize,
    prerelease: Cow<'a, str>,
}

impl<'a> Version<'a> {
    /// Parses `1.2.3`, `v1.2`, `6.1.0-13-amd64`, `1.3.0-beta.1+build` or `1.3rc1`; none when it does not begin with
    /// numbers.
    pub fn parse(text: &'a str) -> Option<Self> {
        let text = text.trim();
        let text = text.strip_prefix('v').unwrap_or(text);
        let text = text.split('+').next().unwrap_or_default();
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (core, tail) = text.split_at(end);
        let prerelease = tail.strip_prefix('-').unwrap_or(tail);
        let is_named = tail.is_empty() || !prerelease.is_empty();
        if !is_named || prerelease.contains(char::is_whitespace) {
            return None;
        }
        let mut numbers = [0; PARTS];
        let mut given = 0;
        for part in core.split('.') {
            *numbers.get_mut(given)? = part.parse().ok()?;
            given += 1;
        }
        Some(Self { numbers, given, prerelease: Cow::Borrowed(prerelease) })
    }

    /// The same, holding its own text.
    fn into_owned(self) -> Version<'static> {
        Version { prerelease: Cow::Owned(self.prerelease.into_owned()), numbers: self.numbers, given: self.given }
    }

    fn compare_numbers(&self, other: &Version<'_>) -> Ordering {
        self.numbers.cmp(&other.numbers)
    }

    fn compare(&self, other: &Version<'_>) -> Ordering {
        self.compare_numbers(other).then_with(|| compare_prerelease(&self.prerelease, &other.prerelease))
    }

    fn is_prerelease(&self) -> bool {
        !self.prerelease.is_empty()
    }
}

/// A release is later than its prereleases; numeric parts compare as numbers and are earlier than text.
fn compare_prerelease(one: &str, other: &str) -> Ordering {
    match (one.is_empty(), other.is_empty()) {
        (true, true) => return Ordering::Equal,
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    let (mut left, mut right) = (one.split('.'), other.split('.'));
    loop {
        let order = match (left.next(), right.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => Ordering::Less,
            (Some(_), None) => Ordering::Greater,
            (Some(l), Some(r)) => compare_part(l, r),
        };
        if order.is_ne() {
            return order;
        }
    }
}

fn compare_part(left: &str, right: &str) -> Ordering {
    match (left.parse::<u64>(), right.parse::<u64>()) {
        (Ok(l), Ok(r)) => l.cmp(&r),
        (Ok(_), Err(_)) => Ordering::Less,
        (Err(_), Ok(_)) => Ordering::Greater,
        (Err(_), Err(_)) => left.cmp(right),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Equal,
    NotEqual,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
    Pessimistic,
}

/// A list of bounds that must all hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    bounds: Vec<(Op, Version<'static>)>,
    is_semver: bool,
}

impl Requirement {
    /// Parses `>= 1.2, < 2`. With `is_semver`, `~>` is refused and prereleases follow SemVer's precedence.
    pub fn parse(text: &str, is_semver: bool) -> Option<Self> {
        let bounds: Option<Vec<_>> = text.split(',').map(|part| bound(part.trim(), is_semver)).collect();
        bounds.map(|bounds| Self { bounds, is_semver })
    }

    /// Whether every bound holds.
    pub fn matches(&self, version: &Version<'_>) -> bool {
        self.bounds.iter().all(|(op, bound)| self.bound_holds(*op, bound, version))
    }

    fn bound_holds(&self, op: Op, bound: &Version<'_>, version: &Version<'_>) -> bool {
        let order = version.compare(bound);
        match op {
            Op::Equal => order.is_eq(),
            Op::NotEqual => order.is_ne(),
            Op::Greater => self.comparable(bound, version) && order.is_gt(),
            Op::GreaterOrEqual => self.comparable(bound, version) && order.is_ge(),
            Op::Less => self.comparable(bound, version) && order.is_lt(),
            Op::LessOrEqual => self.comparable(bound, version) && order.is_le(),
            Op::Pessimistic => {
                self.comparable(bound, version)
                    && (version.is_prerelease() || !bound.is_prerelease())
                    && order.is_ge()
                    && shares_prefix(bound, version)
            }
        }
    }

    /// A prerelease satisfies only bounds with a prerelease of the same numbers (but with SemVer's rules any).
    fn comparable(&self, bound: &Version<'_>, version: &Version<'_>) -> bool {
        self.is_semver || !version.is_prerelease() || (bound.is_prerelease() && version.compare_numbers(bound).is_eq())
    }
}

/// `~> 1.2.3`: all numbers but the last are the same. One number has no upper bound.
fn shares_prefix(bound: &Version<'_>, version: &Version<'_>) -> bool {
    let fixed = bound.given.saturating_sub(1);
    version.numbers[..fixed] == bound.numbers[..fixed]
}

fn bound(text: &str, is_semver: bool) -> Option<(Op, Version<'static>)> {
    let table = [
        (">=", Op::GreaterOrEqual),
        ("<=", Op::LessOrEqual),
        ("!=", Op::NotEqual),
        ("~>", Op::Pessimistic),
        (">", Op::Greater),
        ("<", Op::Less),
        ("=", Op::Equal),
    ];
    let (op, rest) = table
        .iter()
        .find_map(|(sign, op)| text.strip_prefix(sign).map(|rest| (*op, rest)))
        .unwrap_or((Op::Equal, text));
    if is_semver && op == Op::Pessimistic {
        return None;
    }
    Version::parse(rest).map(|version| (op, version.into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(version: &str, requirement: &str, wanted: bool) {
        let matched = Requirement::parse(requirement, false)
            .zip(Version::parse(version))
            .is_some_and(|(requirement, version)| requirement.matches(&version));
        assert_eq!(matched, wanted, "{version} {requirement}");
    }

    #[test]
    fn bounds_follow_the_table() {
        check("6.18.44-fc", ">= 6", false);
        check("6.18.44", ">= 6", true);
        check("1.2", "1.2.0", true);
        check("1.2.9", "~> 1.2.3", true);
        check("1.3.0", "~> 1.2.3", false);
        check("9.9", "~> 1", true);
        check("1.3.0-beta1", "!= 1.0.0", true);
        check("1.0.0-beta2", "> 1.0.0-beta1", true);
        check("1.1.0-beta2", "> 1.0.0-beta1", false);
        check("1.2.3+build", "= 1.2.3", true);
        check("6.18.44-fc", "!= 6", true);
        check("1.0.0-beta1", "~> 1.0.0-alpha", true);
        check("1.0.1", "~> 1.0.0-alpha", false);
        check("1.3rc1", "> 1.3rc0", true);
        check("1.0.0-2", "< 1.0.0-10", true);
        check("1.0.0-1", "< 1.0.0-a", true);
        check("1.0.0-a", "< 1.0.0-a.1", true);
        check("v6.1", ">=6.0,<6.2", true);
        check("1.3.0-beta1", "= 1.3.0-beta1", true);
        for odd in ["", "-", "1.", ".1", "1..2", "1.2-", "1 2", "1.2.3.4.5.6.7.8.9", "99999999999999999999999"] {
            check(odd, "!= 0.0.1", false);
        }
        check("x", "> 1", false);
        check("1.0", "> x", false);
    }
}
