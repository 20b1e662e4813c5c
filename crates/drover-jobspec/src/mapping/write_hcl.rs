//! From an object to a block in HCL, as the tables say. What is as it is without being written is left out.

use drover_api::GoDuration;
use serde_json::{Map, Value as Json};

use super::table::{Absence, Row, Shape, Table};
use super::text::{assignments, expression, is_name, label, long, spaces};

/// A block with its labels and all that an object has, in lines that begin after so many spaces.
pub(super) fn block(kind: &str, fields: &Map<String, Json>, table: &Table, indent: usize) -> String {
    let restored = table.restore.map(|restore| {
        let mut fields = fields.clone();
        restore(&mut fields);
        fields
    });
    let fields = restored.as_ref().unwrap_or(fields);
    let name = table.label.and_then(|field| fields.get(field)).and_then(Json::as_str).unwrap_or_default();
    let head = if table.label.is_some() { format!("{kind} {}", label(name)) } else { kind.to_owned() };
    let mut body = Body { indent: indent.saturating_add(2), ..Body::default() };
    for row in table.rows.iter().filter(|row| row.is_in_hcl() && table.label != Some(row.field)) {
        match fields.get(row.field) {
            Some(value) if !value.is_null() && !is_usual(value, row) => body.add(row, value),
            _ => {}
        }
    }
    body.close(&head, indent)
}

/// Whether a value is what stands for none.
fn is_usual(value: &Json, row: &Row) -> bool {
    match row.absence {
        Absence::Text(usual) => value == usual,
        Absence::Bool(usual) => value.as_bool() == Some(usual),
        Absence::Number(usual) | Absence::NumberOrZero(usual) => match value.as_str() {
            Some(text) => text.parse() == Ok(GoDuration::from_nanos(usual)),
            None => value.as_i64() == Some(usual),
        },
        Absence::Omitted => value == "",
        Absence::Zero | Absence::Null | Absence::NullOnly => false,
    }
}

/// The lines of a block: attributes first, then blocks.
#[derive(Default)]
struct Body {
    indent: usize,
    attributes: Vec<(String, String)>,
    blocks: Vec<String>,
}

impl Body {
    fn add(&mut self, row: &Row, value: &Json) {
        let indent = self.indent;
        match row.shape {
            Shape::Text => {
                let text = value.as_str().unwrap_or_default();
                let written = if text.contains('\n') { long(text) } else { expression(value, indent) };
                self.attribute(row.hcl, written);
            }
            Shape::Whole | Shape::Bool | Shape::Duration | Shape::Texts => {
                self.attribute(row.hcl, expression(value, indent));
            }
            Shape::TextMap | Shape::TextsMap | Shape::Free => self.map(row.hcl, value),
            Shape::Block(table) => {
                let fields = value.as_object().cloned().unwrap_or_default();
                let written = block(row.hcl, &fields, table, indent);
                // A block that Nomad always has says nothing when it is empty.
                let is_needless = matches!(row.absence, Absence::Zero) && written.ends_with("{}\n");
                self.blocks.extend((!is_needless).then_some(written));
            }
            Shape::Blocks(table) => {
                let list = value.as_array().into_iter().flatten().filter_map(Json::as_object);
                self.blocks.extend(list.map(|fields| block(row.hcl, fields, table, indent)));
            }
            Shape::Other | Shape::Refused(_) => {}
        }
    }

    fn attribute(&mut self, name: &str, written: String) {
        self.attributes.push((name.to_owned(), written));
    }

    /// As a block, unless a key is none that an attribute may have.
    fn map(&mut self, name: &str, value: &Json) {
        let Some(values) = value.as_object() else { return };
        if !values.keys().all(|key| is_name(key)) {
            self.attribute(name, expression(value, self.indent));
            return;
        }
        let inner = self.indent.saturating_add(2);
        let attributes = values.iter().map(|(key, value)| (key.clone(), expression(value, inner))).collect();
        let body = Self { indent: inner, attributes, blocks: Vec::new() };
        self.blocks.push(body.close(name, self.indent));
    }

    fn close(self, head: &str, indent: usize) -> String {
        let outer = spaces(indent);
        if self.attributes.is_empty() && self.blocks.is_empty() {
            return format!("{outer}{head} {{}}\n");
        }
        let mut text = format!("{outer}{head} {{\n{}", assignments(&self.attributes, self.indent));
        for (at, block) in self.blocks.iter().enumerate() {
            if at > 0 || !self.attributes.is_empty() {
                text.push('\n');
            }
            text.push_str(block);
        }
        text + &outer + "}\n"
    }
}
