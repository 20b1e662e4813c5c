//! Device attributes and the values that constraints compare them with: texts read as booleans, numbers with units, or
//! words (`spec/scheduler.md`, 4.2 and 4.3).
//!
//! Reading never fails: what is neither boolean nor number is a word. Must never know devices or nodes.

use std::cmp::Ordering;

use drover_api::placement::Operand;

use crate::scheduler::operand::Comparison;

/// A text with what it means. Numbers of one dimension compare whatever their units (`512 MiB` is `0.5 GiB`).
#[derive(Clone, Debug, PartialEq)]
pub struct Typed {
    text: String,
    value: Value,
}

#[derive(Clone, Debug, PartialEq)]
enum Value {
    Word,
    Bool(bool),
    Number { size: Size, dimension: Dimension },
}

/// An amount in the smallest unit of its dimension. Whole numbers keep their exact value beside the rounded one.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Size {
    whole: Option<i128>,
    rounded: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dimension {
    None,
    Bytes,
    BytesPerSecond,
    Hertz,
    Watts,
}

impl Typed {
    /// The text as it was given, without surrounding spaces.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Reads a text: a boolean, a number with or without a unit, else a word.
pub fn parse(text: &str) -> Typed {
    let text = text.trim();
    let value = match text {
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        _ => number(text).unwrap_or(Value::Word),
    };
    Typed { text: text.to_owned(), value }
}

/// Whether the left side satisfies the comparison; `None` is a side that was not found. Values of different kinds or
/// dimensions compare as neither equal nor different.
pub fn holds(operand: Operand, left: Option<&Typed>, right: Option<&Typed>) -> bool {
    let order = || left.zip(right).and_then(|(left, right)| compare(left, right));
    match operand {
        Operand::Equal | Operand::DoubleEqual | Operand::Is => order() == Some(Compared::Ordered(Ordering::Equal)),
        Operand::NotEqual | Operand::Not => match (left, right) {
            (None, None) => false,
            (Some(_), None) | (None, Some(_)) => true,
            (Some(_), Some(_)) => order().is_some_and(|order| order != Compared::Ordered(Ordering::Equal)),
        },
        Operand::Less => order() == Some(Compared::Ordered(Ordering::Less)),
        Operand::LessOrEqual => {
            matches!(order(), Some(Compared::Ordered(Ordering::Less | Ordering::Equal)))
        }
        Operand::Greater => order() == Some(Compared::Ordered(Ordering::Greater)),
        Operand::GreaterOrEqual => {
            matches!(order(), Some(Compared::Ordered(Ordering::Greater | Ordering::Equal)))
        }
        Operand::Version
        | Operand::Semver
        | Operand::Regexp
        | Operand::SetContains
        | Operand::SetContainsAll
        | Operand::SetContainsAny
        | Operand::IsSet
        | Operand::IsNotSet
        | Operand::DistinctHosts
        | Operand::DistinctProperty => {
            let (left, right) = (left.map(Typed::text), right.map(Typed::text));
            Comparison::new(operand, right).holds(left, right)
        }
    }
}

/// What two values of one kind are to each other. Booleans have no order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compared {
    Ordered(Ordering),
    Different,
}

fn compare(left: &Typed, right: &Typed) -> Option<Compared> {
    match (&left.value, &right.value) {
        (Value::Word, Value::Word) => Some(Compared::Ordered(left.text.cmp(&right.text))),
        (Value::Bool(one), Value::Bool(other)) if one != other => Some(Compared::Different),
        (Value::Bool(_), Value::Bool(_)) => Some(Compared::Ordered(Ordering::Equal)),
        (Value::Number { size: one, dimension }, Value::Number { size: other, dimension: same })
            if dimension == same =>
        {
            one.compare(*other).map(Compared::Ordered)
        }
        (Value::Word | Value::Bool(_) | Value::Number { .. }, _) => None,
    }
}

impl Size {
    fn compare(self, other: Self) -> Option<Ordering> {
        match (self.whole, other.whole) {
            (Some(one), Some(other)) => Some(one.cmp(&other)),
            (_, None) | (None, _) => self.rounded.partial_cmp(&other.rounded),
        }
    }
}

fn number(text: &str) -> Option<Value> {
    if let Some(size) = size(text, 1, 0) {
        return Some(Value::Number { size, dimension: Dimension::None });
    }
    UNITS.iter().find_map(|(unit, dimension, base, power)| {
        let size = size(text.strip_suffix(unit)?.trim_end(), *base, *power)?;
        Some(Value::Number { size, dimension: *dimension })
    })
}

/// A number of `base` to the power of `power`.
fn size(digits: &str, base: u16, power: u8) -> Option<Size> {
    if !digits.ends_with(|last: char| last.is_ascii_digit()) {
        return None;
    }
    let rounded = digits.parse::<f64>().ok()? * f64::from(base).powi(i32::from(power));
    let whole = digits.parse::<i64>().ok().map(|whole| i128::from(whole) * i128::from(base).pow(u32::from(power)));
    rounded.is_finite().then_some(Size { whole, rounded })
}

/// Every unit, as so many of the smallest one of its dimension: base to a power.
const UNITS: &[(&str, Dimension, u16, u8)] = &[
    ("EiB/s", Dimension::BytesPerSecond, 1024, 6),
    ("PiB/s", Dimension::BytesPerSecond, 1024, 5),
    ("TiB/s", Dimension::BytesPerSecond, 1024, 4),
    ("GiB/s", Dimension::BytesPerSecond, 1024, 3),
    ("MiB/s", Dimension::BytesPerSecond, 1024, 2),
    ("KiB/s", Dimension::BytesPerSecond, 1024, 1),
    ("kiB/s", Dimension::BytesPerSecond, 1024, 1),
    ("EB/s", Dimension::BytesPerSecond, 1000, 6),
    ("PB/s", Dimension::BytesPerSecond, 1000, 5),
    ("TB/s", Dimension::BytesPerSecond, 1000, 4),
    ("GB/s", Dimension::BytesPerSecond, 1000, 3),
    ("MB/s", Dimension::BytesPerSecond, 1000, 2),
    ("KB/s", Dimension::BytesPerSecond, 1000, 1),
    ("kB/s", Dimension::BytesPerSecond, 1000, 1),
    ("B/s", Dimension::BytesPerSecond, 1000, 0),
    ("EiB", Dimension::Bytes, 1024, 6),
    ("PiB", Dimension::Bytes, 1024, 5),
    ("TiB", Dimension::Bytes, 1024, 4),
    ("GiB", Dimension::Bytes, 1024, 3),
    ("MiB", Dimension::Bytes, 1024, 2),
    ("KiB", Dimension::Bytes, 1024, 1),
    ("kiB", Dimension::Bytes, 1024, 1),
    ("EB", Dimension::Bytes, 1000, 6),
    ("PB", Dimension::Bytes, 1000, 5),
    ("TB", Dimension::Bytes, 1000, 4),
    ("GB", Dimension::Bytes, 1000, 3),
    ("MB", Dimension::Bytes, 1000, 2),
    ("KB", Dimension::Bytes, 1000, 1),
    ("kB", Dimension::Bytes, 1000, 1),
    ("B", Dimension::Bytes, 1000, 0),
    ("THz", Dimension::Hertz, 1000, 4),
    ("GHz", Dimension::Hertz, 1000, 3),
    ("MHz", Dimension::Hertz, 1000, 2),
    ("kHz", Dimension::Hertz, 1000, 1),
    ("Hz", Dimension::Hertz, 1000, 0),
    ("GW", Dimension::Watts, 1000, 4),
    ("MW", Dimension::Watts, 1000, 3),
    ("kW", Dimension::Watts, 1000, 2),
    ("mW", Dimension::Watts, 1000, 0),
    ("W", Dimension::Watts, 1000, 1),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn check(left: Option<&str>, operand: Operand, right: Option<&str>, wanted: bool) {
        let (one, other) = (left.map(parse), right.map(parse));
        assert_eq!(holds(operand, one.as_ref(), other.as_ref()), wanted, "{left:?} {operand} {right:?}");
    }

    #[test]
    fn units_of_one_dimension_are_converted() {
        for (left, operand, right, wanted) in [
            ("512 MiB", Operand::Equal, "0.5GiB", true),
            ("11 GiB", Operand::Greater, "11000 MB", true),
            ("1000 MB", Operand::Equal, "1GB", true),
            ("1024 MB", Operand::Equal, "1GB", false),
            ("1.2 GHz", Operand::Greater, "1100 MHz", true),
            ("250 W", Operand::Equal, "0.25kW", true),
            ("250000 mW", Operand::LessOrEqual, "250W", true),
            ("1 MW", Operand::Greater, "1 mW", true),
            ("15760 MB/s", Operand::GreaterOrEqual, "15 GB/s", true),
            ("9223372036854775807 EiB", Operand::Greater, "9223372036854775806 EiB", true),
        ] {
            check(Some(left), operand, Some(right), wanted);
        }
    }

    #[test]
    fn values_of_different_kinds_are_neither_equal_nor_different() {
        for (left, right) in
            [("1 GiB", "1 GHz"), ("1", "1 B"), ("true", "1"), ("yes", "true"), ("1 B", "1 B/s"), ("x", "5")]
        {
            for operand in [
                Operand::Equal,
                Operand::NotEqual,
                Operand::Less,
                Operand::LessOrEqual,
                Operand::Greater,
                Operand::GreaterOrEqual,
            ] {
                check(Some(left), operand, Some(right), false);
            }
        }
    }

    #[test]
    fn a_missing_side_differs_from_a_found_one_only() {
        for (left, right, is_different) in [(Some("1"), None, true), (None, Some("1"), true), (None, None, false)] {
            check(left, Operand::NotEqual, right, is_different);
            check(left, Operand::Equal, right, false);
            check(left, Operand::LessOrEqual, right, false);
        }
        check(Some("1"), Operand::IsSet, None, true);
        check(None, Operand::IsNotSet, None, true);
    }

    #[test]
    fn numbers_booleans_and_words_compare_as_what_they_are() {
        for (left, operand, right, wanted) in [
            ("9", Operand::Less, "10", true),
            ("9.5", Operand::Less, "10", true),
            ("1.0", Operand::Equal, "1", true),
            ("-0.0", Operand::Equal, "0", true),
            ("true", Operand::Is, "TRUE", true),
            ("true", Operand::Not, "false", true),
            ("true", Operand::Greater, "false", false),
            ("true", Operand::GreaterOrEqual, "true", true),
            ("GTX", Operand::Less, "RTX", true),
            ("Quadro-RTX", Operand::Regexp, "RTX$", true),
            ("470.82.1", Operand::Version, ">= 470, < 480", true),
            ("fp16, int8", Operand::SetContains, "int8", true),
        ] {
            check(Some(left), operand, Some(right), wanted);
        }
    }

    #[test]
    fn what_is_no_number_is_a_word() {
        for text in [
            "",
            "nan",
            "inf",
            "infinity",
            "1e999",
            "MiB",
            "1_000",
            "0x10",
            "5 apples",
            "1.",
            "--1",
            "9".repeat(400).as_str(),
        ] {
            assert_eq!(parse(text).value, Value::Word, "{text}");
        }
    }
}
