//! What job files may write in more than one way.

use serde_json::{Map, Value as Json, json};

use super::report::Report;
use crate::document::{Attribute, Block};
use crate::value::Value;

type Fields = Map<String, Json>;

// Fields of tables that are none of the object: what is in them is given to others here.
pub(super) const CHECK_RESTART: &str = "(check_restart)";
pub(super) const ON_UPDATE: &str = "(on_update)";
pub(super) const TASKS: &str = "(task)";
pub(super) const MIGRATE: &str = "(migrate)";
pub(super) const RESCHEDULE: &str = "(reschedule)";

fn attribute<'a>(block: &'a Block, name: &str) -> Option<&'a Attribute> {
    block.attributes.iter().find(|attribute| attribute.name == name)
}

/// `regexp = "…"` and its like name operator and value at once; `distinct_hosts = true` needs no value.
pub(super) fn operand(fields: &mut Fields, block: &Block, report: &mut Report<'_>) {
    const WITH_VALUE: [&str; 7] =
        ["version", "semver", "regexp", "set_contains", "set_contains_all", "set_contains_any", "distinct_property"];
    for attribute in &block.attributes {
        let name = attribute.name.as_str();
        let text = attribute.value.to_text();
        let target = if name == "distinct_property" { "lTarget" } else { "rTarget" };
        match (name, text) {
            (name, Some(text)) if WITH_VALUE.contains(&name) => {
                fields.insert("operand".to_owned(), name.into());
                fields.insert(target.to_owned(), text.into());
            }
            ("distinct_hosts" | "is_set" | "is_not_set", Some(text)) => {
                if text != "false" {
                    fields.insert("operand".to_owned(), name.into());
                } else if name == "distinct_hosts" {
                    // As Nomad reads it: the rule is there, and asks for nothing.
                    fields.insert("operand".to_owned(), name.into());
                    fields.insert("rTarget".to_owned(), "false".into());
                }
            }
            (name, None) if WITH_VALUE.contains(&name) => {
                report.add(attribute.offset, format!("`{name}` must be a string, and is {}", attribute.value.kind()));
            }
            _ => {}
        }
    }
    let operand = fields.entry("operand").or_insert_with(|| "=".into());
    // Two old spellings.
    match operand.as_str() {
        Some("==" | "is") => *operand = "=".into(),
        Some("not") => *operand = "!=".into(),
        _ => {}
    }
    // Nomad's command writes out what is usual.
    if fields["operand"] == "distinct_hosts" && fields.get("rTarget").is_some_and(|target| target == "true") {
        fields.shift_remove("rTarget");
    }
}

/// `cron` is one or more; `crons` is its newer name.
pub(super) fn periodic(fields: &mut Fields, block: &Block, report: &mut Report<'_>) {
    let Some(cron) = attribute(block, "cron") else { return };
    let crons = match &cron.value {
        Value::List(values) | Value::Set(values) => values.iter().map(Value::to_text).collect::<Option<Vec<_>>>(),
        other => other.to_text().map(|text| vec![text]),
    };
    match crons {
        Some(crons) if !fields.contains_key("crons") => {
            fields.insert("crons".to_owned(), json!(crons));
        }
        Some(_) => report.add(cron.offset, "`cron` and `crons` stand side by side; keep `crons`"),
        None => report.add(cron.offset, "`cron` must be a string"),
    }
}

/// The deprecated name of one expression is written like one of several.
pub(super) fn restore_periodic(fields: &mut Fields) {
    if let Some(cron) = fields.shift_remove("cron") {
        fields.entry("crons").or_insert_with(|| json!([cron]));
    }
}

/// `enabled = false` is the old form of `disabled = true`.
pub(super) fn logs(fields: &mut Fields, block: &Block, _report: &mut Report<'_>) {
    if let Some(enabled) = attribute(block, "enabled").and_then(|enabled| enabled.value.to_bool()) {
        fields.entry("disabled").or_insert_with(|| Json::Bool(!enabled));
    }
}

/// An identity without a name is the one that Nomad's API takes.
pub(super) fn identity(fields: &mut Fields, _block: &Block, _report: &mut Report<'_>) {
    fields.entry("name").or_insert_with(|| "default".into());
}

/// A service's `check_restart` and `on_update` are those of its checks that have none; `nomad` is the provider that
/// Kubernetes is here.
pub(super) fn service(fields: &mut Fields, block: &Block, report: &mut Report<'_>) {
    if let Some(provider) = attribute(block, "provider") {
        match provider.value.to_text().as_deref() {
            Some("nomad" | "kubernetes") => {
                fields.insert("provider".to_owned(), "kubernetes".into());
            }
            _ => report.add(
                provider.offset,
                "`provider` is not carried over: drover has no Consul; write provider = \"nomad\", and the service becomes a Kubernetes Service",
            ),
        }
    }
    let of_all = [("onUpdate", fields.shift_remove(ON_UPDATE)), ("checkRestart", fields.shift_remove(CHECK_RESTART))];
    let service = fields.get("name").and_then(Json::as_str).unwrap_or_default().to_owned();
    let Some(Json::Array(checks)) = fields.get_mut("checks") else { return };
    for (at, check) in checks.iter_mut().filter_map(Json::as_object_mut).enumerate() {
        for (field, value) in &of_all {
            if let Some(value) = value {
                check.entry(*field).or_insert_with(|| value.clone());
            }
        }
        // A check without a name is called after its service.
        check.entry("name").or_insert_with(|| {
            if at == 0 { format!("{service}-check") } else { format!("{service}-check-{at}") }.into()
        });
    }
}

/// Only that provider has a name in job files.
pub(super) fn restore_service(fields: &mut Fields) {
    if let Some(provider) = fields.get_mut("provider") {
        *provider = "nomad".into();
    }
}

/// `cni/name` names mode and network at once.
pub(super) fn network(fields: &mut Fields, _block: &Block, _report: &mut Report<'_>) {
    let mode = fields.get("mode").and_then(Json::as_str);
    let Some(name) = mode.and_then(|mode| mode.strip_prefix("cni/")).map(str::to_owned) else { return };
    fields.insert("mode".to_owned(), "cni".into());
    if let Json::Object(cni) = fields.entry("cni").or_insert_with(|| json!({})) {
        cni.insert("name".to_owned(), name.into());
    }
}

pub(super) fn restore_network(fields: &mut Fields) {
    if fields.get("mode").and_then(Json::as_str) != Some("cni") {
        return;
    }
    let Some(Json::Object(cni)) = fields.get_mut("cni") else { return };
    let Some(Json::String(name)) = cni.shift_remove("name") else { return };
    if cni.is_empty() {
        fields.shift_remove("cni");
    }
    fields.insert("mode".to_owned(), format!("cni/{name}").into());
}

/// A task without a group has one of its own name; `migrate` and `reschedule` of the job are those of its groups that
/// have none.
pub(super) fn job(fields: &mut Fields, _block: &Block, _report: &mut Report<'_>) {
    let tasks = fields.shift_remove(TASKS);
    let of_all = [("migrate", fields.shift_remove(MIGRATE)), ("reschedule", fields.shift_remove(RESCHEDULE))];
    let Json::Array(groups) = fields.entry("groups").or_insert_with(|| json!([])) else { return };
    for task in tasks.as_ref().and_then(Json::as_array).into_iter().flatten() {
        groups.push(json!({"name": task["name"], "tasks": [task]}));
    }
    for group in groups.iter_mut().filter_map(Json::as_object_mut) {
        for (field, value) in &of_all {
            if let Some(value) = value {
                group.entry(*field).or_insert_with(|| value.clone());
            }
        }
    }
}

/// Capacities as Kubernetes writes them, and the segments of topologies.
pub(super) fn volume(fields: &mut Fields, block: &Block, report: &mut Report<'_>) {
    let mut capacity = Map::new();
    for (name, field) in [("capacity_min", "min"), ("capacity_max", "max")] {
        let Some(attribute) = attribute(block, name) else { continue };
        match attribute.value.to_text().as_deref().and_then(quantity) {
            Some(quantity) => {
                capacity.insert(field.to_owned(), quantity.into());
            }
            None => report.add(attribute.offset, format!("`{name}` must be a size, as \"10GiB\"")),
        }
    }
    if !capacity.is_empty() {
        fields.insert("capacity".to_owned(), Json::Object(capacity));
    }
    let Some(request) = block.blocks.iter().find(|inner| inner.kind == "topology_request") else { return };
    let mut topologies = Map::new();
    for side in &request.blocks {
        let segments = side.blocks.iter().flat_map(|topology| &topology.blocks);
        let list: Vec<Json> = segments
            .map(|segments| {
                let pairs = segments.attributes.iter();
                let pairs = pairs.filter_map(|pair| Some((pair.name.clone(), Json::from(pair.value.to_text()?))));
                json!({"segments": pairs.collect::<Map<_, _>>()})
            })
            .collect();
        topologies.insert(side.kind.clone(), Json::Array(list));
    }
    // As Nomad's JSON has them.
    for side in &request.attributes {
        match segments(&side.value) {
            Some(list) => drop(topologies.insert(side.name.clone(), Json::Array(list))),
            None => report.add(side.offset, "must be a list of places, each as {\"Segments\": {\"zone\": \"a\"}}"),
        }
    }
    fields.insert("topologyRequest".to_owned(), Json::Object(topologies));
}

/// The places of a list; none: it is no such list.
fn segments(value: &Value) -> Option<Vec<Json>> {
    let Value::List(places) = value else { return None };
    let of_place = |place: &Value| {
        let Value::Map(place) = place else { return None };
        let (Some(Value::Map(segments)), 1) = (place.get("Segments"), place.len()) else { return None };
        let pairs = segments.iter().map(|(key, value)| Some((key.clone(), Json::from(value.to_text()?))));
        Some(json!({"segments": pairs.collect::<Option<Map<_, _>>>()?}))
    };
    places.iter().map(of_place).collect()
}

/// `10GiB` is `10Gi`, `10GB` and `10G` are `10G`.
fn quantity(text: &str) -> Option<String> {
    let text = text.trim();
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic()).trim_end();
    digits.parse::<f64>().ok().filter(|number| *number >= 0.0)?;
    let unit = text[digits.len()..].trim().to_ascii_lowercase();
    let short = match unit.as_str() {
        "" | "b" => "",
        "k" | "kb" => "k",
        "m" | "mb" => "M",
        "g" | "gb" => "G",
        "t" | "tb" => "T",
        "p" | "pb" => "P",
        "ki" | "kib" => "Ki",
        "mi" | "mib" => "Mi",
        "gi" | "gib" => "Gi",
        "ti" | "tib" => "Ti",
        "pi" | "pib" => "Pi",
        _ => return None,
    };
    Some(format!("{digits}{short}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_written_as_quantities() {
        let cases = [("10GiB", "10Gi"), ("10 GB", "10G"), ("1.5gib", "1.5Gi"), ("500", "500"), ("64K", "64k")];
        for (size, expected) in cases {
            assert_eq!(quantity(size).as_deref(), Some(expected), "{size}");
        }
        for wrong in ["", "ten", "10Parsec", "-1GiB"] {
            assert_eq!(quantity(wrong), None, "{wrong}");
        }
    }
}
