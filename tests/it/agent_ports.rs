//! Ports that others hold, and connections that nobody needs: drover's processes do their work all the same.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use drover_api::ClientNode;
use drover_api::client_node::{NodeCondition, NodeConditionType};
use drover_api::job::JobConditionType;
use drover_testkit::probe;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use serde_json::json;

use crate::cluster::{Cluster, Settings, job};

/// What the node's object says of its agent.
async fn impaired(cluster: &Cluster, node: &str) -> Option<NodeCondition> {
    let nodes: Api<ClientNode> = Api::all(cluster.client.clone());
    let found = nodes.get(node).await.expect("a node").status.unwrap_or_default();
    found.conditions.into_iter().find(|condition| condition.r#type == NodeConditionType::AgentImpaired)
}

/// A port of this machine that was free just now.
fn free_port() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    listener.local_addr().expect("an address")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn must_survive_x_012_a_task_that_holds_the_agents_port() {
    let cluster = Cluster::start("port-taken", Settings::default()).await;
    let _controller = cluster.controller();
    let at = free_port();
    let agent = cluster.agent_listening("n-0", at).await;
    cluster.namespace("shop").await;
    cluster.apply("shop", &job("web", 1, &json!({}), "exec sleep 1000"));
    cluster.condition("shop", "web", JobConditionType::Ready, "True").await;
    agent.abandon();

    // Any process of the node can do that as soon as the agent is away.
    let taken = TcpListener::bind((Ipv4Addr::UNSPECIFIED, at.port())).expect("the agent's port");
    let began = Instant::now();
    let ups = || cluster.log("n-0").matches("agent is up").count();
    let before = ups();
    let _agent = cluster.agent_listening_unready("n-0", at);
    cluster.eventually("the agent is up again", async || ups() > before).await;
    assert!(began.elapsed() < Duration::from_secs(5), "it took {:?}", began.elapsed());
    cluster.eventually("the node says so", async || impaired(&cluster, "n-0").await.is_some()).await;
    let condition = impaired(&cluster, "n-0").await.expect("a condition");
    let node = Api::<ClientNode>::all(cluster.client.clone()).get("n-0").await.expect("a node");
    let told = node.status.and_then(|status| status.fingerprint).expect("a fingerprint").agent_problems;
    assert_eq!(condition.message, format!("port: {}", told["port"]));
    let wanted = [at.to_string(), format!("End the process that holds port {}", at.port())];
    assert!(wanted.iter().all(|wanted| condition.message.contains(wanted)), "{condition:?}");

    // Tasks are looked after meanwhile: one that is asked for starts, one that is not ends.
    cluster.apply("shop", &job("more", 1, &json!({}), "exec sleep 1000"));
    cluster.condition("shop", "more", JobConditionType::Ready, "True").await;
    cluster.kubectl(&["delete", "djob", "web", "-n", "shop", "--timeout=60s"]).expect("deleted");

    drop(taken);
    cluster.eventually("the port answers", async || probe::get(at, "/readyz").await.is_ok()).await;
    cluster.eventually("the node is well", async || impaired(&cluster, "n-0").await.is_none()).await;
    cluster.kubectl(&["delete", "djob", "more", "-n", "shop", "--timeout=60s"]).expect("deleted");
}

/// Connections that say nothing, and as many that say half.
fn hold(at: SocketAddr, held: &mut Vec<TcpStream>) {
    for n in 0..1000 {
        let mut stream = TcpStream::connect(at).expect("connected");
        if n % 2 == 0 {
            // One that was cut already may say so.
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHo").ok();
        }
        held.push(stream);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn must_survive_x_013_connections_that_are_only_held() {
    let cluster = Cluster::start("held", Settings { ttl_and_grace: 4, ..Settings::default() }).await;
    let (_controller, controller) = cluster.scraped_controller().await;
    let (_agent, agent) = cluster.scraped_agent("n-0").await;
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), "drover-system");
    let renewed = async || leases.get("node-n-0").await.expect("a Lease").spec.and_then(|spec| spec.renew_time);
    // Three minutes of them are 90 renewals.
    let wanted = std::env::var("DROVER_HELD_RENEWALS").ok().and_then(|it| it.parse().ok()).unwrap_or(2);
    let (mut seen, mut last) = (0, renewed().await);
    let mut held = Vec::new();
    while seen < wanted {
        held.clear();
        for at in [controller, agent] {
            hold(at, &mut held);
        }
        for at in [controller, agent] {
            for path in ["/healthz", "/readyz"] {
                let asked = tokio::time::timeout(Duration::from_secs(5), probe::get(at, path)).await;
                let (status, text) = asked.expect("answered in time").expect("an answer");
                assert_eq!(status, 200, "{path} of {at}: {text}");
            }
        }
        let now = renewed().await;
        seen += u32::from(now != last);
        last = now;
        let phase = Api::<ClientNode>::all(cluster.client.clone()).get("n-0").await.expect("a node").status;
        assert_eq!(phase.expect("a status").phase.as_str(), "ready");
    }
}
