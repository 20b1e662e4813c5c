//! Carries a block's attributes and blocks over to an object's fields, as a table says.

use drover_api::GoDuration;
use serde_json::{Map, Value as Json};

use super::report::Report;
use super::table::{Row, Shape, Table};
use crate::document::{Attribute, Block};
use crate::value::Value;

/// The object that a block becomes.
pub(super) fn object(block: &Block, table: &Table, report: &mut Report<'_>) -> Map<String, Json> {
    let mut fields = Map::new();
    label(block, table, &mut fields, report);
    for attribute in &block.attributes {
        match find(table, &attribute.name) {
            Some(row) => {
                if let Some(value) = attribute_value(attribute, row.shape, report) {
                    fields.insert(row.field.to_owned(), value);
                }
            }
            None => unknown(block, table, &attribute.name, attribute.offset, report),
        }
    }
    for inner in &block.blocks {
        match find(table, &inner.kind) {
            Some(row) => nested(inner, row, &mut fields, report),
            None => unknown(block, table, &inner.kind, inner.offset, report),
        }
    }
    if let Some(adjust) = table.adjust {
        adjust(&mut fields, block, report);
    }
    fields
}

fn label(block: &Block, table: &Table, fields: &mut Map<String, Json>, report: &mut Report<'_>) {
    match (table.label, &block.labels[..]) {
        (Some(field), [label]) => {
            fields.insert(field.to_owned(), Json::String(label.clone()));
        }
        (None, []) => {}
        (Some(_), labels) => {
            let message = format!("`{}` needs one label, and has {}", block.kind, labels.len());
            report.add(block.offset, message);
        }
        (None, _) => report.add(block.offset, format!("`{}` takes no label", block.kind)),
    }
}

fn find(table: &Table, name: &str) -> Option<&'static Row> {
    table.rows.iter().find(|row| row.hcl == name)
}

fn unknown(block: &Block, table: &Table, name: &str, offset: usize, report: &mut Report<'_>) {
    let place = if block.kind.is_empty() { "a job file".to_owned() } else { format!("`{}`", block.kind) };
    let known = table.rows.iter().filter(|row| row.is_in_hcl() && !matches!(row.shape, Shape::Refused(_)));
    let known: Vec<&str> = known.map(|row| row.hcl).collect();
    report.add(offset, format!("{place} has no `{name}`; it has {}", known.join(", ")));
}

fn nested(block: &Block, row: &'static Row, fields: &mut Map<String, Json>, report: &mut Report<'_>) {
    let name = row.hcl;
    match row.shape {
        Shape::Block(table) => {
            let value = Json::Object(object(block, table, report));
            if fields.insert(row.field.to_owned(), value).is_some() {
                report.add(block.offset, format!("`{name}` may stand here once; merge the two"));
            }
        }
        Shape::Blocks(table) => {
            let value = Json::Object(object(block, table, report));
            if let Json::Array(list) = fields.entry(row.field).or_insert_with(|| Json::Array(Vec::new())) {
                list.push(value);
            }
        }
        Shape::TextMap | Shape::TextsMap | Shape::Free => {
            let attribute = Attribute { name: name.to_owned(), value: free(block), offset: block.offset };
            if let Some(value) = attribute_value(&attribute, row.shape, report) {
                match (fields.get_mut(row.field), value) {
                    (Some(Json::Object(known)), Json::Object(more)) => known.extend(more),
                    (_, value) => {
                        fields.insert(row.field.to_owned(), value);
                    }
                }
            }
        }
        Shape::Refused(remedy) => report.add(block.offset, format!("`{name}` is not carried over: {remedy}")),
        Shape::Other => {}
        _ => report.add(block.offset, format!("`{name}` is an attribute; write `{name} = …`")),
    }
}

/// A block without a table, as a map; a block in it is a list of maps, because it may stand there more than once. So is
/// what stands below each of its labels, and a map that an attribute has, as programs that read it from Nomad expect.
fn free(block: &Block) -> Value {
    let value = |attribute: &Attribute| match &attribute.value {
        map @ Value::Map(_) => Value::List(vec![map.clone()]),
        other => other.clone(),
    };
    let mut map: std::collections::BTreeMap<String, Value> =
        block.attributes.iter().map(|attribute| (attribute.name.clone(), value(attribute))).collect();
    for inner in &block.blocks {
        let labelled = |value: Value, label: &String| Value::Map([(label.clone(), Value::List(vec![value]))].into());
        let value = inner.labels.iter().rev().fold(free(inner), labelled);
        if let Value::List(list) = map.entry(inner.kind.clone()).or_insert_with(|| Value::List(Vec::new())) {
            list.push(value);
        }
    }
    Value::Map(map)
}

/// An attribute's value in its shape; null is as if it were not there.
fn attribute_value(attribute: &Attribute, shape: Shape, report: &mut Report<'_>) -> Option<Json> {
    let (name, value) = (&attribute.name, &attribute.value);
    if matches!(value, Value::Null) {
        return None;
    }
    let converted = match shape {
        Shape::Text => value.to_text().map(Json::String).ok_or("a string"),
        Shape::Whole => whole(value).ok_or("a whole number"),
        Shape::Bool => value.to_bool().map(Json::Bool).ok_or("true or false"),
        Shape::Duration => duration(value).ok_or("a duration, as \"10m\""),
        Shape::Texts => texts(value).ok_or("a list of strings"),
        Shape::TextMap => text_map(value, Value::to_text).ok_or("a map of strings"),
        Shape::TextsMap => texts_map(value).ok_or("a map of lists of strings"),
        Shape::Free => Ok(value.to_json()),
        Shape::Block(_) | Shape::Blocks(_) => Err("a block: write it without `=`"),
        Shape::Other => return None,
        Shape::Refused(remedy) => {
            report.add(attribute.offset, format!("`{name}` is not carried over: {remedy}"));
            return None;
        }
    };
    converted
        .map_err(|wanted| report.add(attribute.offset, format!("`{name}` must be {wanted}, and is {}", shown(value))))
        .ok()
}

fn shown(value: &Value) -> String {
    match value {
        Value::Text(text) => format!("\"{}\"", text.chars().take(60).collect::<String>()),
        Value::List(_) | Value::Set(_) | Value::Map(_) | Value::Null => value.kind().to_owned(),
        other => other.to_text().unwrap_or_default(),
    }
}

fn whole(value: &Value) -> Option<Json> {
    value.to_number()?.whole().and_then(|whole| i64::try_from(whole).ok()).map(Json::from)
}

fn duration(value: &Value) -> Option<Json> {
    let text = match value {
        Value::Text(text) => text.parse::<GoDuration>().ok().map(|_| text.clone())?,
        other => {
            let nanos = other.to_number()?.whole()?;
            GoDuration::from_nanos(i64::try_from(nanos).ok()?).to_string()
        }
    };
    Some(Json::String(text))
}

fn texts(value: &Value) -> Option<Json> {
    match value {
        Value::List(values) | Value::Set(values) => {
            values.iter().map(|value| value.to_text().map(Json::String)).collect::<Option<_>>().map(Json::Array)
        }
        other => other.to_text().map(|text| Json::Array(vec![Json::String(text)])),
    }
}

fn text_map(value: &Value, text: impl Fn(&Value) -> Option<String>) -> Option<Json> {
    let Value::Map(values) = value else { return None };
    let pairs = values.iter().filter(|(_, value)| !matches!(value, Value::Null));
    pairs.map(|(key, value)| Some((key.clone(), Json::String(text(value)?)))).collect::<Option<_>>().map(Json::Object)
}

fn texts_map(value: &Value) -> Option<Json> {
    let Value::Map(values) = value else { return None };
    values.iter().map(|(key, value)| Some((key.clone(), texts(value)?))).collect::<Option<_>>().map(Json::Object)
}
