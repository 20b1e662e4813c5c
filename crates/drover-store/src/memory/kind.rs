//! The kinds that the store holds: those of the definitions, and the few of Kubernetes that drover uses.

use std::sync::OnceLock;

use serde_json::{Value, json};

use super::schema::Schema;

/// A kind.
#[derive(Debug)]
pub struct Kind {
    /// Its name, as `Job`.
    pub name: String,
    /// Its plural, as `jobs`.
    pub plural: String,
    /// Group and version, as `drover.dev/v1alpha1`.
    pub api_version: String,
    /// Whether its objects have a namespace.
    pub is_namespaced: bool,
    /// Whether status is a part of its own and generations are counted.
    pub(crate) has_status: bool,
    /// Whether it is kept who owns which field.
    pub(crate) has_owners: bool,
    /// Fields by which it can be selected, besides name and namespace.
    pub(crate) selectable: Vec<Vec<String>>,
    pub(crate) schema: Schema,
    pub(crate) number: usize,
}

/// The kind of this name, if the store holds it.
pub fn kind(name: &str) -> Option<&'static Kind> {
    all().iter().find(|kind| kind.name == name)
}

/// All kinds.
pub(crate) fn all() -> &'static [Kind] {
    static ALL: OnceLock<Vec<Kind>> = OnceLock::new();
    ALL.get_or_init(|| {
        let mut kinds: Vec<Kind> = drover_api::crds()
            .iter()
            .filter_map(|definition| serde_json::to_value(definition).ok())
            .map(|definition| defined(&definition))
            .collect();
        kinds.extend([
            builtin("Lease", "leases", "coordination.k8s.io/v1", true, false),
            builtin("Event", "events", "events.k8s.io/v1", true, false),
            builtin("ConfigMap", "configmaps", "v1", true, true),
            builtin("Namespace", "namespaces", "v1", false, true),
            builtin("Service", "services", "v1", true, true),
            builtin("EndpointSlice", "endpointslices", "discovery.k8s.io/v1", true, true),
            builtin("Node", "nodes", "v1", false, true),
        ]);
        for (number, kind) in kinds.iter_mut().enumerate() {
            kind.number = number;
        }
        kinds
    })
}

fn defined(definition: &Value) -> Kind {
    let spec = &definition["spec"];
    let version = &spec["versions"][0];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let selectable = version["selectableFields"].as_array().into_iter().flatten();
    let path = |field: &Value| text(&field["jsonPath"]).split('.').skip(1).map(str::to_owned).collect();
    let schema = Schema::read(&version["schema"]["openAPIV3Schema"]);
    Kind {
        name: text(&spec["names"]["kind"]),
        plural: text(&spec["names"]["plural"]),
        api_version: format!("{}/{}", text(&spec["group"]), text(&version["name"])),
        is_namespaced: spec["scope"] == "Namespaced",
        has_status: version["subresources"].get("status").is_some(),
        has_owners: true,
        selectable: selectable.map(path).collect(),
        schema: with_head(schema),
        number: 0,
    }
}

/// What every object has besides its own fields.
fn with_head(schema: Schema) -> Schema {
    let text = || Schema::read(&json!({ "type": "string" }));
    schema.with_field("metadata", metadata()).with_field("apiVersion", text()).with_field("kind", text())
}

fn builtin(name: &str, plural: &str, api_version: &str, is_namespaced: bool, has_owners: bool) -> Kind {
    let schema = Schema::read(&json!({
        "type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": { "metadata": { "type": "object" } },
    }));
    Kind {
        name: name.to_owned(),
        plural: plural.to_owned(),
        api_version: api_version.to_owned(),
        is_namespaced,
        has_status: false,
        has_owners,
        selectable: Vec::new(),
        schema: with_head(schema),
        number: 0,
    }
}

fn metadata() -> Schema {
    let texts = json!({ "type": "object", "additionalProperties": { "type": "string" } });
    Schema::read(&json!({
        "type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
            "labels": texts,
            "annotations": texts,
            "finalizers": { "type": "array", "x-kubernetes-list-type": "set", "items": { "type": "string" } },
            "ownerReferences": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uid"],
                "items": { "type": "object", "required": ["uid"], "x-kubernetes-preserve-unknown-fields": true,
                    "properties": { "uid": { "type": "string" } } },
            },
        },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_as_their_definitions_say() {
        let job = kind("Job").unwrap();
        assert_eq!((job.plural.as_str(), job.api_version.as_str()), ("jobs", drover_api::API_VERSION));
        assert!(job.is_namespaced && job.has_status && !kind("ClientNode").unwrap().is_namespaced);
        let allocation = kind("Allocation").unwrap();
        assert!(allocation.selectable.contains(&vec!["spec".to_owned(), "nodeName".to_owned()]));
        assert!(kind("Pod").is_none());
    }
}
