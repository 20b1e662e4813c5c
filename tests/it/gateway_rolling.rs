//! New values of a Secret that reach the allocations of a group one after the other, over nodes that two replicas of
//! the gateway serve.

use drover_api::Allocation;
use drover_api::allocation::{ClientStatus, TaskEventType, ValuesInUse};
use drover_api::job::JobConditionType;
use drover_testkit::control_plane::User;
use serde_json::{Value, json};

use crate::cluster::{client_status, job};
use crate::gateway::{Finds, Stage, agent_config, gateway};
use crate::gateway_values::{messages, opened, secret};

const KEY: &str = "Secret/conf";

/// Three slots on three nodes, whose second cannot live with the value `two`.
fn rolling() -> Value {
    let script = "v=$(cat local/x); echo start-$v >> ../alloc/data/log; \
                  if [ $v$NOMAD_ALLOC_INDEX = two1 ]; then exit 1; fi; exec sleep 1000";
    let group = json!({
        "constraints": [{ "operand": "distinct_hosts" }],
        "update": { "maxParallel": 1, "minHealthyTime": "1s", "healthyDeadline": "1m", "progressDeadline": "2m" },
        "reschedule": { "attempts": 0, "unlimited": false },
    });
    let mut whole = job("web", 3, &group, script);
    let template = json!({
        "embeddedTmpl": "{{with secret \"conf\"}}{{.Data.password}}{{end}}", "destPath": "local/x", "splay": "0s",
        "wait": { "min": "300ms", "max": "1s" }, "rolling": true,
    });
    let task = &mut whole["spec"]["groups"][0]["tasks"][0];
    task["templates"] = json!([template]);
    task["secrets"] = json!([{ "name": "conf", "path": "conf" }]);
    task["restart"] = json!({ "attempts": 0, "interval": "1h", "delay": "1s", "mode": "fail" });
    whole
}

/// The three, by their slots.
async fn slots(stage: &Stage) -> Vec<Allocation> {
    let mut all = stage.cluster.allocs("shop").await;
    all.sort_by_key(|alloc| alloc.spec.index);
    all
}

fn in_use(alloc: &Allocation) -> Option<ValuesInUse> {
    alloc.status.as_ref()?.task_states.get("t")?.values.get(KEY).cloned()
}

fn file(stage: &Stage, alloc: &Allocation, path: &str) -> String {
    let uid = alloc.metadata.uid.as_deref().expect("a uid");
    let path = stage.cluster.path(&format!("{}/allocs/{uid}/{path}", alloc.spec.node_name));
    std::fs::read_to_string(path).unwrap_or_default()
}

fn version(stage: &Stage) -> String {
    let get = ["get", "secret", "conf", "-n", "shop", "-o", "jsonpath={.metadata.resourceVersion}"];
    stage.cluster.kubectl(&get).expect("a version")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b_056_new_values_come_to_a_halt_at_the_second_of_three_and_the_third_keeps_what_it_has() {
    let stage = Stage::start_with("rolling", "", Finds::ByName).await;
    let cluster = &stage.cluster;
    let (_second, users_b, agents_b) = gateway(cluster, "gateway-b", "").await;
    let mut agents = Vec::new();
    for (node, named) in [("n-2", (agents_b, users_b)), ("n-3", (stage.agents, stage.users))] {
        let object = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": node } });
        cluster.kubectl_with(&["create", "-f", "-"], Some(&object.to_string())).expect("a node");
        let config = agent_config(cluster, node, Some(named)).await;
        agents.push(cluster.agent_more(node, &cluster.plane.kubeconfig(User::Agent), &config));
        cluster.ready(node).await;
    }
    cluster.namespace("shop").await;
    secret(cluster, "conf", "one");
    opened(&stage, &["conf"]);
    cluster.apply("shop", &rolling());
    cluster.condition("shop", "web", JobConditionType::Ready, "True").await;
    let first_version = version(&stage);
    let begun = slots(&stage).await;
    for alloc in &begun {
        assert_eq!(in_use(alloc).map(|values| values.version).as_ref(), Some(&first_version));
    }

    secret(cluster, "conf", "two");
    let second_version = version(&stage);
    cluster
        .eventually("the second has failed with the new value", async || {
            client_status(&slots(&stage).await[1]) == ClientStatus::Failed
        })
        .await;
    let second = begun[1].metadata.name.clone().expect("a name");
    let text = format!("keeps its values of Secret conf: allocation {second} is not healthy with the new ones");
    let says = async || {
        let third = slots(&stage).await.remove(2);
        messages(&third, TaskEventType::Template).iter().any(|said| said.contains(&text))
    };
    cluster.eventually("the third says why it waits", says).await;
    let after = slots(&stage).await;
    assert_eq!(after.len(), 3, "none has another in its place");
    let (first, third) = (&after[0], &after[2]);
    let logs = |alloc: &Allocation| file(&stage, alloc, "alloc/data/log");
    assert_eq!((logs(first).as_str(), logs(&after[1]).as_str()), ("start-one\nstart-two\n", "start-one\nstart-two\n"));
    assert_eq!((logs(third).as_str(), file(&stage, third, "t/local/x").as_str()), ("start-one\n", "one"));
    let versions: Vec<_> = after.iter().filter_map(in_use).map(|values| values.version).collect();
    assert_eq!(versions, [second_version.clone(), second_version, first_version]);
    // The second was given them when the first had been well for its minimal time.
    let since = |alloc: &Allocation| in_use(alloc).expect("values").since;
    let apart = since(&after[1]).duration_since(since(first));
    assert!(apart >= jiff::SignedDuration::from_secs(1), "{apart}");
    let third_name = third.metadata.name.as_deref().expect("a name");
    let told = || {
        let get = ["get", "events", "-n", "shop", "--field-selector", &format!("involvedObject.name={third_name}")];
        let events = cluster.kubectl(&get).expect("events");
        events.contains("ValuesHeldBack") && events.contains(&text)
    };
    cluster.eventually("an event tells it", async || told()).await;

    // Another change begins at the first again; what has failed takes no part in it.
    secret(cluster, "conf", "three");
    let reads = |alloc: &Allocation| file(&stage, alloc, "t/local/x");
    cluster.eventually("the third has it", async || reads(third) == "three").await;
    assert_eq!(reads(first), "three");
    cluster.eventually("it runs with it", async || logs(third) == "start-one\nstart-three\n").await;
}
