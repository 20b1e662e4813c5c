//! Jobs that find no place, one cause each: `drover plan`, `Job.status` and the event name the cause, how many nodes it
//! concerns, and what would help. The explanations stand beside the jobs in `tests/golden/unplaceable`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use drover_api::client_node::NodePhase;
use drover_api::job::JobConditionType;
use drover_api::{CSIVolume, ClientNode, Job};
use drover_clock::{Clock as _, SystemClock};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::cli::drover;
use crate::cluster::shared;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/unplaceable")
}

/// The manifests of jobs, by cause.
fn jobs() -> BTreeMap<String, String> {
    let files = std::fs::read_dir(folder()).expect("the folder").map(|file| file.expect("a file").path());
    let manifests =
        files.filter(|path| path.extension().is_some_and(|end| end == "yaml") && !path.ends_with("cluster.yaml"));
    manifests
        .map(|path| {
            let cause = path.file_stem().expect("a name").to_string_lossy().into_owned();
            (cause, std::fs::read_to_string(&path).expect("a manifest"))
        })
        .collect()
}

fn cluster() -> String {
    std::fs::read_to_string(folder().join("cluster.yaml")).expect("the cluster")
}

/// Why the job of a manifest finds no place, by `drover plan` on the cluster of the folder.
fn planned(cause: &str, manifest: &str) -> String {
    let state = format!("{}---\n{manifest}", cluster()).replace("NAMESPACE", "golden");
    let eval = format!("golden/{cause}");
    let answer = drover(&["plan", "--state", "-", "--eval", &eval], &state);
    assert_eq!(answer.code, 2, "{cause}: {} {}", answer.out, answer.err);
    let last = answer.out.trim_end().lines().last().expect("a line");
    last.trim().to_owned()
}

#[test]
fn each_cause_is_explained_with_its_nodes_and_a_remedy() {
    let all = jobs();
    assert!(all.len() >= 40, "only {} causes", all.len());
    for (cause, manifest) in &all {
        let text = planned(cause, manifest);
        expect_test::expect_file![folder().join(format!("{cause}.txt"))].assert_eq(&format!("{text}\n"));
        assert!(text.contains("node") && text.contains("; "), "{cause}: no count of nodes or no remedy in {text}");
    }
}

/// Says for the cluster that a node has these drivers.
async fn name_drivers(client: &Client, node: &str, names: &[String]) {
    let drivers: Api<CSIDriver> = Api::all(client.clone());
    for name in names {
        let driver = json!({ "metadata": { "name": name }, "spec": { "attachRequired": false } });
        let driver: CSIDriver = serde_json::from_value(driver).expect("a driver");
        let made = drivers.create(&PostParams::default(), &driver).await;
        let is_there = matches!(&made, Err(kube::Error::Api(status)) if status.code == 409);
        assert!(is_there || made.is_ok(), "driver {name}: {made:?}");
    }
    let listed: Vec<Value> = names.iter().map(|name| json!({ "name": name, "nodeID": node })).collect();
    let word = json!({ "metadata": { "name": node }, "spec": { "drivers": listed } });
    let word: CSINode = serde_json::from_value(word).expect("a CSINode");
    Api::<CSINode>::all(client.clone()).create(&PostParams::default(), &word).await.expect("a CSINode");
}

/// Puts the nodes and volumes of the folder on the API server, and keeps the nodes' Leases alive as agents would.
async fn stage(client: &Client, namespace: &str) -> tokio::task::JoinSet<()> {
    let mut leases = Vec::new();
    for document in cluster().replace("NAMESPACE", namespace).split("---\n") {
        let value: Value = serde_saphyr::from_str(document).expect("a manifest");
        let name = value["metadata"]["name"].as_str().expect("a name").to_owned();
        let status = json!({ "status": value["status"] });
        if value["kind"] == "ClientNode" {
            let api: Api<ClientNode> = Api::all(client.clone());
            let node: ClientNode = serde_json::from_value(value).expect("a node");
            api.create(&PostParams::default(), &node).await.expect("a node");
            let mut print = status["status"]["fingerprint"].clone();
            // A node alone is not believed what it says of plugins: these are the cluster's.
            let plugins = print["csi"].as_object_mut().into_iter().flatten();
            let names: Vec<String> = plugins
                .map(|(plugin, said)| {
                    said["source"] = json!("kubelet");
                    plugin.clone()
                })
                .collect();
            name_drivers(client, &name, &names).await;
            let status = json!({ "status": { "fingerprint": print } });
            api.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await.expect("its status");
            leases.push(format!("node-{name}"));
        } else {
            let api: Api<CSIVolume> = Api::namespaced(client.clone(), namespace);
            let mut volume: CSIVolume = serde_json::from_value(value).expect("a volume");
            // Whether it may be used is the leader's to say: not while it is being deleted.
            let is_going = volume.status.as_ref().is_some_and(|status| !status.schedulable);
            volume.metadata.finalizers = is_going.then(|| vec!["example.org/keep".to_owned()]);
            api.create(&PostParams::default(), &volume).await.expect("a volume");
            api.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await.expect("its status");
            if is_going {
                api.delete(&name, &DeleteParams::default()).await.expect("deleted");
            }
        }
    }
    let api: Api<Lease> = Api::namespaced(client.clone(), "drover-system");
    for name in &leases {
        let lease =
            json!({ "metadata": { "name": name }, "spec": { "holderIdentity": name, "leaseDurationSeconds": 10 } });
        let lease: Lease = serde_json::from_value(lease).expect("a lease");
        api.create(&PostParams::default(), &lease).await.expect("a lease");
    }
    let mut heartbeats = tokio::task::JoinSet::new();
    heartbeats.spawn(async move {
        let mut beat = tokio::time::interval(Duration::from_secs(2));
        loop {
            beat.tick().await;
            for name in &leases {
                let renewed = json!({ "spec": { "renewTime": now_micros() } });
                api.patch(name, &PatchParams::default(), &Patch::Merge(renewed)).await.expect("a renewal");
            }
        }
    });
    heartbeats
}

fn now_micros() -> String {
    SystemClock.now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_status_and_the_event_say_what_the_plan_says() {
    let cluster = shared();
    let namespace = "golden";
    cluster.namespace(namespace).await;
    let mut heartbeats = stage(&cluster.client, namespace).await;
    let nodes: Api<ClientNode> = Api::all(cluster.client.clone());
    cluster
        .eventually("the golden nodes are ready", async || {
            let listed = nodes.list(&ListParams::default()).await.expect("nodes");
            let is_golden = |node: &&ClientNode| node.name_any().starts_with("golden");
            let is_ready =
                |node: &ClientNode| node.status.as_ref().is_some_and(|status| status.phase == NodePhase::Ready);
            listed.items.iter().filter(is_golden).all(is_ready)
        })
        .await;
    let api: Api<Job> = Api::namespaced(cluster.client.clone(), namespace);
    let all = jobs();
    for manifest in all.values() {
        let job: Job = serde_saphyr::from_str(&manifest.replace("NAMESPACE", namespace)).expect("a job");
        api.create(&PostParams::default(), &job).await.expect("a job");
    }
    let events: Api<Event> = Api::namespaced(cluster.client.clone(), namespace);
    for cause in all.keys() {
        let wanted = std::fs::read_to_string(folder().join(format!("{cause}.txt"))).expect("an explanation");
        let wanted = format!("group web: {}", wanted.trim_end());
        cluster
            .eventually(&format!("the status of {cause} says {wanted}"), async || {
                let status = api.get(cause).await.expect("the job").status.unwrap_or_default();
                let mut placed = status.conditions.iter().filter(|one| one.r#type == JobConditionType::Placed);
                placed.any(|one| one.message == wanted)
            })
            .await;
        cluster
            .eventually(&format!("an event of {cause} says {wanted}"), async || {
                let listed = events.list(&ListParams::default()).await.expect("events");
                let is_it = |event: &&Event| {
                    let about = event.regarding.as_ref().and_then(|about| about.name.as_ref());
                    about == Some(cause) && event.reason.as_deref() == Some("PlacementFailed")
                };
                listed.items.iter().filter(is_it).any(|event| event.note.as_deref() == Some(wanted.as_str()))
            })
            .await;
    }
    heartbeats.shutdown().await;
}
