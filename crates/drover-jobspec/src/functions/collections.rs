//! Functions on lists and maps.

use std::collections::{BTreeMap, BTreeSet};

use super::arguments::Arguments;
use super::context::{Context, Outcome};
use crate::evaluate::equal;
use crate::value::{Number, Value, unified};

/// Elements that `range` makes at most, as HCL's own.
const RANGE_LIMIT: usize = 1_024;

/// Calls one of them; nothing where the name is none of theirs.
pub(super) fn call(name: &str, arguments: &Arguments<'_>, context: &Context<'_>) -> Option<Outcome> {
    Some(match name {
        "length" => arguments.count(1).and_then(|()| length(arguments)),
        "element" => arguments.count(2).and_then(|()| element(arguments)),
        "index" => arguments.count(2).and_then(|()| index(arguments)),
        "contains" => arguments.count(2).and_then(|()| {
            let wanted = arguments.value(1)?;
            Ok(Value::Bool(arguments.list(0)?.iter().any(|value| equal(value, wanted))))
        }),
        "coalesce" => arguments
            .all()
            .iter()
            .find(|value| !matches!(value, Value::Null))
            .cloned()
            .ok_or_else(|| "all arguments are null".to_owned()),
        "coalescelist" => (0..arguments.all().len())
            .find_map(|at| arguments.list(at).ok().filter(|values| !values.is_empty()))
            .map(|values| Value::List(values.to_vec()))
            .ok_or_else(|| "all lists are empty".to_owned()),
        "compact" => arguments.count(1).and_then(|()| {
            let texts = arguments.list(0)?.iter().filter(|value| !matches!(value, Value::Null));
            Ok(Value::List(texts.filter(|value| **value != Value::from("")).cloned().collect()))
        }),
        "concat" => concat(arguments, context),
        "flatten" => arguments.count(1).and_then(|()| {
            let mut flat = Vec::new();
            flatten(arguments.list(0)?, &mut flat);
            Ok(Value::List(flat))
        }),
        "distinct" => arguments.count(1).and_then(|()| Ok(Value::List(distinct(arguments.list(0)?)))),
        "reverse" | "reverselist" => {
            arguments.count(1).and_then(|()| Ok(Value::List(arguments.list(0)?.iter().rev().cloned().collect())))
        }
        "slice" => arguments.count(3).and_then(|()| {
            let (values, start, end) = (arguments.list(0)?, arguments.index(1)?, arguments.index(2)?);
            let part = values.get(start..end).ok_or_else(|| format!("the list has {} elements", values.len()))?;
            Ok(Value::List(part.to_vec()))
        }),
        "chunklist" => arguments.count(2).and_then(|()| {
            let (values, size) = (arguments.list(0)?, arguments.index(1)?);
            let size = if size == 0 { values.len().max(1) } else { size };
            Ok(Value::List(values.chunks(size).map(|chunk| Value::List(chunk.to_vec())).collect()))
        }),
        "sort" => arguments.count(1).and_then(|()| {
            let mut texts = arguments.texts(0)?;
            texts.sort();
            Ok(Value::List(texts.into_iter().map(Value::Text).collect()))
        }),
        "range" => range(arguments),
        "sum" => arguments.count(1).and_then(|()| sum(arguments)),
        "keys" => arguments
            .count(1)
            .and_then(|()| Ok(Value::List(arguments.map(0)?.keys().cloned().map(Value::Text).collect()))),
        "values" => arguments.count(1).and_then(|()| Ok(Value::List(arguments.map(0)?.values().cloned().collect()))),
        "lookup" => arguments.between(2, 3).and_then(|()| {
            let (map, key) = (arguments.map(0)?, arguments.text(1)?);
            match (map.get(&key), arguments.value(2)) {
                (Some(value), _) => Ok(value.clone()),
                (None, Ok(default)) => Ok(default.clone()),
                (None, Err(_)) => Err(format!("the map has no `{key}`, and no default is given")),
            }
        }),
        "merge" => merge(arguments),
        "zipmap" => arguments.count(2).and_then(|()| {
            let (keys, values) = (arguments.texts(0)?, arguments.list(1)?);
            if keys.len() != values.len() {
                return Err(format!("there are {} keys and {} values", keys.len(), values.len()));
            }
            Ok(Value::Map(keys.into_iter().zip(values.iter().cloned()).collect()))
        }),
        _ => return None,
    })
}

fn length(arguments: &Arguments<'_>) -> Outcome {
    Ok(Value::whole(match arguments.value(0)? {
        Value::List(values) | Value::Set(values) => values.len(),
        Value::Map(values) => values.len(),
        other => return Err(format!("argument 1 must be a list or a map, and is {}", other.kind())),
    }))
}

/// Counts on from the start again behind the end.
fn element(arguments: &Arguments<'_>) -> Outcome {
    let (values, index) = (arguments.list(0)?, arguments.index(1)?);
    if values.is_empty() {
        return Err("the list is empty".to_owned());
    }
    Ok(values[index % values.len()].clone())
}

/// The element at an index or a key.
fn index(arguments: &Arguments<'_>) -> Outcome {
    if let Value::Map(values) = arguments.value(0)? {
        let key = arguments.text(1)?;
        return values.get(&key).cloned().ok_or_else(|| format!("the map has no `{key}`"));
    }
    let (values, at) = (arguments.list(0)?, arguments.index(1)?);
    values.get(at).cloned().ok_or_else(|| format!("the list has {} elements", values.len()))
}

fn concat(arguments: &Arguments<'_>, context: &Context<'_>) -> Outcome {
    let mut all = Vec::new();
    for at in 0..arguments.all().len() {
        let values = arguments.list(at)?;
        context.budget.bytes(values.len())?;
        all.extend(values.iter().cloned());
    }
    Ok(Value::List(all))
}

fn flatten(values: &[Value], flat: &mut Vec<Value>) {
    for value in values {
        match value {
            Value::List(inner) | Value::Set(inner) => flatten(inner, flat),
            other => flat.push(other.clone()),
        }
    }
}

/// The first of each, once all have one type.
fn distinct(values: &[Value]) -> Vec<Value> {
    let mut known = BTreeSet::new();
    unified(values.to_vec()).into_iter().filter(|value| known.insert(value.key())).collect()
}

/// `range(end)`, `range(start, end)` or `range(start, end, step)`.
fn range(arguments: &Arguments<'_>) -> Outcome {
    arguments.between(1, 3)?;
    let zero = Number::Whole(0);
    let (start, end) = match arguments.all().len() {
        1 => (zero, arguments.number(0)?),
        _ => (arguments.number(0)?, arguments.number(1)?),
    };
    let falls = end.compare(start).is_lt();
    let step = match arguments.all().len() {
        3 => arguments.number(2)?,
        _ => Number::Whole(if falls { -1 } else { 1 }),
    };
    if step.compare(zero).is_eq() || falls != step.compare(zero).is_lt() && !end.compare(start).is_eq() {
        return Err("the step leads away from the end".to_owned());
    }
    let mut values = Vec::new();
    let mut at = start;
    while if falls { at.compare(end).is_gt() } else { at.compare(end).is_lt() } {
        if values.len() >= RANGE_LIMIT {
            return Err(format!("makes more than {RANGE_LIMIT} numbers"));
        }
        values.push(Value::Number(at));
        at = add(at, step)?;
    }
    Ok(Value::List(values))
}

fn sum(arguments: &Arguments<'_>) -> Outcome {
    let mut total = Number::Whole(0);
    for value in arguments.list(0)? {
        total = add(total, value.to_number().ok_or("the list must hold numbers only")?)?;
    }
    Ok(Value::Number(total))
}

fn add(left: Number, right: Number) -> Result<Number, String> {
    let exact = left.whole().zip(right.whole()).and_then(|(left, right)| left.checked_add(right));
    exact
        .map(Number::Whole)
        .or_else(|| Number::of(left.as_f64() + right.as_f64()))
        .ok_or_else(|| "the sum is too large".to_owned())
}

fn merge(arguments: &Arguments<'_>) -> Outcome {
    let mut merged = BTreeMap::new();
    for (at, value) in arguments.all().iter().enumerate() {
        if !matches!(value, Value::Null) {
            merged.extend(arguments.map(at)?.iter().map(|(key, value)| (key.clone(), value.clone())));
        }
    }
    Ok(Value::Map(merged))
}
