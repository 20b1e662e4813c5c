//! Numbers.

use std::cell::RefCell;
use std::rc::Rc;

use super::data::Host;
use crate::fault::{Outcome, failed};
use crate::parse::{int_to_float, parse_float, parse_int, parse_uint, uint_to_float};
use crate::value::{UINT64, UintKind, Value};

#[derive(Clone, Copy)]
enum Amount {
    Int(i64),
    Uint(u64),
    Float(f64),
}

impl Amount {
    fn of(value: &Value) -> Outcome<Self> {
        match value {
            Value::Int(_, number) | Value::Nanos(number) => Ok(Self::Int(*number)),
            Value::Uint(_, number) => Ok(Self::Uint(*number)),
            Value::Float(number) => Ok(Self::Float(*number)),
            _ => failed(format!("unknown type {}", value.type_name())),
        }
    }

    fn float(self) -> f64 {
        match self {
            Self::Int(number) => int_to_float(number),
            Self::Uint(number) => uint_to_float(number),
            Self::Float(number) => number,
        }
    }

    fn value(self) -> Value {
        match self {
            Self::Int(number) => Value::int64(number),
            Self::Uint(number) => Value::Uint(UintKind::Uint64, number),
            Self::Float(number) => Value::Float(number),
        }
    }
}

/// The second argument and the first, each of the widest kind of both.
fn both(given: &[Value]) -> Outcome<(Amount, Amount)> {
    let (a, b) = (Amount::of(&given[1])?, Amount::of(&given[0])?);
    Ok(match (a, b) {
        (Amount::Float(_), _) | (_, Amount::Float(_)) => (Amount::Float(a.float()), Amount::Float(b.float())),
        (Amount::Uint(a), Amount::Int(b)) => (Amount::Int(a.cast_signed()), Amount::Int(b)),
        (Amount::Int(a), Amount::Uint(b)) => (Amount::Int(a), Amount::Int(b.cast_signed())),
        same => same,
    })
}

fn calculated(
    given: &[Value],
    ints: fn(i64, i64) -> Option<i64>,
    uints: fn(u64, u64) -> Option<u64>,
    floats: fn(f64, f64) -> f64,
) -> Outcome<Value> {
    let by_zero = || failed("integer divide by zero");
    match both(given)? {
        (Amount::Int(a), Amount::Int(b)) => ints(a, b).map_or_else(by_zero, |number| Ok(Value::int64(number))),
        (Amount::Uint(a), Amount::Uint(b)) => {
            uints(a, b).map_or_else(by_zero, |number| Ok(Value::Uint(UintKind::Uint64, number)))
        }
        (a, b) => Ok(Value::Float(floats(a.float(), b.float()))),
    }
}

pub(super) fn add(_: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    calculated(given, |a, b| Some(a.wrapping_add(b)), |a, b| Some(a.wrapping_add(b)), |a, b| a + b)
}

pub(super) fn subtract(_: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    calculated(given, |a, b| Some(a.wrapping_sub(b)), |a, b| Some(a.wrapping_sub(b)), |a, b| a - b)
}

pub(super) fn multiply(_: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    calculated(given, |a, b| Some(a.wrapping_mul(b)), |a, b| Some(a.wrapping_mul(b)), |a, b| a * b)
}

pub(super) fn divide(_: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    calculated(given, |a, b| (b != 0).then(|| a.wrapping_div(b)), u64::checked_div, |a, b| a / b)
}

pub(super) fn modulo(_: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    if let (Amount::Float(_), _) = both(given)? {
        return failed("modulo: unknown type float64");
    }
    calculated(given, |a, b| (b != 0).then(|| a.wrapping_rem(b)), u64::checked_rem, |a, _| a)
}

/// One of the two as it is.
fn chosen(given: &[Value], takes_second: fn(f64, f64) -> bool, whole: fn(i128, i128) -> bool) -> Outcome<Value> {
    let (a, b) = (Amount::of(&given[1])?, Amount::of(&given[0])?);
    let is_first = match both(given)? {
        (Amount::Int(a), Amount::Int(b)) => whole(i128::from(a), i128::from(b)),
        (Amount::Uint(a), Amount::Uint(b)) => whole(i128::from(a), i128::from(b)),
        (a, b) => takes_second(a.float(), b.float()),
    };
    Ok(if is_first { a } else { b }.value())
}

pub(super) fn minimum(_: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    chosen(given, |a, b| a < b, |a, b| a < b)
}

pub(super) fn maximum(_: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    chosen(given, |a, b| a > b, |a, b| a > b)
}

pub(super) fn loop_over(_: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    let bound = |value: &Value| match value {
        Value::Int(_, number) | Value::Nanos(number) => Ok(*number),
        Value::Uint(_, number) => Ok(number.cast_signed()),
        Value::Text(text) if text.is_empty() => Ok(0),
        Value::Text(text) => match std::str::from_utf8(text).ok().and_then(|text| parse_int(text, 10)) {
            Some(number) => Ok(number),
            None => failed("loop: invalid syntax"),
        },
        _ => failed(format!("loop: bad argument type: {}", value.type_name())),
    };
    let (from, to) = match given {
        [to] => (0, bound(to)?),
        [from, to] => (bound(from)?, bound(to)?),
        _ => return failed("loop: wrong number of arguments, expected 1 or 2"),
    };
    Ok(Value::Channel(Rc::new(RefCell::new(from..to))))
}

/// The text of an argument, empty if it is none.
fn text(given: &[Value]) -> &str {
    given[0].as_text().and_then(|text| std::str::from_utf8(text).ok()).unwrap_or("?")
}

pub(super) fn parse_bool(_: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    match text(given) {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
        "" | "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
        _ => failed("parseBool: invalid syntax"),
    }
}

pub(super) fn parse_float_text(_: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    match text(given) {
        "" => Ok(Value::Float(0.0)),
        text => parse_float(text).map_or_else(|| failed("parseFloat: invalid syntax"), |it| Ok(Value::Float(it))),
    }
}

pub(super) fn parse_int_text(_: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    match text(given) {
        "" => Ok(Value::int64(0)),
        text => parse_int(text, 10).map_or_else(|| failed("parseInt: invalid syntax"), |it| Ok(Value::int64(it))),
    }
}

pub(super) fn parse_uint_text(_: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    match text(given) {
        "" => Ok(Value::zero(UINT64)),
        text => parse_uint(text, 10)
            .map_or_else(|| failed("parseUint: invalid syntax"), |it| Ok(Value::Uint(UintKind::Uint64, it))),
    }
}
