//! A volume file as manifests: a CSIVolume, and the Secret that it names.

use drover_api::names::object_name;
use serde_json::{Map, Value as Json, json};

use super::convert::object;
use super::report::Report;
use super::tables::VOLUME_FILE;
use crate::document::Block;
use crate::source::{Fault, Source};

/// The manifests of a volume file.
pub(crate) fn manifests(file: &Block, source: Source<'_>) -> Result<Vec<Json>, Vec<Fault>> {
    let mut report = Report::new(source);
    let mut spec = object(file, &VOLUME_FILE, &mut report);
    let kind = spec.shift_remove("type");
    if kind.as_ref().and_then(Json::as_str) != Some("csi") {
        report.add(
            0,
            "`type` must be \"csi\"; a directory of a node is offered by the agent's configuration (`hostVolumes`)",
        );
    }
    let Some(id) = spec.get("id").and_then(Json::as_str).map(str::to_owned) else {
        report.add(0, "a volume needs an `id`");
        return Err(report.into_faults());
    };
    if !report.is_empty() {
        return Err(report.into_faults());
    }
    let name = object_name(&id);
    let mut metadata = Map::from_iter([("name".to_owned(), Json::from(name.as_str()))]);
    if let Some(namespace) = spec.shift_remove("namespace") {
        metadata.insert("namespace".to_owned(), namespace);
    }
    let mut manifests = Vec::new();
    if let Some(Json::Object(secrets)) = spec.shift_remove("secrets")
        && !secrets.is_empty()
    {
        let mut of_secret = metadata.clone();
        let secret = format!("{name}-secrets");
        of_secret.insert("name".to_owned(), secret.as_str().into());
        spec.insert("secretsRef".to_owned(), json!({"name": secret}));
        manifests.push(json!({"apiVersion": "v1", "kind": "Secret", "metadata": of_secret, "stringData": secrets}));
    }
    manifests
        .push(json!({"apiVersion": drover_api::API_VERSION, "kind": "CSIVolume", "metadata": metadata, "spec": spec}));
    Ok(manifests)
}
