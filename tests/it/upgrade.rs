//! The chart of the version before and the present one, after each other on a real API server: what is written under
//! either can be read and written under the other.

use drover_api::{CSIVolume, field_manager};
use kube::Api;
use serde_json::{Value, json};

use crate::chart::{SYSTEM, chart};
use crate::cluster::{Cluster, Settings};
use crate::helm::{helm, run, said};

/// The chart as it was released before, packed by `helm package`.
fn chart_before() -> String {
    format!("{}/tests/it/chart/drover-0.1.0.tgz", env!("CARGO_MANIFEST_DIR"))
}

const KINDS: [&str; 6] = ["jobs", "jobversions", "deployments", "allocations", "csivolumes", "clientnodes"];

async fn helm_does(cluster: &Cluster, args: &[&str]) {
    // Nothing runs pods here, so that there is nothing to wait for.
    said(&run(helm(cluster, SYSTEM, args)).await, true);
}

fn read(cluster: &Cluster, args: &[&str]) -> Value {
    let text = cluster.kubectl(&[&["get"], args, &["-o", "json"]].concat()).expect("an object");
    serde_json::from_str(&text).expect("JSON")
}

/// The first version of each kind's definition.
fn definitions(cluster: &Cluster) -> Vec<Value> {
    KINDS
        .iter()
        .map(|kind| read(cluster, &["crd", &format!("{kind}.drover.dev")])["spec"]["versions"][0].clone())
        .collect()
}

/// The fields of `new` that lack what `old` allowed: one that is gone or has another type, and one that must be given
/// now.
fn narrowed(old: &Value, new: &Value, path: &str, faults: &mut Vec<String>) {
    if old["type"] != new["type"] {
        faults.push(format!("{path} was {} and is {}", old["type"], new["type"]));
    }
    let required = |schema: &Value| schema["required"].as_array().cloned().unwrap_or_default();
    let before = required(old);
    faults.extend(
        required(new).iter().filter(|name| !before.contains(name)).map(|name| format!("{path}: {name} must be given")),
    );
    for (name, schema) in old["properties"].as_object().into_iter().flatten() {
        narrowed(schema, &new["properties"][name], &format!("{path}.{name}"), faults);
    }
    if old["items"].is_object() {
        narrowed(&old["items"], &new["items"], &format!("{path}[]"), faults);
    }
}

/// A volume as a controller of the version before has left it.
fn volume() -> (Value, Value) {
    let volume = json!({
        "apiVersion": "drover.dev/v1alpha1", "kind": "CSIVolume", "metadata": { "name": "data", "namespace": "shop" },
        "spec": { "pluginID": "p", "externalID": "e",
            "capabilities": [{ "accessMode": "single-node-writer", "attachmentMode": "file-system" }] },
    });
    let mut status = volume.clone();
    status["status"] = json!({
        "observedGeneration": 1, "phase": "available", "schedulable": false, "controllerRequired": false,
        "controllersHealthy": 0, "controllersExpected": 0, "nodesHealthy": 0, "nodesExpected": 0, "conditions": [],
        "columns": { "access": "-", "schedulable": "false", "claims": "0/0/0", "capacity": "-" },
    });
    (volume, status)
}

/// A status as the controller writes it.
fn apply_status(cluster: &Cluster, object: &Value) -> Result<String, String> {
    let manager = format!("--field-manager={}", field_manager::CONTROLLER_VOLUME);
    let args = ["apply", "--server-side", "--force-conflicts", "--subresource=status", &manager, "-f", "-"];
    cluster.kubectl_with(&args, Some(&object.to_string()))
}

/// What `kubectl get -o wide` shows of the volume in the column of this name.
fn column(cluster: &Cluster, name: &str) -> Option<String> {
    let table = cluster.kubectl(&["get", "csivol", "data", "-n", "shop", "-o", "wide"]).expect("a table");
    let (head, row) = table.trim_end().split_once('\n').expect("a row");
    let at = head.split_whitespace().position(|title| title == name)?;
    row.split_whitespace().nth(at).map(str::to_owned)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_written_under_the_chart_before_and_the_present_one_is_read_under_both() {
    let cluster = Cluster::bare("upgrade", Settings::default()).await;
    helm_does(&cluster, &["install", "drover", &chart_before(), "--create-namespace", "--timeout", "60s"]).await;
    cluster.namespace("shop").await;
    let old = definitions(&cluster);
    let job = json!({ "apiVersion": "drover.dev/v1alpha1", "kind": "Job", "metadata": { "name": "web", "namespace": "shop" },
        "spec": { "groups": [{ "name": "g", "count": 2, "tasks": [{ "name": "t", "driver": "mock" }] }] } });
    let (volume, status) = volume();
    for object in [&job, &volume] {
        cluster.kubectl_with(&["apply", "--server-side", "-f", "-"], Some(&object.to_string())).expect("applied");
    }
    // What the version before has accepted and ignored.
    let mut ignoring = job.clone();
    ignoring["metadata"]["name"] = json!("old");
    ignoring["spec"]["update"] = json!({ "stagger": "30s" });
    ignoring["spec"]["groups"][0]["services"] = json!([{ "name": "web", "meta": { "a": "b" } }]);
    cluster.kubectl_with(&["apply", "--server-side", "-f", "-"], Some(&ignoring.to_string())).expect("applied");
    apply_status(&cluster, &status).expect("a status of the version before");
    assert_eq!(column(&cluster, "REASON"), None);
    let spec_of = |name: &str| read(&cluster, &[name, "-n", "shop"])["spec"].clone();
    let before = ["djob/web", "csivol/data"].map(spec_of);

    helm_does(&cluster, &["upgrade", "drover", &chart(), "--timeout", "60s"]).await;
    let new = definitions(&cluster);
    let mut faults = Vec::new();
    for (kind, (old, new)) in KINDS.iter().zip(old.iter().zip(&new)) {
        narrowed(&old["schema"]["openAPIV3Schema"], &new["schema"]["openAPIV3Schema"], kind, &mut faults);
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert_eq!(["djob/web", "csivol/data"].map(spec_of), before);
    // An object that nobody has written since shows something in the new column.
    cluster.eventually("the new column is there", async || column(&cluster, "REASON").as_deref() == Some("-")).await;
    let controller = cluster.controller();
    cluster
        .eventually("the controller tells why", async || column(&cluster, "REASON").as_deref() == Some("PluginMissing"))
        .await;
    cluster.condition("shop", "web", drover_api::job::JobConditionType::Placed, "False").await;
    // It is planned like any other, its status is written, and its next change leaves out what is not acted on.
    cluster.condition("shop", "old", drover_api::job::JobConditionType::Placed, "False").await;
    ignoring["spec"]["groups"][0]["services"][0]["name"] = json!("site");
    let refused = cluster.kubectl_with(&["apply", "--server-side", "-f", "-"], Some(&ignoring.to_string()));
    let refused = refused.expect_err("refused");
    assert!(refused.contains("address and meta are not acted on by this version"), "{refused}");
    controller.kill();

    helm_does(&cluster, &["rollback", "drover", "1", "--timeout", "60s"]).await;
    assert_eq!(definitions(&cluster), old, "the definitions of the version before");
    cluster.eventually("the column is gone", async || column(&cluster, "REASON").is_none()).await;
    assert_eq!(["djob/web", "csivol/data"].map(spec_of), before);
    let volumes: Api<CSIVolume> = Api::namespaced(cluster.client.clone(), "shop");
    let read_by_both = volumes.get("data").await.expect("a volume").status.expect("its status");
    assert_eq!((&*read_by_both.columns.reason, &*read_by_both.columns.schedulable), ("-", "false"));
    apply_status(&cluster, &status).expect("the version before writes what the present one has written");

    // Forward again, with what was written in between.
    helm_does(&cluster, &["upgrade", "drover", &chart(), "--timeout", "60s"]).await;
    assert_eq!(definitions(&cluster), new);
    cluster.eventually("the column is back", async || column(&cluster, "REASON").as_deref() == Some("-")).await;

    // What the remedy for a gateway that is gone has taken away (G-024).
    let api_service = |verb: &str| cluster.kubectl(&[verb, "apiservice", "v1alpha1.subresources.drover.dev"]);
    api_service("delete").expect("deleted");
    helm_does(&cluster, &["upgrade", "drover", &chart(), "--timeout", "60s"]).await;
    api_service("get").expect("it is there again");
}
