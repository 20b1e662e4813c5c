//! What a name behind a point gives: a method, a field or an entry.

use std::rc::Rc;

use crate::fault::{Fault, Outcome, failed};
use crate::functions::{Host, scratch};
use crate::value::{GoType, TEXT_SLICE, TUPLE, VARIABLE_ITEMS, VARIABLE_META, Value};

/// `receiver.name`, with arguments if there are any.
pub(super) fn field(
    host: &Host<'_>,
    receiver: &Value,
    name: &str,
    arguments: Option<Vec<Value>>,
    err_missing_key: bool,
) -> Outcome<Value> {
    if matches!(receiver, Value::Missing) {
        return if err_missing_key {
            Err(Fault::MissingKey(format!("nil data; no entry for key {name:?}")))
        } else {
            Ok(Value::Missing)
        };
    }
    let of = receiver.type_name();
    let (inner, is_nil) = receiver.indirect();
    if is_nil {
        return failed(format!("nil pointer evaluating {of}.{name}"));
    }
    if matches!(inner, Value::Scratch) {
        return scratch(host, name, &arguments.unwrap_or_default());
    }
    if let Some(value) = method(&inner, name) {
        return if arguments.is_some() { failed(format!("wrong number of args for {name}")) } else { Ok(value) };
    }
    match &inner {
        Value::Record(record) => {
            let index = record.of.fields.iter().position(|(field, _)| *field == name);
            if let Some(value) = index.and_then(|index| record.fields.get(index)) {
                return if arguments.is_some() {
                    failed(format!("{name} has arguments but cannot be invoked as function"))
                } else {
                    Ok(value.clone())
                };
            }
        }
        Value::Map(_) | Value::NilOf(_) => {
            if let Some(GoType::Map(key, element)) = inner.go_type().map(GoType::underlying)
                && matches!(key, GoType::Text | GoType::Any)
            {
                if arguments.is_some() {
                    return failed(format!("{name} is not a method but has arguments"));
                }
                return match inner.entry(name.as_bytes()) {
                    Some(value) => Ok(value),
                    None if err_missing_key => Err(Fault::MissingKey(format!("map has no entry for key {name:?}"))),
                    None => Ok(Value::zero(*element)),
                };
            }
        }
        _ => {}
    }
    failed(format!("can't evaluate field {name} in type {of}"))
}

/// Methods of consul-template's types.
fn method(value: &Value, name: &str) -> Option<Value> {
    match value {
        Value::Map(map) if map.of == VARIABLE_ITEMS => {
            let items = map.items.borrow();
            let texts = || items.values().filter_map(text_of_item);
            let parent = items.values().next().and_then(parent_of);
            Some(match name {
                "Keys" => Value::list(TEXT_SLICE, items.keys().map(crate::value::MapKey::value).collect()),
                "Values" => Value::list(TEXT_SLICE, texts().collect()),
                "Tuples" => Value::list(
                    GoType::Slice(&const { GoType::Record(&TUPLE) }),
                    items
                        .iter()
                        .filter_map(|(key, item)| Some(Value::record(&TUPLE, vec![key.value(), text_of_item(item)?])))
                        .collect(),
                ),
                "Parent" => parent?,
                "Metadata" => meta(&parent?)?,
                "ItemsMap" => Value::any_map(
                    items.iter().filter_map(|(key, item)| Some((key.as_text()?.to_vec(), text_of_item(item)?))),
                ),
                _ => return None,
            })
        }
        Value::Record(record) => match name {
            "String" if record.parent.is_some() => text_of_item(value),
            "Parent" => record.parent.clone(),
            "Metadata" => meta(record.parent.as_ref()?),
            _ => None,
        },
        _ => None,
    }
}

fn text_of_item(item: &Value) -> Option<Value> {
    match item {
        Value::Record(record) => record.fields.get(1).cloned(),
        _ => None,
    }
}

fn parent_of(item: &Value) -> Option<Value> {
    match item {
        Value::Record(record) => record.parent.clone(),
        _ => None,
    }
}

fn meta(variable: &Value) -> Option<Value> {
    let Value::Pointer(to) = variable else { return None };
    let Value::Record(record) = &**to else { return None };
    let fields = record.fields.iter().take(VARIABLE_META.fields.len()).cloned().collect();
    Some(Value::Pointer(Rc::new(Value::record(&VARIABLE_META, fields))))
}
