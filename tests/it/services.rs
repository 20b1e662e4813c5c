//! Services and checks on a real API server, with real agents and processes.

use drover_api::allocation::CheckResult;
use drover_api::job::JobConditionType;
use drover_testkit::examples;
use drover_testkit::process::ProcessId;
use drover_testkit::progress::Progress;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::chart::{ask, client_with, installed, token};
use crate::cli::person;
use crate::cluster::{Cluster, Process, Settings, example, job, shared};

/// The example, whose web server is found wherever it was built.
fn manifest() -> String {
    let program = examples::build_web_server(&Progress::silent()).expect("the example's web server");
    example("web-service.yaml").replace("command: drover-example-web", &format!("command: {}", program.display()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b_034_the_example_is_healthy_by_its_check_and_a_version_that_fails_it_is_taken_back() {
    let (cluster, ns) = (shared(), "web-service");
    cluster.namespace(ns).await;
    let good = manifest();
    cluster.kubectl_with(&["apply", "-n", ns, "-f", "-"], Some(&good)).expect("applied");
    cluster.condition(ns, "web-service", JobConditionType::Ready, "True").await;
    for alloc in cluster.allocs(ns).await {
        let status = alloc.status.clone().unwrap_or_default();
        let result = &status.checks["group-web/hello/http/up"];
        assert_eq!((result.status, result.status_code), (CheckResult::Success, Some(200)));
        assert!(status.services[0].ready && status.services[0].service_name == "hello", "{:?}", status.services);
        let name = alloc.metadata.name.unwrap_or_default();
        let shown = person(&cluster, ns, &format!("alloc status {name}"), String::new()).await;
        assert!(shown.out.contains("\nChecks\n") && shown.out.contains("127.0.0.1:"), "{}", shown.out);
        let shown = person(&cluster, ns, &format!("alloc checks {name}"), String::new()).await;
        assert!(shown.out.contains("success") && shown.out.contains("200: http ok"), "{} {}", shown.out, shown.err);
    }

    // No Service leads to the loopback: the API server would refuse it.
    let refused = cluster.condition(ns, "web-service", JobConditionType::Services, "False").await;
    assert!(refused.contains("127.0.0.1 is no address of its Kubernetes node"), "{refused}");

    // The program does not speak TLS.
    let bad = good
        .replace("        path: /\n", "        protocol: https\n        path: /\n")
        .replace("healthyDeadline: 1m", "healthyDeadline: 5s")
        // Until then, what is not healthy is replaced: a version is taken back when its time for progress is over.
        .replace("progressDeadline: 2m", "progressDeadline: 10s")
        .replace("      resources: {cpu: 20,", "      env: {GREETING: bad}\n      resources: {cpu: 20,");
    assert!(bad.contains("protocol: https") && bad.contains("GREETING") && bad.contains("Deadline: 10s"), "{bad}");
    cluster.kubectl_with(&["apply", "-n", ns, "-f", "-"], Some(&bad)).expect("applied");
    cluster.condition(ns, "web-service", JobConditionType::Reverted, "True").await;
    let allocs = json!(cluster.allocs(ns).await).to_string();
    assert!(allocs.contains("check up of service hello fails"), "the check is the reason: {allocs}");
}

/// An agent on a node whose address others can reach.
async fn node_at(cluster: &Cluster, name: &str, address: &str) -> Process {
    let core = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name } }).to_string();
    cluster.kubectl_with(&["create", "-f", "-"], Some(&core)).expect("a node");
    let status = json!({ "status": { "addresses": [{ "type": "InternalIP", "address": address }] } }).to_string();
    cluster.kubectl(&["patch", "node", name, "--subresource=status", "--type=merge", "-p", &status]).expect("patched");
    cluster.agent_at(name, address).await
}

/// A controller, and such an agent.
async fn at_an_address(cluster: &Cluster) -> [Process; 2] {
    let controller = cluster.controller();
    [controller, node_at(cluster, "n-1", "10.77.0.1").await]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b_031_allocations_are_found_below_a_service_of_the_api_server() {
    let cluster = Cluster::start("services", Settings::default()).await;
    let ns = "found";
    cluster.namespace(ns).await;
    let _processes = at_an_address(&cluster).await;
    let service = |name: &str| {
        json!({ "networks": [{ "ports": [{ "label": "http" }] }],
            "services": [{ "name": name, "portLabel": "http", "tags": ["zone=a"],
                "kubernetes": { "port": 80, "appProtocol": "http" } }] })
    };
    cluster.apply(ns, &job("web", 3, &service("api"), "exec sleep 1000"));
    let slices: Api<EndpointSlice> = Api::namespaced(cluster.client.clone(), ns);
    let services: Api<Service> = Api::namespaced(cluster.client.clone(), ns);
    let below = |service: &str| ListParams::default().labels(&format!("kubernetes.io/service-name={service}"));
    let ready = async || {
        let all = slices.list(&below("api")).await.expect("slices");
        let endpoints = all.items.into_iter().flat_map(|slice| slice.endpoints.unwrap_or_default());
        endpoints.filter(|one| one.conditions.as_ref().and_then(|conditions| conditions.ready) == Some(true)).count()
    };
    cluster.eventually("three are ready", async || ready().await == 3).await;
    let spec = services.get("api").await.expect("a Service").spec.unwrap_or_default();
    assert!(spec.cluster_ip.is_some_and(|ip| ip != "None") && spec.selector.is_none());
    let allocs = cluster.allocs(ns).await;
    for slice in slices.list(&below("api")).await.expect("slices") {
        let owner = slice.metadata.owner_references.unwrap_or_default().remove(0);
        let alloc = allocs.iter().find(|alloc| alloc.metadata.name.as_ref() == Some(&owner.name));
        let port = alloc.expect("its allocation").spec.resources.ports[0].value;
        assert_eq!(slice.ports.unwrap_or_default()[0].port.map(i64::from), Some(port));
        assert_eq!(slice.endpoints.unwrap_or_default()[0].addresses, ["10.77.0.1"]);
        assert_eq!(slice.metadata.labels.unwrap_or_default()["tag.drover.dev/zone"], "a");
    }

    // B-037: a Service of others is left alone, unless it asks for slices.
    let foreign = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "taken" },
        "spec": { "ports": [{ "port": 80 }] } });
    cluster.kubectl_with(&["create", "-n", ns, "-f", "-"], Some(&foreign.to_string())).expect("a Service");
    cluster.apply(ns, &job("other", 1, &service("taken"), "exec sleep 1000"));
    let said = cluster.condition(ns, "other", JobConditionType::Services, "False").await;
    assert!(said.contains("there is a Service taken that drover has not made"), "{said}");
    cluster.kubectl(&["annotate", "-n", ns, "svc/taken", "drover.dev/endpoints=true"]).expect("annotated");
    cluster
        .eventually("the annotated Service has a slice", async || {
            slices.list(&below("taken")).await.expect("slices").items.len() == 1
        })
        .await;

    // B-036: nothing finds what stops.
    let stop = r#"{"spec":{"stop":true}}"#;
    cluster.kubectl(&["patch", "djob/web", "-n", ns, "--type=merge", "-p", stop]).expect("stopped");
    cluster.eventually("none is found any more", async || ready().await == 0).await;
    assert!(services.get_opt("api").await.expect("an answer").is_some(), "the name stays while its job does");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b_038_a_name_of_two_jobs_stays_with_one_of_them_and_goes_with_both() {
    let cluster = Cluster::start("two-jobs", Settings::default()).await;
    let ns = "two-jobs";
    cluster.namespace(ns).await;
    let _processes = at_an_address(&cluster).await;
    let group = json!({ "networks": [{ "ports": [{ "label": "http" }] }],
        "services": [{ "name": "api", "portLabel": "http" }] });
    for name in ["web", "shop"] {
        cluster.apply(ns, &job(name, 1, &group, "exec sleep 1000"));
    }
    let slices: Api<EndpointSlice> = Api::namespaced(cluster.client.clone(), ns);
    let services: Api<Service> = Api::namespaced(cluster.client.clone(), ns);
    // Owners of the Service and of its slices.
    let owners = async || {
        let service = services.get_opt("api").await.expect("an answer");
        let owners = service.map(|service| service.metadata.owner_references.unwrap_or_default());
        let mut of_service = owners.map(|owners| owners.into_iter().map(|owner| owner.name).collect::<Vec<_>>());
        if let Some(owners) = &mut of_service {
            owners.sort();
        }
        let below = ListParams::default().labels("kubernetes.io/service-name=api");
        let below = slices.list(&below).await.expect("slices").items;
        let mut of_slices: Vec<String> = below
            .into_iter()
            .map(|slice| slice.metadata.labels.unwrap_or_default()["drover.dev/job"].clone())
            .collect();
        of_slices.sort();
        (of_service, of_slices)
    };
    let of = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>();
    let both = (Some(of(&["shop", "web"])), of(&["shop", "web"]));
    cluster.eventually("both own it", async || owners().await == both).await;
    cluster.kubectl(&["delete", "djob/web", "-n", ns]).expect("deleted");
    // The garbage collector has looked at it, and left it to the other.
    let one = (Some(of(&["shop"])), of(&["shop"]));
    cluster.eventually("one owns it", async || owners().await == one).await;
    cluster.kubectl(&["delete", "djob/shop", "-n", ns]).expect("deleted");
    cluster.eventually("it is gone", async || owners().await == (None, vec![])).await;
}

/// What is found in a cluster, but for what is Kubernetes' own: service, address, port, and whether it is ready.
async fn found(cluster: &Cluster) -> Vec<String> {
    let slices: Api<EndpointSlice> = Api::all(cluster.client.clone());
    let all = slices.list(&ListParams::default()).await.expect("slices");
    let shown = |slice: EndpointSlice| {
        let service = slice.metadata.labels.unwrap_or_default().remove("kubernetes.io/service-name")?;
        let port = slice.ports.unwrap_or_default().first().and_then(|port| port.port)?;
        let endpoint = slice.endpoints.unwrap_or_default().into_iter().next()?;
        let ready = endpoint.conditions.and_then(|conditions| conditions.ready) == Some(true);
        Some(format!("{service} {}:{port} {}", endpoint.addresses.join(","), if ready { "ready" } else { "unready" }))
    };
    let mut found: Vec<String> = all.items.into_iter().filter_map(shown).collect();
    found.retain(|line| !line.starts_with("kubernetes "));
    found.sort();
    found
}

/// What the holder of an agent's token writes of its own allocations is taken, and leads no request elsewhere. Each lie
/// goes with a change that is followed, so that it was read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn must_survive_a_stolen_token_that_lies_about_what_is_found() {
    let cluster = installed("lies", &[]).await;
    let ns = "shop";
    cluster.namespace(ns).await;
    let _processes = at_an_address(&cluster).await;
    let _other_agent = node_at(&cluster, "n-2", "10.77.0.2").await;
    let on = |node: &str, service: &str| {
        json!({ "networks": [{ "ports": [{ "label": "http" }] }], "services": [{ "name": service, "portLabel": "http" }],
            "constraints": [{ "lTarget": "${node.unique.name}", "operand": "=", "rTarget": node }] })
    };
    cluster.apply(ns, &job("web", 1, &on("n-1", "api"), "exec sleep 1000"));
    cluster.apply(ns, &job("store", 1, &on("n-2", "db"), "exec sleep 1000"));
    cluster.eventually("both are found", async || found(&cluster).await.len() == 2).await;
    let allocs = cluster.allocs(ns).await;
    let of = |job: &str| allocs.iter().find(|alloc| alloc.spec.job_name == job).expect("an allocation");
    let port = |job: &str| of(job).spec.resources.ports[0].value;
    let truth = |ready: &str| {
        vec![format!("api 10.77.0.1:{} {ready}", port("web")), format!("db 10.77.0.2:{} ready", port("store"))]
    };
    let only = |name: &str| truth("ready").into_iter().filter(|line| line.starts_with(name)).collect::<Vec<_>>();
    cluster.eventually("both are ready", async || found(&cluster).await == truth("ready")).await;

    let stolen = client_with(&cluster, &token(&cluster, "drover-agent", Some("n-1"))).await;
    let status_of = |job: &str| {
        let name = of(job).metadata.name.clone().unwrap_or_default();
        format!("/apis/drover.dev/v1alpha1/namespaces/{ns}/allocations/{name}/status")
    };
    let registered = json!(of("web").status.clone().unwrap_or_default().services)[0].clone();
    let report = async |ready: bool, lie: &Value| {
        let mut own = registered.clone();
        own["ready"] = json!(ready);
        let mut services = vec![own];
        services.extend(lie.as_array().cloned().unwrap_or_default());
        if let Some(over) = lie.as_object() {
            services[0].as_object_mut().expect("an object").extend(over.clone());
        }
        ask(&stolen, "PATCH", &status_of("web"), &json!({ "status": { "services": services } })).await
    };
    let id = |text: &str| registered["id"].as_str().expect("an id").replace("api", text);
    let many: Vec<Value> = (0..60)
        .map(|n| json!({ "id": id(&format!("api{n}")), "serviceName": format!("api{n}"), "ready": true }))
        .collect();
    let lies = [
        ("another job's name", json!([{ "id": id("db"), "serviceName": "db", "ready": true }])),
        ("another job's name for its own id", json!({ "serviceName": "db" })),
        ("the API server's name", json!([{ "id": id("kubernetes"), "serviceName": "kubernetes", "ready": true }])),
        ("the gateway's name", json!([{ "id": "g", "serviceName": "drover-gateway", "ready": true }])),
        ("a path", json!([{ "id": "p", "serviceName": "../kube-system/kube-dns", "ready": true }])),
        ("an address and a port", json!({ "address": "10.77.0.2", "port": port("store") })),
        ("the same twice", json!([registered])),
        ("many names", json!(many)),
    ];
    for (what, lie) in &lies {
        let (code, text) = report(false, lie).await;
        match code {
            // Its own registration is gone with its name.
            200 if lie.get("serviceName").is_some() => {
                cluster.eventually(what, async || found(&cluster).await == only("db ")).await;
            }
            200 => cluster.eventually(what, async || found(&cluster).await == truth("unready")).await,
            422 => assert!(text.contains("status.services"), "{what}: {text}"),
            _ => panic!("{what}: {code} {text}"),
        }
        assert_eq!(report(true, &Value::Null).await.0, 200);
        cluster.eventually(what, async || found(&cluster).await == truth("ready")).await;
    }

    // What is another node's, and what no agent writes.
    let ready = json!({ "status": { "services": [registered] } });
    assert_eq!(ask(&stolen, "PATCH", &status_of("store"), &ready).await.0, 403);
    let allocation = status_of("web").replace("/status", "");
    let ports = json!({ "spec": { "resources": { "ports": [{ "label": "http", "value": 22 }] } } });
    assert_eq!(ask(&stolen, "PATCH", &allocation, &ports).await.0, 403);
    // Beside a status nothing else of the object is taken.
    let other = json!({ "metadata": { "labels": { "drover.dev/job": "store" } }, "spec": ports["spec"], "status": {} });
    let (code, text) = ask(&stolen, "PATCH", &status_of("web"), &other).await;
    let now: Value = serde_json::from_str(&text).expect("the allocation");
    assert_eq!((code, &now["spec"]["resources"]["ports"][0]["value"]), (200, &json!(port("web"))));
    assert_eq!(now["metadata"]["labels"]["drover.dev/job"], "web");

    // The address that its node has told is assigned to what comes next, and nothing leads there.
    let networks = json!([{ "name": "default", "cidr": "10.77.0.2/32", "interface": "eth0" }]);
    let node = json!({ "status": { "fingerprint": { "hostNetworks": networks } } });
    let (code, text) = ask(&stolen, "PATCH", "/apis/drover.dev/v1alpha1/clientnodes/n-1/status", &node).await;
    assert_eq!(code, 200, "{text}");
    cluster.apply(ns, &job("more", 1, &on("n-1", "more"), "exec sleep 1000"));
    let refused = cluster.condition(ns, "more", JobConditionType::Services, "False").await;
    assert!(refused.contains("10.77.0.2 is no address of its Kubernetes node"), "{refused}");
    assert_eq!(found(&cluster).await, truth("ready"));

    // What was stopped stays away, whatever is reported of it.
    let stop = r#"{"spec":{"stop":true}}"#;
    cluster.kubectl(&["patch", "djob/web", "-n", ns, "--type=merge", "-p", stop]).expect("stopped");
    cluster.eventually("nothing finds what stops", async || found(&cluster).await == only("db ")).await;
    let alive = json!({ "status": { "clientStatus": "running", "services": [registered] } });
    assert_eq!(ask(&stolen, "PATCH", &status_of("web"), &alive).await.0, 200);
    cluster.apply(ns, &job("last", 1, &on("n-2", "last"), "exec sleep 1000"));
    let last = async || found(&cluster).await.iter().any(|line| line.starts_with("last ") && line.ends_with(" ready"));
    cluster.eventually("a later allocation is found", last).await;
    assert!(!found(&cluster).await.iter().any(|line| line.starts_with("api ")), "{:?}", found(&cluster).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_runs_in_its_task_and_its_exit_code_is_what_the_check_finds() {
    let (cluster, ns) = (shared(), "script-checks");
    cluster.namespace(ns).await;
    for driver in ["raw_exec", "exec"] {
        // What it prints shows where it runs; what it is to do, a file in its task's folder says.
        let script = "read todo < local/todo; echo $todo in $NOMAD_TASK_NAME of $NOMAD_JOB_NAME as $(id -u); \
                      case $todo in hang) sleep 4712;; *) exit $todo;; esac";
        let check = json!({ "name": "up", "type": "script", "task": "t", "interval": "1s", "timeout": "1s",
            "command": "/bin/sh", "args": ["-c", script] });
        let group = json!({ "networks": [{ "ports": [{ "label": "http" }] }],
            "services": [{ "name": "api", "portLabel": "http", "checks": [check] }] });
        let mut whole =
            job(driver.replace('_', "-").as_str(), 1, &group, "umask 0; echo 0 > local/todo; exec sleep 1000");
        whole["spec"]["groups"][0]["tasks"][0]["driver"] = json!(driver);
        cluster.apply(ns, &whole);
        let name = driver.replace('_', "-");
        let found = async || {
            let allocs = cluster.allocs(ns).await;
            let alloc = allocs.into_iter().find(|alloc| alloc.spec.job_name == name)?;
            let status = alloc.status.clone().unwrap_or_default();
            let check = status.checks.values().next()?.clone();
            Some((check, status.services.first()?.ready, alloc.metadata.uid?))
        };
        let is = |status, ready, text: &str| {
            let text = text.to_owned();
            async move || {
                let found = found().await;
                found.is_some_and(|(check, is_ready, _)| {
                    check.status == status && is_ready == ready && check.output.contains(&text)
                })
            }
        };
        let (user, told) = if driver == "exec" { ("", "0 in t of exec as ") } else { ("0", "0 in t of raw-exec as ") };
        cluster.eventually("it passes", is(CheckResult::Success, true, &format!("{told}{user}"))).await;
        let (_, _, uid) = found().await.expect("an allocation");
        let todo = cluster.path(&format!("n-1/allocs/{uid}/t/local/todo"));
        for (word, status, ready, text) in [
            ("1", CheckResult::Warning, true, "exit code 1: 1 in t"),
            ("3", CheckResult::Failure, false, "exit code 3: 3 in t"),
            ("0", CheckResult::Success, true, "0 in t"),
            ("hang", CheckResult::Failure, false, "no answer within 1s"),
            ("0", CheckResult::Success, true, "0 in t"),
        ] {
            std::fs::write(&todo, format!("{word}\n")).expect("written");
            cluster.eventually(&format!("{driver}: {word}"), is(status, ready, text)).await;
        }
        // What hung was ended with its wait.
        assert_eq!(with_argument("4712"), [] as [Vec<String>; 0]);
    }
}

/// The command lines with this argument.
fn with_argument(argument: &str) -> Vec<Vec<String>> {
    ProcessId::all().map(ProcessId::words).filter(|words| words.iter().any(|word| word == argument)).collect()
}
