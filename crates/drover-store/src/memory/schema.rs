//! What a definition's schema says of values, in a form that is quick to walk: types, bounds, defaults, list keys.
//!
//! Input: a structural `OpenAPI` schema. Output: defaults filled in, unknown fields dropped or named, violations named
//! by field.

use std::collections::BTreeMap;

use serde_json::Value;

/// One node of a schema.
#[derive(Clone, Debug, Default)]
pub(crate) struct Schema {
    pub(crate) shape: Shape,
    default: Option<Value>,
    /// Whether a default stands here or below.
    has_defaults: bool,
    is_nullable: bool,
    required: Vec<String>,
    allowed: Vec<Value>,
    kind: &'static str,
    bounds: Bounds,
}

/// How values at a place are made, and how they merge.
#[derive(Clone, Debug, Default)]
pub(crate) enum Shape {
    /// No structure is known: objects merge, lists do not.
    #[default]
    Free,
    /// Fields with names of their own.
    Object { properties: BTreeMap<String, Schema>, preserve: bool },
    /// Any names, values alike.
    Map(Box<Schema>),
    /// A list that is replaced as a whole.
    Atomic(Box<Schema>),
    /// A list of scalars without order.
    Set(Box<Schema>),
    /// A list of objects with keys.
    Keyed(Box<Schema>, Vec<String>),
    /// A string, a number or a boolean.
    Scalar,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bounds {
    least: Option<f64>,
    most: Option<f64>,
    shortest: Option<u64>,
    longest: Option<u64>,
}

/// What to do with fields that the schema does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// Drop them, as the API server does.
    Drop,
    /// Refuse them, as it does for `kubectl apply`.
    Refuse,
}

static FREE: Schema = Schema {
    shape: Shape::Free,
    default: None,
    has_defaults: false,
    is_nullable: false,
    required: Vec::new(),
    allowed: Vec::new(),
    kind: "",
    bounds: Bounds { least: None, most: None, shortest: None, longest: None },
};

impl Schema {
    /// Reads an `OpenAPI` schema.
    pub(crate) fn read(source: &Value) -> Self {
        let shape = Self::read_shape(source);
        let default = source.get("default").cloned();
        let below = match &shape {
            Shape::Object { properties, .. } => properties.values().any(|schema| schema.has_defaults),
            Shape::Map(inner) | Shape::Atomic(inner) | Shape::Set(inner) | Shape::Keyed(inner, _) => inner.has_defaults,
            Shape::Free | Shape::Scalar => false,
        };
        let texts = |name: &str| -> Vec<String> {
            source[name].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let count = |name: &str| source[name].as_u64();
        let kind = match source["type"].as_str() {
            Some("object") => "object",
            Some("array") => "array",
            Some("string") => "string",
            Some("integer") => "integer",
            Some("number") => "number",
            Some("boolean") => "boolean",
            _ => "",
        };
        let is_open = source["x-kubernetes-int-or-string"].as_bool() == Some(true);
        Self {
            has_defaults: default.is_some() || below,
            default,
            is_nullable: source["nullable"].as_bool().unwrap_or(false),
            required: texts("required"),
            allowed: source["enum"].as_array().cloned().unwrap_or_default(),
            kind: if is_open { "" } else { kind },
            bounds: Bounds {
                least: source["minimum"].as_f64(),
                most: source["maximum"].as_f64(),
                shortest: count("minLength").or(count("minItems")).or(count("minProperties")),
                longest: count("maxLength").or(count("maxItems")).or(count("maxProperties")),
            },
            shape,
        }
    }

    fn read_shape(source: &Value) -> Shape {
        let preserve = source["x-kubernetes-preserve-unknown-fields"].as_bool().unwrap_or(false);
        match source["type"].as_str() {
            Some("object") => {
                let properties: BTreeMap<String, Self> = source["properties"]
                    .as_object()
                    .into_iter()
                    .flatten()
                    .map(|(name, schema)| (name.clone(), Self::read(schema)))
                    .collect();
                match source.get("additionalProperties") {
                    Some(inner) if properties.is_empty() && inner.is_object() => {
                        Shape::Map(Box::new(Self::read(inner)))
                    }
                    _ if properties.is_empty() && preserve => Shape::Free,
                    _ => Shape::Object { properties, preserve },
                }
            }
            Some("array") => {
                let items = Box::new(source.get("items").map(Self::read).unwrap_or_default());
                match source["x-kubernetes-list-type"].as_str() {
                    Some("set") => Shape::Set(items),
                    Some("map") => {
                        let keys = source["x-kubernetes-list-map-keys"].as_array().into_iter().flatten();
                        Shape::Keyed(items, keys.filter_map(Value::as_str).map(str::to_owned).collect())
                    }
                    _ => Shape::Atomic(items),
                }
            }
            Some("string" | "integer" | "number" | "boolean") => Shape::Scalar,
            _ => Shape::Free,
        }
    }

    /// The schema of a field.
    pub(crate) fn field(&self, name: &str) -> &Self {
        match &self.shape {
            Shape::Object { properties, .. } => properties.get(name).unwrap_or(&FREE),
            Shape::Map(inner) => inner,
            _ => &FREE,
        }
    }

    /// Sets or replaces the schema of a field.
    pub(crate) fn with_field(mut self, name: &str, schema: Self) -> Self {
        if let Shape::Object { properties, .. } = &mut self.shape {
            self.has_defaults |= schema.has_defaults;
            properties.insert(name.to_owned(), schema);
        }
        self
    }

    /// Fills defaults in where fields are absent. Nulls of fields that may not be null become their default.
    pub(crate) fn fill(&self, value: &mut Value) {
        if !self.has_defaults {
            return;
        }
        match (&self.shape, value) {
            (Shape::Object { properties, .. }, Value::Object(object)) => {
                for (name, schema) in properties.iter().filter(|(_, schema)| schema.has_defaults) {
                    if let Some(default) = &schema.default
                        && object.get(name).is_none_or(|value| value.is_null() && !schema.is_nullable)
                    {
                        object.insert(name.clone(), default.clone());
                    }
                    if let Some(value) = object.get_mut(name) {
                        schema.fill(value);
                    }
                }
            }
            (Shape::Map(inner), Value::Object(object)) => {
                for value in object.values_mut() {
                    inner.fill(value);
                }
            }
            (Shape::Atomic(inner) | Shape::Set(inner) | Shape::Keyed(inner, _), Value::Array(items)) => {
                for value in items {
                    inner.fill(value);
                }
            }
            _ => {}
        }
    }

    /// Drops or refuses fields that the schema does not know.
    pub(crate) fn prune(&self, value: &mut Value, path: &str, unknown: Unknown, found: &mut Vec<String>) {
        match (&self.shape, value) {
            (Shape::Object { properties, preserve }, Value::Object(object)) => {
                let (mut strange, mut below) = (Vec::new(), Vec::new());
                for (name, value) in object.iter_mut() {
                    match properties.get(name) {
                        Some(schema) => schema.prune(value, &unknown.join(path, name), unknown, &mut below),
                        None if *preserve => {}
                        None => strange.push(name.clone()),
                    }
                }
                for name in strange {
                    if unknown == Unknown::Refuse {
                        let near = closest(&name, properties.keys().map(String::as_str));
                        let near = near.map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
                        found.push(format!("unknown field \"{}\"{near}", unknown.join(path, &name)));
                    }
                    object.shift_remove(&name);
                }
                found.append(&mut below);
            }
            (Shape::Map(inner), Value::Object(object)) if !matches!(inner.shape, Shape::Scalar) => {
                for (name, value) in object.iter_mut() {
                    inner.prune(value, &unknown.join(path, name), unknown, found);
                }
            }
            (Shape::Atomic(inner) | Shape::Set(inner) | Shape::Keyed(inner, _), Value::Array(items))
                if !matches!(inner.shape, Shape::Scalar) =>
            {
                for (n, value) in items.iter_mut().enumerate() {
                    inner.prune(value, &unknown.item(path, n), unknown, found);
                }
            }
            _ => {}
        }
    }

    /// Names every value that the schema does not allow.
    pub(crate) fn check<'a>(&'a self, value: &'a Value, path: &mut Vec<Step<'a>>, found: &mut Vec<String>) {
        if value.is_null() && self.is_nullable {
            return;
        }
        if let Some(fault) = self.fault(value) {
            found.push(format!("{}: Invalid value: {fault}", text(path)));
            return;
        }
        match (&self.shape, value) {
            (Shape::Object { properties, .. }, Value::Object(object)) => {
                for name in self.required.iter().filter(|name| !object.contains_key(*name)) {
                    path.push(Step::Field(name));
                    found.push(format!("{}: Required value", text(path)));
                    path.pop();
                }
                for (name, value) in object {
                    if let Some(schema) = properties.get(name) {
                        path.push(Step::Field(name));
                        schema.check(value, path, found);
                        path.pop();
                    }
                }
            }
            (Shape::Map(inner), Value::Object(object)) => {
                for (name, value) in object {
                    path.push(Step::Field(name));
                    inner.check(value, path, found);
                    path.pop();
                }
            }
            (Shape::Atomic(inner) | Shape::Set(inner) | Shape::Keyed(inner, _), Value::Array(items)) => {
                for (n, value) in items.iter().enumerate() {
                    path.push(Step::Item(n));
                    inner.check(value, path, found);
                    path.pop();
                }
                self.check_keys(items, path, found);
            }
            _ => {}
        }
    }

    fn check_keys(&self, items: &[Value], path: &[Step<'_>], found: &mut Vec<String>) {
        let is_same = |one: &Value, other: &Value| match &self.shape {
            Shape::Set(_) => one == other,
            Shape::Keyed(_, keys) => keys.iter().all(|key| one[key] == other[key]),
            _ => false,
        };
        let shown = |item: &Value| match &self.shape {
            Shape::Keyed(_, keys) => keys.iter().map(|key| item[key].to_string()).collect::<Vec<_>>().join(","),
            _ => item.to_string(),
        };
        // Such lists are short.
        for (n, item) in items.iter().enumerate() {
            if items[..n].iter().any(|earlier| is_same(earlier, item)) {
                found.push(format!("{}[{n}]: Duplicate value: {}", text(path), shown(item)));
            }
        }
    }

    fn fault(&self, value: &Value) -> Option<String> {
        let is_fitting = match self.kind {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            "boolean" => value.is_boolean(),
            _ => true,
        };
        if !is_fitting {
            return Some(format!("{value}: must be of type {}", self.kind));
        }
        if !self.allowed.is_empty() && !self.allowed.contains(value) {
            let allowed: Vec<String> = self.allowed.iter().map(ToString::to_string).collect();
            return Some(format!("{value}: supported values: {}", allowed.join(", ")));
        }
        if let Some(number) = value.as_f64() {
            if let Some(least) = self.bounds.least.filter(|least| number < *least) {
                return Some(format!("{value}: should be greater than or equal to {least}"));
            }
            if let Some(most) = self.bounds.most.filter(|most| number > *most) {
                return Some(format!("{value}: should be less than or equal to {most}"));
            }
        }
        let size = match value {
            Value::String(text) => text.chars().count(),
            Value::Array(items) => items.len(),
            Value::Object(object) => object.len(),
            Value::Null | Value::Bool(_) | Value::Number(_) => return None,
        };
        let size = u64::try_from(size).unwrap_or(u64::MAX);
        if let Some(longest) = self.bounds.longest.filter(|longest| size > *longest) {
            return Some(format!("has {size} parts, may not have more than {longest}"));
        }
        self.bounds
            .shortest
            .filter(|shortest| size < *shortest)
            .map(|shortest| format!("has {size} parts, should have at least {shortest}"))
    }
}

/// A step of a path to a value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step<'a> {
    /// Into a field.
    Field(&'a str),
    /// Into an item of a list.
    Item(usize),
}

fn text(path: &[Step<'_>]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            Step::Field(name) => {
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(name);
            }
            Step::Item(n) => text.extend(["[", &n.to_string(), "]"]),
        }
    }
    text
}

impl Unknown {
    /// The path of a field; what is dropped needs none.
    fn join(self, path: &str, name: &str) -> String {
        match self {
            Self::Drop => String::new(),
            Self::Refuse if path.is_empty() => name.to_owned(),
            Self::Refuse => format!("{path}.{name}"),
        }
    }

    fn item(self, path: &str, n: usize) -> String {
        if self == Self::Drop { String::new() } else { format!("{path}[{n}]") }
    }
}

/// The name that is most like a mistyped one, if one is like it at all.
pub fn closest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let lower = name.to_lowercase();
    let ranked = known.map(|candidate| (distance(&lower, &candidate.to_lowercase()), candidate));
    ranked.min().filter(|(far, candidate)| *far <= name.len().max(candidate.len()) / 2).map(|(_, candidate)| candidate)
}

/// Insertions, deletions and replacements between two words.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (n, from) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = n + 1;
        for (m, to) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[m + 1];
            row[m + 1] = replaced.min(row[m] + 1).min(row[m + 1] + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_closest_name_is_found_and_a_strange_one_is_not() {
        let known = ["count", "tasks", "restart", "reschedule"];
        for (typed, meant) in [("cuont", Some("count")), ("Restart", Some("restart")), ("zzzzzz", None)] {
            assert_eq!(closest(typed, known.into_iter()), meant, "{typed}");
        }
    }

    #[test]
    fn defaults_are_filled_and_strangers_dropped() {
        let schema = Schema::read(&json!({ "type": "object", "properties": {
            "a": { "type": "integer", "default": 3, "minimum": 1 },
            "list": { "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"],
                "items": { "type": "object", "required": ["n"], "properties": {
                    "n": { "type": "string" }, "on": { "type": "boolean", "default": true } } } },
        } }));
        let mut value = json!({ "list": [{ "n": "x" }, { "n": "x", "oops": 1 }] });
        let mut found = Vec::new();
        schema.prune(&mut value, "", Unknown::Drop, &mut found);
        schema.fill(&mut value);
        assert_eq!(value, json!({ "list": [{ "n": "x", "on": true }, { "n": "x", "on": true }], "a": 3 }));
        schema.check(&json!({ "a": 0, "list": [{}] }), &mut Vec::new(), &mut found);
        schema.check(&value, &mut Vec::new(), &mut found);
        assert_eq!(
            found,
            [
                "a: Invalid value: 0: should be greater than or equal to 1",
                "list[0].n: Required value",
                "list[1]: Duplicate value: \"x\"",
            ]
        );
    }
}
