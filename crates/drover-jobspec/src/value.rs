//! The values of a job file's expressions.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value as Json};

/// A number: whole ones stay exact.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Number {
    Whole(i128),
    Fraction(f64),
}

impl Number {
    pub(crate) fn as_f64(self) -> f64 {
        match self {
            #[expect(clippy::cast_precision_loss, reason = "only where a fraction takes part")]
            Self::Whole(whole) => whole as f64,
            Self::Fraction(fraction) => fraction,
        }
    }

    /// The whole number that it is, if it is one.
    pub(crate) fn whole(self) -> Option<i128> {
        match self {
            Self::Whole(whole) => Some(whole),
            Self::Fraction(_) => None,
        }
    }

    /// A number of what was computed with fractions; whole results are whole again.
    pub(crate) fn of(fraction: f64) -> Option<Self> {
        // Above this a fraction's digits are not those of a whole number.
        const EXACT: f64 = 9_007_199_254_740_992.0;
        if !fraction.is_finite() {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, reason = "it is whole and small")]
        Some(if fraction.fract() == 0.0 && fraction.abs() < EXACT {
            Self::Whole(fraction as i128)
        } else {
            Self::Fraction(fraction)
        })
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        if let Ok(whole) = text.parse() {
            return Some(Self::Whole(whole));
        }
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
        text.parse().ok().filter(|_| is_number).and_then(Self::of)
    }

    pub(crate) fn compare(self, other: Self) -> std::cmp::Ordering {
        match (self, other) {
            (Self::Whole(left), Self::Whole(right)) => left.cmp(&right),
            _ => self.as_f64().total_cmp(&other.as_f64()),
        }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(whole) => whole.fmt(formatter),
            Self::Fraction(fraction) => fraction.fmt(formatter),
        }
    }
}

/// A value. Lists stand for tuples too, maps for objects: a job file cannot tell them apart once it is read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Value>),
    /// Each element once, in order; made by [`Value::set`].
    Set(Vec<Value>),
    Map(BTreeMap<String, Value>),
}

impl Value {
    pub(crate) fn whole(number: usize) -> Self {
        Self::Number(Number::Whole(i128::try_from(number).unwrap_or(i128::MAX)))
    }

    /// What it is, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a bool",
            Self::Number(_) => "a number",
            Self::Text(_) => "a string",
            Self::List(_) => "a list",
            Self::Set(_) => "a set",
            Self::Map(_) => "a map",
        }
    }

    /// As text, as HCL converts primitives; nothing for the others.
    pub(crate) fn to_text(&self) -> Option<String> {
        match self {
            Self::Bool(value) => Some(value.to_string()),
            Self::Number(number) => Some(number.to_string()),
            Self::Text(text) => Some(text.clone()),
            Self::Null | Self::List(_) | Self::Set(_) | Self::Map(_) => None,
        }
    }

    /// The elements of a list or a set.
    pub(crate) fn elements(&self) -> Option<&[Self]> {
        match self {
            Self::List(values) | Self::Set(values) => Some(values),
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::Text(_) | Self::Map(_) => None,
        }
    }

    /// A set of these, which get one type; O(n log n).
    pub(crate) fn set(values: Vec<Self>) -> Self {
        let mut values = unified(values);
        values.sort_by(Self::order);
        values.dedup_by(|later, earlier| Self::order(earlier, later).is_eq());
        Self::Set(values)
    }

    /// The order that sets have: numbers by what they are, all else by its text.
    fn order(&self, other: &Self) -> std::cmp::Ordering {
        match (self, other) {
            (Self::Number(one), Self::Number(other)) => one.compare(*other),
            (Self::Text(one), Self::Text(other)) => one.cmp(other),
            _ => self.key().cmp(&other.key()),
        }
    }

    /// A text that equal values have, and no others.
    pub(crate) fn key(&self) -> String {
        self.to_json().to_string()
    }

    pub(crate) fn to_number(&self) -> Option<Number> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Text(text) => Number::parse(text),
            _ => None,
        }
    }

    pub(crate) fn to_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            Self::Text(text) if text == "true" || text == "1" => Some(true),
            Self::Text(text) if text == "false" || text == "0" => Some(false),
            _ => None,
        }
    }

    /// How many bytes it holds, about: what a job file may make is bounded.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Null | Self::Bool(_) | Self::Number(_) => 16,
            Self::Text(text) => 16 + text.len(),
            Self::List(values) | Self::Set(values) => 16 + values.iter().map(Self::size).sum::<usize>(),
            Self::Map(values) => 16 + values.iter().map(|(key, value)| 16 + key.len() + value.size()).sum::<usize>(),
        }
    }

    /// As JSON.
    pub(crate) fn to_json(&self) -> Json {
        match self {
            Self::Null => Json::Null,
            Self::Bool(value) => Json::Bool(*value),
            Self::Number(Number::Whole(whole)) => i64::try_from(*whole).map_or_else(
                |_| u64::try_from(*whole).map_or_else(|_| Json::from(Number::Whole(*whole).as_f64()), Json::from),
                Json::from,
            ),
            Self::Number(Number::Fraction(fraction)) => Json::from(*fraction),
            Self::Text(text) => Json::String(text.clone()),
            Self::List(values) | Self::Set(values) => Json::Array(values.iter().map(Self::to_json).collect()),
            Self::Map(values) => {
                Json::Object(values.iter().map(|(key, value)| (key.clone(), value.to_json())).collect::<Map<_, _>>())
            }
        }
    }

    /// From JSON.
    pub(crate) fn from_json(json: &Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(value) => Self::Bool(*value),
            Json::Number(number) => Number::parse(&number.to_string()).map_or(Self::Null, Self::Number),
            Json::String(text) => Self::Text(text.clone()),
            Json::Array(values) => Self::List(values.iter().map(Self::from_json).collect()),
            Json::Object(values) => {
                Self::Map(values.iter().map(|(key, value)| (key.clone(), Self::from_json(value))).collect())
            }
        }
    }
}

/// As HCL gives the elements of a collection one type: text, where bools, numbers and texts stand side by side.
pub(crate) fn unified(values: Vec<Value>) -> Vec<Value> {
    let is_one_kind = values.windows(2).all(|pair| matches!(pair, [one, other] if one.kind() == other.kind()));
    let texts = (!is_one_kind).then(|| values.iter().map(Value::to_text).collect::<Option<Vec<_>>>()).flatten();
    texts.map_or(values, |texts| texts.into_iter().map(Value::Text).collect())
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}
