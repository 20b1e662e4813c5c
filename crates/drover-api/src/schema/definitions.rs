//! What the derives make of the types, completed.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::{Map, Value, json};

use super::rules;
use crate::{
    Allocation, AllocationStatus, CSIVolume, CSIVolumeStatus, ClientNode, ClientNodeStatus, Deployment,
    DeploymentStatus, HostVolume, HostVolumeStatus, Job, JobStatus, JobVersion, JobVersionStatus,
};

/// Longest string where a field names no other bound.
const DEFAULT_STRING: u64 = 1024;
/// Longest list where a field names no other bound.
const DEFAULT_ITEMS: u64 = 64;
/// Most keys of a map where a field names no other bound.
const DEFAULT_PROPERTIES: u64 = 64;
/// Longest value of an environment variable.
const ENV_VALUE: u64 = 32_768;

/// Where a default stands in the schema; all others depend on the job's type or on another block and are
/// `drover-core`'s.
const DEFAULTS: [(&str, &[&str]); 5] = [
    (
        "Job",
        &[
            "spec.type",
            "spec.priority",
            "spec.datacenters",
            "spec.nodePool",
            "spec.groups",
            "spec.groups[].count",
            "spec.groups[].ephemeralDisk",
            "spec.groups[].ephemeralDisk.sizeMB",
            "spec.groups[].tasks[].killTimeout",
            "spec.groups[].tasks[].resources",
            "spec.groups[].tasks[].resources.memoryMB",
            "spec.groups[].tasks[].logs",
            "spec.groups[].tasks[].logs.maxFiles",
            "spec.groups[].tasks[].logs.maxFileSizeMB",
        ],
    ),
    ("Allocation", &["spec.desiredStatus"]),
    ("ClientNode", &["spec.datacenter", "spec.nodePool", "spec.eligibility"]),
    ("Deployment", &["spec.paused", "spec.fail"]),
    ("HostVolume", &["spec.nodePool"]),
];

/// The definitions of all kinds, complete, in the order in which they are installed.
///
/// # Panics
/// When a rule names a path that the schema does not have: a bug that every test of the schema finds.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![
        finished(Job::crd(), &status_default(&JobStatus::default())),
        finished(JobVersion::crd(), &status_default(&JobVersionStatus::default())),
        finished(Deployment::crd(), &status_default(&DeploymentStatus::default())),
        finished(Allocation::crd(), &status_default(&AllocationStatus::default())),
        finished(CSIVolume::crd(), &status_default(&CSIVolumeStatus::default())),
        finished(HostVolume::crd(), &status_default(&HostVolumeStatus::default())),
        finished(ClientNode::crd(), &status_default(&ClientNodeStatus::default())),
    ]
}

/// What `status` is before the first write: not yet observed, and a text in every column.
fn status_default<S: serde::Serialize>(status: &S) -> Value {
    let Ok(Value::Object(all)) = serde_json::to_value(status) else { return json!({ "observedGeneration": -1 }) };
    let mut shown: Map<String, Value> =
        all.into_iter().filter(|(key, _)| matches!(key.as_str(), "phase" | "clientStatus" | "columns")).collect();
    shown.insert("observedGeneration".to_owned(), json!(-1));
    Value::Object(shown)
}

fn finished(crd: CustomResourceDefinition, status: &Value) -> CustomResourceDefinition {
    let kind = crd.spec.names.kind.clone();
    let mut json = serde_json::to_value(crd).expect("a definition is plain data");
    let schema = json
        .pointer_mut("/spec/versions/0/schema/openAPIV3Schema")
        .expect("the derive gives every definition one version with a schema");
    let defaults = DEFAULTS.iter().find(|(name, _)| *name == kind).map_or(&[][..], |(_, paths)| paths);
    bound(schema, "", defaults);
    let columns = schema.pointer("/properties/status/properties/columns").is_some();
    if let Some(slot) = schema.pointer_mut("/properties/status") {
        slot["default"] = status.clone();
        if columns {
            slot["properties"]["columns"]["default"] = status["columns"].clone();
            // An object that was stored before a column came has a text there too.
            for (name, text) in status["columns"].as_object().into_iter().flatten() {
                slot["properties"]["columns"]["properties"][name]["default"] = text.clone();
            }
        }
    }
    for rule in rules::RULES.iter().filter(|rule| rule.kind == kind) {
        let target = at(schema, rule.at).unwrap_or_else(|| panic_path(rule));
        let list = target
            .as_object_mut()
            .expect("a schema is an object")
            .entry("x-kubernetes-validations")
            .or_insert(json!([]));
        list.as_array_mut().expect("the list of rules").push(rule.to_schema());
    }
    serde_json::from_value(json).expect("the definition stays one")
}

#[expect(clippy::panic, reason = "a rule on a path that the schema lacks is a bug in this crate")]
fn panic_path(rule: &rules::Rule) -> ! {
    panic!("rule {} is on {} {}, which the schema does not have", rule.id, rule.kind, rule.at)
}

/// The schema at a path such as `spec.groups[].tasks[].name`; the root for the empty path.
fn at<'a>(schema: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    path.split('.').filter(|part| !part.is_empty()).try_fold(schema, |here, part| {
        let (name, items) = part.strip_suffix("[]").map_or((part, false), |name| (name, true));
        let next = here.get_mut("properties")?.get_mut(name)?;
        if items { next.get_mut("items") } else { Some(next) }
    })
}

/// Bounds this schema and everything below it, and drops the defaults that are not wanted.
fn bound(schema: &mut Value, path: &str, defaults: &[&str]) {
    let Some(object) = schema.as_object_mut() else { return };
    if !defaults.contains(&path) {
        object.remove("default");
    }
    match object.get("type").and_then(Value::as_str) {
        Some("string") if !object.contains_key("enum") && !object.contains_key("format") => {
            object.entry("maxLength").or_insert(json!(DEFAULT_STRING));
        }
        Some("array") => {
            object.entry("maxItems").or_insert(json!(DEFAULT_ITEMS));
        }
        Some("object") if object.contains_key("additionalProperties") => {
            object.entry("maxProperties").or_insert(json!(DEFAULT_PROPERTIES));
        }
        _ => {}
    }
    if let Some(items) = object.get_mut("items") {
        bound(items, &format!("{path}[]"), defaults);
    }
    if let Some(values) = object.get_mut("additionalProperties") {
        if path.ends_with("tasks[].env") {
            values["maxLength"] = json!(ENV_VALUE);
        }
        bound(values, &format!("{path}{{}}"), defaults);
    }
    if let Some(Value::Object(properties)) = object.get_mut("properties") {
        for (name, property) in properties.iter_mut().filter(|(name, _)| !path.is_empty() || *name != "metadata") {
            let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            bound(property, &below, defaults);
        }
    }
    require_named_strings(object);
}

/// A string that must not be empty must be there, unless it has a default: keys of list maps are of that sort.
fn require_named_strings(object: &mut Map<String, Value>) {
    let Some(Value::Object(properties)) = object.get("properties") else { return };
    let missing: Vec<Value> = properties
        .iter()
        .filter(|(_, schema)| {
            schema["type"] == "string" && schema["minLength"].as_u64() >= Some(1) && schema.get("default").is_none()
        })
        .map(|(name, _)| json!(name))
        .collect();
    if missing.is_empty() {
        return;
    }
    let required = object.entry("required").or_insert(json!([]));
    if let Value::Array(required) = required {
        for name in missing {
            if !required.contains(&name) {
                required.push(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schemas() -> Vec<(String, Value)> {
        crds()
            .into_iter()
            .map(|crd| {
                let json = serde_json::to_value(&crd).unwrap();
                (crd.spec.names.kind, json.pointer("/spec/versions/0/schema/openAPIV3Schema").unwrap().clone())
            })
            .collect()
    }

    fn walk(schema: &Value, path: &str, visit: &mut impl FnMut(&str, &Value)) {
        visit(path, schema);
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            if path.is_empty() && name == "metadata" {
                continue;
            }
            walk(property, &format!("{path}.{name}"), visit);
        }
        for below in ["items", "additionalProperties"] {
            if schema[below].is_object() {
                walk(&schema[below], &format!("{path}[]"), visit);
            }
        }
    }

    #[test]
    fn every_string_list_and_map_is_bounded() {
        for (kind, schema) in schemas() {
            walk(&schema, "", &mut |path, schema| match schema["type"].as_str() {
                Some("string") => assert!(
                    schema["maxLength"].is_u64() || schema["enum"].is_array() || schema["format"] == "date-time",
                    "{kind}{path} has no bound"
                ),
                Some("array") => assert!(schema["maxItems"].is_u64(), "{kind}{path} has no bound"),
                Some("object") if schema["additionalProperties"].is_object() => {
                    assert!(schema["maxProperties"].is_u64(), "{kind}{path} has no bound");
                }
                _ => {}
            });
        }
    }

    #[test]
    fn every_list_of_objects_says_how_it_merges() {
        for (kind, schema) in schemas() {
            walk(&schema, "", &mut |path, schema| {
                if schema["type"] == "array" {
                    assert!(schema["x-kubernetes-list-type"].is_string(), "{kind}{path} has no list type");
                }
            });
        }
    }

    #[test]
    fn every_field_is_described() {
        for (kind, schema) in schemas() {
            walk(&schema, "", &mut |path, schema| {
                for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                    let known = path.is_empty()
                        && matches!(name.as_str(), "apiVersion" | "kind" | "metadata" | "spec" | "status");
                    let text = property["description"].as_str().unwrap_or_default();
                    assert!(known || !text.is_empty(), "{kind}{path}.{name} has no description");
                }
            });
        }
    }

    #[test]
    fn a_definition_is_below_200_kib() {
        for crd in crds() {
            let size = serde_json::to_vec(&crd).unwrap().len();
            assert!(size < 200 * 1024, "{} has {size} bytes", crd.spec.names.kind);
        }
    }

    #[test]
    fn nothing_is_ready_before_the_first_look() {
        for (kind, schema) in schemas() {
            assert_eq!(schema["properties"]["status"]["default"]["observedGeneration"], -1, "{kind}");
        }
    }

    #[test]
    fn every_column_of_status_has_a_text_before_the_first_write() {
        for crd in crds() {
            let json = serde_json::to_value(&crd).unwrap();
            let version = &json["spec"]["versions"][0];
            let default = &version["schema"]["openAPIV3Schema"]["properties"]["status"]["default"];
            for column in version["additionalPrinterColumns"].as_array().unwrap() {
                let path = column["jsonPath"].as_str().unwrap();
                if let Some(path) = path.strip_prefix(".status.") {
                    let value = path.split('.').fold(default, |here, part| &here[part]);
                    assert!(value.as_str().is_some_and(|text| !text.is_empty()), "{} {path}", crd.spec.names.kind);
                }
            }
        }
    }
}
