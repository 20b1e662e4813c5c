//! What an agent does with the capabilities that the chart gives its container where `agent.privileged` is off, and
//! what it says when it lacks one.

use drover_api::ClientNode;
use drover_api::client_node::DriverInfo;
use drover_api::job::JobConditionType;
use drover_testkit::probe;
use kube::Api;
use serde_json::{Value, json};

use crate::chart::{SYSTEM, chart};
use crate::cluster::{Cluster, Settings, job};
use crate::helm::{helm, run, said};

/// The capabilities in the chart's list.
async fn listed(cluster: &Cluster) -> Vec<String> {
    let agent =
        ["template", "drover", &chart(), "--set", "agent.privileged=false", "--show-only", "templates/agent.yaml"];
    let rendered = said(&run(helm(cluster, SYSTEM, &agent)).await, true);
    let agent: Value = serde_saphyr::from_str(&rendered).expect("a DaemonSet");
    let context = &agent["spec"]["template"]["spec"]["containers"][0]["securityContext"];
    assert_eq!(context["privileged"], false);
    serde_json::from_value(context["capabilities"]["add"].clone()).expect("a list")
}

/// What a node says of its driver `exec`, once it is registered.
async fn exec_of(cluster: &Cluster, node: &str) -> DriverInfo {
    let nodes: Api<ClientNode> = Api::all(cluster.client.clone());
    let found =
        async || nodes.get_opt(node).await.expect("an answer")?.status?.fingerprint?.drivers.get("exec").cloned();
    cluster.eventually(&format!("node {node} tells of its drivers"), async || found().await.is_some()).await;
    found().await.expect("a driver")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn root_runs_sandboxes_with_the_charts_capabilities_and_an_agent_that_lacks_one_says_which() {
    let cluster = Cluster::start("rights-of-agent", Settings::default()).await;
    let _controller = cluster.controller();
    let all = listed(&cluster).await;
    let lesser: Vec<String> = all.iter().filter(|name| *name != "SYS_ADMIN").cloned().collect();
    let (lesser, at) = cluster.agent_with_capabilities("n-0", &lesser).await;
    let exec = exec_of(&cluster, "n-0").await;
    assert!(!exec.healthy && exec.description.contains("lacks the capabilities sys_admin:"), "{exec:?}");
    let (status, text) = probe::get(at, "/readyz").await.expect("an answer");
    assert!(status == 503 && text.contains("rights: driver exec needs them"), "{status}: {text}");
    lesser.kill();

    let (_agent, at) = cluster.agent_with_capabilities("n-1", &all).await;
    let exec = exec_of(&cluster, "n-1").await;
    assert!(exec.healthy, "{exec:?}");
    cluster.namespace("shop").await;
    let mut sandboxed = job("sandboxed", 1, &json!({}), "exec sleep 1000");
    sandboxed["spec"]["groups"][0]["tasks"][0]["driver"] = json!("exec");
    cluster.apply("shop", &sandboxed);
    cluster.condition("shop", "sandboxed", JobConditionType::Ready, "True").await;
    let (status, text) = probe::get(at, "/readyz").await.expect("an answer");
    assert!(status == 200, "{status}: {text}");
    cluster.kubectl(&["delete", "djob", "sandboxed", "-n", "shop", "--timeout=30s"]).expect("deleted");
}
