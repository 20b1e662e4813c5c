//! Without any gateway: what the cluster lacks, who is told, and what the remedy does (`charts/drover`, its NOTES and
//! its alert say which).

use drover_testkit::control_plane::User;

use crate::alerts::firing;
use crate::balancer::Balancer;
use crate::cluster::{Cluster, client_status};
use crate::gateway::{Finds, Stage, aggregate, gateway, gateway_by, slice};

const API_SERVICE: &str = "v1alpha1.subresources.drover.dev";

/// What the API server tells Prometheus of the group.
fn scrape(cluster: &Cluster) -> String {
    let all = cluster.kubectl(&["get", "--raw", "/metrics"]).expect("metrics");
    let of_group = |line: &&str| line.starts_with("aggregator_unavailable_apiservice{") && line.contains(API_SERVICE);
    all.lines().filter(of_group).fold(String::new(), |text, line| text + line + "\n") + "# EOF\n"
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g_024_without_any_gateway_namespaces_wait_until_the_remedy_and_an_upgrade_heals() {
    let mut stage = Stage::start_with("gateway-gone", "", Finds::BySlices).await;
    let name = stage.run("web", "echo started; exec sleep 1000").await.metadata.name.expect("a name");
    let balancer = Balancer::start(stage.users).await;
    aggregate(&stage.cluster, balancer.at);
    let (second, at_second, agents) = gateway(&stage.cluster, "gateway-b", "").await;
    slice(&stage.cluster, "b", agents);
    balancer.lead_to(&[stage.users, at_second]);
    let answers = |stage: &Stage| stage.alloc(User::Admin, &["logs", &name]).out == b"started\n";
    stage.cluster.eventually("calls are carried", async || answers(&stage)).await;
    stage.cluster.namespace("short").await;
    let well = scrape(&stage.cluster);

    for replica in [stage.gateway.take().expect("a gateway"), second] {
        replica.kill();
    }
    let cluster = &stage.cluster;
    let of_group = format!("name=\"{API_SERVICE}\"}} 1");
    cluster.eventually("the API server counts it", async || scrape(cluster).contains(&of_group)).await;
    let gone = scrape(cluster);
    cluster.kubectl(&["delete", "namespace", "short", "--wait=false"]).expect("marked");
    let waits = || {
        let condition = "jsonpath={.status.conditions[?(@.type==\"NamespaceDeletionDiscoveryFailure\")]}";
        let said = cluster.kubectl(&["get", "namespace", "short", "-o", condition]).unwrap_or_default();
        said.contains("\"status\":\"True\"") && said.contains("subresources.drover.dev")
    };
    cluster.eventually("the namespace waits for the group", async || waits()).await;
    let (well, gone) = (("well", well.as_str()), ("gone", gone.as_str()));
    let firing = firing(cluster, &[(vec![well], "20m"), (vec![gone], "60s"), (vec![gone], "30s")]).await;
    let fires: Vec<bool> = firing.lines().map(|line| line.contains("DroverGatewayUnavailable")).collect();
    assert_eq!(fires, [false, false, true], "after a minute");
    // What drover exists for goes on.
    let status = cluster.allocs("shop").await.iter().map(client_status).collect::<Vec<_>>();
    assert!(status.iter().all(|status| status.as_str() == "running") && status.len() == 1, "{status:?}");

    cluster.kubectl(&["delete", "apiservice", API_SERVICE]).expect("the remedy");
    let is_gone = || cluster.kubectl(&["get", "namespace", "short"]).is_err_and(|why| why.contains("not found"));
    cluster.eventually("the namespace has gone", async || is_gone()).await;

    // The upgrade: the object is there again (`upgrade.rs` asks Helm for that), and so are the pods.
    aggregate(cluster, balancer.at);
    let kubeconfig = cluster.plane.kubeconfig(User::Gateway);
    let (third, users, agents) = gateway_by(cluster, ("gateway-c", &kubeconfig), "").await;
    slice(cluster, "c", agents);
    balancer.lead_to(&[users]);
    cluster.eventually("calls are carried again", async || answers(&stage)).await;
    drop(third);
}
