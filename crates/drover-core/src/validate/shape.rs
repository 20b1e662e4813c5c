//! Whether an object that no API server has seen has the shape of its kind: known fields, types, allowed values,
//! bounds.
//!
//! Read from the schema in the kind's definition, so that there is no second list of fields. An object without a
//! violation here can be read into its type. CEL rules are not looked at; what they say of jobs is among the
//! violations.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use drover_api::{GoDuration, crds, duration};
use serde_json::{Map, Value};

use super::found::{Violation, Violations, shown};

/// The schemas by kind.
static SCHEMAS: LazyLock<BTreeMap<String, Value>> = LazyLock::new(|| {
    let schema = |crd| {
        let mut definition = serde_json::to_value(crd).unwrap_or_default();
        definition.pointer_mut("/spec/versions/0/schema/openAPIV3Schema").map(Value::take)
    };
    crds().into_iter().filter_map(|crd| Some((crd.spec.names.kind.clone(), schema(crd)?))).collect()
});

/// Codes of `spec/scheduler.md` 1.3 for fields whose shape is wrong; the others have the code of their sort.
const CODES: &[(&str, &str)] = &[
    ("spec.type", "TypeInvalid"),
    ("spec.priority", "PriorityRange"),
    ("spec.datacenters", "DatacentersMissing"),
    ("spec.datacenters[]", "DatacenterEmpty"),
    ("spec.groups", "GroupsMissing"),
    ("spec.groups[].name", "GroupNameMissing"),
    ("spec.groups[].tasks", "TasksMissing"),
    ("spec.groups[].tasks[].name", "TaskNameMissing"),
    ("spec.groups[].tasks[].driver", "DriverMissing"),
    ("spec.groups[].tasks[].resources.diskMB", "TaskDisk"),
    ("spec.groups[].volumes[].type", "VolumeType"),
    ("spec.groups[].volumes[].source", "VolumeSource"),
    ("spec.groups[].volumes[].accessMode", "VolumeAccess"),
    ("spec.groups[].volumes[].attachmentMode", "CsiAttachment"),
    ("spec.parameterized.payload", "ParamPayload"),
    ("update.healthCheck", "UpdateHealthCheck"),
    ("migrate.healthCheck", "MigrateHealthCheck"),
    ("restart.mode", "RestartMode"),
    ("reschedule.delayFunction", "RescheduleFunction"),
    ("disconnect.reconcile", "DisconnectReconcile"),
    ("constraints[].operand", "ConstraintOperand"),
    ("affinities[].operand", "ConstraintOperand"),
];

/// What is wrong with the shape of an object's spec; nothing for a kind that is not drover's.
pub fn shape(kind: &str, object: &Value) -> Vec<Violation> {
    let mut found = Violations::default();
    found.part(kind, object, "spec");
    let is_missing = SCHEMAS.contains_key(kind) && !object["spec"].is_object();
    found.when(is_missing, "FieldMissing", format_args!("spec"), "is missing; say what is wanted");
    found.finish()
}

/// What is wrong with the shape of an object's status, where it has one.
pub fn status_shape(kind: &str, object: &Value) -> Vec<Violation> {
    let mut found = Violations::default();
    found.part(kind, object, "status");
    found.finish()
}

impl Violations {
    fn part(&mut self, kind: &str, object: &Value, part: &str) {
        let schema = SCHEMAS.get(kind).map(|schema| &schema["properties"][part]);
        if let (Some(schema), Value::Object(_)) = (schema, &object[part]) {
            self.value(part, schema, &object[part]);
        }
    }

    fn shaped(&mut self, path: &str, sort: &'static str, message: impl std::fmt::Display) {
        let pattern = without_numbers(path);
        let code = CODES.iter().find(|(field, _)| {
            let is_whole = field.starts_with("spec.");
            if is_whole { *field == pattern } else { pattern.ends_with(&format!(".{field}")) }
        });
        self.when(true, code.map_or(sort, |(_, code)| code), format_args!("{path}"), message);
    }

    fn value(&mut self, path: &str, schema: &Value, value: &Value) {
        match (schema["type"].as_str(), value) {
            (Some("object"), Value::Object(fields)) => self.object(path, schema, fields),
            (Some("array"), Value::Array(items)) => self.list(path, schema, items),
            (Some("string"), Value::String(text)) => self.text(path, schema, text),
            (Some("integer"), Value::Number(number)) if number.is_i64() => self.integer(path, schema, value),
            (Some("integer"), Value::Number(number)) if number.is_u64() => {
                self.shaped(path, "FieldRange", format_args!("{number} is too large; lower it"));
            }
            (_, Value::Null) | (Some("boolean"), Value::Bool(_)) | (Some("number"), Value::Number(_)) | (None, _) => {}
            (Some(wanted), _) => {
                let message = format_args!("is {}, but must be {}; correct it", sort_of(value), article(wanted));
                self.shaped(path, "FieldType", message);
            }
        }
    }

    fn object(&mut self, path: &str, schema: &Value, fields: &Map<String, Value>) {
        let is_given = |name: &str| fields.get(name).is_some_and(|value| !value.is_null());
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !is_given(name) {
                self.shaped(&format!("{path}.{name}"), "FieldMissing", "is missing; add it");
            }
        }
        if let Some(most) = above(schema, "maxProperties", fields.len()) {
            self.shaped(path, "FieldLength", format_args!("has {} keys, above {most}; remove some", fields.len()));
        }
        let limit = schema["maxProperties"].as_u64().and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
        for (name, value) in fields.iter().take(limit) {
            let below = || format!("{path}.{}", shown(name));
            if let Some(property) = schema["properties"].get(name) {
                self.value(&below(), property, value);
            } else if schema["additionalProperties"].is_object() {
                self.value(&below(), &schema["additionalProperties"], value);
            } else if schema["x-kubernetes-preserve-unknown-fields"] != true {
                self.shaped(&below(), "UnknownField", "is no known field; correct its name, or remove it");
            }
        }
    }

    fn list(&mut self, path: &str, schema: &Value, items: &[Value]) {
        let most = above(schema, "maxItems", items.len());
        if let Some(most) = most {
            let code = if path == "spec.groups" { "GroupsTooMany" } else { "FieldLength" };
            let message = format_args!("has {} items, above {most}; remove some", items.len());
            self.when(true, code, format_args!("{path}"), message);
        }
        if schema["minItems"].as_u64().is_some_and(|least| (items.len() as u64) < least) {
            self.shaped(path, "FieldLength", "has too few items; add one");
        }
        let limit = most.and_then(|most| usize::try_from(most).ok()).unwrap_or(items.len());
        for (n, item) in items.iter().take(limit).enumerate() {
            self.value(&format!("{path}[{n}]"), &schema["items"], item);
        }
        self.repeated(path, schema, &items[..limit]);
    }

    fn repeated(&mut self, path: &str, schema: &Value, items: &[Value]) {
        let keys: Vec<&str> = match schema["x-kubernetes-list-type"].as_str() {
            Some("map") => schema["x-kubernetes-list-map-keys"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect(),
            Some("set") => Vec::new(),
            _ => return,
        };
        let mut seen = BTreeSet::new();
        for (n, item) in items.iter().enumerate() {
            let identity: Vec<String> = match keys.as_slice() {
                [] => vec![item.to_string()],
                keys => keys.iter().map(|key| item[*key].to_string()).collect(),
            };
            if !seen.insert(identity) {
                let code = match path.rsplit('.').next() {
                    Some("groups") => "GroupDuplicate",
                    Some("tasks") => "TaskDuplicate",
                    Some("ports") => "PortLabelDuplicate",
                    Some("targets") => "SpreadTarget",
                    _ => "FieldDuplicate",
                };
                let field = keys.first().map(|key| format!(".{key}")).unwrap_or_default();
                let message = "is given twice; rename or remove one";
                self.when(true, code, format_args!("{path}[{n}]{field}"), message);
            }
        }
    }

    fn text(&mut self, path: &str, schema: &Value, text: &str) {
        if let Some(allowed) = schema["enum"].as_array() {
            if !allowed.iter().any(|value| value == text) {
                self.choice(path, allowed, text);
            }
            return;
        }
        let length = text.chars().count();
        if let Some(most) = above(schema, "maxLength", length) {
            let message = format_args!("has {length} characters, above {most}; shorten it");
            self.when(true, "FieldLength", format_args!("{path}"), message);
        }
        if schema["minLength"].as_u64().is_some_and(|least| (length as u64) < least) {
            self.shaped(path, "FieldLength", "is empty; give a value");
        }
        if is_duration(schema)
            && let Err(error) = text.parse::<GoDuration>()
        {
            self.shaped(path, "FieldValue", error);
        }
    }

    fn choice(&mut self, path: &str, allowed: &[Value], text: &str) {
        let allowed: Vec<&str> = allowed.iter().filter_map(Value::as_str).collect();
        let allowed = allowed.join(", ");
        if path == "spec.type" && (text.is_empty() || text == "_core") {
            let (code, is) = if text.is_empty() { ("TypeMissing", "is empty") } else { ("TypeCore", "is reserved") };
            self.when(true, code, format_args!("{path}"), format_args!("{is}; take one of {allowed}"));
            return;
        }
        let text = shown(text);
        self.shaped(path, "FieldValue", format_args!("`{text}` is not allowed; take one of {allowed}"));
    }

    fn integer(&mut self, path: &str, schema: &Value, value: &Value) {
        let number = value.as_i64().unwrap_or(0);
        if let Some(least) = schema["minimum"].as_f64().and_then(whole).filter(|least| number < *least) {
            self.shaped(path, "FieldRange", format_args!("{number} is below {least}; raise it"));
        }
        if let Some(most) = schema["maximum"].as_f64().and_then(whole).filter(|most| number > *most) {
            self.shaped(path, "FieldRange", format_args!("{number} is above {most}; lower it"));
        }
    }
}

/// The bound of this name, when the size is above it.
fn above(schema: &Value, bound: &str, size: usize) -> Option<u64> {
    schema[bound].as_u64().filter(|most| size as u64 > *most)
}

/// A bound of the schema, which is written as a float with an integer's value.
fn whole(bound: f64) -> Option<i64> {
    format!("{bound:.0}").parse().ok()
}

fn is_duration(schema: &Value) -> bool {
    let rules = schema["x-kubernetes-validations"].as_array();
    rules.into_iter().flatten().any(|rule| rule["rule"].as_str().is_some_and(|rule| rule.contains(duration::PATTERN)))
}

fn without_numbers(path: &str) -> String {
    let mut parts = path.split('[');
    let mut pattern = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        pattern.push('[');
        pattern.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit()));
    }
    pattern
}

fn sort_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn article(wanted: &str) -> &str {
    match wanted {
        "object" => "an object",
        "array" => "a list",
        "string" => "a text",
        "integer" => "a whole number",
        "boolean" => "true or false",
        other => other,
    }
}
