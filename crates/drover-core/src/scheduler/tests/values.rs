//! Values that rules compare (`spec/scheduler.md` 4.2 and 4.3), beside readings of the tables that know one notation
//! only: whole numbers of tenths, sets as sorted lists, amounts in exact fractions of the smallest unit.

use std::cmp::Ordering;

use drover_api::placement::Operand;
use fastrand::Rng;

use super::*;
use crate::scheduler::feasible::resolve;
use crate::scheduler::operand::{Comparison, RIGHT_LIMIT_BYTES, pattern};
use crate::scheduler::typed;

/// What an operand asks of the order of two sides.
type AskOfOrder = fn(Ordering) -> bool;

/// Operands that ask for the order of two sides, with what they ask.
const ORDERED: [(Operand, AskOfOrder); 4] = [
    (Operand::Less, Ordering::is_lt),
    (Operand::LessOrEqual, Ordering::is_le),
    (Operand::Greater, Ordering::is_gt),
    (Operand::GreaterOrEqual, Ordering::is_ge),
];

fn holds(operand: Operand, left: &str, right: &str) -> bool {
    Comparison::new(operand, Some(right)).holds(Some(left), Some(right))
}

/// A side of a comparison, with its number of tenths where it is a number.
fn side(rng: &mut Rng) -> (String, Option<i64>) {
    let whole = rng.i64(-12..13);
    let tenths = rng.i64(0..10);
    match rng.u8(..6) {
        0 | 1 => (whole.to_string(), Some(10 * whole)),
        2 => (format!("{}.{tenths}", whole.abs()), Some(10 * whole.abs() + tenths)),
        3 => (format!("{}.{tenths}0", whole.abs()), Some(10 * whole.abs() + tenths)),
        4 => (format!("{}e1", whole.abs()), Some(100 * whole.abs())),
        _ => (["", "1x", "linux", "Linux", "ünix", "2.0.0"][rng.usize(..6)].to_owned(), None),
    }
}

#[test]
fn sides_are_in_the_order_of_their_numbers_or_else_of_their_letters() {
    let mut rng = Rng::with_seed(43);
    for _ in 0..10_000 {
        let ((left, one), (right, other)) = (side(&mut rng), side(&mut rng));
        let order = one.zip(other).map_or_else(|| left.cmp(&right), |(one, other)| one.cmp(&other));
        for (operand, asks) in ORDERED {
            assert_eq!(holds(operand, &left, &right), asks(order), "{left:?} {operand} {right:?}");
        }
    }
}

#[test]
fn whole_numbers_that_a_fraction_cannot_tell_apart_are_still_in_order() {
    let near = ["9007199254740992", "9007199254740993", "9223372036854775806", "9223372036854775807"];
    for (at, left) in near.iter().enumerate() {
        for (other, right) in near.iter().enumerate() {
            for (operand, asks) in ORDERED {
                assert_eq!(holds(operand, left, right), asks(at.cmp(&other)), "{left} {operand} {right}");
            }
        }
    }
    // One side that is no whole number makes both of them fractions.
    assert!(holds(Operand::LessOrEqual, "9007199254740993.0", "9007199254740992"));
}

/// A list of items between commas and spaces, and its items.
fn list(rng: &mut Rng) -> (String, Vec<&'static str>) {
    let known = ["a", "b", "c", "ab", "", "a b", "ä"];
    let items: Vec<&str> = (0..rng.usize(1..5)).map(|_| known[rng.usize(..known.len())]).collect();
    let spaced = items.iter().map(|item| match rng.u8(..3) {
        0 => format!(" {item}"),
        1 => format!("{item}\t"),
        _ => (*item).to_owned(),
    });
    (spaced.collect::<Vec<_>>().join(","), items)
}

#[test]
fn sets_contain_all_or_any_of_the_trimmed_items() {
    let mut rng = Rng::with_seed(111);
    let mut seen = [0; 3];
    for _ in 0..10_000 {
        let ((left, has), (right, wanted)) = (list(&mut rng), list(&mut rng));
        let n = wanted.iter().filter(|item| has.contains(item)).count();
        let (all, any) = (n == wanted.len(), n > 0);
        for operand in [Operand::SetContains, Operand::SetContainsAll] {
            assert_eq!(holds(operand, &left, &right), all, "{left:?} {operand} {right:?}");
        }
        assert_eq!(holds(Operand::SetContainsAny, &left, &right), any, "{left:?} any of {right:?}");
        seen[usize::from(all) + usize::from(any)] += 1;
    }
    assert!(seen.iter().all(|n| *n > 500), "none, some and all: {seen:?}");
}

#[test]
fn a_right_side_is_taken_up_to_its_limit() {
    let at = "a".repeat(RIGHT_LIMIT_BYTES);
    let above = "a".repeat(RIGHT_LIMIT_BYTES + 1);
    for operand in [Operand::Regexp, Operand::SetContains, Operand::SetContainsAll, Operand::SetContainsAny] {
        assert!(holds(operand, &at, &at), "{operand} at the limit");
        assert!(!holds(operand, &above, &above), "{operand} above it");
    }
    let padded = |zeros: usize| format!(">={}1", "0".repeat(zeros));
    for operand in [Operand::Version, Operand::Semver] {
        assert!(holds(operand, "1", &padded(RIGHT_LIMIT_BYTES - 3)), "{operand} at the limit");
        assert!(!holds(operand, "1", &padded(RIGHT_LIMIT_BYTES - 2)), "{operand} above it");
    }
    // What is compared as it stands costs nothing, however long it is.
    assert!(holds(Operand::Equal, &above, &above) && holds(Operand::LessOrEqual, &at, &above));
    assert!(!holds(Operand::NotEqual, &above, &above));
    // The limit counts bytes.
    let wide = "ü".repeat(RIGHT_LIMIT_BYTES / 2);
    assert!(holds(Operand::Regexp, &wide, &wide) && !holds(Operand::Regexp, &wide, &format!("{wide}?")));
}

#[test]
fn a_pattern_that_is_refused_says_why() {
    let told = |text: &str| pattern(text).expect_err("it is refused");
    assert_eq!(told(&"a".repeat(4097)), "has 4097 bytes, above 4096");
    assert_eq!(told(r"(\w{200}){200}"), "is too large when compiled; use fewer or smaller repetitions");
    assert_eq!(told("("), "unclosed group");
    assert_eq!(told("[z-a]"), "invalid character class range, the start must be <= the end");
    assert!(told(r"(?=a)").starts_with("look-around"), "{}", told(r"(?=a)"));
}

/// Units with the dimension and how many of its smallest unit they are.
const UNITS: [(&str, &str, i128); 14] = [
    ("", "none", 1),
    (" B", "bytes", 1),
    ("kB", "bytes", 1_000),
    (" KiB", "bytes", 1_024),
    (" MB", "bytes", 1_000_000),
    ("MiB", "bytes", 1_048_576),
    (" PiB", "bytes", 1_125_899_906_842_624),
    (" B/s", "rate", 1),
    ("MiB/s", "rate", 1_048_576),
    (" Hz", "hertz", 1),
    ("MHz", "hertz", 1_000_000),
    (" mW", "watts", 1),
    ("W", "watts", 1_000),
    (" kW", "watts", 1_000_000),
];

/// An amount as it is written, its dimension, and how many quarters of the smallest unit it is.
fn amount(rng: &mut Rng) -> (String, &'static str, i128) {
    let (unit, dimension, size) = UNITS[rng.usize(..UNITS.len())];
    let whole = [rng.i64(-3..4), rng.i64(0..2_000), 1_000, 1_024][rng.usize(..4)];
    // Quarters are exact in both notations.
    let quarters = if whole < 0 { 0 } else { [0, 0, 1, 2, 3][rng.usize(..5)] };
    let digits = ["", ".25", ".5", ".75"][quarters];
    (format!("{whole}{digits}{unit}"), dimension, (4 * i128::from(whole) + quarters as i128) * size)
}

#[test]
fn amounts_compare_by_their_size_and_only_within_a_dimension() {
    let mut rng = Rng::with_seed(42);
    let mut equal = 0;
    for _ in 0..20_000 {
        let (left, of, one) = amount(&mut rng);
        let written_out = UNITS.iter().find(|(_, dimension, size)| *dimension == of && *size == 1);
        let (right, other, two) = match written_out {
            // The same amount in the smallest unit.
            Some((unit, ..)) if one % 4 == 0 && rng.u8(..4) == 0 => (format!("{}{unit}", one / 4), of, one),
            _ => amount(&mut rng),
        };
        let order = (of == other).then(|| one.cmp(&two));
        let (typed_left, typed_right) = (typed::parse(&left), typed::parse(&right));
        let holds = |operand| typed::holds(operand, Some(&typed_left), Some(&typed_right));
        for (operand, asks) in ORDERED {
            assert_eq!(holds(operand), order.is_some_and(asks), "{left} {operand} {right}");
        }
        for operand in [Operand::Equal, Operand::DoubleEqual, Operand::Is] {
            assert_eq!(holds(operand), order.is_some_and(Ordering::is_eq), "{left} {operand} {right}");
        }
        for operand in [Operand::NotEqual, Operand::Not] {
            assert_eq!(holds(operand), order.is_some_and(Ordering::is_ne), "{left} {operand} {right}");
        }
        equal += usize::from(order == Some(Ordering::Equal));
    }
    assert!(equal > 1_000, "only {equal} pairs were equal");
}

#[test]
fn device_values_keep_their_text_for_rules_that_look_at_text() {
    for (left, operand, right, wanted) in [
        (" 470.82 ", Operand::Regexp, "^470.82$", true),
        ("16 GiB", Operand::Regexp, "GiB", true),
        ("16 GiB", Operand::SetContains, "16 GiB", true),
        ("16384 MiB", Operand::SetContains, "16 GiB", false),
        ("True", Operand::Regexp, "^T", true),
        ("470", Operand::Semver, ">= 470", true),
        ("fp16,int8", Operand::SetContainsAny, "fp64, int8", true),
        ("a", Operand::DistinctHosts, "b", true),
    ] {
        let (one, other) = (typed::parse(left), typed::parse(right));
        assert_eq!(typed::holds(operand, Some(&one), Some(&other)), wanted, "{left:?} {operand} {right:?}");
    }
    let word = typed::parse("  a b ");
    assert_eq!(word.text(), "a b");
    assert!(typed::holds(Operand::IsSet, Some(&word), None) && !typed::holds(Operand::IsNotSet, Some(&word), None));
}

#[test]
fn booleans_are_equal_or_different_and_in_no_order() {
    for (left, right, is_equal) in
        [("true", "TRUE", true), ("True", "false", false), ("FALSE", "False", true), ("false", "true", false)]
    {
        let (one, other) = (typed::parse(left), typed::parse(right));
        let holds = |operand| typed::holds(operand, Some(&one), Some(&other));
        assert_eq!((holds(Operand::Equal), holds(Operand::NotEqual)), (is_equal, !is_equal), "{left} {right}");
        assert_eq!((holds(Operand::Less), holds(Operand::Greater)), (false, false), "{left} {right}");
        assert_eq!((holds(Operand::LessOrEqual), holds(Operand::GreaterOrEqual)), (is_equal, is_equal));
    }
    // Other spellings are words, which have an order.
    let (one, other) = (typed::parse("no"), typed::parse("tRUE"));
    assert!(typed::holds(Operand::Less, Some(&one), Some(&other)));
}

#[test]
fn a_target_stands_for_what_the_node_says_or_for_itself() {
    let mut on = Node { datacenter: "dc7".into(), class: "large".into(), pool: "gpu".into(), ..node("n-3") };
    on.attributes.extend([("kernel.version".into(), "6.1".into()), ("empty".into(), String::new())]);
    on.meta.extend([("rack".into(), "r1".into()), ("unique.serial".into(), "7".into()), ("a}b".into(), "x".into())]);
    for (target, wanted) in [
        ("${node.unique.name}", Some("n-3")),
        ("${node.datacenter}", Some("dc7")),
        ("${node.class}", Some("large")),
        ("${node.pool}", Some("gpu")),
        ("${attr.kernel.version}", Some("6.1")),
        ("${attr.empty}", Some("")),
        ("${meta.rack}", Some("r1")),
        ("${meta.unique.serial}", Some("7")),
        ("${meta.a}b}", Some("x")),
        ("${attr.rack}", None),
        ("${meta.kernel.version}", None),
        ("${attr.}", None),
        ("${node.phase}", None),
        ("${NODE.CLASS}", None),
        ("${}", None),
        ("${node.class", None),
        ("${node.class} ", None),
        // What does not begin like a target is text.
        ("linux", Some("linux")),
        ("", Some("")),
        ("$node.class", Some("$node.class")),
        ("{node.class}", Some("{node.class}")),
        (" ${node.class}", Some(" ${node.class}")),
        ("x${node.class}", Some("x${node.class}")),
    ] {
        assert_eq!(resolve(target, &on), wanted, "{target:?}");
    }
}
