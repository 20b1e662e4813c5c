//! A volume file, or a request to register a volume, as manifests: a CSIVolume, and the Secret that it names.

use drover_api::names::object_name;
use serde_json::{Map, Value as Json, json};

use super::convert::object;
use super::read_wire;
use super::report::Report;
use super::tables::VOLUME_FILE;
use super::wire::beside;
use crate::document::Block;
use crate::source::{Fault, Source};
use crate::tree::{Node, Tree};

/// What stands beside the volumes in a request that registers or creates them.
const OF_REQUEST: [&str; 4] = ["Namespace", "PolicyOverride", "Region", "SecretID"];

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
    of_spec(spec, "`id`", 0, report)
}

/// The manifests of the only volume of a request.
pub(crate) fn wire_manifests(tree: &Tree, source: Source<'_>) -> Result<Vec<Json>, Vec<Fault>> {
    let mut report = Report::new(source);
    let volumes = tree.member("Volumes");
    let volume = match volumes.map(|volumes| &volumes.node) {
        Some(Node::List(all)) if all.len() == 1 => all.first(),
        Some(Node::List(all)) if all.len() > 1 => {
            let message = format!("holds {} volumes; give one, and the others in requests of their own", all.len());
            report.add(volumes.map_or(0, |volumes| volumes.offset), message);
            None
        }
        _ => {
            report.add(tree.offset, "Volumes holds no volume; give one, as {\"Volumes\": [{\"ID\": …}]}");
            None
        }
    };
    let Some(volume) = volume else { return Err(report.into_faults()) };
    if let Node::Map(members) = &tree.node {
        beside(members, ("Volumes", "the volume"), &OF_REQUEST, &mut report);
    }
    let block = read_wire::block("volume", volume, &VOLUME_FILE, &mut report);
    let mut spec = object(&block, &VOLUME_FILE, &mut report);
    if spec.shift_remove("type").is_some_and(|kind| kind != "csi") {
        report.add(volume.offset, "`Type` must be \"csi\"; leave it out");
    }
    of_spec(spec, "`ID`", volume.offset, report)
}

/// The manifests of a spec that still holds what is none of it.
fn of_spec(mut spec: Map<String, Json>, id: &str, at: usize, mut report: Report<'_>) -> Result<Vec<Json>, Vec<Fault>> {
    let Some(id) = spec.get("id").and_then(Json::as_str).map(str::to_owned) else {
        report.add(at, format!("a volume needs an {id}"));
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
