//! What the API server itself refuses: one golden file for each CEL rule and for each kind of schema bound, with a
//! refused and an accepted object and the whole text of the refusal. `UPDATE_EXPECT=1` writes the texts anew.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use drover_api::schema::rules::RULES;
use drover_testkit::control_plane::User;
use http::Request;
use kube::Client;
use serde_json::{Value, json};

use crate::agent::shared_plane;

const NS: &str = "schema";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/schema")
}

/// The collection of an object's kind.
fn collection(object: &Value) -> String {
    let kind = object["kind"].as_str().expect("a kind").to_lowercase();
    if kind == "clientnode" {
        return format!("/apis/drover.dev/v1alpha1/{kind}s");
    }
    format!("/apis/drover.dev/v1alpha1/namespaces/{NS}/{kind}s")
}

async fn send(client: &Client, method: &str, path: &str, body: &Value) -> Result<Value, String> {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header("Content-Type", kind);
    let request = request.body(serde_json::to_vec(body).expect("JSON")).expect("a request");
    match client.request::<Value>(request).await {
        Ok(answer) => Ok(answer),
        Err(kube::Error::Api(status)) => Err(status.message.clone()),
        Err(error) => Err(format!("{method} {path} got no answer: {error}")),
    }
}

/// Tries to create an object, or to make one out of `before`. Nothing is stored.
async fn attempt(client: &Client, before: Option<&Value>, object: &Value) -> Result<Value, String> {
    let collection = collection(object);
    let strict = "dryRun=All&fieldValidation=Strict";
    let Some(before) = before else {
        return send(client, "POST", &format!("{collection}?{strict}"), object).await;
    };
    let mut changed = object.clone();
    changed["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"].clone();
    let name = object["metadata"]["name"].as_str().expect("a name");
    send(client, "PUT", &format!("{collection}/{name}?{strict}"), &changed).await
}

/// Stores an object with its status.
async fn store(client: &Client, object: &Value) -> Value {
    let collection = collection(object);
    let name = object["metadata"]["name"].as_str().expect("a name");
    let stored = send(client, "POST", &collection, object).await.expect("the object before");
    if object["status"].is_null() {
        return stored;
    }
    let status = json!({ "status": object["status"] });
    send(client, "PATCH", &format!("{collection}/{name}/status"), &status).await.expect("its status")
}

/// V-057, V-059, V-060, V-061, V-067
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_of_a_volume_is_refused_with_all_that_is_wrong_and_changes_nothing() {
    let client = shared_plane().client(User::Admin).await.expect("a client");
    let path = "/apis/drover.dev/v1alpha1/namespaces/default/csivolumes";
    let pair = |mode: &str| json!([{ "accessMode": mode, "attachmentMode": "file-system" }]);
    let zone = |name: &str| json!({ "required": [{ "segments": { "zone": name } }] });
    let volume = json!({
        "apiVersion": "drover.dev/v1alpha1", "kind": "CSIVolume", "metadata": { "name": "table" },
        "spec": { "pluginID": "p", "name": "db", "externalID": "vol-1", "parameters": { "type": "ssd" },
                  "capabilities": pair("single-node-writer"), "topologyRequest": zone("a"),
                  "mountOptions": { "mountFlags": ["noatime"] }, "capacity": { "min": "1Gi" } },
    });
    send(&client, "POST", path, &volume).await.expect("a volume");
    let status = json!({ "status": {
        "accessMode": "single-node-writer", "attachmentMode": "file-system", "capacity": "10Gi", "externalID": "vol-1",
        "claims": [{ "allocID": "a1", "mode": "write" }], "topologies": [{ "segments": { "zone": "a" } }],
    } });
    let before = send(&client, "PATCH", &format!("{path}/table/status"), &status).await.expect("its status");
    let change = json!({ "spec": {
        "pluginID": "q", "name": "other", "externalID": "vol-2", "cloneID": "vol-0", "snapshotID": "snap-0",
        "parameters": { "type": "disk", "csi.storage.k8s.io/pv/name": "a" }, "context": { "csi.storage.k8s.io/pod.name": "b" }, "capabilities": pair("multi-node-reader-only"), "topologyRequest": zone("b"),
        "mountOptions": { "mountFlags": ["password=hush"] }, "capacity": { "min": "6Gi", "max": "5Gi" },
    } });
    let refused = send(&client, "PATCH", &format!("{path}/table"), &change).await.expect_err("a refusal");
    let of_volumes = RULES.iter().filter(|rule| rule.kind == "CSIVolume");
    let untold: Vec<&str> = of_volumes.filter(|rule| !refused.contains(rule.message)).map(|rule| rule.id).collect();
    assert!(untold.is_empty(), "{untold:?} are not told: {refused}");
    assert!(!refused.contains("hush"), "{refused}");
    let request = Request::get(format!("{path}/table")).body(Vec::new()).expect("a request");
    let after: Value = client.request(request).await.expect("the volume");
    assert_eq!(after, before, "nothing has changed");
}

// V-061.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_topologies_that_a_volume_asks_for_stay_once_it_has_some() {
    let client = shared_plane().client(User::Admin).await.expect("a client");
    let path = "/apis/drover.dev/v1alpha1/namespaces/default/csivolumes";
    let zone = |name: &str| json!({ "required": [{ "segments": { "zone": name } }] });
    // Asked for at first; asked for then, none for what is taken away.
    for (name, before, after) in [
        ("topology-removed", zone("a"), Value::Null),
        ("topology-added", Value::Null, zone("a")),
        ("topology-changed", zone("a"), zone("b")),
    ] {
        let mut volume = json!({ "apiVersion": "drover.dev/v1alpha1", "kind": "CSIVolume", "metadata": { "name": name },
            "spec": { "pluginID": "p", "externalID": name,
                      "capabilities": [{ "accessMode": "single-node-writer", "attachmentMode": "file-system" }] } });
        if !before.is_null() {
            volume["spec"]["topologyRequest"] = before.clone();
        }
        send(&client, "POST", path, &volume).await.expect("a volume");
        let change = |request: &Value| json!({ "spec": { "topologyRequest": request } });
        let path = format!("{path}/{name}");
        // Until it has topologies it may change.
        send(&client, "PATCH", &path, &change(&after)).await.expect("accepted");
        send(&client, "PATCH", &path, &change(&before)).await.expect("accepted");
        let status = json!({ "status": { "topologies": [{ "segments": { "zone": "a" } }] } });
        send(&client, "PATCH", &format!("{path}/status"), &status).await.expect("its status");
        let refused = send(&client, "PATCH", &path, &change(&after)).await.expect_err(name);
        assert!(refused.contains("topologyRequest"), "{name}: {refused}");
    }
}

/// One golden for each rule; S-170 is `node-eligible-while-draining`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_breaks_a_rule_is_refused_with_field_and_remedy() {
    let client = shared_plane().client(User::Admin).await.expect("a client");
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NS } });
    send(&client, "POST", "/api/v1/namespaces", &namespace).await.expect("a namespace");
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder()).expect("goldens").map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    for file in files {
        let id = file.file_stem().expect("a name").to_string_lossy().into_owned();
        let mut golden: Value = serde_json::from_str(&std::fs::read_to_string(&file).expect("a golden")).expect("JSON");
        let before = match &golden["before"] {
            Value::Null => None,
            object => Some(store(&client, object).await),
        };
        let refused = attempt(&client, before.as_ref(), &golden["refused"]).await;
        let accepted = attempt(&client, before.as_ref(), &golden["accepted"]).await;
        if let Some(before) = before {
            let name = before["metadata"]["name"].as_str().expect("a name");
            send(&client, "DELETE", &format!("{}/{name}", collection(&golden["refused"])), &json!({}))
                .await
                .expect("deleted");
        }
        if let Err(error) = accepted {
            wrong.push(format!("{id}: the accepted object is refused: {error}"));
        }
        match refused {
            Ok(_) => wrong.push(format!("{id}: the refused object is accepted")),
            Err(error) => {
                if let Some(rule) = RULES.iter().find(|rule| rule.id == id)
                    && !error.contains(rule.message)
                {
                    wrong.push(format!("{id}: the refusal does not say `{}`: {error}", rule.message));
                }
                if golden["error"] != error.as_str() && std::env::var_os("UPDATE_EXPECT").is_none() {
                    wrong.push(format!("{id}: expected {}, got {error}", golden["error"]));
                }
                golden["error"] = json!(error);
            }
        }
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(&file, format!("{}\n", serde_json::to_string_pretty(&golden).expect("JSON")))
                .expect("written");
        }
        seen.insert(id);
    }
    for rule in RULES {
        if !seen.contains(rule.id) {
            wrong.push(format!("{}: no golden file", rule.id));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
