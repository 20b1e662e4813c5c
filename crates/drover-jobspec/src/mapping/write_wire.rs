//! From an object to Nomad's JSON, as the tables say: each field is there, one that the object lacks as Nomad shows
//! that.

use drover_api::GoDuration;
use serde_json::{Map, Value as Json};

use super::table::{Absence, Shape, Table};

/// What Nomad's JSON holds for an object.
pub(super) fn object(fields: &Map<String, Json>, table: &Table) -> Map<String, Json> {
    let restored = table.restore.map(|restore| {
        let mut fields = fields.clone();
        restore(&mut fields);
        fields
    });
    let fields = restored.as_ref().unwrap_or(fields);
    let mut wire = Map::new();
    if let (Some(name), Some(field)) = (table.wire_label(), table.label) {
        wire.insert(name.into_owned(), fields.get(field).cloned().unwrap_or_default());
    }
    for row in table.rows {
        let Some(name) = row.wire_name() else { continue };
        let value = match fields.get(row.field) {
            Some(Json::Null) | None => absent(row.shape, row.absence),
            Some(value) if value == "" && matches!(row.absence, Absence::Omitted) => None,
            Some(value) => written(value, row.shape),
        };
        if let Some(value) = value {
            wire.insert(name.into_owned(), value);
        }
    }
    if let Some(form) = table.wire {
        (form.write)(&mut wire);
    }
    wire
}

fn written(value: &Json, shape: Shape) -> Option<Json> {
    let inner = |value: &Json, table| value.as_object().map(|fields| Json::Object(object(fields, table)));
    match shape {
        Shape::Text | Shape::Whole | Shape::Bool | Shape::Texts | Shape::TextMap | Shape::TextsMap | Shape::Free => {
            Some(value.clone())
        }
        Shape::Duration => {
            let duration = value.as_str().and_then(|text| text.parse::<GoDuration>().ok());
            Some(duration.map_or_else(|| value.clone(), |duration| duration.as_nanos().into()))
        }
        Shape::Block(table) => inner(value, table),
        Shape::Blocks(table) => {
            value.as_array().map(|list| list.iter().filter_map(|value| inner(value, table)).collect())
        }
        Shape::Other | Shape::Refused(_) => None,
    }
}

fn absent(shape: Shape, absence: Absence) -> Option<Json> {
    match (absence, shape) {
        (_, Shape::Other | Shape::Refused(_)) | (Absence::Omitted, _) => None,
        (Absence::Null | Absence::NullOnly, _) => Some(Json::Null),
        (Absence::Text(usual), _) => Some(usual.into()),
        (Absence::Number(usual) | Absence::NumberOrZero(usual), _) => Some(usual.into()),
        (Absence::Bool(usual), _) => Some(usual.into()),
        (Absence::Zero, Shape::Text) => Some("".into()),
        (Absence::Zero, Shape::Whole | Shape::Duration) => Some(0.into()),
        (Absence::Zero, Shape::Bool) => Some(false.into()),
        (Absence::Zero, Shape::Block(table)) => Some(Json::Object(object(&Map::new(), table))),
        (Absence::Zero, Shape::Texts | Shape::TextMap | Shape::TextsMap | Shape::Free | Shape::Blocks(_)) => {
            Some(Json::Null)
        }
    }
}
