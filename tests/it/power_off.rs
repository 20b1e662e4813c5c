//! Nodes with volumes lose their power, on a real API server and with a real driver: what is released at once, and what
//! waits until somebody answers for it that the node does not write any more.

use drover_api::Allocation;
use drover_api::allocation::ClientStatus;
use drover_api::csi_volume::ClaimState;
use drover_testkit::control_plane::User;
use serde_json::{Value, json};

use crate::cli::drover;
use crate::cluster::{Cluster, Settings, client_status};
use crate::volumes::{Disks, claims};

const NODES: [&str; 2] = ["n-1", "n-2"];

/// A job with one task that writes its allocation's id into a volume.
fn writer(job: &str, volume: &str, access_mode: &str) -> Value {
    let script = "echo $NOMAD_ALLOC_ID >> /data/log; exec sleep 10000";
    json!({
        "apiVersion": "drover.dev/v1alpha1", "kind": "Job", "metadata": { "name": job },
        "spec": {
            "groups": [{
                "name": "db", "ephemeralDisk": { "sizeMB": 110 },
                "volumes": [{ "name": "data", "type": "csi", "source": volume, "accessMode": access_mode,
                              "attachmentMode": "file-system" }],
                "update": { "minHealthyTime": "0s" },
                "tasks": [{ "name": "append", "driver": "exec", "config": { "command": "/bin/sh", "args": ["-c", script] },
                            "user": "nobody", "killTimeout": "2s", "volumeMounts": [{ "volume": "data", "destination": "/data" }],
                            "resources": { "cpu": 10, "memoryMB": 32 } }],
            }],
        },
    })
}

/// A job that is on this node if that is possible.
fn on(node: &str, job: &Value) -> Value {
    let mut job = job.clone();
    job["spec"]["affinities"] =
        json!([{ "lTarget": "${node.unique.name}", "operand": "=", "rTarget": node, "weight": 100 }]);
    job
}

/// A node is missed soon, and none that is only slow; a leader that is slow leads on, as a new one lets all nodes begin
/// again.
const TTL: Settings = Settings { ttl_and_grace: 5, lease: 10, api_server: None };

/// Two nodes with the driver, and a volume for one writer, which is on the first.
async fn start(name: &str, driver: &[String]) -> Disks {
    let cluster = Cluster::start(name, TTL).await;
    let controller = cluster.controller();
    let disks = Disks::on(cluster, controller, &NODES, driver).await;
    disks.volume("v1", "single-node-writer");
    disks.cluster.apply("shop", &writer("db", "v1", "single-node-writer"));
    disks
}

/// The allocation of a job that runs and has written, on another node than this.
async fn runs(disks: &Disks, job: &str, volume: &str, but_not_on: &str) -> Allocation {
    let found = async || {
        disks
            .running(job, 0)
            .await
            .filter(|alloc| alloc.spec.node_name != but_not_on && has_written(disks, volume, alloc))
    };
    disks
        .cluster
        .eventually(&format!("{job} writes, and not on {but_not_on:?}"), async || found().await.is_some())
        .await;
    found().await.expect("it runs")
}

fn has_written(disks: &Disks, volume: &str, alloc: &Allocation) -> bool {
    disks.written(volume).lines().last() == alloc.metadata.uid.as_deref()
}

/// Waits until the writer's volume waits for a node, and fails if anybody else was placed meanwhile.
async fn is_fenced(disks: &Disks, node: &str) {
    let waits = |message: &str| message.contains("may still write") && message.contains(node);
    let seen = disks.until("v1", "fenced", |it| claims(it).iter().any(|claim| waits(&claim.error))).await;
    let all = claims(&seen);
    assert_eq!((all.len(), all[0].state, &*all[0].node_name), (1, ClaimState::NodeDetached, node));
    let shown = disks.cluster.kubectl(&["describe", "csivol", "v1", "-n", "shop"]).expect("described");
    assert!(shown.contains("DetachFailed") && waits(&shown), "{shown}");
    let allocs = disks.cluster.allocs("shop").await;
    let writers: Vec<_> = allocs
        .iter()
        .filter(|alloc| alloc.spec.job_name == "db" && client_status(alloc) == ClientStatus::Running)
        .collect();
    assert!(writers.is_empty(), "{writers:?}");
}

fn take_power(disks: &mut Disks, node: &str) {
    let agent = disks.agents.remove(node).expect("it runs");
    disks.cluster.power_off(node, agent);
}

async fn give_power(disks: &mut Disks, node: &str) {
    let agent = disks.cluster.agent(node).await;
    disks.agents.insert(node.to_owned(), agent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_whose_node_loses_its_power_is_detached_by_the_controller_half_and_writes_elsewhere() {
    let mut disks = start("power-controller", &[]).await;
    let first = runs(&disks, "db", "v1", "").await;
    let lost = first.spec.node_name.as_str();
    take_power(&mut disks, lost);
    let second = runs(&disks, "db", "v1", lost).await;
    let detached = format!("ControllerUnpublishVolume vol-v1 i-{lost}");
    assert_eq!(disks.calls(&detached).len(), 1, "{:?}", disks.calls(""));
    assert_eq!(disks.calls("NodeUnpublishVolume").len(), 0, "{:?}", disks.calls(""));
    // What was there when the power went does not write again when it comes back.
    give_power(&mut disks, lost).await;
    disks
        .cluster
        .eventually("the first is over", async || {
            let allocs = disks.cluster.allocs("shop").await;
            allocs
                .iter()
                .filter(|alloc| alloc.metadata.uid == first.metadata.uid)
                .all(|alloc| client_status(alloc).is_terminal())
        })
        .await;
    assert_eq!(runs(&disks, "db", "v1", lost).await.metadata.uid, second.metadata.uid);
    assert_eq!(disks.written("v1").lines().count(), 2, "{}", disks.written("v1"));
    let held = claims(&disks.stored("v1").await);
    assert_eq!((held.len(), Some(&held[0].alloc_id)), (1, second.metadata.uid.as_ref()));
}

/// Nobody can detach a node that is gone: one after the other, each that can answer for it does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_controller_half_a_writer_waits_for_its_node_its_deletion_or_a_person_and_shared_volumes_do_not() {
    let mut disks = start("power-fence", &["--no-attach".to_owned()]).await;
    disks.volume("v2", "multi-node-multi-writer");
    let first = runs(&disks, "db", "v1", "").await.spec.node_name;
    disks.cluster.apply("shop", &on(&first, &writer("shared", "v2", "multi-node-multi-writer")));
    runs(&disks, "shared", "v2", "").await;

    take_power(&mut disks, &first);
    runs(&disks, "shared", "v2", &first).await;
    is_fenced(&disks, &first).await;
    give_power(&mut disks, &first).await;
    let second = runs(&disks, "db", "v1", "").await.spec.node_name;
    assert_eq!(disks.written("v1").lines().count(), 2, "{}", disks.written("v1"));

    take_power(&mut disks, &second);
    is_fenced(&disks, &second).await;
    disks.cluster.kubectl(&["delete", "cnode", &second]).expect("deleted");
    let third = runs(&disks, "db", "v1", &second).await.spec.node_name;

    give_power(&mut disks, &second).await;
    take_power(&mut disks, &third);
    is_fenced(&disks, &third).await;
    let kubeconfig = disks.cluster.plane.kubeconfig(User::Admin).display().to_string();
    let detach = ["volume", "detach", "v1", &third, "-n", "shop", "--kubeconfig", &kubeconfig];
    let asked = drover(&detach, "");
    assert!(asked.code == 2 && asked.err.contains("--force"), "{}", asked.err);
    let forced = drover(&[&detach[..], &["--force"]].concat(), "");
    assert_eq!(forced.code, 0, "{}", forced.err);
    runs(&disks, "db", "v1", &third).await;
    assert_eq!(disks.written("v1").lines().count(), 4, "{}", disks.written("v1"));
}
