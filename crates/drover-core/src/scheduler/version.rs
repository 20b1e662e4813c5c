//! Versions and version requirements as constraints use them (`spec/scheduler.md`, 4.3): `>= 6.1, < 7`, `~> 1.2`.
//!
//! Looser than SemVer on the left (missing parts read as 0, a leading `v` is allowed), so that kernel versions compare too.

use std::cmp::Ordering;

/// A version: numbers, then an optional prerelease. Build metadata is dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    numbers: Vec<u64>,
    prerelease: Vec<String>,
}

impl Version {
    /// Parses a version; none when there is no leading number.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let text = text.strip_prefix('v').unwrap_or(text);
        let text = text.split('+').next().unwrap_or_default();
        let (core, pre) = text.split_once('-').unwrap_or((text, ""));
        let numbers: Option<Vec<u64>> = core.split('.').map(|part| part.parse().ok()).collect();
        let prerelease = pre.split('.').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        numbers.filter(|numbers| !numbers.is_empty()).map(|numbers| Self { numbers, prerelease })
    }

    fn number(&self, at: usize) -> u64 {
        self.numbers.get(at).copied().unwrap_or(0)
    }

    fn compare_numbers(&self, other: &Self) -> Ordering {
        let length = self.numbers.len().max(other.numbers.len());
        (0..length)
            .map(|at| self.number(at).cmp(&other.number(at)))
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    }

    fn compare(&self, other: &Self) -> Ordering {
        self.compare_numbers(other).then_with(|| compare_prerelease(&self.prerelease, &other.prerelease))
    }

    fn is_prerelease(&self) -> bool {
        !self.prerelease.is_empty()
    }
}

/// A release is later than its prereleases; numeric parts compare as numbers and are earlier than text.
fn compare_prerelease(one: &[String], other: &[String]) -> Ordering {
    match (one.is_empty(), other.is_empty()) {
        (true, true) => return Ordering::Equal,
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    for (left, right) in one.iter().zip(other) {
        let order = match (left.parse::<u64>(), right.parse::<u64>()) {
            (Ok(l), Ok(r)) => l.cmp(&r),
            (Ok(_), Err(_)) => Ordering::Less,
            (Err(_), Ok(_)) => Ordering::Greater,
            (Err(_), Err(_)) => left.cmp(right),
        };
        if order.is_ne() {
            return order;
        }
    }
    one.len().cmp(&other.len())
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
    bounds: Vec<(Op, Version)>,
    is_semver: bool,
}

impl Requirement {
    /// Parses `>= 1.2, < 2`. With `is_semver`, `~>` is refused and prereleases follow SemVer's precedence.
    pub fn parse(text: &str, is_semver: bool) -> Option<Self> {
        let bounds: Option<Vec<_>> = text.split(',').map(|part| bound(part.trim(), is_semver)).collect();
        bounds.map(|bounds| Self { bounds, is_semver })
    }

    /// Whether every bound holds.
    pub fn matches(&self, version: &Version) -> bool {
        self.bounds.iter().all(|(op, bound)| self.bound_holds(*op, bound, version))
    }

    fn bound_holds(&self, op: Op, bound: &Version, version: &Version) -> bool {
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
    fn comparable(&self, bound: &Version, version: &Version) -> bool {
        self.is_semver || !version.is_prerelease() || (bound.is_prerelease() && version.compare_numbers(bound).is_eq())
    }
}

/// `~> 1.2.3`: all numbers but the last are the same. One number has no upper bound.
fn shares_prefix(bound: &Version, version: &Version) -> bool {
    let fixed = bound.numbers.len().saturating_sub(1);
    (0..fixed).all(|at| version.number(at) == bound.number(at))
}

fn bound(text: &str, is_semver: bool) -> Option<(Op, Version)> {
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
    Version::parse(rest).map(|version| (op, version))
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
        check("x", "> 1", false);
        check("1.0", "> x", false);
    }
}
