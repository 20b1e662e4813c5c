//! What an operator can do when drover's controller is gone for good: objects that wait for it are freed from outside.

use drover_testkit::documents::scrubbed;
use std::path::Path;

use drover_api::{Allocation, CSIVolume, Job};
use expect_test::expect;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Resource, ResourceExt};
use serde_json::json;

use crate::cli::{Answer, person};
use crate::cluster::{Cluster, Settings, job, logged};

const LINE: &str = "system release-finalizers";

async fn ask(cluster: &Cluster, ns: &str, flags: &str) -> Answer {
    person(cluster, ns, format!("{LINE} {flags}").trim_end(), String::new()).await
}

/// A volume that drover and somebody else hold, and that is being deleted.
async fn held_volume(cluster: &Cluster, ns: &str) -> Api<CSIVolume> {
    let volumes: Api<CSIVolume> = Api::namespaced(cluster.client.clone(), ns);
    let volume = json!({
        "apiVersion": "drover.dev/v1alpha1", "kind": "CSIVolume",
        // No plugin will ever delete its data.
        "metadata": { "name": "data", "finalizers": ["drover.dev/release-claims", "example.org/keep"],
            "annotations": { "drover.dev/delete-data": "true" } },
        "spec": { "pluginID": "p", "externalID": "e",
            "capabilities": [{ "accessMode": "single-node-writer", "attachmentMode": "file-system" }] },
    });
    volumes.create(&PostParams::default(), &serde_json::from_value(volume).expect("a volume")).await.expect("created");
    volumes.delete("data", &DeleteParams::default()).await.expect("deleted");
    volumes
}

async fn finalizers<K>(api: &Api<K>, name: &str) -> Vec<String>
where
    K: Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    api.get(name).await.expect("the object").finalizers().to_vec()
}

/// The processes of the tasks of a job's allocations.
async fn tasks(cluster: &Cluster, ns: &str, job: &str) -> Vec<String> {
    let allocs = cluster.allocs(ns).await;
    let of_job = allocs.iter().filter(|alloc| alloc.spec.job_name == job);
    of_job.map(|alloc| logged(cluster, "n-1", alloc, "t").trim().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::needless_raw_string_hashes, reason = "as expect-test writes it")]
async fn what_waits_for_a_controller_that_is_gone_is_freed_from_outside_and_nothing_else() {
    let cluster = Cluster::start("release", Settings::default()).await;
    let controller = cluster.controller();
    let _agent = cluster.agent("n-1").await;
    for ns in ["shop", "other"] {
        cluster.namespace(ns).await;
        cluster.apply(ns, &job("web", 2, &json!({}), "echo $$; exec sleep 1000"));
    }
    cluster.apply("shop", &job("stays", 1, &json!({}), "echo $$; exec sleep 1000"));
    cluster.runs("shop", &[0, 0, 1]).await;
    cluster.runs("other", &[0, 1]).await;
    let volumes = held_volume(&cluster, "shop").await;

    let refused = ask(&cluster, "shop", "--yes").await;
    let said = "it frees objects itself once their tasks have ended. Stop it first (`kubectl -n drover-system scale deploy -l app.kubernetes.io/component=controller --replicas=0`), or give --force";
    assert!(refused.code == 1 && refused.out.is_empty() && refused.err.contains(said), "{refused:?}");
    let lease = cluster.kubectl(&[
        "get",
        "lease",
        "drover-controller",
        "-n",
        "drover-system",
        "-o",
        "jsonpath={.spec.holderIdentity}",
    ]);
    let leads = format!("not freed: the controller {} leads, it renewed", lease.expect("a holder"));
    assert!(refused.err.contains(&leads), "{refused:?}");
    assert_eq!(finalizers(&volumes, "data").await.len(), 2);

    controller.kill();
    for ns in ["shop", "other"] {
        cluster.jobs(ns).delete("web", &DeleteParams::default()).await.expect("deleted");
    }
    // The first two say nothing of the leader: they write nothing.
    let shown = ask(&cluster, "shop", "--dry-run").await;
    assert_eq!(shown.code, 0, "{shown:?}");
    let told = scrubbed(&format!("{}{}", shown.out, shown.err));
    expect![[r#"
          NAMESPACE  OBJECT                  FINALIZER                    DELETED       LEAVES
          shop       alloc/web-g-0-#  drover.dev/node-cleanup      with its job  tasks on n-1
          shop       alloc/web-g-1-#  drover.dev/node-cleanup      with its job  tasks on n-1
          shop       csivol/data             drover.dev/release-claims    0s            -
          shop       djob/web                drover.dev/stop-allocations  0s            -
        tasks may still run: 2 allocations on n-1. A node's agent stops them when it sees that they are gone; without an agent they go on until the node's supervisor is ended (its process id is in supervisor.pid of the agent's stateDir)
        4 objects would be freed; nothing was written"#]]
    .assert_eq(&told);
    let refused = ask(&cluster, "shop", "").await;
    assert!(refused.code == 1 && refused.out.is_empty(), "{refused:?}");
    expect![[r#"
        error: not freed: standard input is no terminal to ask on; look at what would be freed with --dry-run, then give --yes
    "#]]
    .assert_eq(&refused.err);
    assert_eq!(finalizers(&cluster.jobs("shop"), "web").await, ["drover.dev/stop-allocations"]);
    let refused = ask(&cluster, "shop", "--yes --as jane").await;
    assert!(refused.code == 1 && refused.err.contains("you may not list djobs in namespace shop"), "{refused:?}");

    let running = tasks(&cluster, "shop", "web").await;
    assert!(running.len() == 2 && running.iter().all(|pid| is_process(pid)), "{running:?}");
    // The dead leader's Lease lasts a while longer.
    let freed = ask(&cluster, "shop", "--yes -o json").await;
    assert_eq!((freed.code, freed.json().as_array().map(Vec::len)), (0, Some(4)), "{freed:?}");
    assert!(freed.err.ends_with("\n4 objects freed\n"), "{freed:?}");
    assert!(cluster.jobs("shop").get_opt("web").await.expect("an answer").is_none());
    assert_eq!(finalizers(&volumes, "data").await, ["example.org/keep"]);
    let left: Vec<Allocation> = cluster.allocs("shop").await;
    assert!(left.iter().all(|alloc| alloc.spec.job_name == "stays"), "{left:?}");
    assert_eq!(left[0].finalizers(), ["drover.dev/node-cleanup"], "nobody deletes it");
    cluster
        .eventually("the agent stops the tasks of what is gone", async || running.iter().all(|pid| !is_process(pid)))
        .await;
    let stays = tasks(&cluster, "shop", "stays").await;
    assert!(stays.len() == 1 && is_process(&stays[0]), "{stays:?}");

    let again = ask(&cluster, "shop", "--yes").await;
    expect!["nothing waits for a finalizer of drover in namespace shop\n"].assert_eq(&again.err);
    assert_eq!((again.code, again.out.as_str()), (0, ""));
    let waits: Job = cluster.jobs("other").get("web").await.expect("another namespace's job waits on");
    assert!(waits.metadata.deletion_timestamp.is_some());
    let forced = ask(&cluster, "shop", "-A --yes --force").await;
    assert_eq!(forced.code, 0, "{forced:?}");
    assert!(cluster.jobs("other").get_opt("web").await.expect("an answer").is_none());
    assert!(cluster.allocs("other").await.is_empty());
}

fn is_process(pid: &str) -> bool {
    !pid.is_empty() && Path::new("/proc").join(pid).exists()
}
