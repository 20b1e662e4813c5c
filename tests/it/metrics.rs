//! What scrapes of a running controller and a running agent show: all of CONVENTIONS section 8, with bounded labels.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;

use drover_api::allocation::DesiredStatus;
use drover_api::job::JobConditionType;
use drover_api::{Allocation, CSIVolume, field_manager};
use drover_testkit::probe;
use expect_test::expect;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::alerts::firing;
use crate::cluster::{Cluster, Settings, job};

/// The table: names with their labels.
const TABLE: &[(&str, &[&str])] = &[
    ("drover_reconcile_total", &["controller", "result"]),
    ("drover_reconcile_duration_seconds", &["controller", "result"]),
    ("drover_evals", &["state"]),
    ("drover_eval_wait_seconds", &["type"]),
    ("drover_eval_process_seconds", &["type"]),
    ("drover_placements_total", &["result", "type"]),
    ("drover_plan_conflicts_total", &[]),
    ("drover_nodes_considered_total", &["stage"]),
    ("drover_deployments", &["phase"]),
    ("drover_deployment_steps_total", &["cause"]),
    ("drover_volume_claims", &["state"]),
    ("drover_volume_reap_seconds", &["step"]),
    ("drover_volume_tasks", &["state"]),
    ("drover_nodes", &["phase", "pool"]),
    ("drover_heartbeats_missed_total", &["pool"]),
    ("drover_allocations", &["client_status"]),
    ("drover_agent_tasks", &["driver", "state"]),
    ("drover_agent_task_start_seconds", &["driver", "phase"]),
    ("drover_agent_restore_seconds", &[]),
    ("drover_agent_status_writes_total", &["priority"]),
    ("drover_agent_status_coalesced_total", &[]),
    ("drover_kube_requests_total", &["code", "kind", "verb"]),
    ("drover_watch_restarts_total", &["kind"]),
    ("drover_leader", &["role"]),
    ("drover_job_info", &["job", "namespace", "type"]),
];

/// What a gateway adds, which says nothing of the rest.
const GATEWAY: &[(&str, &[&str])] = &[
    ("drover_gateway_tunnels", &[]),
    ("drover_gateway_open", &["kind"]),
    ("drover_gateway_calls_total", &["code", "verb"]),
    ("drover_gateway_carried_bytes_total", &["verb"]),
    ("drover_gateway_reviews_total", &["kind", "result"]),
    ("drover_gateway_relays_total", &["result"]),
    ("drover_gateway_certificate_expiry_seconds", &["certificate"]),
];

/// Checks a gateway's scrape against the table.
pub(crate) fn check_gateway(text: &str) {
    let found: BTreeMap<String, BTreeSet<String>> = samples(text)
        .into_iter()
        .filter(|sample| sample.name.starts_with("drover_gateway_"))
        .map(|sample| (sample.name, sample.labels.into_keys().collect()))
        .collect();
    let wanted: BTreeMap<String, BTreeSet<String>> = GATEWAY
        .iter()
        .map(|(name, labels)| ((*name).to_owned(), labels.iter().map(|label| (*label).to_owned()).collect()))
        .collect();
    assert_eq!(found, wanted);
}

/// One line of a scrape: its name without what a histogram adds, its labels, and its value.
#[derive(Debug)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

fn samples(text: &str) -> Vec<Sample> {
    let of_line = |line: &str| {
        let (series, value) = line.rsplit_once(' ').expect("a value");
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let labels = labels.trim_end_matches('}').split("\",").filter(|label| !label.is_empty());
        let labels = labels.map(|label| label.split_once("=\"").expect("a label"));
        let mut labels: BTreeMap<String, String> =
            labels.map(|(key, value)| (key.to_owned(), value.trim_end_matches('"').to_owned())).collect();
        labels.remove("le");
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name);
        Sample { name: base.to_owned(), labels, value: value.parse().expect("a number") }
    };
    text.lines().filter(|line| !line.starts_with('#')).map(of_line).collect()
}

pub(crate) async fn scrape(address: SocketAddr) -> String {
    let (status, text) = probe::get(address, "/metrics").await.expect("an answer");
    assert!(status.is_success(), "{status}: {text}");
    text
}

/// Waits until a scrape has a series that begins so, with a value above 0.
async fn shows(cluster: &Cluster, address: SocketAddr, series: &str) {
    cluster
        .eventually(&format!("{series} counts"), async || {
            let text = scrape(address).await;
            text.lines().any(|line| line.starts_with(series) && !line.ends_with(" 0"))
        })
        .await;
}

/// A volume that an allocation holds.
async fn claimed_volume(cluster: &Cluster, ns: &str, name: &str, holder: &Value) {
    let volumes: Api<CSIVolume> = Api::namespaced(cluster.client.clone(), ns);
    let volume = json!({
        "apiVersion": "drover.dev/v1alpha1", "kind": "CSIVolume", "metadata": { "name": name },
        "spec": { "pluginID": "p", "externalID": "e",
            "capabilities": [{ "accessMode": "single-node-writer", "attachmentMode": "file-system" }] },
    });
    volumes.create(&PostParams::default(), &serde_json::from_value(volume).expect("a volume")).await.expect("created");
    let mut claim =
        json!({ "mode": "write", "accessMode": "single-node-writer", "state": "taken", "attach": "attached" });
    claim.as_object_mut().expect("an object").extend(holder.as_object().expect("an object").clone());
    let claims = json!({
        "apiVersion": "drover.dev/v1alpha1", "kind": "CSIVolume", "metadata": { "name": name },
        "status": { "claims": [claim] },
    });
    // As an earlier leader has left it: what another manager owns, the controller could not take out of the list.
    let earlier = PatchParams::apply(field_manager::CONTROLLER_VOLUME).force();
    volumes.patch_status(name, &earlier, &Patch::Apply(claims)).await.expect("claimed");
}

/// What was scraped of a cluster, as its targets answered.
struct Scrapes {
    /// Of the controller while all was well.
    calm: String,
    /// And when the node was lost.
    controller: String,
    agent: String,
}

/// Does to a cluster what moves every metric, and returns what the controller and the agent say.
async fn busy_life(cluster: &Cluster, ns: &str) -> Scrapes {
    let (_controller, controller) = cluster.scraped_controller().await;
    let (agent_process, agent) = cluster.scraped_agent("n-1").await;
    cluster.namespace(ns).await;
    let update = json!({ "update": { "maxParallel": 1, "minHealthyTime": "10ms", "healthyDeadline": "20s", "progressDeadline": "1m" } });
    cluster.apply(ns, &job("website", 2, &update, "exec sleep 1000"));
    cluster.condition(ns, "website", JobConditionType::Ready, "True").await;
    cluster.apply(ns, &job("website", 2, &update, "exec sleep 1001"));
    cluster.condition(ns, "website", JobConditionType::Ready, "True").await;
    let nowhere = json!({ "constraints": [{ "lTarget": "${attr.kernel.name}", "operand": "=", "rTarget": "plan9" }] });
    cluster.apply(ns, &job("nowhere", 1, &nowhere, "exec sleep 1000"));
    let is_current = |alloc: &Allocation| alloc.spec.desired_status == DesiredStatus::Run;
    let holder = cluster.allocs(ns).await.into_iter().find(is_current).expect("an allocation").metadata;
    let holder = json!({ "allocID": holder.uid, "allocation": holder.name, "nodeName": "n-1" });
    claimed_volume(cluster, ns, "held", &holder).await;
    claimed_volume(cluster, ns, "left", &json!({ "allocID": "gone", "allocation": "gone" })).await;
    for series in [
        "drover_evals{state=\"blocked\"}",
        "drover_placements_total{type=\"service\",result=\"made\"}",
        "drover_placements_total{type=\"service\",result=\"unplaced\"}",
        "drover_nodes_considered_total{stage=\"evaluated\"}",
        "drover_nodes_considered_total{stage=\"filtered\"}",
        "drover_volume_claims{state=\"taken\"} 1",
        "drover_volume_reap_seconds_count{step=\"node\"} 1",
        "drover_volume_reap_seconds_count{step=\"controller\"} 1",
        "drover_volume_reap_seconds_count{step=\"free\"} 1",
        "drover_deployment_steps_total{cause=\"progress\"}",
        "drover_deployments{phase=\"successful\"}",
        "drover_allocations{client_status=\"running\"}",
        "drover_nodes{pool=\"default\",phase=\"ready\"}",
        "drover_leader{role=\"leader\"}",
        "drover_reconcile_total{controller=\"job\",result=\"written\"}",
        "drover_reconcile_total{controller=\"node\",result=\"unchanged\"}",
        "drover_job_info{namespace=\"shop\",job=\"website\",type=\"service\"}",
    ] {
        shows(cluster, controller, series).await;
    }
    for series in [
        "drover_agent_tasks{driver=\"raw_exec\",state=\"running\"} 2",
        "drover_agent_task_start_seconds_count{driver=\"raw_exec\",phase=\"prepare\"}",
        "drover_agent_task_start_seconds_count{driver=\"raw_exec\",phase=\"start\"}",
        "drover_agent_restore_seconds_count",
        "drover_agent_status_writes_total{priority=\"urgent\"}",
    ] {
        shows(cluster, agent, series).await;
    }
    let (calm, agent) = (scrape(controller).await, scrape(agent).await);
    agent_process.kill();
    shows(cluster, controller, "drover_heartbeats_missed_total{pool=\"default\"}").await;
    shows(cluster, controller, "drover_nodes{pool=\"default\",phase=\"down\"} 1").await;
    // Its writer may still write, and nobody can answer for it.
    let lost = json!({ "allocID": "lost", "allocation": "lost", "nodeName": "n-1" });
    claimed_volume(cluster, ns, "stuck", &lost).await;
    // So is the claim of the allocation that was lost with the node.
    shows(cluster, controller, "drover_volume_claims{state=\"node-detached\"} 2").await;
    Scrapes { calm, controller: scrape(controller).await, agent }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_metric_of_the_table_is_there_with_its_labels_and_no_name_is_one() {
    let cluster = Cluster::start("metrics", Settings::SOON).await;
    let ns = "shop";
    let scrapes = busy_life(&cluster, ns).await;
    let all: Vec<Sample> = samples(&scrapes.controller).into_iter().chain(samples(&scrapes.agent)).collect();
    assert!(all.iter().all(|sample| sample.value >= 0.0), "{all:?}");

    let found: BTreeMap<&str, BTreeSet<&str>> = all
        .iter()
        .map(|sample| (sample.name.as_str(), sample.labels.keys().map(String::as_str).collect::<BTreeSet<_>>()))
        .collect();
    let wanted: BTreeMap<&str, BTreeSet<&str>> =
        TABLE.iter().map(|(name, labels)| (*name, labels.iter().copied().collect())).collect();
    assert_eq!(found, wanted);

    let mut names = vec!["website".to_owned(), "nowhere".to_owned(), "n-1".to_owned()];
    for alloc in cluster.allocs(ns).await {
        names.extend([alloc.metadata.name.expect("a name"), alloc.metadata.uid.expect("a uid")]);
    }
    for sample in all.iter().filter(|sample| sample.name != "drover_job_info") {
        let shown = sample.labels.values().find(|value| names.iter().any(|name| value.contains(name)));
        assert_eq!(shown, None, "{sample:?}");
    }
    names_shown_to_operators_exist(&found.into_keys().chain(GATEWAY.iter().map(|(name, _)| *name)).collect());
    alerts_fire_on(&cluster, &scrapes).await;
}

/// The alerts that are called for are raised, and no others.
async fn alerts_fire_on(cluster: &Cluster, scrapes: &Scrapes) {
    let (calm, broken) = (("calm", scrapes.calm.as_str()), ("broken", scrapes.controller.as_str()));
    let agent = ("agent", scrapes.agent.as_str());
    let firing =
        firing(cluster, &[(vec![calm, agent], "20m"), (vec![broken, agent], "20m"), (vec![agent], "20m")]).await;
    expect![[r#"
        []
        [{"alert":"DroverClaimsStuck","labels":{}},{"alert":"DroverNodesDown","labels":{"pool":"default"}}]
        [{"alert":"DroverHasNoLeader","labels":{}}]
    "#]]
    .assert_eq(&firing);
}

/// What the dashboard and the alerts of the chart ask for is what there is.
fn names_shown_to_operators_exist(found: &BTreeSet<&str>) {
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/drover");
    for file in ["files/dashboard.json", "templates/monitoring.yaml"] {
        let text = std::fs::read_to_string(chart.join(file)).expect("a file of the chart");
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let asked: BTreeSet<&str> = text.split(|c| !word(c)).filter(|word| word.starts_with("drover_")).collect();
        assert!(!asked.is_empty(), "{file} asks for nothing");
        for name in asked {
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
            assert!(found.contains(base.unwrap_or(name)), "{file} asks for {name}, which nobody counts");
        }
    }
}
