//! A driver that nobody here wrote: Kubernetes' own mock driver. It checks what it is told and mounts nothing.

use std::collections::BTreeMap;

use drover_testkit::control_plane::User;
use drover_testkit::progress::Progress;
use serde_json::json;

use crate::cli::drover;
use crate::cluster::{Cluster, Settings};
use crate::volumes::{Disks, ledger};

/// The calls that change something, without the ones that say the same again right away.
fn done(disks: &Disks) -> Vec<String> {
    let is_question =
        |name: &str| name.starts_with("Get") || name.contains("Capabilities") || name.starts_with("Probe");
    let calls = disks.calls("");
    let done = calls.iter().filter_map(|line| line.strip_suffix(" ok"));
    let mut names: Vec<String> =
        done.filter(|name| !is_question(name) && *name != "NodeGetInfo").map(str::to_owned).collect();
    names.dedup();
    names
}

/// Calls fail before or after they were carried out; each is made again until it is done, and in the right order.
#[tokio::test]
async fn a_driver_of_others_is_told_all_that_it_asks_for_and_its_failures_are_borne() {
    let cluster = Cluster::start("csi-mock", Settings::default()).await;
    let controller = Some(cluster.controller());
    let agents = BTreeMap::from([("n-1".to_owned(), cluster.agent("n-1").await)]);
    let disks = Disks { controller, agents, cluster };
    disks.cluster.namespace("shop").await;
    let text = |path: &str| disks.cluster.path(path).to_string_lossy().into_owned();
    let program = drover_testkit::csi_mock::find_or_build(&Progress::silent()).expect("the mock driver");
    let plugin = json!({
        "apiVersion": "drover.dev/v1alpha1", "kind": "Job", "metadata": { "name": "mock" },
        "spec": { "type": "system", "groups": [{ "name": "plugin", "ephemeralDisk": { "sizeMB": 110 }, "tasks": [{
            "name": "driver", "driver": "raw_exec", "csiPlugin": { "id": "mock", "type": "monolith" },
            "config": { "command": program, "args": ["i-${node.unique.name}", text("calls"), text("faults")] },
            "resources": { "cpu": 10, "memoryMB": 32 },
        }] }] },
    });
    // 14 is Unavailable, 13 Internal, 9 FailedPrecondition.
    disks.fail(
        "CreateVolume 14 after\nControllerPublishVolume 9\nControllerPublishVolume 14 after\nNodeStageVolume 14\n\
         NodePublishVolume 14 after\nControllerExpandVolume 13 after\nNodeExpandVolume 14\nCreateSnapshot 14 after\n\
         NodeUnpublishVolume 13\nNodeUnstageVolume 14 after\nControllerUnpublishVolume 13 after\nDeleteVolume 14 after\n",
    );
    disks.cluster.apply("shop", &plugin);
    let kubeconfig = disks.cluster.plane.kubeconfig(User::Admin).display().to_string();
    let run = |args: &[&str], stdin: &str| {
        let answer = drover(&[&["volume"][..], args, &["-n", "shop", "--kubeconfig", &kubeconfig]].concat(), stdin);
        assert_eq!(answer.code, 0, "{args:?}: {}", answer.err);
        answer.out
    };
    let known = |name: &str| {
        json!({
            "apiVersion": "drover.dev/v1alpha1", "kind": "CSIVolume", "metadata": { "name": name },
            "spec": { "pluginID": "mock", "capacity": { "min": "1Gi" },
                      "capabilities": [{ "accessMode": "single-node-writer", "attachmentMode": "file-system" }] },
        })
    };
    // Until its plugin is there the volume waits.
    disks.cluster.apply("shop", &known("v1"));
    let made = disks.until("v1", "made", |it| it.status.as_ref().is_some_and(|it| it.schedulable)).await;
    let status = made.status.expect("a status");
    assert_eq!((&*status.external_id, &*status.capacity), ("4", "1073741824"), "three were there: it was made once");
    disks.cluster.apply("shop", &ledger("v1", 1));
    disks.cluster.eventually("it runs", async || disks.running("ledger", 0).await.is_some()).await;
    let claimed = disks.stored("v1").await.status.expect("a status");
    assert_eq!(claimed.claims[0].publish_context.keys().collect::<Vec<_>>(), ["drover.dev/sealed"]);

    let change = r#"{"spec":{"capacity":{"min":"2Gi"}}}"#;
    disks.cluster.kubectl(&["patch", "csivol", "v1", "-n", "shop", "--type=merge", "-p", change]).expect("patched");
    disks.until("v1", "larger", |it| it.status.as_ref().is_some_and(|it| it.capacity == "2147483648")).await;
    let snapshot = run(&["snapshot", "create", "v1", "nightly"], "");
    let listed = run(&["snapshot", "list", "v1"], "");
    assert!(listed.contains(snapshot.trim()) && listed.contains("nightly"), "{snapshot:?} in {listed}");
    run(&["snapshot", "delete", "v1", snapshot.trim()], "");

    disks.cluster.kubectl(&["delete", "djob", "ledger", "-n", "shop"]).expect("deleted");
    disks.is_free("v1").await;
    run(&["delete", "v1"], "");
    let wanted = [
        "CreateVolume",
        "ControllerPublishVolume",
        "NodeStageVolume",
        "NodePublishVolume",
        "ControllerExpandVolume",
        "NodeExpandVolume",
        "CreateSnapshot",
        "ListSnapshots",
        "DeleteSnapshot",
        "NodeUnpublishVolume",
        "NodeUnstageVolume",
        "ControllerUnpublishVolume",
        "DeleteVolume",
    ];
    assert_eq!(done(&disks), wanted, "{:?}", disks.calls(""));
    let left = std::fs::read_to_string(disks.cluster.path("faults")).expect("faults");
    assert_eq!(left, "", "each fault was met");
}
