//! What `helm uninstall` runs first where `agent.drainOnUninstall` is set, with the very arguments and rights that the
//! chart gives it.

use std::path::PathBuf;
use std::process::{Command, Output};

use drover_api::ClientNode;
use drover_api::client_node::Eligibility;
use expect_test::expect;
use kube::Api;
use serde_json::{Value, json};

use crate::chart::{SYSTEM, installed, token};
use crate::cli::person;
use crate::cluster::{Cluster, job};
use crate::helm::{helm, run, said};

const ACCOUNT: &str = "drover-drain";

/// A kubeconfig of whoever holds this token.
fn kubeconfig_with(cluster: &Cluster, token: &str) -> PathBuf {
    let admin = cluster.kubectl(&["config", "view", "--raw", "-o", "json"]).expect("a kubeconfig");
    let mut file: Value = serde_json::from_str(&admin).expect("JSON");
    file["users"][0]["user"] = json!({ "token": token });
    let path = cluster.path("token.kubeconfig");
    std::fs::write(&path, file.to_string()).expect("written");
    path
}

/// What the Job's account may do with drover's objects.
fn rights(cluster: &Cluster) -> Vec<String> {
    let who = format!("system:serviceaccount:{SYSTEM}:{ACCOUNT}");
    let listed = cluster.kubectl(&["auth", "can-i", "--list", "--as", &who]).expect("a list");
    let own = listed.lines().filter(|line| line.contains("drover.dev"));
    let mut lines: Vec<String> = own.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    lines.sort();
    lines
}

/// The arguments of the Job that Helm makes before it deletes the release.
async fn hook(cluster: &Cluster) -> Vec<String> {
    let hooks = said(&run(helm(cluster, SYSTEM, &["get", "hooks", "drover"])).await, true);
    let mut hooks = hooks.split("---\n").filter_map(|hook| serde_saphyr::from_str::<Value>(hook).ok());
    let job = hooks.find(|hook| hook["apiVersion"] == "batch/v1").expect("the Job");
    assert_eq!(job["metadata"]["annotations"]["helm.sh/hook"], "pre-delete");
    let pod = &job["spec"]["template"]["spec"];
    assert_eq!(pod["serviceAccountName"], ACCOUNT);
    let args = pod["containers"][0]["args"].as_array().expect("arguments");
    args.iter().map(|arg| arg.as_str().expect("a text").to_owned()).collect()
}

/// Does what the Job's pod does.
async fn drain(cluster: &Cluster, args: &[String]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_droverd"));
    command.args(args).arg("--kubeconfig").arg(kubeconfig_with(cluster, &token(cluster, ACCOUNT, None)));
    run(command).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::needless_raw_string_hashes, reason = "as expect-test writes it")]
async fn an_uninstall_that_is_to_drain_stops_all_tasks_first_or_says_which_still_run() {
    let cluster = installed("uninstall", &["agent.drainOnUninstall=true", "agent.drainDeadlineSeconds=50"]).await;
    // Rights are in force a moment after they were stored.
    cluster.eventually("the Job has its rights", async || !rights(&cluster).is_empty()).await;
    expect![[r#"
        allocations.drover.dev [] [] [list watch]
        clientnodes.drover.dev [] [] [list patch]"#]]
    .assert_eq(&rights(&cluster).join("\n"));

    let _controller = cluster.controller();
    let _agent = cluster.agent("n-1").await;
    let (ns, args) = ("shop", hook(&cluster).await);
    assert_eq!(args, ["stop-all", "--deadline=50s"]);
    cluster.namespace(ns).await;
    // Its tasks end after 2 s, when they are killed.
    cluster.apply(ns, &job("web", 2, &json!({}), "trap '' INT TERM; exec sleep 1000"));
    cluster.runs(ns, &[0, 1]).await;

    said(&drain(&cluster, &args).await, true);
    let over = cluster.allocs(ns).await;
    assert!(over.iter().all(|alloc| alloc.status.as_ref().is_some_and(|status| status.ended_at.is_some())), "{over:?}");
    let nodes: Api<ClientNode> = Api::all(cluster.client.clone());
    assert_eq!(nodes.get("n-1").await.expect("the node").spec.eligibility, Eligibility::Ineligible);
    assert!(!cluster.jobs(ns).get("web").await.expect("the job stays").spec.stop);
    said(&drain(&cluster, &args).await, true);

    let is_over = async || nodes.get("n-1").await.expect("the node").spec.drain.is_none();
    cluster.eventually("the controller has seen the end of the drain", is_over).await;
    // The next installation finds the job, and works on it when it may.
    let enabled = person(&cluster, ns, "node eligibility n-1 --enable", String::new()).await;
    assert_eq!(enabled.code, 0, "{enabled:?}");
    cluster.runs(ns, &[0, 1]).await;

    let failed = said(&drain(&cluster, &[args[0].clone(), "--deadline=1s".to_owned()]).await, false);
    let named = failed.contains("after 1s tasks still run: alloc shop/web-g-0-");
    assert!(named && failed.contains("helm uninstall --no-hooks"), "{failed}");
}
