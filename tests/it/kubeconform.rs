//! Manifests against the schemas that the running API server publishes, by kubeconform.

use std::fs;
use std::path::Path;
use std::process::Command;

use drover_testkit::progress::Progress;
use kube::Client;
use serde_json::{Value, json};

use crate::helm::{run, said};

/// Where kubeconform finds the schema of a kind; to it, the group of `v1` is `v1`.
const LOCATION: &str = "{{.Group}}/{{.ResourceAPIVersion}}/{{.ResourceKind}}.json";
/// All schemas of a version, which those of its kinds refer to.
const PARTS: &str = "parts.json";

/// Checks manifests, which may not have a field that the API server does not know, nor one twice.
pub(crate) async fn conform(client: &Client, folder: &Path, manifests: &[(String, String)]) -> String {
    write(client, folder).await;
    let program = tokio::task::spawn_blocking(|| drover_testkit::kubeconform::find_or_build(&Progress::silent()));
    let mut kubeconform = Command::new(program.await.expect("an end").expect("kubeconform"));
    kubeconform.args(["-strict", "-summary", "-schema-location"]).arg(folder.join(LOCATION));
    // Of the operator of Prometheus, which is not there.
    kubeconform.args(["-skip", "ServiceMonitor,PrometheusRule"]);
    for (name, text) in manifests {
        let path = folder.join(name).with_extension("yaml");
        fs::write(&path, text).expect("a manifest");
        kubeconform.arg(path);
    }
    said(&run(kubeconform).await, true)
}

/// Writes a schema for each kind of the API server.
async fn write(client: &Client, folder: &Path) {
    let index = read(client, "/openapi/v3").await;
    for (name, path) in index["paths"].as_object().expect("versions") {
        let (group, version) = match name.split('/').collect::<Vec<_>>()[..] {
            ["api", version] => (version, version),
            ["apis", group, version] => (group, version),
            _ => continue,
        };
        let mut document = read(client, path["serverRelativeURL"].as_str().expect("a path")).await;
        let Some(schemas) = document["components"]["schemas"].as_object_mut() else { continue };
        schemas.values_mut().for_each(close);
        let folder = folder.join(group).join(version);
        fs::create_dir_all(&folder).expect("a folder");
        for (name, schema) in &*schemas {
            for kind in schema["x-kubernetes-group-version-kind"].as_array().into_iter().flatten() {
                let (of_group, kind) = (kind["group"].as_str().unwrap_or_default(), kind["kind"].as_str());
                if of_group == group || of_group.is_empty() {
                    let file = folder.join(kind.expect("a kind").to_lowercase()).with_extension("json");
                    let whole = json!({ "$ref": format!("{PARTS}#/components/schemas/{name}") });
                    fs::write(file, whole.to_string()).expect("a schema");
                }
            }
        }
        fs::write(folder.join(PARTS), json!({ "components": { "schemas": schemas } }).to_string()).expect("schemas");
    }
}

async fn read(client: &Client, path: &str) -> Value {
    let request = http::Request::get(path).body(Vec::new()).expect("a request");
    client.request(request).await.expect("an answer of the API server")
}

/// Forbids fields that a schema does not name, as the API server does for what is strict.
fn close(schema: &mut Value) {
    let Some(schema) = schema.as_object_mut() else { return };
    let is_open = schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
    if schema.contains_key("properties") && !schema.contains_key("additionalProperties") && !is_open {
        schema.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
    for (name, inner) in schema.iter_mut() {
        match name.as_str() {
            "items" | "additionalProperties" => close(inner),
            "properties" => inner.as_object_mut().expect("schemas").values_mut().for_each(close),
            _ => {}
        }
    }
}
