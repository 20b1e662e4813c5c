//! Jobs that make others: dispatched by command and by manifest, launched on a schedule and by force.

use std::time::Duration;

use drover_api::Job;
use drover_api::job::{JobConditionType, JobPhase};
use drover_clock::{Clock, SystemClock};
use drover_testkit::control_plane::User;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::cli::{Answer, drover};
use crate::cluster::{Cluster, Settings, condition, job, logged, shared};
use crate::metrics::scrape;

fn batch(name: &str, fields: &Value, script: &str) -> Value {
    let mut whole = job(name, 1, &json!({}), script);
    whole["spec"]["type"] = json!("batch");
    for (field, value) in fields.as_object().expect("an object") {
        whole["spec"][field] = value.clone();
    }
    whole
}

/// Runs the command in a namespace.
fn run(cluster: &Cluster, namespace: &str, args: &[&str], stdin: &str) -> Answer {
    let kubeconfig = cluster.plane.kubeconfig(User::Admin).display().to_string();
    drover(&[args, &["-n", namespace, "--kubeconfig", &kubeconfig]].concat(), stdin)
}

/// The jobs that a job made, oldest first.
async fn children(cluster: &Cluster, namespace: &str, parent: &str) -> Vec<Job> {
    let all = cluster.jobs(namespace).list(&ListParams::default()).await.expect("jobs").items;
    let prefix = format!("{parent}-");
    all.into_iter().filter(|job| job.metadata.name.as_deref().unwrap_or_default().starts_with(&prefix)).collect()
}

/// What the task of a namespace's only allocation of a job wrote.
async fn output(cluster: &Cluster, namespace: &str, job: &str) -> String {
    let allocs = cluster.allocs(namespace).await;
    let alloc = allocs.iter().find(|alloc| alloc.spec.job_name == job).expect("an allocation");
    logged(cluster, "n-1", alloc, "t")
}

fn report_job() -> Value {
    let rules = json!({ "payload": "required", "metaRequired": ["day"], "metaOptional": ["who"] });
    let script = "cat ${NOMAD_TASK_DIR}/in.txt; echo \" $NOMAD_META_day [$NOMAD_META_who] $NOMAD_JOB_PARENT_ID $NOMAD_META_team\"";
    let mut parent = batch("report", &json!({ "parameterized": rules, "meta": { "team": "a" } }), script);
    parent["spec"]["groups"][0]["tasks"][0]["dispatchPayload"] = json!({ "file": "in.txt" });
    parent
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_is_dispatched_by_command_with_payload_meta_and_token() {
    const NS: &str = "dispatched";
    let cluster = shared();
    cluster.namespace(NS).await;
    cluster.apply(NS, &report_job());
    let armed = cluster.condition(NS, "report", JobConditionType::Armed, "True").await;
    assert_eq!(armed, "it waits to be dispatched");
    assert!(cluster.allocs(NS).await.is_empty(), "it runs nothing itself");

    let refused = run(&cluster, NS, &["job", "dispatch", "report", "--meta", "x=1"], "");
    assert_eq!((refused.code, refused.out.as_str()), (1, ""));
    for told in ["PayloadRequired", "has x, which", "MetaNotPermitted", "lacks day", "MetaMissing"] {
        assert!(refused.err.contains(told), "{told} is not in {}", refused.err);
    }
    let unknown = run(&cluster, NS, &["job", "dispatch", "nobody"], "");
    assert!(unknown.code == 1 && unknown.err.contains("djob/nobody"), "{}", unknown.err);

    let arguments =
        ["job", "dispatch", "report", "-", "--meta", "day=monday", "--idempotency-token", "t-1", "-o", "json"];
    let done = run(&cluster, NS, &arguments, "hello");
    assert_eq!(done.code, 0, "{}", done.err);
    let made: Job = serde_json::from_str(&done.out).expect("a job");
    let name = made.metadata.name.clone().expect("a name");
    assert!(made.spec.id.starts_with("report/dispatch-") && name.starts_with("report-dispatch-"), "{name}");
    assert_eq!(output(&cluster, NS, &name).await, "hello monday [] report a\n");

    let again = run(&cluster, NS, &[&arguments[..], &["--detach"]].concat(), "hello");
    assert_eq!(again.code, 0, "{}", again.err);
    assert!(again.err.contains("has this token already"), "{}", again.err);
    let same: Job = serde_json::from_str(&again.out).expect("a job");
    assert_eq!(same.metadata.uid, made.metadata.uid);
    assert_eq!(children(&cluster, NS, "report").await.len(), 1);
    cluster
        .eventually("the parent counts its child", async || {
            let parent = cluster.jobs(NS).get("report").await.expect("the parent");
            let children = parent.status.and_then(|status| status.children).unwrap_or_default();
            (children.pending, children.running, children.dead) == (0, 0, 1)
        })
        .await;
    let late = run(&cluster, NS, &["job", "dispatch", "report", "-", "--meta", "day=x", "--timeout", "1ms"], "hello");
    assert_eq!(late.code, 3, "{}", late.err);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_is_dispatched_by_manifest_even_one_that_came_before_its_parent() {
    const NS: &str = "gitops";
    let cluster = shared();
    cluster.namespace(NS).await;
    let manifest = |name: &str, token: &str, meta: Value| {
        json!({ "apiVersion": "drover.dev/v1alpha1", "kind": "Job", "metadata": { "name": name },
            "spec": { "type": "batch", "meta": meta,
                "dispatch": { "parent": "report", "payload": "aGVsbG8=", "idempotencyToken": token } } })
    };
    cluster.apply(NS, &manifest("monday", "1", json!({ "day": "monday", "who": "me" })));
    let told = cluster.condition(NS, "monday", JobConditionType::Stalled, "True").await;
    assert!(told.contains("report is no job of this namespace"), "{told}");
    cluster.apply(NS, &report_job());
    cluster.condition(NS, "monday", JobConditionType::Complete, "True").await;
    assert_eq!(output(&cluster, NS, "monday").await, "hello monday [me] report a\n");

    cluster.apply(NS, &manifest("twice", "1", json!({ "day": "monday" })));
    let told = cluster.condition(NS, "twice", JobConditionType::Stalled, "True").await;
    assert!(told.contains("is that of djob/monday"), "{told}");
    cluster.apply(NS, &manifest("wrong", "", json!({ "night": "x" })));
    let told = cluster.condition(NS, "wrong", JobConditionType::Stalled, "True").await;
    assert!(told.contains("MetaNotPermitted") && told.contains("MetaMissing"), "{told}");

    // What runs is what was dispatched, whatever becomes of the parent, and it does not run again.
    let mut changed = report_job();
    changed["spec"]["groups"][0]["tasks"][0]["config"]["args"] = json!(["-c", "false"]);
    cluster.apply(NS, &changed);
    cluster
        .eventually("the parent's new version is in effect", async || {
            let parent = cluster.jobs(NS).get("report").await.expect("the parent");
            parent.status.is_some_and(|status| status.version == Some(1))
        })
        .await;
    cluster.apply(NS, &manifest("monday", "1", json!({ "day": "monday", "who": "me" })));
    assert_eq!(cluster.allocs(NS).await.len(), 1);
    let refused =
        cluster.kubectl(&["patch", "djob/monday", "-n", NS, "--type=merge", "-p", r#"{"spec":{"meta":{"day":"x"}}}"#]);
    assert!(refused.expect_err("refused").contains("meta of a dispatched job cannot be changed"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_periodic_job_is_launched_by_force_and_says_when_it_is_next() {
    const NS: &str = "forced";
    let cluster = shared();
    cluster.namespace(NS).await;
    let fields = json!({ "periodic": { "crons": ["0 3 1 1 *", "30 2 29 2 *"], "timeZone": "Europe/Berlin" } });
    cluster.apply(NS, &batch("nightly", &fields, "echo $NOMAD_JOB_ID"));
    cluster.condition(NS, "nightly", JobConditionType::Armed, "True").await;
    let status = cluster.jobs(NS).get("nightly").await.expect("the job").status.expect("a status");
    let next = status.next_launch.expect("a next launch");
    assert!(next > SystemClock.now() && next.to_string().ends_with("-01-01T02:00:00Z"), "{next}");
    assert_eq!((status.columns.next_launch, status.last_launch), (next.to_string(), None));
    let wide = cluster.kubectl(&["get", "djob", "nightly", "-n", NS, "-o", "wide"]).expect("a table");
    assert!(wide.contains("NEXT-LAUNCH") && wide.contains(&next.to_string()), "{wide}");

    let forced = run(&cluster, NS, &["job", "periodic", "force", "nightly", "-o", "name"], "");
    assert_eq!(forced.code, 0, "{}", forced.err);
    let name = forced.out.trim().trim_start_matches("djob/").to_owned();
    let unix = name.strip_prefix("nightly-periodic-").expect("a launch").to_owned();
    assert_eq!(output(&cluster, NS, &name).await, format!("nightly/periodic-{unix}\n"));
    cluster
        .eventually("the parent knows its last launch", async || {
            let parent = cluster.jobs(NS).get("nightly").await.expect("the parent");
            let last = parent.status.and_then(|status| status.last_launch);
            last.is_some_and(|last| last.as_second().to_string() == unix)
        })
        .await;
    let none = run(&cluster, NS, &["job", "periodic", "force", &name], "");
    assert!(none.code == 1 && none.err.contains("is not periodic"), "{}", none.err);

    // Off is no fault, and what it launched stays.
    let off = r#"{"spec":{"periodic":{"enabled":false}}}"#;
    cluster.kubectl(&["patch", "djob/nightly", "-n", NS, "--type=merge", "-p", off]).expect("patched");
    cluster.condition(NS, "nightly", JobConditionType::Armed, "False").await;
    let parent = cluster.jobs(NS).get("nightly").await.expect("the parent");
    assert_eq!(parent.status.as_ref().and_then(|status| status.next_launch), None);
    assert_eq!(condition(&parent, JobConditionType::Ready).map(|(status, _)| status).as_deref(), Some("True"));
    cluster.kubectl(&["delete", "djob/nightly", "-n", NS]).expect("deleted");
    cluster.eventually("its launches go with it", async || children(&cluster, NS, "nightly").await.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_launch_whose_leader_dies_happens_once() {
    const NS: &str = "default";
    let cluster = Cluster::start("launch", Settings::default()).await;
    let controller = cluster.controller();
    let _agent = cluster.agent("n-1").await;
    let fields = json!({ "periodic": { "crons": ["* * * * *"], "prohibitOverlap": true } });
    cluster.apply(NS, &batch("minutely", &fields, "exec sleep 1000"));
    cluster.condition(NS, "minutely", JobConditionType::Armed, "True").await;
    let parent = cluster.jobs(NS).get("minutely").await.expect("the job");
    let next = parent.status.and_then(|status| status.next_launch).expect("a next launch");
    cluster.eventually("the launch is near", async || SystemClock.now() > next - Duration::from_secs(5)).await;
    let passed = async || SystemClock.now() > next + Duration::from_secs(1);
    if SystemClock.now() < next {
        controller.kill();
        cluster.eventually("the launch was missed", passed).await;
    } else {
        controller.kill();
    }
    let (_one, _other) = (cluster.controller(), cluster.controller());
    let due = format!("minutely-periodic-{}", next.as_second());
    cluster
        .eventually("it is made up for", async || {
            cluster
                .jobs(NS)
                .get_opt(&due)
                .await
                .expect("an answer")
                .is_some_and(|job| job.status.is_some_and(|status| status.phase == JobPhase::Running))
        })
        .await;
    cluster.runs(NS, &[0]).await;
    assert_eq!(children(&cluster, NS, "minutely").await.len(), 1);

    // The child runs at the next launch, which is left out.
    let second = next + Duration::from_mins(1);
    cluster.eventually("the next launch is near", async || SystemClock.now() > second - Duration::from_secs(5)).await;
    cluster
        .eventually("it is left out", async || {
            let parent = cluster.jobs(NS).get("minutely").await.expect("the job").status.expect("a status");
            parent.last_skipped_launch == Some(second) && parent.last_launch == Some(next)
        })
        .await;
    assert_eq!(children(&cluster, NS, "minutely").await.len(), 1);
}

/// What the controller says of its configuration.
async fn outcome(cluster: &Cluster) -> String {
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), "drover-system");
    let map = maps.get_opt("drover-heartbeat").await.expect("an answer");
    map.and_then(|map| map.data?.get("config").cloned()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_configuration_is_in_effect_at_once_and_a_wrong_one_is_refused() {
    const NS: &str = "default";
    let cluster = Cluster::start("config", Settings::default()).await;
    let _controller = cluster.controller();
    let _agent = cluster.agent("n-1").await;
    cluster.apply(NS, &batch("nightly", &json!({ "periodic": { "crons": ["0 3 1 1 *"] } }), "true"));
    cluster.condition(NS, "nightly", JobConditionType::Armed, "True").await;
    let forced = run(&cluster, NS, &["job", "periodic", "force", "nightly"], "");
    assert_eq!(forced.code, 0, "{}", forced.err);
    let configure = |text: &str| {
        let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "drover-config" },
            "data": { "config.yaml": text } });
        let applied = cluster.kubectl_with(&["apply", "-n", "drover-system", "-f", "-"], Some(&map.to_string()));
        applied.expect("applied");
    };
    configure("gc: {interval: 1s, jobThreshold: -1s}\n");
    cluster.eventually("it is refused", async || outcome(&cluster).await.contains("gc.jobThreshold")).await;
    let events = cluster.kubectl(&["get", "events", "-n", "drover-system", "-o", "json"]).expect("events");
    assert!(events.contains("ConfigRefused") && events.contains("must not be below 0"), "{events}");
    assert_eq!(children(&cluster, NS, "nightly").await.len(), 1, "the old one stays in effect");

    configure("gc: {interval: 1s, jobThreshold: 0s}\n");
    cluster.eventually("it is in effect", async || outcome(&cluster).await == "drover-config is in effect").await;
    cluster
        .eventually("the ended launch is collected", async || children(&cluster, NS, "nightly").await.is_empty())
        .await;
    cluster.kubectl(&["get", "djob", "nightly", "-n", NS]).expect("its parent stays");
}

/// Fails when a text holds a value that only its job may know.
fn holds_no_canary(place: &str, text: &str) {
    for canary in ["canary-env-41d0", "canary-payload-9b7e", "Y2FuYXJ5LXBheWxvYWQtOWI3Z"] {
        assert!(!text.contains(canary), "{place} holds {canary}: {text}");
    }
}

/// X-037 for environment and payload; `volumes` has it for Secrets, mount flags and publish contexts. Those who may
/// read a Job may read its spec; nothing else repeats what is in it, neither where all goes well nor in an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn must_survive_x_037_curiosity_about_the_environment_and_the_payload_of_jobs() {
    const NS: &str = "canaries";
    let cluster = Cluster::start("env-canary", Settings::default()).await;
    let (_controller, controller_at) = cluster.scraped_controller().await;
    let (_agent, agent_at) = cluster.scraped_agent("n-1").await;
    cluster.namespace(NS).await;
    let mut parent = report_job();
    let task = &mut parent["spec"]["groups"][0]["tasks"][0];
    task["env"] = json!({ "PASSWORD": "canary-env-41d0" });
    task["restart"] = json!({ "attempts": 0, "interval": "1h", "delay": "1s", "mode": "fail" });
    parent["spec"]["groups"][0]["reschedule"] = json!({ "attempts": 0, "interval": "1h", "unlimited": false });
    let mut fails = parent.clone();
    fails["metadata"]["name"] = json!("fails");
    fails["spec"]["groups"][0]["tasks"][0]["config"]["command"] = json!("/no/such/program");
    // The file would lie outside, the name of a variable is none, and neither error repeats a value.
    let mut invalid = fails.clone();
    invalid["metadata"]["name"] = json!("invalid");
    invalid["spec"]["groups"][0]["tasks"][0]["dispatchPayload"]["file"] = json!("../in.txt");
    invalid["spec"]["groups"][0]["tasks"][0]["env"] = json!({ "A=B": "canary-env-41d0" });
    let refused = cluster.kubectl_with(&["apply", "-n", NS, "-f", "-"], Some(&invalid.to_string()));
    holds_no_canary("the answer of the API server", &refused.expect_err("refused"));
    for (job, code) in [(&parent, 0), (&fails, 2)] {
        let name = job["metadata"]["name"].as_str().expect("a name");
        cluster.apply(NS, job);
        cluster.condition(NS, name, JobConditionType::Armed, "True").await;
        let args = ["job", "dispatch", name, "-", "--meta", "day=monday"];
        let done = run(&cluster, NS, &args, "canary-payload-9b7e");
        assert_eq!(done.code, code, "{}", done.err);
        holds_no_canary("drover job dispatch", &(done.out + &done.err));
    }
    let children = cluster.jobs(NS).list(&ListParams::default()).await.expect("jobs").items;
    let is_child = |job: &&Job| job.spec.dispatch.is_some();
    let names: Vec<String> = children.iter().filter(is_child).filter_map(|job| job.metadata.name.clone()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    let reports = names.iter().find(|name| name.starts_with("report-")).expect("one that ends well");
    let written = output(&cluster, NS, reports).await;
    assert!(written.contains("canary-payload-9b7e"), "the task has read it");

    let is_told = async || cluster.kubectl(&["get", "events", "-n", NS]).expect("events").contains("DriverError");
    cluster.eventually("the failure is told", is_told).await;
    holds_no_canary("an Event", &cluster.kubectl(&["get", "events", "-A", "-o", "yaml"]).expect("events"));
    let objects = cluster.kubectl(&["get", "djob,djv,alloc,ddep,cnode,csivol", "-A", "-o", "json"]).expect("objects");
    let mut objects: Value = serde_json::from_str(&objects).expect("JSON");
    for object in objects["items"].as_array_mut().expect("a list") {
        let annotations = object["metadata"]["annotations"].as_object_mut();
        annotations.map(|all| all.remove("kubectl.kubernetes.io/last-applied-configuration"));
        object.as_object_mut().map(|fields| fields.remove("spec"));
    }
    holds_no_canary("a status", &objects.to_string());
    for name in &names {
        for args in [vec!["job", "status", name], vec!["job", "history", name]] {
            let shown = run(&cluster, NS, &args, "");
            holds_no_canary(&args.join(" "), &(shown.out + &shown.err));
        }
    }
    for alloc in cluster.allocs(NS).await {
        let name = alloc.metadata.name.expect("a name");
        let shown = run(&cluster, NS, &["alloc", "status", &name], "");
        assert_eq!(shown.code, 0, "{}", shown.err);
        holds_no_canary("drover alloc status", &(shown.out + &shown.err));
    }
    let dump = run(&cluster, NS, &["dump"], "");
    assert!(dump.out.contains(&names[0]) && !dump.out.contains("Y2FuYXJ5LXBheWxvYWQtOWI3Z"), "{}", dump.err);
    for (part, at) in [("controller", controller_at), ("n-1", agent_at)] {
        holds_no_canary("a log", &cluster.log(part));
        holds_no_canary("a metric", &scrape(at).await);
    }
    let supervisor = std::fs::read_to_string(cluster.path("n-1/state/supervisor.log")).unwrap_or_default();
    holds_no_canary("the supervisor's log", &supervisor);
}

/// X-038 for payloads; `volumes` has it for mount flags and publish contexts, whose values stand in no object.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn must_survive_x_038_readers_who_list_every_kind() {
    const NS: &str = "readers";
    let cluster = Cluster::start("x-038", Settings::default()).await;
    let rbac = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/drover/files/rbac/people.yaml");
    cluster.kubectl(&["apply", "-f", &rbac.display().to_string()]).expect("roles");
    let _controller = cluster.controller();
    let _agent = cluster.agent("n-1").await;
    cluster.namespace(NS).await;
    let binding = ["create", "rolebinding", "reader", "-n", NS, "--clusterrole=drover-view", "--user=reader"];
    cluster.kubectl(&binding).expect("a binding");
    let literal = "--from-literal=payload=canary-payload-9b7e";
    cluster.kubectl(&["create", "secret", "generic", "order", "-n", NS, literal]).expect("a Secret");
    cluster.apply(NS, &report_job());
    cluster.condition(NS, "report", JobConditionType::Armed, "True").await;
    let both = ["job", "dispatch", "report", "-", "--payload-secret", "order", "--meta", "day=monday"];
    let refused = run(&cluster, NS, &both, "hello");
    assert!(refused.code != 0 && refused.err.contains("--payload-secret"), "{}", refused.err);
    let done =
        run(&cluster, NS, &["job", "dispatch", "report", "--payload-secret", "order", "--meta", "day=monday"], "");
    assert_eq!(done.code, 0, "{}", done.err);
    let child = children(&cluster, NS, "report").await.pop().and_then(|job| job.metadata.name).expect("a child");
    assert!(output(&cluster, NS, &child).await.starts_with("canary-payload-9b7e monday"), "the task has read it");
    for kind in ["djob", "djv", "alloc", "ddep", "csivol"] {
        let listed = cluster.kubectl(&["get", kind, "-n", NS, "-o", "yaml", "--show-managed-fields", "--as", "reader"]);
        let listed = listed.expect("a reader lists every kind");
        assert!(kind == "ddep" || kind == "csivol" || listed.contains("report"), "{kind}: {listed}");
        holds_no_canary(kind, &listed);
    }
    let closed = cluster.kubectl(&["get", "secret", "order", "-n", NS, "--as", "reader"]).expect_err("closed");
    assert!(closed.contains("forbidden"), "{closed}");
}
