//! Go's own functions.

use super::data::Host;
use crate::fault::{Outcome, failed};
use crate::format;
use crate::runes;
use crate::value::{GoType, UintKind, Value};

pub(super) fn len(_: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    let (item, is_nil) = given[0].indirect();
    if is_nil {
        return failed("len of nil pointer");
    }
    let length = match &item {
        Value::Text(text) => text.len(),
        Value::Channel(_) => 0,
        _ => match (item.items(), item.entries()) {
            (Some(items), _) => items.len(),
            (_, Some(entries)) => entries.len(),
            _ => return failed(format!("len of type {}", item.type_name())),
        },
    };
    Ok(Value::int(i64::try_from(length).unwrap_or(i64::MAX)))
}

fn position(index: &Value, most: usize) -> Outcome<usize> {
    let number = match index {
        Value::Int(_, number) | Value::Nanos(number) => usize::try_from(*number).ok(),
        Value::Uint(_, number) => usize::try_from(*number).ok(),
        _ => return failed(format!("cannot index slice/array with type {}", index.type_name())),
    };
    number.filter(|number| *number <= most).map_or_else(|| failed("index out of range"), Ok)
}

pub(super) fn index(_: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    let mut item = given[0].clone().unboxed();
    if matches!(item, Value::Missing) {
        return failed("index of untyped nil");
    }
    for index in &given[1..] {
        let index = index.clone().unboxed();
        let (inner, is_nil) = item.indirect();
        if is_nil {
            return failed("index of nil pointer");
        }
        item = match inner.go_type().map(GoType::underlying) {
            Some(GoType::Map(key, element)) => {
                let index = match index {
                    Value::Missing if key.can_be_nil() => Value::Nil,
                    index if index.go_type().is_some_and(|of| of.is_assignable_to(*key)) => index,
                    other => return failed(format!("value has type {}; should be {key}", other.type_name())),
                };
                let Some(index) = index.as_key() else { return failed("hash of unhashable type") };
                let found = match &inner {
                    Value::Map(map) => map.items.borrow().get(&index).cloned(),
                    _ => None,
                };
                found.unwrap_or_else(|| Value::zero(*element))
            }
            _ => element(&inner, &index)?,
        };
    }
    Ok(item)
}

fn element(item: &Value, index: &Value) -> Outcome<Value> {
    if let Value::Text(text) = item {
        let at = position(index, text.len())?;
        return text.get(at).map_or_else(
            || failed("reflect: string index out of range"),
            |byte| Ok(Value::Uint(UintKind::Uint8, u64::from(*byte))),
        );
    }
    let Some(items) = item.items() else { return failed(format!("can't index item of type {}", item.type_name())) };
    let at = position(index, items.len())?;
    items.get(at).cloned().map_or_else(|| failed("reflect: slice index out of range"), Ok)
}

pub(super) fn slice(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    let item = given[0].clone().unboxed();
    let (item, is_nil) = item.indirect();
    if is_nil || matches!(item, Value::Missing) {
        return failed("slice of nil");
    }
    let indexes = &given[1..];
    let length = match (item.as_text(), item.items()) {
        (Some(text), _) if indexes.len() < 3 => text.len(),
        (None, Some(items)) if indexes.len() < 4 => items.len(),
        _ => return failed(format!("can't slice item of type {}", item.type_name())),
    };
    let mut range = [0, length, length];
    for (at, index) in indexes.iter().enumerate() {
        range[at] = position(&index.clone().unboxed(), length)?;
    }
    let [from, to, cap] = range;
    if from > to || to > cap {
        return failed(format!("invalid slice index: {from} > {to}"));
    }
    if let Some(text) = item.as_text() {
        return host.text(&text[from..to]);
    }
    let items = item.items().unwrap_or_default()[from..to].to_vec();
    host.budget.make(items.len() * size_of::<Value>())?;
    Ok(Value::list(item.go_type().unwrap_or(GoType::Any), items))
}

pub(super) fn print(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    Ok(Value::text(format::print(given, host.budget)?))
}

pub(super) fn println(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    Ok(Value::text(format::println(given, host.budget)?))
}

pub(super) fn printf(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    let format = given[0].as_text().cloned().unwrap_or_default();
    Ok(Value::text(format::printf(&format, &given[1..], host.budget)?))
}

/// All arguments as one text.
fn joined(host: &Host<'_>, given: &[Value]) -> Outcome<Vec<u8>> {
    if let [Value::Text(text)] = given {
        return Ok(text.to_vec());
    }
    let shown: Vec<Value> = given
        .iter()
        .map(|value| if matches!(value, Value::Pointer(_)) { value.indirect().0 } else { value.clone() })
        .map(|value| if matches!(value, Value::Missing | Value::Nil) { Value::text("<no value>") } else { value })
        .collect();
    format::print(&shown, host.budget)
}

pub(super) fn html(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    let mut out = Vec::new();
    for byte in joined(host, given)? {
        match byte {
            0 => out.extend_from_slice("\u{fffd}".as_bytes()),
            b'"' => out.extend_from_slice(b"&#34;"),
            b'\'' => out.extend_from_slice(b"&#39;"),
            b'&' => out.extend_from_slice(b"&amp;"),
            b'<' => out.extend_from_slice(b"&lt;"),
            b'>' => out.extend_from_slice(b"&gt;"),
            other => out.push(other),
        }
    }
    host.text(&out)
}

pub(super) fn js(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    let text = joined(host, given)?;
    let mut out = Vec::new();
    for (_, char, _) in runes::runes(&text) {
        match char {
            '\\' => out.extend_from_slice(b"\\\\"),
            '\'' => out.extend_from_slice(b"\\'"),
            '"' => out.extend_from_slice(b"\\\""),
            '<' | '>' | '&' | '=' | '\0'..'\u{20}' => {
                out.extend_from_slice(format!("\\u{:04X}", u32::from(char)).as_bytes());
            }
            _ if char.is_ascii() || runes::is_print(char) => runes::push(&mut out, char),
            _ => out.extend_from_slice(format!("\\u{:04X}", u32::from(char)).as_bytes()),
        }
    }
    host.text(&out)
}

pub(super) fn urlquery(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    let mut out = Vec::new();
    for byte in joined(host, given)? {
        match byte {
            b' ' => out.push(b'+'),
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(byte),
            other => out.extend_from_slice(format!("%{other:02X}").as_bytes()),
        }
    }
    host.text(&out)
}

fn is_equal(one: &Value, other: &Value) -> Outcome<bool> {
    let incompatible = || failed("incompatible types for comparison");
    Ok(match (one, other) {
        (Value::Bool(one), Value::Bool(other)) => one == other,
        (Value::Text(one), Value::Text(other)) => one == other,
        (Value::Int(_, one) | Value::Nanos(one), Value::Int(_, other) | Value::Nanos(other)) => one == other,
        (Value::Uint(_, one), Value::Uint(_, other)) => one == other,
        (Value::Int(_, int) | Value::Nanos(int), Value::Uint(_, uint))
        | (Value::Uint(_, uint), Value::Int(_, int) | Value::Nanos(int)) => u64::try_from(*int) == Ok(*uint),
        (Value::Float(one), Value::Float(other)) => same(*one, *other),
        (Value::Complex(a, b), Value::Complex(c, d)) => same(*a, *c) && same(*b, *d),
        (Value::Missing, _) | (_, Value::Missing) => {
            let other = if matches!(one, Value::Missing) { other } else { one };
            other.is_nil()
        }
        _ if is_basic(one) || is_basic(other) => return incompatible(),
        _ if kind(one) != kind(other) => return failed("non-comparable types"),
        _ if one.is_nil() || other.is_nil() => one.is_nil() == other.is_nil(),
        _ if !other.go_type().is_some_and(GoType::is_comparable) => {
            return failed(format!("non-comparable type {}", other.type_name()));
        }
        (Value::Pointer(one), Value::Pointer(other)) => is_same_place(one, other),
        (Value::Record(one), Value::Record(other)) => {
            std::ptr::eq(one.of, other.of)
                && one.fields.iter().zip(&other.fields).all(|(one, other)| is_equal(one, other).unwrap_or(false))
        }
        (Value::Channel(one), Value::Channel(other)) => std::rc::Rc::ptr_eq(one, other),
        _ => matches!((one, other), (Value::Scratch, Value::Scratch)),
    })
}

fn kind(value: &Value) -> u8 {
    match value.go_type().map(GoType::underlying) {
        Some(GoType::Slice(_)) => 1,
        Some(GoType::Map(..)) => 2,
        Some(GoType::Pointer(_)) => 3,
        Some(GoType::Record(_)) => 4,
        Some(GoType::Channel) => 5,
        _ => 6,
    }
}

fn is_same_place(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Record(one), Value::Record(other)) => std::rc::Rc::ptr_eq(one, other),
        (Value::Map(one), Value::Map(other)) => std::rc::Rc::ptr_eq(one, other),
        _ => false,
    }
}

fn same(one: f64, other: f64) -> bool {
    one.partial_cmp(&other) == Some(std::cmp::Ordering::Equal)
}

fn is_basic(value: &Value) -> bool {
    matches!(
        value,
        Value::Bool(_)
            | Value::Text(_)
            | Value::Int(..)
            | Value::Nanos(_)
            | Value::Uint(..)
            | Value::Float(_)
            | Value::Complex(..)
    )
}

fn is_less(one: &Value, other: &Value) -> Outcome<bool> {
    let one = one.clone().unboxed();
    let other = other.clone().unboxed();
    Ok(match (&one, &other) {
        (Value::Text(one), Value::Text(other)) => one < other,
        (Value::Int(_, one) | Value::Nanos(one), Value::Int(_, other) | Value::Nanos(other)) => one < other,
        (Value::Uint(_, one), Value::Uint(_, other)) => one < other,
        (Value::Int(_, one) | Value::Nanos(one), Value::Uint(_, other)) => i128::from(*one) < i128::from(*other),
        (Value::Uint(_, one), Value::Int(_, other) | Value::Nanos(other)) => i128::from(*one) < i128::from(*other),
        (Value::Float(one), Value::Float(other)) => one < other,
        _ if is_basic(&one) && is_basic(&other) => return failed("incompatible types for comparison"),
        _ => return failed("invalid type for comparison"),
    })
}

pub(super) fn eq(_: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    let one = given[0].clone().unboxed();
    if given.len() == 1 {
        return failed("missing argument for comparison");
    }
    for other in &given[1..] {
        if is_equal(&one, &other.clone().unboxed())? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

pub(super) fn ne(_: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    is_equal(&given[0].clone().unboxed(), &given[1].clone().unboxed()).map(|is| Value::Bool(!is))
}

pub(super) fn lt(_: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    is_less(&given[0], &given[1]).map(Value::Bool)
}

fn is_at_most(given: &[Value]) -> Outcome<bool> {
    Ok(is_less(&given[0], &given[1])? || is_equal(&given[0].clone().unboxed(), &given[1].clone().unboxed())?)
}

pub(super) fn le(_: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    is_at_most(given).map(Value::Bool)
}

pub(super) fn gt(_: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    is_at_most(given).map(|is| Value::Bool(!is))
}

pub(super) fn ge(_: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    is_less(&given[0], &given[1]).map(|is| Value::Bool(!is))
}
