//! Sums, ratios and counts of amounts.

/// The sum of numbers that may come from a file that was not validated: it stays at the largest number.
pub(crate) fn total(numbers: impl Iterator<Item = i64>) -> i64 {
    numbers.fold(0, i64::saturating_add)
}

/// `part / whole` for amounts far below 2^52.
#[expect(clippy::cast_precision_loss, reason = "amounts of machines and counts are far below 2^52")]
pub(crate) fn ratio(part: i64, whole: i64) -> f64 {
    part as f64 / whole as f64
}

/// A number of things as a count.
pub(crate) fn as_count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
