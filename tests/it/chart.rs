//! drover's chart on a real API server: what it renders, what it refuses, and what a stolen token of an agent can do.

use std::fmt::Write as _;
use std::path::Path;

use drover_testkit::control_plane::User;
use expect_test::expect_file;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Settings, job, shared};
use crate::helm::{helm, run, said};
use crate::kubeconform;

pub(crate) const SYSTEM: &str = "drover-system";
/// Stands in a Secret, and must be seen nowhere else.
const CANARY: &str = "s3cr3t-canary-7f21";

pub(crate) fn chart() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/drover").display().to_string()
}

/// A control plane with the chart installed, with these values.
pub(crate) async fn installed(name: &str, values: &[&str]) -> Cluster {
    let cluster = Cluster::bare(name, Settings::default()).await;
    // Nothing runs pods here, so that there is nothing to wait for.
    let mut install =
        helm(&cluster, SYSTEM, &["install", "drover", &chart(), "--create-namespace", "--timeout", "60s"]);
    for value in values {
        install.args(["--set", value]);
    }
    said(&run(install).await, true);
    cluster
}

/// A value, what it brings into what is rendered, and what it takes away.
const CHANGES: &[(&str, &str, &str)] = &[
    ("crds.enabled=false", "kind: ClusterRole\n", "kind: CustomResourceDefinition\n"),
    ("crds.keep=false", "kind: CustomResourceDefinition\n", "helm.sh/resource-policy"),
    ("rbac.create=false", "kind: CustomResourceDefinition\n", "kind: ClusterRole\n"),
    ("rbac.aggregate=false", "name: drover-view\n", "aggregate-to-view"),
    ("nodeRestriction.enabled=false", "name: drover-intents\n", "drover-node-restriction"),
    ("pluginRestriction.enabled=false", "name: drover-intents\n", "drover-plugins"),
    ("secretRestriction.enabled=false", "name: drover-intents\n", "drover-secrets"),
    ("rbac.volumesForAdmins=true", "name: drover-volume-admin\n", ""),
    ("nodeRestriction.registrationPools[0]=gpu", "'[\"gpu\",\"default\"]'", ""),
    ("agent.config.defaultIneligible=true", "object.spec.eligibility == 'ineligible'", ""),
    ("intents.enabled=false", "name: drover-node-restriction\n", "drover-intents"),
    ("jobPolicies.enabled=false", "name: drover-intents\n", "drover-old-fields"),
    ("jobPolicies.enabled=false", "name: drover-intents\n", "drover-driver-config"),
    ("stoppedWarning.enabled=false", "name: drover-intents\n", "drover-stopped"),
    ("flowControl.enabled=false", "kind: ClusterRole\n", "kind: FlowSchema\n"),
    ("networkPolicy.enabled=false", "kind: Deployment\n", "kind: NetworkPolicy\n"),
    ("nodeRestriction.enabled=false", "requiresNodeRestriction: false\n", "requiresNodeRestriction: true\n"),
    (
        "controller.podDisruptionBudget=false,gateway.podDisruptionBudget=false",
        "kind: Deployment\n",
        "kind: PodDisruptionBudget\n",
    ),
    (
        "controller.topologySpread=false,gateway.topologySpread=false",
        "kind: Deployment\n",
        "topologySpreadConstraints:\n",
    ),
    ("controller.replicas=3,gateway.replicas=3", "replicas: 3\n", "replicas: 2\n"),
    ("gateway.enabled=false", "kind: Deployment\n", "kind: APIService\n"),
    ("gateway.enabled=false", "kind: Deployment\n", "gateway.drover.dev"),
    ("gateway.enabled=false", "hasGateway: false\n", "hasGateway: true\n"),
    ("gateway.apiService=false", "apiService: false\n", "kind: APIService\n"),
    ("gateway.config.recheckEvery=30s", "recheckEvery: 30s\n", ""),
    ("nameOverride=orch", "agentAccount: orch-agent\n", "agentAccount: drover-agent\n"),
    ("controller.logLevel=debug", "value: \"debug\"", ""),
    ("image.tag=next", "drover.dev/droverd:next\"", "drover.dev/droverd:0.1.0\""),
    ("image.repository=example.org/d", "example.org/d:0.1.0", "drover.dev/droverd:"),
    ("image.pullPolicy=Always", "imagePullPolicy: Always\n", "imagePullPolicy: IfNotPresent\n"),
    ("imagePullSecrets[0].name=pull", "imagePullSecrets:\n      - name: pull\n", ""),
    ("agent.hostStatePath=/srv/drover", "stateDir: /srv/drover/state\n", "stateDir: /var/lib/drover/state\n"),
    ("agent.port=9999", "--listen=$(HOST_IP):9999\n", "--listen=$(HOST_IP):9465\n"),
    ("agent.nodePool=gpu", "nodePool: gpu\n", "nodePool: default\n"),
    ("agent.meta.rack=r1", "rack: r1\n", "meta: {}\n"),
    ("agent.updateStrategy.maxUnavailable=3", "maxUnavailable: 3\n", "maxUnavailable: 10%\n"),
    ("agent.resources.requests.cpu=250m", "cpu: 250m\n", ""),
    ("agent.config.gc.maxAllocs=7", "maxAllocs: 7\n", ""),
    ("controller.config.gc.interval=1m", "interval: 1m\n", ""),
    ("metrics.enabled=false", "kind: Deployment\n", "prometheus.io/scrape"),
    ("metrics.serviceMonitor.enabled=true", "kind: ServiceMonitor\n", ""),
    ("metrics.prometheusRule.enabled=true", "alert: DroverHasNoLeader\n", ""),
    ("metrics.perJob=true", "perJob: true\n", "perJob: false\n"),
    ("grafanaDashboard.enabled=true", "grafana_dashboard: \"1\"\n", ""),
    ("nameOverride=orch", "name: orch-controller-config\n", "name: drover-controller-config\n"),
    (
        "nameOverride=orch",
        "system:serviceaccount:drover-system:orch-agent",
        "system:serviceaccount:drover-system:drover-agent",
    ),
    ("nameOverride=orch", "app.kubernetes.io/name: orch\n", "app.kubernetes.io/name: drover\n"),
    ("agent.drainOnUninstall=true", "helm.sh/hook: pre-delete\n", ""),
    ("agent.privileged=false", "drop: [ALL]\n            add:\n", "privileged: true\n"),
    (
        "agent.volumeSecrets[0].namespace=shop,agent.volumeSecrets[0].names[0]=login",
        "resourceNames: [\"login\"]\n  verbs: [get]\n",
        "",
    ),
    (
        "gateway.secretNamespaces[0].namespace=shop,gateway.secretNamespaces[0].names[0]=db",
        "resources: [secrets, configmaps]\n  resourceNames: [\"db\"]\n  verbs: [list, watch]\n",
        "",
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_chart_is_clean_renders_alike_twice_and_refuses_values_that_it_does_not_know() {
    let cluster = shared();
    let render = async |values: &[&str]| {
        let mut command = helm(&cluster, SYSTEM, &["template", "drover", &chart()]);
        for value in values {
            command.args(["--set", value]);
        }
        run(command).await
    };
    said(&run(helm(&cluster, SYSTEM, &["lint", "--strict", &chart()])).await, true);
    let whole = said(&render(&[]).await, true);
    assert_eq!(whole, said(&render(&[]).await, true));
    let mut renders = vec![("0".to_owned(), whole.clone())];
    for (value, there, gone) in CHANGES {
        let text = said(&render(&[value]).await, true);
        // A value that only adds takes nothing away.
        assert!(gone.is_empty() || whole.contains(gone) && !text.contains(gone), "{value}: {gone:?}");
        assert!(text.contains(there), "{value}: {there:?}");
        assert_ne!(text, whole, "{value}");
        renders.push((renders.len().to_string(), text));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let summary = kubeconform::conform(&cluster.client, folder.path(), &renders).await;
    assert!(summary.contains("Invalid: 0, Errors: 0"), "{summary}");
    assert!(said(&render(&["commonLabels.team=core"]).await, true).contains("team: core"));
    let patient = said(&render(&["agent.drainOnUninstall=true", "agent.drainDeadlineSeconds=60"]).await, true);
    assert!(patient.contains("--deadline=60s") && patient.contains("activeDeadlineSeconds: 120\n"), "{patient}");
    for (value, key) in [
        ("crdz.enabled=false", "crdz"),
        ("rbac.creat=true", "creat"),
        ("rbac.volumesForAdmins=3", "/rbac/volumesForAdmins"),
        ("nodeRestriction.registrationPools=gpu", "/nodeRestriction/registrationPools"),
        ("crds.keep=3", "/crds/keep"),
        ("controller.replicas=0", "/controller/replicas"),
        ("agent.hostStatePath=here", "/agent/hostStatePath"),
        ("agent.drainOnUninstall=please", "/agent/drainOnUninstall"),
        ("agent.privileged=1", "/agent/privileged"),
        ("agent.drainDeadlineSeconds=0", "/agent/drainDeadlineSeconds"),
        ("agent.volumeSecrets[0].namespace=shop", "/agent/volumeSecrets/0"),
        ("gateway.secretNamespaces[0].names[0]=db", "/gateway/secretNamespaces/0"),
        ("metrics.perJob=3", "/metrics/perJob"),
        ("grafanaDashboard.enable=true", "enable"),
        ("nameOverride=Orch", "/nameOverride"),
    ] {
        let refusal = said(&render(&[value]).await, false);
        assert!(refusal.contains(key), "{value}: {refusal}");
    }
}

/// Makes a request as the holder of a token; the answer's code and text.
pub(crate) async fn ask(client: &Client, method: &str, path: &str, body: &Value) -> (u16, String) {
    let content = match method {
        "PATCH" => "application/merge-patch+json",
        "APPLY" => "application/apply-patch+yaml",
        _ => "application/json",
    };
    let verb = if method == "APPLY" { "PATCH" } else { method };
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request =
        http::Request::builder().method(verb).uri(path).header("content-type", content).body(body).expect("a request");
    match client.request_text(request).await {
        Ok(text) => (200, text),
        Err(kube::Error::Api(status)) => (status.code, status.message.clone()),
        Err(error) => (0, error.to_string()),
    }
}

pub(crate) async fn client_with(cluster: &Cluster, token: &str) -> Client {
    let file = Kubeconfig::read_from(cluster.plane.kubeconfig(User::Admin)).expect("a kubeconfig");
    let mut config =
        Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.expect("a configuration");
    config.auth_info = AuthInfo { token: Some(token.to_owned().into()), ..AuthInfo::default() };
    Client::try_from(config).expect("a client")
}

pub(crate) fn token(cluster: &Cluster, account: &str, of_node: Option<&str>) -> String {
    let mut args = vec!["create", "token", account, "-n", SYSTEM];
    if let Some(node) = of_node {
        args.extend(["--bound-object-kind", "Node", "--bound-object-name", node]);
    }
    cluster.kubectl(&args).expect("a token").trim().to_owned()
}

/// What is in the cluster before the theft: two nodes, an allocation and a Lease of each, and what else there is to
/// attack.
pub(crate) fn furnish(cluster: &Cluster) {
    let mut objects = vec![
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "shop" } }),
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "csi", "namespace": "shop" }, "stringData": { "key": CANARY } }),
        json!({ "apiVersion": "drover.dev/v1alpha1", "kind": "CSIVolume", "metadata": { "name": "data", "namespace": "shop" },
            "spec": { "pluginID": "p", "externalID": "e", "secretsRef": { "name": "csi" },
                "capabilities": [{ "accessMode": "single-node-writer", "attachmentMode": "file-system" }] } }),
        json!({ "apiVersion": "drover.dev/v1alpha1", "kind": "Job", "metadata": { "name": "web", "namespace": "shop" },
            "spec": { "groups": [{ "name": "g", "tasks": [{ "name": "t", "driver": "mock" }] }] } }),
        json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": "drover-controller", "namespace": SYSTEM },
            "spec": { "holderIdentity": "leader" } }),
    ];
    for node in ["n-1", "n-2"] {
        objects.extend([
            json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": node } }),
            json!({ "apiVersion": "drover.dev/v1alpha1", "kind": "ClientNode", "metadata": { "name": node }, "spec": {} }),
            json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": { "name": format!("node-{node}"), "namespace": SYSTEM }, "spec": { "holderIdentity": node } }),
            json!({ "apiVersion": "drover.dev/v1alpha1", "kind": "Allocation",
                "metadata": { "name": format!("web-g-0-{node}"), "namespace": "shop" },
                "spec": { "jobName": "web", "jobUID": "u", "jobVersion": 0, "group": "g", "index": 0, "nodeName": node,
                    "desiredStatus": "run", "resources": {} } }),
        ]);
    }
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects }).to_string();
    cluster.kubectl_with(&["apply", "-f", "-"], Some(&list)).expect("the furniture");
}

/// The lines of `attacks.yaml`: method, path and body.
fn attacks() -> Vec<(String, String, Value)> {
    let lines: Vec<Vec<Value>> = serde_saphyr::from_str(include_str!("chart/attacks.yaml")).expect("attacks");
    let text = |line: &[Value], at: usize| line[at].as_str().expect("a text").to_owned();
    lines.iter().map(|line| (text(line, 0), text(line, 1), line.get(2).cloned().unwrap_or_default())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn must_survive_a_stolen_token_of_an_agent() {
    let cluster = installed("stolen", &[]).await;
    furnish(&cluster);
    let stolen = client_with(&cluster, &token(&cluster, "drover-agent", Some("n-1"))).await;
    let attacks = attacks();
    assert!(attacks.len() >= 100, "{} attacks are too few", attacks.len());

    // A policy is in force a moment after it was stored.
    let (method, path, body) = &attacks[0];
    cluster.eventually("the policy is in force", async || ask(&stolen, method, path, body).await.0 == 403).await;
    let mut came_through = Vec::new();
    for (method, path, body) in &attacks {
        let (code, text) = ask(&stolen, method, path, body).await;
        if code != 403 {
            came_through.push(format!("{method} {path}: {code} {text}"));
        }
    }
    assert!(came_through.is_empty(), "{}", came_through.join("\n"));

    // What the node needs goes on.
    let at = |rest: &str| format!("/apis/drover.dev/v1alpha1/{rest}");
    let running = json!({ "status": { "clientStatus": "running", "observedGeneration": 1 } });
    let fingerprint = json!({ "status": { "fingerprint": { "attributes": { "kernel.name": "linux" } } } });
    for (path, body) in [
        (at("namespaces/shop/allocations/web-g-0-n-1/status"), running.clone()),
        (at("clientnodes/n-1/status"), fingerprint),
    ] {
        let (code, text) = ask(&stolen, "PATCH", &path, &body).await;
        assert_eq!(code, 200, "{path}: {text}");
    }
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/node-n-1");
    let (_, text) = ask(&stolen, "GET", &path, &Value::Null).await;
    let mut lease: Value = serde_json::from_str(&text).expect("its Lease");
    lease["spec"]["leaseDurationSeconds"] = json!(20);
    let (code, text) = ask(&stolen, "PUT", &path, &lease).await;
    assert_eq!(code, 200, "{path}: {text}");
    // Every agent reads every allocation and volume. So none of them holds a secret.
    for path in [at("allocations"), at("csivolumes"), at("clientnodes")] {
        let (code, text) = ask(&stolen, "GET", &path, &Value::Null).await;
        assert!(code == 200 && text.contains("n-1") | text.contains("csi") && !text.contains(CANARY), "{path}: {code}");
    }

    // A token that names no node is an agent's no more.
    let nameless = client_with(&cluster, &token(&cluster, "drover-agent", None)).await;
    let (code, text) = ask(&nameless, "PATCH", &at("namespaces/shop/allocations/web-g-0-n-1/status"), &running).await;
    assert!(code == 403 && text.contains("must name its node"), "{code}: {text}");
    // The controller is under no such policy.
    let controller = client_with(&cluster, &token(&cluster, "drover-controller", None)).await;
    let (code, text) = ask(&controller, "PATCH", &at("namespaces/shop/allocations/web-g-0-n-2/status"), &running).await;
    assert_eq!(code, 200, "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_applies_a_manifest_of_a_stopped_job_is_warned_that_it_stays_stopped() {
    let cluster = installed("stopped", &[]).await;
    cluster.namespace("shop").await;
    let manifest = |priority: i64| {
        let mut manifest = job("web", 0, &json!({}), "exec sleep 1000");
        manifest["spec"]["priority"] = json!(priority);
        manifest
    };
    cluster.apply("shop", &manifest(50));
    let stop = ["patch", "djob/web", "-n", "shop", "--type=merge", "-p", r#"{"spec":{"stop":true}}"#];
    assert_eq!(cluster.kubectl_saying(&stop, None).expect("a stop").1, "", "the stop itself is no reason to warn");
    let apply = |args: &[&str], manifest: &Value| {
        let args = [&["apply", "-n", "shop", "-f", "-"], args].concat();
        cluster.kubectl_saying(&args, Some(&manifest.to_string())).expect("an apply").1
    };
    let (priority, warned) = (std::cell::Cell::new(50), std::cell::RefCell::new(String::new()));
    cluster
        .eventually("the policy is in force", async || {
            priority.set(priority.get() + 1);
            *warned.borrow_mut() = apply(&[], &manifest(priority.get()));
            !warned.borrow().is_empty()
        })
        .await;
    let remedy = "djob/web stays stopped, because spec.stop is true; start it with \
                  `drover job start web -n shop`, or set spec.stop to false";
    assert!(warned.borrow().starts_with("Warning: ") && warned.borrow().contains(remedy), "{warned:?}");
    let server_side = ["--server-side", "--force-conflicts"];
    assert!(apply(&server_side, &manifest(99)).contains(remedy), "nothing changes, and it is still stopped");
    let mut started = manifest(99);
    started["spec"]["stop"] = json!(false);
    assert_eq!(apply(&server_side, &started), "");
}

/// A line of `kubectl auth can-i --list`. The verbs of several roles come in an order of chance.
fn with_verbs_in_order(line: &str) -> String {
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    let verbs = line.strip_suffix(']').and_then(|line| line.rsplit_once('['));
    let Some((before, verbs)) = verbs else { return line };
    let verbs: std::collections::BTreeSet<&str> = verbs.split(' ').collect();
    format!("{before}[{}]", verbs.into_iter().collect::<Vec<_>>().join(" "))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_are_as_the_tables_say_and_intents_ask_for_theirs() {
    let cluster = installed("rights", &[]).await;
    cluster.namespace("shop").await;
    for role in ["view", "edit", "admin"] {
        let binding =
            ["create", "rolebinding", role, "-n", "shop", &format!("--clusterrole={role}"), &format!("--user={role}")];
        cluster.kubectl(&binding).expect("a binding");
    }
    let list = |who: &str| {
        let listed = cluster.kubectl(&["auth", "can-i", "--list", "-n", "shop", "--as", who]).expect("a list");
        let mut lines: Vec<String> = listed
            .lines()
            .filter(|line| line.contains("drover.dev") || who.starts_with("system:") && !line.starts_with([' ', 'R']))
            .map(with_verbs_in_order)
            .collect();
        lines.sort();
        lines
    };
    // Kubernetes' own roles take drover's in a moment after they were stored.
    cluster
        .eventually("admin has drover's rights", async || {
            list("admin").iter().any(|line| line.starts_with("allocations.subresources.drover.dev/exec"))
                && list("view").len() > 1
                && list("edit").iter().any(|line| line.contains("deployments.drover.dev/promote"))
        })
        .await;
    let mut table = String::new();
    for who in [
        "view",
        "edit",
        "admin",
        "system:serviceaccount:drover-system:drover-controller",
        "system:serviceaccount:drover-system:drover-agent",
        "system:serviceaccount:drover-system:drover-gateway",
    ] {
        writeln!(table, "{who}").expect("a text");
        for line in list(who) {
            assert!(!line.contains('*'), "{who}: {line}");
            writeln!(table, "  {line}").expect("a text");
        }
    }
    expect_file!["../golden/chart/rights.txt"].assert_eq(&table);

    let deployment = json!({ "apiVersion": "drover.dev/v1alpha1", "kind": "Deployment", "metadata": { "name": "web-1", "namespace": "shop" },
        "spec": { "jobName": "web", "jobUID": "u", "jobVersion": 0, "jobGeneration": 1 } });
    cluster.kubectl_with(&["apply", "-f", "-"], Some(&deployment.to_string())).expect("a deployment");
    let patch_only =
        ["create", "role", "patcher", "-n", "shop", "--verb=get,patch", "--resource=deployments.drover.dev"];
    cluster.kubectl(&patch_only).expect("a role");
    cluster
        .kubectl(&["create", "rolebinding", "patcher", "-n", "shop", "--role=patcher", "--user=patcher"])
        .expect("a binding");
    let pause = |who: &str, paused: bool| {
        let patch = json!({ "spec": { "paused": paused } }).to_string();
        cluster.kubectl(&["patch", "ddep/web-1", "-n", "shop", "--type=merge", "-p", &patch, "--as", who])
    };
    cluster
        .eventually("the policy is in force", async || {
            // Each try asks for a change: a patch that changes nothing asks for no right.
            pause("edit", false).ok();
            pause("patcher", true).is_err_and(|error| error.contains("deployments/pause"))
        })
        .await;
    pause("edit", true).expect("edit may pause");
    let fail = cluster.kubectl(&[
        "patch",
        "ddep/web-1",
        "-n",
        "shop",
        "--type=merge",
        "-p",
        r#"{"spec":{"fail":true}}"#,
        "--as",
        "patcher",
    ]);
    assert!(fail.as_ref().is_err_and(|error| error.contains("needs the right to update deployments/fail")), "{fail:?}");
}
