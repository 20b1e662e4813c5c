//! Durations as they are written in manifests: Go's notation without days (`30s`, `1h30m`, `250ms`).

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The regular expression that the API server checks durations with; whatever it accepts also parses here.
pub const PATTERN: &str = r"^(0|(\d+(\.\d+)?(ns|us|ms|s|m|h))+)$";

/// A signed span of time in nanoseconds, written in Go's notation.
///
/// Signed because values from files that no API server checked must reach validation, which refuses negative ones by
/// name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration(i64);

/// Text that is no duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a duration; write a number and a unit, as in 500ms, 30s, 5m or 1h30m")]
pub struct ParseDurationError(String);

const UNITS: [(&str, i64); 6] = [
    ("h", 3_600_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
];

impl GoDuration {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// A duration of whole seconds.
    pub const fn from_secs(seconds: i64) -> Self {
        Self(seconds.saturating_mul(1_000_000_000))
    }

    /// A duration of whole milliseconds.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// A duration of nanoseconds.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// The length in nanoseconds; negative for a negative duration.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// The length as a standard duration; a negative one counts as zero.
    pub fn to_std(self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0).unwrap_or(0))
    }

    /// Whether it is shorter than zero.
    pub const fn is_negative(self) -> bool {
        self.0 < 0
    }
}

impl From<Duration> for GoDuration {
    fn from(value: Duration) -> Self {
        Self(i64::try_from(value.as_nanos()).unwrap_or(i64::MAX))
    }
}

impl FromStr for GoDuration {
    type Err = ParseDurationError;

    /// Parses Go's notation; a value beyond 292 years is cut to that.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseDurationError(text.chars().take(64).collect());
        let (sign, mut rest) = match text.strip_prefix('-') {
            Some(rest) => (-1.0, rest),
            None => (1.0, text),
        };
        if rest == "0" {
            return Ok(Self::ZERO);
        }
        if rest.is_empty() {
            return Err(error());
        }
        let mut nanos: i128 = 0;
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(error)?;
            let (number, tail) = rest.split_at(digits);
            let (unit, factor) = UNITS.iter().find(|(unit, _)| tail.starts_with(unit)).ok_or_else(error)?;
            nanos = nanos.saturating_add(scaled(number, *factor).ok_or_else(error)?);
            rest = &tail[unit.len()..];
        }
        let nanos = i64::try_from(nanos).unwrap_or(i64::MAX);
        Ok(Self(if sign < 0.0 { -nanos } else { nanos }))
    }
}

/// `number` (decimal text) times `factor`, in whole nanoseconds.
fn scaled(number: &str, factor: i64) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.contains('.') || (number.contains('.') && fraction.is_empty()) {
        return None;
    }
    let factor = i128::from(factor);
    let whole: i128 = if whole.len() > 20 { i128::from(i64::MAX) } else { whole.parse().ok()? };
    let digits: String = fraction.chars().take(15).collect();
    let fraction: i128 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    let scale = 10_i128.pow(u32::try_from(digits.len()).unwrap_or(0));
    Some(whole.saturating_mul(factor).saturating_add(fraction * factor / scale))
}

impl fmt::Display for GoDuration {
    /// The shortest exact form: `1h30m`, `10s`, `250ms`, `0s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        if self.0 < 0 {
            f.write_str("-")?;
        }
        let mut rest = self.0.unsigned_abs();
        for (unit, factor) in [
            ("h", 3_600_000_000_000),
            ("m", 60_000_000_000),
            ("s", 1_000_000_000),
            ("ms", 1_000_000),
            ("us", 1_000),
            ("ns", 1_u64),
        ] {
            if rest >= factor {
                write!(f, "{}{unit}", rest / factor)?;
                rest %= factor;
            }
        }
        Ok(())
    }
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for GoDuration {
    fn schema_name() -> Cow<'static, str> {
        "GoDuration".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "maxLength": 20,
            "x-kubernetes-validations": [{
                "rule": format!("self.matches(r'{PATTERN}')"),
                "message": "must be a duration: a number and a unit (ns, us, ms, s, m, h), as in 500ms, 30s, 5m or 1h30m",
            }],
        })
    }
    fn inline_schema() -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_notation_round_trips() {
        for (text, millis, shown) in [
            ("30s", 30_000, "30s"),
            ("1h30m", 5_400_000, "1h30m"),
            ("90m", 5_400_000, "1h30m"),
            ("1.5s", 1_500, "1s500ms"),
            ("250ms", 250, "250ms"),
            ("0", 0, "0s"),
            ("-5s", -5_000, "-5s"),
        ] {
            let parsed: GoDuration = text.parse().unwrap();
            assert_eq!(parsed, GoDuration::from_millis(millis), "{text}");
            assert_eq!(parsed.to_string(), shown);
            assert_eq!(shown.parse::<GoDuration>().unwrap(), parsed);
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_with_the_remedy() {
        for text in ["", "5", "5 d", "5d", "s", ".s", "1.s", "1..2s", "-", "1h 2m"] {
            let error = text.parse::<GoDuration>().unwrap_err();
            assert!(error.to_string().contains("as in 500ms, 30s"), "{text}");
        }
    }

    #[test]
    fn a_value_beyond_the_range_is_cut_not_refused() {
        assert_eq!("99999999999999999999999999h".parse::<GoDuration>().unwrap().as_nanos(), i64::MAX);
    }
}
