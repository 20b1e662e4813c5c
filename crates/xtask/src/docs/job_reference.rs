//! The reference of a job's fields, from the schema of its definition.
//!
//! One section for each block, in the order in which blocks are met from the top. A block that was met before is
//! linked, not repeated.

use std::collections::VecDeque;
use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::links::slug;

const HEAD: &str = "<!-- Written by `cargo xtask docs` from the schema in crates/drover-api. Do not edit. -->

# Job reference

Every field of a Job (`jobs.drover.dev`, short `djob`), from the schema that the API server checks. `kubectl explain djob.spec.groups.update` shows the same.
`drover job validate FILE` checks a manifest without a cluster. *Rules* are what the API server refuses beyond the type of a field.

A default in the table is filled in by the API server. Other defaults depend on the job's type or on the block above; the description names them. Durations
are written as `500ms`, `30s`, `5m` or `1h30m`. Fields for actions are part of the schema and not built yet:
see [what works](../README.md#what-works-and-what-does-not-yet).
";

/// The whole document.
///
/// # Errors
/// When the definition of Job has no schema.
pub(super) fn render() -> Result<String> {
    let jobs =
        drover_api::crds().into_iter().find(|crd| crd.spec.names.kind == "Job").context("no definition of Job")?;
    let version = jobs.spec.versions.first().context("the definition of Job has no version")?;
    let schema = serde_json::to_value(&version.schema).context("reading the schema of Job")?;
    let root = schema.pointer("/openAPIV3Schema").context("the definition of Job has no schema")?;
    let mut text = HEAD.to_owned();
    for (name, rules) in [("spec", root.get("x-kubernetes-validations")), ("status", None)] {
        let block = root.pointer(&format!("/properties/{name}")).with_context(|| format!("Job has no {name}"))?;
        sections(name, block, rules, &mut text);
    }
    Ok(text)
}

/// A block and the path to it.
struct Block<'a> {
    path: String,
    schema: &'a Value,
}

/// Writes a block and all below it. `rules` are those of the object as a whole.
fn sections(name: &str, top: &Value, rules: Option<&Value>, text: &mut String) {
    let mut waiting = VecDeque::from([Block { path: name.to_owned(), schema: top }]);
    let mut met: Vec<(&Value, String)> = vec![(fields(top), name.to_owned())];
    while let Some(block) = waiting.pop_front() {
        writeln!(text, "\n## {}\n", block.path).ok();
        if let Some(about) = described(block.schema) {
            writeln!(text, "{about}\n").ok();
        }
        text.push_str("| field | type | default | description |\n|---|---|---|---|\n");
        for (field, schema) in fields(block.schema).as_object().into_iter().flatten() {
            let (inner, below) = inner_block(field, schema, &block.path);
            let link = inner.map(|inner| {
                if let Some((_, first)) = met.iter().find(|(known, _)| *known == fields(inner)) {
                    return first.clone();
                }
                met.push((fields(inner), below.clone()));
                waiting.push_back(Block { path: below.clone(), schema: inner });
                below
            });
            row(field, schema, is_required(block.schema, field), link.as_deref(), text);
        }
        let own = block.schema.get("x-kubernetes-validations").into_iter().chain(rules.filter(|_| block.path == name));
        rules_of(own, text);
    }
}

fn fields(schema: &Value) -> &Value {
    schema.get("properties").unwrap_or(&Value::Null)
}

fn is_required(block: &Value, field: &str) -> bool {
    block.get("required").and_then(Value::as_array).is_some_and(|all| all.iter().any(|one| one == field))
}

/// The block that a field holds, in a list or a map or as it is, and the path to it.
fn inner_block<'a>(field: &str, schema: &'a Value, at: &str) -> (Option<&'a Value>, String) {
    let candidates = [
        (Some(schema), format!("{at}.{field}")),
        (schema.get("items"), format!("{at}.{field}[]")),
        (schema.get("additionalProperties"), format!("{at}.{field}.KEY")),
    ];
    let mut with_fields = candidates.into_iter().filter_map(|(one, path)| Some((one?, path)));
    let found = with_fields.find(|(one, _)| one.get("properties").is_some());
    found.map_or_else(|| (None, String::new()), |(one, path)| (Some(one), path))
}

fn row(field: &str, schema: &Value, is_required: bool, link: Option<&str>, text: &mut String) {
    let kind = type_of(schema);
    let shown = link.map_or_else(|| kind.clone(), |path| format!("[{kind}](#{})", slug(path)));
    let default = schema
        .get("default")
        .filter(|default| !default.is_object())
        .map_or_else(String::new, |default| format!("`{default}`"));
    let default = if is_required && default.is_empty() { "required".to_owned() } else { default };
    let mut about = described(schema).unwrap_or_default();
    for limits in [values(schema), bounds(schema)].into_iter().flatten() {
        write!(about, " {limits}.").ok();
    }
    writeln!(text, "| `{field}` | {shown} | {default} | {} |", about.trim().replace('|', "\\|")).ok();
}

/// A description on one line.
fn described(schema: &Value) -> Option<String> {
    let text = schema.get("description").and_then(Value::as_str)?;
    Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn type_of(schema: &Value) -> String {
    let kind = schema.get("type").and_then(Value::as_str).unwrap_or("any");
    match kind {
        "array" => format!("list of {}", plural(&type_of(schema.get("items").unwrap_or(&Value::Null)))),
        "object" => match schema.get("additionalProperties").filter(|values| values.is_object()) {
            Some(values) => format!("map to {}", plural(&type_of(values))),
            None if schema.get("properties").is_some() => "block".to_owned(),
            None => "settings".to_owned(),
        },
        "string" if is_duration(schema) => "duration".to_owned(),
        "string" if schema.get("format").and_then(Value::as_str) == Some("date-time") => "time".to_owned(),
        other => other.to_owned(),
    }
}

fn plural(kind: &str) -> String {
    if kind == "any" { kind.to_owned() } else { format!("{kind}s") }
}

fn is_duration(schema: &Value) -> bool {
    messages(schema.get("x-kubernetes-validations")).any(|message| message.starts_with("must be a duration"))
}

fn values(schema: &Value) -> Option<String> {
    let all = schema.get("enum").or_else(|| schema.pointer("/items/enum"))?.as_array()?;
    let names: Vec<String> = all.iter().filter_map(Value::as_str).map(|name| format!("`{name}`")).collect();
    Some(format!("One of {}", names.join(", ")))
}

fn bounds(schema: &Value) -> Option<String> {
    let number = |name: &str| schema.get(name).and_then(Value::as_f64);
    match (number("minimum"), number("maximum")) {
        (Some(least), Some(most)) => Some(format!("From {least} to {most}")),
        (Some(least), None) => Some(format!("At least {least}")),
        (None, Some(most)) => Some(format!("At most {most}")),
        (None, None) => None,
    }
}

fn messages(rules: Option<&Value>) -> impl Iterator<Item = &str> {
    rules.and_then(Value::as_array).into_iter().flatten().filter_map(|rule| rule.get("message").and_then(Value::as_str))
}

fn rules_of<'a>(all: impl Iterator<Item = &'a Value>, text: &mut String) {
    let mut told: Vec<&str> = Vec::new();
    for message in all.flat_map(|rules| messages(Some(rules))) {
        if !told.contains(&message) {
            told.push(message);
        }
    }
    if told.is_empty() {
        return;
    }
    text.push_str("\nRules:\n\n");
    for message in told {
        writeln!(text, "- {message}").ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rendered(schema: &Value) -> String {
        let mut text = String::new();
        sections("spec", schema, None, &mut text);
        text
    }

    #[test]
    fn a_field_is_shown_with_type_default_values_and_bounds() {
        let text = rendered(&json!({ "required": ["name"], "properties": {
            "name": { "type": "string", "description": "Its name." },
            "count": { "type": "integer", "default": 1, "minimum": 0, "maximum": 9, "description": "How\n many." },
            "mode": { "type": "string", "enum": ["a", "b"] },
        }}));
        assert!(text.contains("| `name` | string | required | Its name. |"), "{text}");
        assert!(text.contains("| `count` | integer | `1` | How many. From 0 to 9. |"), "{text}");
        assert!(text.contains("| `mode` | string |  | One of `a`, `b`. |"), "{text}");
    }

    #[test]
    fn a_block_has_a_section_and_the_same_block_a_link() {
        let update = json!({ "type": "object", "properties": { "canary": { "type": "integer" } }});
        let text = rendered(&json!({ "properties": {
            "update": update,
            "groups": { "type": "array", "items": { "type": "object", "properties": { "update": update } }},
        }}));
        assert!(text.contains("\n## spec.groups[]\n"), "{text}");
        assert_eq!(text.matches("\n## spec.update\n").count(), 1, "{text}");
        assert_eq!(text.matches("[block](#specupdate)").count(), 2, "{text}");
        assert!(!text.contains("## spec.groups[].update"), "{text}");
    }

    #[test]
    fn rules_are_listed_once() {
        let rule = json!([{ "message": "pick one" }, { "message": "pick one" }]);
        let text = rendered(&json!({ "properties": {}, "x-kubernetes-validations": rule }));
        assert!(text.ends_with("\nRules:\n\n- pick one\n"), "{text}");
    }

    #[test]
    fn the_reference_tells_of_every_group_field() {
        let text = render().unwrap();
        for field in
            ["## spec.groups[].tasks[]", "| `progressDeadline` | duration |", "| `killTimeout` | duration | `\"5s\"` |"]
        {
            assert!(text.contains(field), "{field} is not in the reference");
        }
    }
}
