//! What an editor of a namespace and whoever holds an agent's token try on the storage and the objects of others.

use std::cell::RefCell;

use drover_api::client_node::NodeConditionType;
use drover_api::csi_volume::{AttachState, VolumeConditionType, VolumeReason};
use drover_api::{CSIVolume, ClientNode, annotation};
use kube::Api;
use serde_json::{Value, json};

use crate::chart::{ask, client_with, furnish, installed, token};
use crate::cluster::{Cluster, Settings, job, shared};
use crate::volumes::{Disks, claims, ledger, made_volume};

/// The roles and policies of the chart that `cargo xtask up` applies too, and users `editor` and `storage` with their
/// roles in these namespaces.
async fn with_people(cluster: &Cluster, namespaces: &[&str]) {
    for folder in ["rbac", "policies"] {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/drover/files").join(folder);
        cluster.kubectl(&["apply", "-f", &folder.display().to_string()]).expect("roles and policies");
    }
    for namespace in namespaces {
        for (user, role) in [("editor", "drover-edit"), ("storage", "drover-edit"), ("storage", "drover-volume-admin")]
        {
            let (name, role, user) =
                (format!("{user}-{role}"), format!("--clusterrole={role}"), format!("--user={user}"));
            cluster.kubectl(&["create", "rolebinding", &name, "-n", namespace, &role, &user]).expect("a binding");
        }
    }
    let probe = plugin("probe", 1).to_string();
    cluster
        .eventually("roles and policies are in force", async || {
            let dry = |who: &str| {
                let args = ["create", "--dry-run=server", "-n", namespaces[0], "-f", "-", "--as", who];
                cluster.kubectl_with(&args, Some(&probe))
            };
            dry("editor").is_err_and(|error| error.contains("jobs/csiplugin")) && dry("storage").is_ok()
        })
        .await;
}

/// A job that is a plugin.
fn plugin(name: &str, n: i64) -> Value {
    let mut job = job(name, n, &json!({}), "exec sleep 1000");
    job["spec"]["groups"][0]["tasks"][0]["csiPlugin"] = json!({ "id": name, "type": "monolith" });
    job
}

fn apply_as(cluster: &Cluster, who: &str, namespace: &str, object: &Value) -> Result<String, String> {
    cluster.kubectl_with(&["apply", "-n", namespace, "-f", "-", "--as", who], Some(&object.to_string()))
}

fn condition(volume: &CSIVolume, kind: VolumeConditionType) -> Option<(VolumeReason, String)> {
    let found = volume.status.as_ref()?.conditions.iter().find(|found| found.r#type == kind)?;
    Some((found.reason, found.message.clone()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn must_survive_x_016_an_editor_who_writes_volumes_or_names_those_of_others() {
    let disks = Disks::start("x-016", &["n-1"]).await;
    disks.cluster.namespace("blog").await;
    with_people(&disks.cluster, &["shop", "blog"]).await;
    disks.make_at_driver("v1");
    let volume = made_volume("v1", "single-node-writer");
    let refused = apply_as(&disks.cluster, "editor", "shop", &volume).expect_err("an editor makes no volume");
    assert!(refused.contains("csivolumes") && refused.contains("forbidden"), "{refused}");
    apply_as(&disks.cluster, "storage", "shop", &volume).expect("who administrates storage does");
    for args in [
        &["annotate", "csivol/v1", "drover.dev/force-release=n-1"][..],
        &["patch", "csivol/v1", "--type=merge", "-p", r#"{"spec":{"mountOptions":{"fsType":"xfs"}}}"#],
        &["patch", "csivol/v1", "--subresource=status", "--type=merge", "-p", r#"{"status":{"createdByDrover":true}}"#],
        &["delete", "csivol/v1"],
        &["delete", "csivol", "--all"],
    ] {
        let refused = disks.cluster.kubectl(&[args, &["-n", "shop", "--as", "editor"]].concat());
        assert!(refused.as_ref().is_err_and(|error| error.contains("forbidden")), "{args:?}: {refused:?}");
    }
    disks.cluster.kubectl(&["get", "csivol/v1", "-n", "shop", "--as", "editor"]).expect("an editor reads it");
    // A job of its own namespace may name it; one of another finds no such volume, however it is named.
    apply_as(&disks.cluster, "editor", "shop", &ledger("v1", 1)).expect("a job");
    disks.cluster.eventually("it runs", async || disks.running("ledger", 0).await.is_some()).await;
    for (name, source) in [("plain", "v1"), ("path", "shop/v1"), ("up", "../shop/v1")] {
        let mut other = ledger(source, 1);
        other["metadata"]["name"] = json!(name);
        apply_as(&disks.cluster, "editor", "blog", &other).expect("a job");
        let told = async || {
            let job = disks.cluster.jobs("blog").get(name).await.expect("a job");
            job.status.is_some_and(|status| {
                status.conditions.iter().any(|found| found.message.contains("volume") && found.message.contains(source))
            })
        };
        disks.cluster.eventually(&format!("job {name} is told that there is no volume {source}"), told).await;
    }
    assert_eq!(disks.cluster.allocs("blog").await.len(), 0);
    let held = claims(&disks.stored("v1").await);
    assert!(held.len() == 1 && held[0].allocation.starts_with("ledger"), "{held:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn must_survive_x_017_a_second_volume_with_the_same_handle() {
    let disks = Disks::start("x-017", &["n-1"]).await;
    disks.cluster.namespace("blog").await;
    disks.volume("v1", "multi-node-multi-writer");
    disks.until("v1", "schedulable", |it| it.status.as_ref().is_some_and(|it| it.schedulable)).await;
    let mut second = made_volume("mine", "multi-node-multi-writer");
    second["spec"]["externalID"] = json!("vol-v1");
    disks.cluster.apply("blog", &second);
    let blog: Api<CSIVolume> = Api::namespaced(disks.cluster.client.clone(), "blog");
    let stalled = async || condition(&blog.get("mine").await.expect("a volume"), VolumeConditionType::Stalled);
    let is_told = async || {
        stalled().await.is_some_and(|(reason, text)| reason == VolumeReason::HandleInUse && text.contains("shop/v1"))
    };
    disks.cluster.eventually("the second one is told of the first", is_told).await;
    let mut thief = ledger("mine", 1);
    thief["spec"]["groups"][0]["volumes"][0]["accessMode"] = json!("multi-node-multi-writer");
    disks.cluster.apply("blog", &thief);
    let waits = async || {
        let job = disks.cluster.jobs("blog").get("ledger").await.expect("a job");
        job.status.is_some_and(|status| status.conditions.iter().any(|found| found.message.contains("mine")))
    };
    disks.cluster.eventually("a job that names it waits", waits).await;
    let object = blog.get("mine").await.expect("a volume");
    assert_eq!((claims(&object).len(), disks.cluster.allocs("blog").await.len()), (0, 0), "never claimed");
    assert!(condition(&disks.stored("v1").await, VolumeConditionType::Stalled).is_none(), "the first one goes on");
    // When the first one is gone the second one is the only one.
    disks.cluster.kubectl(&["delete", "csivol", "v1", "-n", "shop", "--timeout=60s"]).expect("deleted");
    let runs = async || disks.cluster.allocs("blog").await.len() == 1;
    disks.cluster.eventually("the second one can be used", runs).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn must_survive_x_018_the_deletion_of_data_that_drover_has_not_made() {
    let disks = Disks::start("x-018", &["n-1"]).await;
    disks.volume("v1", "single-node-writer");
    disks.until("v1", "schedulable", |it| it.status.as_ref().is_some_and(|it| it.schedulable)).await;
    let note = |value: &str| {
        let note = format!("{}{value}", annotation::DELETE_DATA);
        disks.cluster.kubectl(&["annotate", "csivol", "v1", "-n", "shop", &note]).expect("annotated");
    };
    note("=true");
    disks.cluster.kubectl(&["delete", "csivol", "v1", "-n", "shop", "--wait=false"]).expect("deleted");
    let says = |it: &CSIVolume| {
        condition(it, VolumeConditionType::Schedulable).is_some_and(|(_, text)| text.contains("drover has not made"))
    };
    let kept = disks.until("v1", "kept with the reason", says).await;
    let (_, text) = condition(&kept, VolumeConditionType::Schedulable).expect("a condition");
    assert!(text.contains("createdByDrover") && text.contains(annotation::DELETE_DATA), "{text}");
    assert_eq!(disks.calls("DeleteVolume"), Vec::<String>::new());
    note("-");
    let is_gone = async || {
        let api: Api<CSIVolume> = Api::namespaced(disks.cluster.client.clone(), "shop");
        api.get_opt("v1").await.expect("an answer").is_none()
    };
    disks.cluster.eventually("the object goes", is_gone).await;
    assert_eq!(disks.calls("DeleteVolume"), Vec::<String>::new());
    assert!(disks.cluster.path("disks/volumes/vol-v1/data").is_dir(), "the data are there");

    // What drover has made it deletes: it says so before the provider is asked, with the name that it chose.
    disks.fail("CreateVolume Internal\n");
    let mut made = made_volume("v2", "single-node-writer");
    made["spec"]["externalID"] = Value::Null;
    disks.cluster.apply("shop", &made);
    let is_noted =
        |it: &CSIVolume| it.status.as_ref().is_some_and(|it| it.created_by_drover && it.external_id.is_empty());
    let noted = disks.until("v2", "drover's before it is made", is_noted).await;
    let uid = noted.metadata.uid.expect("a uid");
    assert_eq!(noted.status.expect("a status").provider_name, format!("drover-{uid}"));
    disks.fail("");
    disks.until("v2", "made", |it| it.status.as_ref().is_some_and(|it| it.schedulable)).await;
    let note = format!("{}=true", annotation::DELETE_DATA);
    disks.cluster.kubectl(&["annotate", "csivol", "v2", "-n", "shop", &note]).expect("annotated");
    disks.cluster.kubectl(&["delete", "csivol", "v2", "-n", "shop", "--timeout=60s"]).expect("deleted");
    assert_eq!(disks.n_done("DeleteVolume"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn must_survive_x_019_keys_that_tell_a_driver_for_whom_it_acts() {
    let cluster = shared();
    for field in ["parameters", "context"] {
        let mut volume = made_volume("reserved", "single-node-writer");
        volume["spec"][field] = json!({ "type": "ssd" });
        let dry = |volume: &Value| {
            let args = ["create", "--dry-run=server", "-n", "default", "-f", "-"];
            cluster.kubectl_with(&args, Some(&volume.to_string()))
        };
        dry(&volume).expect("other keys");
        volume["spec"][field]["csi.storage.k8s.io/pod.name"] = json!("web-0");
        let refused = dry(&volume).expect_err("refused");
        let wanted = format!("keys of {field} that begin with csi.storage.k8s.io/");
        assert!(refused.contains(&format!("spec.{field}")) && refused.contains(&wanted), "{refused}");
    }
}

/// X-020, at admission: who may run a plugin at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn must_survive_x_020_an_editor_who_poses_as_a_plugin() {
    let cluster = Cluster::start("x-020-rights", Settings::default()).await;
    cluster.namespace("shop").await;
    with_people(&cluster, &["shop"]).await;
    let refused = apply_as(&cluster, "editor", "shop", &plugin("disks", 1)).expect_err("refused");
    for told in ["g/t", "job disks", "jobs/csiplugin", "drover-volume-admin", "namespace shop"] {
        assert!(refused.contains(told), "{told}: {refused}");
    }
    apply_as(&cluster, "storage", "shop", &plugin("disks", 1)).expect("who administrates storage may");
    // What runs in a plugin is the plugin's, and so is whatever its settings may name.
    let mut changed = plugin("disks", 1);
    changed["spec"]["meta"] = json!({ "provider": "mine" });
    apply_as(&cluster, "editor", "shop", &changed).expect_err("a change of its spec is refused");
    let stop =
        ["patch", "djob/disks", "-n", "shop", "--type=merge", "-p", r#"{"spec":{"stop":true}}"#, "--as", "editor"];
    cluster.kubectl(&stop).expect_err("and so is its stop");
    cluster.kubectl(&["label", "djob/disks", "-n", "shop", "team=core", "--as", "editor"]).expect("a label is none");
    apply_as(&cluster, "editor", "shop", &job("web", 1, &json!({}), "exec sleep 1")).expect("other jobs need no right");
}

async fn drivers_condition(cluster: &Cluster, node: &str) -> String {
    let nodes: Api<ClientNode> = Api::all(cluster.client.clone());
    let status = nodes.get(node).await.expect("a node").status.unwrap_or_default();
    let found = status.conditions.into_iter().find(|found| found.r#type == NodeConditionType::DriversHealthy);
    found.map(|found| found.message).unwrap_or_default()
}

fn patch_node(cluster: &Cluster, node: &str, status: &Value) {
    let body = json!({ "status": status }).to_string();
    cluster
        .kubectl(&["patch", "cnode", node, "--subresource=status", "--type=merge", "-p", &body])
        .expect("as its token may");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn must_survive_x_021_a_node_that_says_it_runs_a_plugin() {
    let cluster = Cluster::start("x-021", Settings::default()).await;
    let controller = cluster.controller();
    // First in the order of names, and without the plugin's job.
    let liar = cluster.agent("n-0").await;
    let agents =
        std::collections::BTreeMap::from([("n-0".to_owned(), liar), ("n-1".to_owned(), cluster.agent("n-1").await)]);
    let disks = Disks { controller: Some(controller), agents, cluster };
    disks.cluster.namespace("shop").await;
    let mut plugin = disks.plugin_job(&[]);
    plugin["spec"]["constraints"] = json!([{ "lTarget": "${node.unique.name}", "operand": "=", "rTarget": "n-1" }]);
    disks.cluster.apply("shop", &plugin);
    let lie = json!({ "fingerprint": { "csi": { "hostdir": {
        "controller": true, "node": true, "healthy": true, "requiresControllerPlugin": true, "nodeID": "i-n-0", "maxVolumes": 0,
        "allocID": "00000000-0000-0000-0000-000000000000",
        "capabilities": ["CREATE_DELETE_VOLUME", "PUBLISH_UNPUBLISH_VOLUME"],
    } } } });
    patch_node(&disks.cluster, "n-0", &lie);
    let is_told = async || {
        let said = drivers_condition(&disks.cluster, "n-0").await;
        said.contains("hostdir") && said.contains("no allocation of this node runs a task")
    };
    disks.cluster.eventually("the node is told that it does not count", is_told).await;
    disks.volume("v1", "single-node-writer");
    disks.cluster.apply("shop", &ledger("v1", 1));
    disks.cluster.eventually("it runs", async || disks.running("ledger", 0).await.is_some()).await;
    let status = disks.stored("v1").await.status.expect("a status");
    assert_eq!((status.controllers_healthy, &*status.claims[0].node_name), (1, "n-1"));
    assert_eq!(drivers_condition(&disks.cluster, "n-1").await, "all detected drivers are healthy");
    for (node, is_asked) in [("n-0", false), ("n-1", true)] {
        assert_eq!(disks.cluster.log(node).contains("the controller asks a plugin"), is_asked, "{node}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn must_survive_x_022_answers_to_requests_of_others() {
    // The asked agent stands still for a while.
    let cluster = Cluster::start("x-022", Settings { ttl_and_grace: 120, ..Settings::default() }).await;
    let controller = cluster.controller();
    let disks = Disks::on(cluster, controller, &["n-1", "n-2"], &[]).await;
    disks.volume("v1", "single-node-writer");
    disks.until("v1", "schedulable", |it| it.status.as_ref().is_some_and(|it| it.schedulable)).await;
    disks.agents["n-1"].freeze();
    disks.agents["n-2"].freeze();
    disks.cluster.apply("shop", &ledger("v1", 1));
    let nodes: Api<ClientNode> = Api::all(disks.cluster.client.clone());
    let requests = async |node: &str| {
        let status = nodes.get(node).await.expect("a node").status.unwrap_or_default();
        status.csi_requests.into_keys().collect::<Vec<_>>()
    };
    let asked = RefCell::new(None);
    disks
        .cluster
        .eventually("an agent is asked", async || {
            for (node, other) in [("n-1", "n-2"), ("n-2", "n-1")] {
                if let Some(name) = requests(node).await.pop() {
                    *asked.borrow_mut() = Some((node, other, name));
                }
            }
            asked.borrow().is_some()
        })
        .await;
    let (node, other, name) = asked.borrow().clone().expect("a request");
    let answer = json!({ "context": { "attachedTo": "thief" } });
    // The node that was not asked answers by the right name; the one that was answers what nobody asked.
    for (by, name) in [(other, name.as_str()), (node, "1-1")] {
        let mark = json!({ "drover.version": format!("seen-{by}") });
        patch_node(
            &disks.cluster,
            by,
            &json!({ "fingerprint": { "attributes": mark, "csiAnswers": { name: answer } } }),
        );
    }
    let are_seen = async || {
        for by in [node, other] {
            let columns = nodes.get(by).await.expect("a node").status.unwrap_or_default().columns;
            if columns.version != format!("seen-{by}") {
                return false;
            }
        }
        true
    };
    disks.cluster.eventually("the controller has taken both in", are_seen).await;
    let held = claims(&disks.stored("v1").await);
    assert_eq!((held[0].attach, held[0].publish_context.len()), (AttachState::Pending, 0), "nothing has changed");
    assert_eq!(requests(node).await, [name], "it is still asked");
    for agent in ["n-1", "n-2"] {
        disks.agents[agent].thaw();
    }
    disks.cluster.eventually("it runs", async || disks.running("ledger", 0).await.is_some()).await;
    let held = claims(&disks.stored("v1").await);
    // The task runs, so its driver got what the right controller has answered; readers see ciphertext.
    assert_eq!(held[0].publish_context.keys().collect::<Vec<_>>(), ["drover.dev/sealed"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn must_survive_x_023_a_token_that_registers_its_node_as_it_likes() {
    let cluster = installed("x-023", &["nodeRestriction.registrationPools[0]=gold"]).await;
    furnish(&cluster);
    let stolen = client_with(&cluster, &token(&cluster, "drover-agent", Some("n-1"))).await;
    cluster.kubectl(&["delete", "cnode", "n-1"]).expect("deleted");
    let path = "/apis/drover.dev/v1alpha1/clientnodes";
    let node = |spec: &Value, more: &Value| {
        let mut metadata = more.clone();
        metadata["name"] = json!("n-1");
        json!({ "apiVersion": "drover.dev/v1alpha1", "kind": "ClientNode", "metadata": metadata, "spec": spec })
    };
    let plain = json!({ "nodePool": "default", "datacenter": "dc1" });
    let with = |field: &str, value: Value| {
        let mut spec = plain.clone();
        spec[field] = value;
        node(&spec, &json!({}))
    };
    let dry = format!("{path}?dryRun=All");
    let first = with("nodePool", json!("silver"));
    cluster.eventually("the policy is in force", async || ask(&stolen, "POST", &dry, &first).await.0 == 403).await;
    let owner = json!([{ "apiVersion": "v1", "kind": "Node", "name": "n-1", "uid": "u" }]);
    for (field, object) in [
        ("spec.nodePool", first),
        ("spec.datacenter", with("datacenter", json!("dc9"))),
        ("spec.nodeClass", with("nodeClass", json!("gpu"))),
        ("spec.meta", with("meta", json!({ "trusted": "yes" }))),
        ("spec.drain", with("drain", json!({ "deadline": "1s" }))),
        ("spec.eligibility", with("eligibility", json!("ineligible"))),
        ("metadata", node(&plain, &json!({ "finalizers": ["example.org/stay"] }))),
        ("metadata", node(&plain, &json!({ "ownerReferences": owner }))),
        ("metadata", node(&plain, &json!({ "labels": { "a": "b" } }))),
        ("metadata", node(&plain, &json!({ "annotations": { "a": "b" } }))),
    ] {
        let (code, text) = ask(&stolen, "POST", &dry, &object).await;
        assert!(code == 403 && text.contains(field), "{field}: {code} {text}");
    }
    let allowed = with("nodePool", json!("gold"));
    assert_eq!(ask(&stolen, "POST", &dry, &allowed).await.0, 200, "a pool that the operator allows");
    let (code, text) = ask(&stolen, "POST", path, &node(&plain, &json!({}))).await;
    assert_eq!(code, 200, "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn must_survive_x_024_events_about_what_is_no_agents() {
    let cluster = installed("x-024", &[]).await;
    furnish(&cluster);
    let stolen = client_with(&cluster, &token(&cluster, "drover-agent", Some("n-1"))).await;
    let event = |name: &str, namespace: &str, about: Value| {
        json!({ "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": { "name": name, "namespace": namespace },
            "eventTime": "2026-01-01T00:00:00.000000Z", "type": "Warning", "reason": "TaskFailed", "action": "Run", "note": "n",
            "reportingController": "drover.dev/agent", "reportingInstance": "n-1", "regarding": about })
    };
    let about = |kind: &str, namespace: &str, name: &str| json!({ "apiVersion": "drover.dev/v1alpha1", "kind": kind, "namespace": namespace, "name": name });
    let own = event("own", "shop", about("Allocation", "shop", "web-g-0-n-1"));
    let with = |field: &str, value: &str| {
        let mut changed = own.clone();
        changed[field] = json!(value);
        changed
    };
    let mut related = own.clone();
    related["related"] = json!({ "apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "p" });
    let bad = [
        event("pod", "shop", json!({ "apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "p" })),
        event(
            "secret",
            "kube-system",
            json!({ "apiVersion": "v1", "kind": "Secret", "namespace": "kube-system", "name": "s" }),
        ),
        event("job", "shop", about("Job", "shop", "web")),
        event("volume", "shop", about("CSIVolume", "shop", "data")),
        event("elsewhere", "default", about("Allocation", "shop", "web-g-0-n-1")),
        event("node", "default", json!({ "apiVersion": "drover.dev/v1alpha1", "kind": "ClientNode", "name": "n-2" })),
        event(
            "no-group",
            "shop",
            json!({ "apiVersion": "v1", "kind": "Allocation", "namespace": "shop", "name": "a" }),
        ),
        with("reportingInstance", "n-2"),
        with("reportingController", "drover.dev/controller"),
        related,
    ];
    let path = |namespace: &str| format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events?dryRun=All");
    let post = async |object: &Value| {
        let namespace = object["metadata"]["namespace"].as_str().expect("a namespace");
        ask(&stolen, "POST", &path(namespace), object).await
    };
    cluster.eventually("the policy is in force", async || post(&bad[0]).await.0 == 403).await;
    for object in &bad {
        let (code, text) = post(object).await;
        assert!(code == 403 && text.contains("an agent"), "{}: {code} {text}", object["metadata"]["name"]);
    }
    let of_node = event(
        "of-node",
        "default",
        json!({ "apiVersion": "drover.dev/v1alpha1", "kind": "ClientNode", "name": "n-1" }),
    );
    for object in [&own, &of_node] {
        let (code, text) = post(object).await;
        assert_eq!(code, 200, "{text}");
    }
    // The older form of Events no role lets it write at all, and one that is there it cannot change.
    let older = json!({ "apiVersion": "v1", "kind": "Event", "metadata": { "name": "older", "namespace": "shop" },
        "involvedObject": about("Allocation", "shop", "web-g-0-n-1"), "reason": "R", "message": "m", "type": "Normal" });
    assert_eq!(ask(&stolen, "POST", "/api/v1/namespaces/shop/events", &older).await.0, 403);
    let there = "/apis/events.k8s.io/v1/namespaces/shop/events/own";
    assert_eq!(ask(&stolen, "PATCH", there, &json!({ "note": "x" })).await.0, 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn must_survive_x_025_words_of_the_controller_from_a_token_of_an_agent() {
    let cluster = installed("x-025", &[]).await;
    furnish(&cluster);
    let stolen = client_with(&cluster, &token(&cluster, "drover-agent", Some("n-1"))).await;
    let path = "/apis/drover.dev/v1alpha1/namespaces/shop/allocations/web-g-0-n-1/status";
    let condition = |kind: &str, status: &str, reason: &str| {
        json!({ "status": { "conditions": [{ "type": kind, "status": status, "reason": reason, "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1 }] } })
    };
    let states = json!({ "status": { "allocStates": [{ "field": "clientStatus", "value": "lost", "time": "2026-01-01T00:00:00Z" }] } });
    let bad = [
        states,
        condition("Stalled", "True", "Lost"),
        condition("Ready", "False", "Lost"),
        condition("Reconciling", "True", "Reconnecting"),
    ];
    cluster.eventually("the policy is in force", async || ask(&stolen, "PATCH", path, &bad[0]).await.0 == 403).await;
    for body in &bad {
        let (code, text) = ask(&stolen, "PATCH", path, body).await;
        assert!(code == 403 && text.contains("controller"), "{body}: {code} {text}");
    }
    let (code, text) = ask(&stolen, "PATCH", path, &condition("Ready", "True", "Running")).await;
    assert_eq!(code, 200, "{text}");
    // What the controller has said the agent may leave as it is, and take away when it is back.
    let said = condition("Reconciling", "True", "Reconnecting").to_string();
    let args = ["patch", "alloc", "web-g-0-n-1", "-n", "shop", "--subresource=status", "--type=merge", "-p", &said];
    cluster.kubectl(&args).expect("the controller's");
    let mut kept = condition("Reconciling", "True", "Reconnecting");
    kept["status"]["clientDescription"] = json!("as it is");
    for body in [kept, json!({ "status": { "conditions": [] } })] {
        let (code, text) = ask(&stolen, "PATCH", path, &body).await;
        assert_eq!(code, 200, "{body}: {text}");
    }
}
