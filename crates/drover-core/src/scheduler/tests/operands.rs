//! The operands of `spec/scheduler.md` 4.3, each with the edges of what it compares, and versions beside a slow reading
//! of the same table.

use std::cmp::Ordering;

use drover_api::placement::Operand;
use fastrand::Rng;

use crate::scheduler::operand::Comparison;
use crate::scheduler::typed;
use crate::scheduler::version::{Requirement, Version};

const ONE_OF_EACH: [Operand; 13] = [
    Operand::Equal,
    Operand::NotEqual,
    Operand::Less,
    Operand::LessOrEqual,
    Operand::Greater,
    Operand::GreaterOrEqual,
    Operand::Version,
    Operand::Semver,
    Operand::Regexp,
    Operand::SetContains,
    Operand::SetContainsAny,
    Operand::IsSet,
    Operand::IsNotSet,
];

fn holds(operand: Operand, left: Option<&str>, right: Option<&str>) -> bool {
    Comparison::new(operand, right).holds(left, right)
}

/// All operands that hold between two sides.
fn holding(left: Option<&str>, right: Option<&str>) -> String {
    let held = ONE_OF_EACH.into_iter().filter(|operand| holds(*operand, left, right));
    held.map(Operand::as_str).collect::<Vec<_>>().join(" ")
}

#[test]
fn each_pair_of_sides_satisfies_exactly_these_operands() {
    for (left, right, wanted) in [
        // Words.
        (Some("linux"), Some("linux"), "= <= >= regexp set_contains set_contains_any is_set"),
        (Some("linux"), Some("lin"), "!= > >= regexp is_set"),
        (Some("Linux"), Some("linux"), "!= < <= is_set"),
        (Some("true"), Some("1"), "!= > >= is_set"),
        // A side that is missing, and one that is empty.
        (None, Some("x"), "!= is_not_set"),
        (Some("x"), None, "!= is_set"),
        (None, None, "is_not_set"),
        (None, Some(""), "is_not_set"),
        (Some(""), None, "is_set"),
        (Some(""), Some(""), "= <= >= regexp set_contains set_contains_any is_set"),
        (Some("x"), Some(""), "!= > >= regexp is_set"),
        (Some(""), Some("x"), "!= < <= is_set"),
        // Integers compare exactly, others as numbers, and anything else as text.
        (Some("10"), Some("9"), "!= > >= is_set"),
        (Some("-5"), Some("3"), "!= < <= is_set"),
        (Some("9223372036854775807"), Some("9223372036854775806"), "!= > >= is_set"),
        (Some("1e3"), Some("999"), "!= > >= is_set"),
        (Some("2.50"), Some("2.5"), "!= <= >= regexp is_set"),
        (Some("1.10"), Some("1.9"), "!= < <= is_set"),
        (Some("10"), Some("9x"), "!= < <= is_set"),
        // Versions.
        (Some("1.2.3"), Some("1.2.3"), "= <= >= version semver regexp set_contains set_contains_any is_set"),
        (Some("1.2"), Some("1.2.0"), "!= < <= version semver is_set"),
        (Some("v1.2.3"), Some("1.2.3"), "!= > >= version semver regexp is_set"),
        (Some("1.2.3+build7"), Some("= 1.2.3"), "!= < <= version semver is_set"),
        (Some("1.3.0-beta1"), Some(">= 0.6.1"), "!= < <= semver is_set"),
        (Some("1.3.0-beta1"), Some("!= 1.0.0"), "!= > >= version semver is_set"),
        (Some("1.2.3"), Some("~> 1.2"), "!= < <= version is_set"),
        (Some("2.0"), Some(">= 1.0, < 2.0"), "!= < <= is_set"),
        (Some("1.9.9"), Some(">= 1.0, < 2.0"), "!= < <= version semver is_set"),
        (Some("one"), Some(">= 0"), "!= > >= is_set"),
        // Patterns are found anywhere.
        (Some("5"), Some("[0-9]"), "!= < <= regexp is_set"),
        (Some("abc"), Some("^b"), "!= > >= is_set"),
        (Some("ABC"), Some("(?i)b"), "!= > >= regexp is_set"),
        (Some("foo"), Some("("), "!= > >= is_set"),
        // Sets.
        (Some("a,b , c"), Some("c,a"), "!= < <= set_contains set_contains_any is_set"),
        (Some("a,b"), Some("c,a"), "!= < <= set_contains_any is_set"),
        (Some("a,b"), Some("d,c"), "!= < <= is_set"),
        (Some("ab"), Some("a"), "!= > >= regexp is_set"),
        (Some("a,,b"), Some("a,"), "!= > >= regexp set_contains set_contains_any is_set"),
    ] {
        assert_eq!(holding(left, right), wanted, "{left:?} and {right:?}");
    }
}

#[test]
fn operands_with_two_names_mean_the_same() {
    let sides = [None, Some(""), Some("a"), Some("a,b"), Some("b, a"), Some("1"), Some("1.0")];
    for (names, twins) in [
        (Operand::Equal, vec![Operand::DoubleEqual, Operand::Is]),
        (Operand::NotEqual, vec![Operand::Not]),
        (Operand::SetContains, vec![Operand::SetContainsAll]),
    ] {
        for (left, right) in sides.iter().flat_map(|left| sides.iter().map(move |right| (*left, *right))) {
            for twin in &twins {
                assert_eq!(holds(*twin, left, right), holds(names, left, right), "{left:?} {twin} {right:?}");
            }
        }
    }
}

#[test]
fn distinctness_is_not_a_comparison() {
    for operand in [Operand::DistinctHosts, Operand::DistinctProperty] {
        for (left, right) in [(None, None), (Some("a"), Some("b")), (None, Some("false"))] {
            assert!(holds(operand, left, right), "{operand} {left:?} {right:?}");
        }
    }
}

/// A version as the table of 4.3 speaks of it.
#[derive(Clone, Debug, PartialEq)]
struct Plain {
    numbers: Vec<u64>,
    /// Identifiers of the prerelease; none for a release.
    prerelease: Vec<&'static str>,
}

impl Plain {
    fn random(rng: &mut Rng) -> Self {
        let numbers = (0..rng.usize(1..4)).map(|_| rng.u64(0..3)).collect();
        let known: [&[&str]; 7] = [&[], &[], &[], &["alpha"], &["alpha", "1"], &["beta", "2"], &["10"]];
        Self { numbers, prerelease: known[rng.usize(..known.len())].to_vec() }
    }

    fn text(&self) -> String {
        let numbers: Vec<String> = self.numbers.iter().map(ToString::to_string).collect();
        let dash = if self.prerelease.is_empty() { "" } else { "-" };
        format!("{}{dash}{}", numbers.join("."), self.prerelease.join("."))
    }

    fn number(&self, at: usize) -> u64 {
        self.numbers.get(at).copied().unwrap_or(0)
    }

    fn order_of_numbers(&self, other: &Self) -> Ordering {
        (0..8).map(|at| self.number(at).cmp(&other.number(at))).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }

    /// SemVer's precedence.
    fn order(&self, other: &Self) -> Ordering {
        let rank = |id: &str| id.parse::<u64>().map_or((1, 0, id.to_owned()), |number| (0, number, String::new()));
        let ids = |one: &Self| -> Vec<(i32, u64, String)> { one.prerelease.iter().map(|id| rank(id)).collect() };
        let is_release = |one: &Self| one.prerelease.is_empty();
        self.order_of_numbers(other)
            .then(is_release(self).cmp(&is_release(other)))
            .then_with(|| ids(self).cmp(&ids(other)))
    }
}

/// The row `version` of the table, word for word.
fn satisfies(version: &Plain, op: &str, bound: &Plain) -> bool {
    let (pre, bound_pre) = (!version.prerelease.is_empty(), !bound.prerelease.is_empty());
    let order = version.order(bound);
    match op {
        "" | "=" => return order.is_eq(),
        "!=" => return order.is_ne(),
        _ => {}
    }
    // A prerelease never satisfies a bound without one, and with one the numeric parts must be equal.
    if pre && (!bound_pre || version.order_of_numbers(bound).is_ne()) {
        return false;
    }
    match op {
        ">" => order.is_gt(),
        ">=" => order.is_ge(),
        "<" => order.is_lt(),
        "<=" => order.is_le(),
        "~>" => {
            let is_rejected_release = bound_pre && !pre;
            let fixed = bound.numbers.len() - 1;
            let shares = (0..fixed).all(|at| version.number(at) == bound.number(at));
            !is_rejected_release && order.is_ge() && shares
        }
        other => panic!("{other}"),
    }
}

const SIGNS: [&str; 8] = ["", "=", "!=", ">", ">=", "<", "<=", "~>"];

#[test]
fn versions_satisfy_lists_of_bounds_as_the_table_says() {
    let mut rng = Rng::with_seed(108);
    let mut held = 0;
    for _ in 0..20_000 {
        let version = Plain::random(&mut rng);
        let bounds: Vec<(&str, Plain)> =
            (0..rng.usize(1..3)).map(|_| (SIGNS[rng.usize(..8)], Plain::random(&mut rng))).collect();
        let text = bounds.iter().map(|(op, bound)| format!("{op} {}", bound.text())).collect::<Vec<_>>().join(", ");
        let wanted = bounds.iter().all(|(op, bound)| satisfies(&version, op, bound));
        held += usize::from(wanted);
        assert_eq!(holds(Operand::Version, Some(&version.text()), Some(&text)), wanted, "{} {text}", version.text());
    }
    assert!((2_000..18_000).contains(&held), "the cases say nothing: {held} held");
}

#[test]
fn semver_bounds_follow_precedence_alone() {
    let mut rng = Rng::with_seed(110);
    for _ in 0..20_000 {
        let (version, bound) = (Plain::random(&mut rng), Plain::random(&mut rng));
        let op = SIGNS[rng.usize(..8)];
        let order = version.order(&bound);
        let wanted = match op {
            "" | "=" => order.is_eq(),
            "!=" => order.is_ne(),
            ">" => order.is_gt(),
            ">=" => order.is_ge(),
            "<" => order.is_lt(),
            "<=" => order.is_le(),
            _ => false,
        };
        let text = format!("{op}{}", bound.text());
        assert_eq!(holds(Operand::Semver, Some(&version.text()), Some(&text)), wanted, "{} {text}", version.text());
    }
}

#[test]
fn a_requirement_is_refused_as_a_whole_when_one_bound_is_none() {
    for (text, as_version, as_semver) in [
        (">= 1.2, < 2", true, true),
        ("1.2.3-rc.1", true, true),
        (">=1.2,<2", true, true),
        ("~> 1.2", true, false),
        ("", false, false),
        (">= 1.2,", false, false),
        (", < 2", false, false),
        ("=> 1.2", false, false),
        (">= 1.2 < 2", false, false),
        (">= one", false, false),
        ("> ", false, false),
    ] {
        assert_eq!(Requirement::parse(text, false).is_some(), as_version, "version {text:?}");
        assert_eq!(Requirement::parse(text, true).is_some(), as_semver, "semver {text:?}");
    }
}

#[test]
fn a_version_begins_with_numbers() {
    for (text, is_version) in [
        ("1", true),
        ("v6", true),
        (" 6.1.0 ", true),
        ("6.1.0-13-amd64", true),
        ("5.15.0-1034-aws", true),
        ("1.3rc1", true),
        ("1.2.3.4.5.6.7.8", true),
        ("1.2.3.4.5.6.7.8.9", false),
        ("18446744073709551615", true),
        ("18446744073709551616", false),
        ("vv1", false),
        ("-1", false),
        ("1.-rc", false),
        ("1.2-", false),
        ("1 2", false),
        ("1.2-a b", false),
    ] {
        assert_eq!(Version::parse(text).is_some(), is_version, "{text:?}");
    }
}

fn typed_holds(left: &str, operand: Operand, right: &str) -> bool {
    typed::holds(operand, Some(&typed::parse(left)), Some(&typed::parse(right)))
}

#[test]
fn each_unit_is_so_many_of_the_smallest_of_its_dimension() {
    for (unit, smallest) in [
        ("1 KiB", "1024 B"),
        ("1 kiB", "1024 B"),
        ("1 MiB", "1048576 B"),
        ("1 GiB", "1073741824 B"),
        ("1 TiB", "1099511627776 B"),
        ("1 PiB", "1125899906842624 B"),
        ("1 EiB", "1152921504606846976 B"),
        ("1 kB", "1000 B"),
        ("1 KB", "1000 B"),
        ("1 MB", "1000000 B"),
        ("1 GB", "1000000000 B"),
        ("1 TB", "1000000000000 B"),
        ("1 PB", "1000000000000000 B"),
        ("1 EB", "1000000000000000000 B"),
        ("1 KiB/s", "1024 B/s"),
        ("1 MiB/s", "1048576 B/s"),
        ("1 GiB/s", "1073741824 B/s"),
        ("1 TiB/s", "1099511627776 B/s"),
        ("1 PiB/s", "1125899906842624 B/s"),
        ("1 EiB/s", "1152921504606846976 B/s"),
        ("1 kB/s", "1000 B/s"),
        ("1 MB/s", "1000000 B/s"),
        ("1 GB/s", "1000000000 B/s"),
        ("1 TB/s", "1000000000000 B/s"),
        ("1 PB/s", "1000000000000000 B/s"),
        ("1 EB/s", "1000000000000000000 B/s"),
        ("1 kHz", "1000 Hz"),
        ("1 MHz", "1000000 Hz"),
        ("1 GHz", "1000000000 Hz"),
        ("1 THz", "1000000000000 Hz"),
        ("1 W", "1000 mW"),
        ("1 kW", "1000000 mW"),
        ("1 MW", "1000000000 mW"),
        ("1 GW", "1000000000000 mW"),
    ] {
        let digits = smallest.split(' ').next().unwrap();
        let more = format!("{}{}", digits.parse::<i64>().unwrap() + 1, &smallest[digits.len()..]);
        assert!(typed_holds(unit, Operand::Equal, smallest), "{unit} is {smallest}");
        assert!(typed_holds(unit, Operand::Less, &more), "{unit} is below {more}");
        assert!(typed_holds(&unit.replace(' ', ""), Operand::Is, unit), "{unit} without a space");
        let bare = unit.split(' ').next().unwrap();
        assert!(!typed_holds(unit, Operand::Equal, bare), "{unit} is no plain number");
    }
}

#[test]
fn amounts_of_one_dimension_are_in_the_order_of_their_sizes() {
    let ascending = ["0 B", "999 B", "1 kB", "1 KiB", "0.5 MB", "1 MB", "1 MiB", "1.5 GiB", "2 GB", "2 GiB", "1 TB"];
    for (at, left) in ascending.iter().enumerate() {
        for (other, right) in ascending.iter().enumerate() {
            let order = at.cmp(&other);
            for (operand, wanted) in [
                (Operand::Equal, order.is_eq()),
                (Operand::NotEqual, order.is_ne()),
                (Operand::Less, order.is_lt()),
                (Operand::LessOrEqual, order.is_le()),
                (Operand::Greater, order.is_gt()),
                (Operand::GreaterOrEqual, order.is_ge()),
            ] {
                assert_eq!(typed_holds(left, operand, right), wanted, "{left} {operand} {right}");
            }
        }
    }
}
