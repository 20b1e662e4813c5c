//! Templates of real tasks, whose values come through the gateway: what follows on a change, and that nothing else
//! does.

use drover_api::Allocation;
use drover_api::allocation::TaskEventType;
use drover_api::job::JobConditionType;
use drover_testkit::control_plane::User;
use serde_json::{Value, json};

use crate::cluster::job;
use crate::gateway::Stage;
use crate::gateway_values::{CANARY, alloc_of, holders, messages, opened, secret, with_secrets};

/// A job whose template shows what Secret `conf` holds in `local/x`, and what it does on a change.
fn follower(name: &str, script: &str, mode: &Value) -> Value {
    let mut template = json!({
        "embeddedTmpl": "{{with secret \"conf\"}}{{.Data.password}}{{end}}", "destPath": "local/x", "splay": "0s",
        "wait": { "min": "100ms", "max": "1s" },
    });
    template.as_object_mut().expect("an object").extend(mode.as_object().expect("an object").clone());
    let once = json!({ "attempts": 0, "interval": "1h", "delay": "1s", "mode": "fail" });
    let fields = json!({ "templates": [template], "secrets": [{ "name": "conf", "path": "conf" }], "restart": once });
    with_secrets(name, script, &fields)
}

fn restarts(alloc: &Allocation) -> i64 {
    alloc.status.as_ref().expect("a status").task_states["t"].restarts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b_055_a_changed_secret_reaches_each_task_as_its_template_says_and_once() {
    let mut stage = Stage::start("templates", "").await;
    stage.cluster.namespace("shop").await;
    secret(&stage.cluster, "conf", "one");
    opened(&stage, &["conf"]);
    // Each start and each reaction is a line in a file that the tasks of the allocation share.
    let lasting = "echo start-$(cat local/x) >> ../alloc/data/log; exec sleep 1000";
    let hears = "echo start-$(cat local/x) >> ../alloc/data/log; \
                 trap 'echo signal-$(cat local/x) >> ../alloc/data/log' HUP; while :; do sleep 0.1; done";
    let reload = json!({ "command": "/bin/sh",
                         "args": ["-c", "echo script-$(cat local/x) >> ../alloc/data/log"], "timeout": "1m" });
    for (name, script, mode) in [
        ("restart", lasting, json!({})),
        ("signal", hears, json!({ "changeMode": "signal", "changeSignal": "SIGHUP" })),
        ("script", lasting, json!({ "changeMode": "script", "changeScript": reload })),
        ("noop", lasting, json!({ "changeMode": "noop" })),
    ] {
        stage.cluster.apply("shop", &follower(name, script, &mode));
    }
    let all = ["restart", "signal", "script", "noop"];
    let mut names = Vec::new();
    for job in all {
        stage.cluster.condition("shop", job, JobConditionType::Ready, "True").await;
        names.push(alloc_of(&stage, job).await.metadata.name.expect("a name"));
    }
    let read = |stage: &Stage, n: usize, file: &str| stage.alloc(User::Admin, &["fs", &names[n], file]).text();
    let log = |stage: &Stage, n: usize| read(stage, n, "alloc/data/log").lines().map(str::to_owned).collect::<Vec<_>>();
    for n in 0..4 {
        stage.cluster.eventually("it has started", async || log(&stage, n) == ["start-one"]).await;
    }

    // B-058: another gateway gives the same values: nothing is rendered, nothing follows.
    stage.gateway.take().expect("a gateway").kill();
    let config = format!("names: [localhost]\nusers: {}\nagents: {}\n", stage.users, stage.agents);
    let kubeconfig = stage.cluster.plane.kubeconfig(User::Gateway);
    stage.gateway = Some(stage.cluster.gateway_by("gateway-2", &kubeconfig, &config));
    stage.is_connected("gateway-2").await;

    secret(&stage.cluster, "conf", "two");
    let expected: [&[&str]; 4] =
        [&["start-one", "start-two"], &["start-one", "signal-two"], &["start-one", "script-two"], &["start-one"]];
    for (n, expected) in expected.iter().enumerate() {
        stage
            .cluster
            .eventually(all[n], async || read(&stage, n, "t/local/x") == "two" && log(&stage, n) == *expected)
            .await;
    }
    for (n, job) in all.into_iter().enumerate() {
        let alloc = alloc_of(&stage, job).await;
        assert_eq!(alloc.metadata.name.as_ref(), Some(&names[n]), "{job} is no other allocation");
        assert_eq!(restarts(&alloc), i64::from(job == "restart"), "{job}");
    }
    let restarted = messages(&alloc_of(&stage, "restart").await, TaskEventType::RestartSignaled);
    assert_eq!(restarted, ["template local/x changed"]);

    // What cannot be refreshed stays, and the tasks go on.
    stage.cluster.kubectl(&["delete", "secret", "conf", "-n", "shop"]).expect("deleted");
    let told = async || {
        let alloc = alloc_of(&stage, "noop").await;
        messages(&alloc, TaskEventType::Template).iter().any(|text| text.contains("local/x stays as it was"))
    };
    stage.cluster.eventually("it is told", told).await;
    assert_eq!(
        (read(&stage, 3, "t/local/x").as_str(), log(&stage, 0)),
        ("two", vec!["start-one".to_owned(), "start-two".to_owned()])
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_template_finds_services_of_other_jobs_and_of_kubernetes_as_they_come_and_go() {
    let stage = Stage::start("templates-services", "").await;
    stage.cluster.namespace("shop").await;
    // A node whose address others can reach: no Service leads to the loopback.
    let core = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n-9" } }).to_string();
    stage.cluster.kubectl_with(&["create", "-f", "-"], Some(&core)).expect("a node");
    let address = r#"{"status":{"addresses":[{"type":"InternalIP","address":"10.77.0.1"}]}}"#;
    let patch = ["patch", "node", "n-9", "--subresource=status", "--type=merge", "-p", address];
    stage.cluster.kubectl(&patch).expect("patched");
    let _other = stage.cluster.agent_at("n-9", "10.77.0.1").await;
    let text = "{{range nomadService \"api\"}}{{.Address}} {{.JobID}} {{.Tags}} {{.Node}} {{.Datacenter}};{{end}}\
                {{range service \"db\"}}{{.Address}}:{{.Port}};{{end}}{{range nomadServices}}{{.Name}} {{end}}";
    let template = json!({ "embeddedTmpl": text, "destPath": "local/x", "changeMode": "noop",
                           "wait": { "min": "100ms", "max": "1s" } });
    let reader = with_secrets("reader", "exec sleep 1000", &json!({ "templates": [template] }));
    let at = |node: &str| json!([{ "lTarget": "${node.unique.name}", "rTarget": node }]);
    let mut placed = reader;
    placed["spec"]["constraints"] = at(crate::gateway::NODE);
    stage.cluster.apply("shop", &placed);
    stage.cluster.condition("shop", "reader", JobConditionType::Ready, "True").await;
    let name = alloc_of(&stage, "reader").await.metadata.name.expect("a name");
    let read = || stage.alloc(User::Admin, &["fs", &name, "t/local/x"]).text();
    assert_eq!(read(), "", "there are none, and the start does not wait for any");

    let fields = json!({ "networks": [{ "ports": [{ "label": "http" }] }], "constraints": at("n-9"),
                         "services": [{ "name": "api", "portLabel": "http", "tags": ["blue"] }] });
    stage.cluster.apply("shop", &job("web", 1, &fields, "exec sleep 1000"));
    let of_api = "10.77.0.1 web [blue] n-9 dc1;";
    stage.cluster.eventually("drover's is found", async || read() == format!("{of_api}api ")).await;

    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": { "name": "db-1", "labels": { "kubernetes.io/service-name": "db" } },
        "ports": [{ "name": "pg", "port": 5432 }],
        "endpoints": [{ "addresses": ["10.1.0.7"] }, { "addresses": ["10.1.0.8"], "conditions": { "ready": false } }],
    });
    stage.cluster.kubectl_with(&["create", "-n", "shop", "-f", "-"], Some(&slice.to_string())).expect("a slice");
    let both = format!("{of_api}10.1.0.7:5432;api db ");
    stage.cluster.eventually("the other's is found", async || read() == both).await;
    let stop = r#"{"spec":{"stop":true}}"#;
    stage.cluster.kubectl(&["patch", "djob/web", "-n", "shop", "--type=merge", "-p", stop]).expect("stopped");
    stage.cluster.eventually("what stops is not", async || read() == "10.1.0.7:5432;db ").await;
    let alloc = alloc_of(&stage, "reader").await;
    assert_eq!((restarts(&alloc), messages(&alloc, TaskEventType::Template).len()), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b_051_a_secret_in_a_file_is_in_that_file_and_nowhere_else() {
    let stage = Stage::start("templates-secret", "").await;
    stage.cluster.namespace("shop").await;
    secret(&stage.cluster, "db-creds", CANARY);
    opened(&stage, &["db-creds"]);
    let templates = json!([
        { "embeddedTmpl": "URL=pg://{{with secret \"db-creds\"}}{{.Data.password}}{{end}}\n", "destPath": "secrets/db",
          "envvars": true, "perms": "0400" },
        { "embeddedTmpl": "{{with secret \"db-creds\"}}{{.Data.password | parseInt}}{{end}}", "destPath": "local/bad",
          "changeMode": "noop" },
    ]);
    let secrets = json!([{ "name": "db", "path": "db-creds" }]);
    let script = "printf %s \"$URL\" | md5sum > ../alloc/data/sum; exec sleep 1000";
    let only = |n: usize| json!({ "templates": [templates[n]], "secrets": secrets });
    stage.cluster.apply("shop", &with_secrets("web", script, &only(0)));
    // The error of a template that takes the value for a number shows no value either.
    stage.cluster.apply("shop", &with_secrets("bad", script, &only(1)));
    stage.cluster.condition("shop", "web", JobConditionType::Ready, "True").await;
    let name = alloc_of(&stage, "web").await.metadata.name.expect("a name");
    let sum = || stage.alloc(User::Admin, &["fs", &name, "alloc/data/sum"]).text();
    let wanted = std::process::Command::new("sh")
        .args(["-c", &format!("printf %s pg://{CANARY} | md5sum")])
        .output()
        .expect("md5sum");
    let wanted = String::from_utf8_lossy(&wanted.stdout).into_owned();
    stage.cluster.eventually("the variable is the task's", async || sum() == wanted).await;
    let failed = async || {
        let all = stage.cluster.allocs("shop").await;
        let of_bad = all.iter().filter(|alloc| alloc.spec.job_name == "bad");
        of_bad.flat_map(|alloc| messages(alloc, TaskEventType::SetupFailure)).any(|text| text.contains("local/bad"))
    };
    stage.cluster.eventually("the other has failed", failed).await;
    for kind in ["jobs", "allocations", "jobversions", "deployments", "clientnodes"] {
        let all = stage.cluster.kubectl(&["get", &format!("{kind}.drover.dev"), "-A", "-o", "json"]).expect(kind);
        assert!(!all.contains(CANARY), "{kind} hold the value: {all}");
    }
    let events = stage.cluster.kubectl(&["get", "events", "-A", "-o", "json"]).expect("events");
    assert!(events.contains("TaskStarted") && !events.contains(CANARY), "{events}");
    let files = holders(&stage.cluster.path(""), CANARY);
    let beside: Vec<&String> = files.iter().filter(|path| !path.contains("/plane/etcd/")).collect();
    assert!(matches!(&beside[..], [only] if only.ends_with("/t/secrets/db")), "{beside:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_example_greets_anew_when_its_config_map_changes() {
    let stage = Stage::start("templates-example", "").await;
    stage.cluster.namespace("shop").await;
    opened(&stage, &["app-config", "app-token"]);
    let file = drover_testkit::workspace::root().join("examples/configuration/greeter.yaml").display().to_string();
    stage.cluster.kubectl(&["apply", "-n", "shop", "-f", &file]).expect("applied");
    stage.cluster.condition("shop", "greeter", JobConditionType::Ready, "True").await;
    let name = alloc_of(&stage, "greeter").await.metadata.name.expect("a name");
    let logs = || stage.alloc(User::Admin, &["logs", &name]).text();
    stage.cluster.eventually("the first greeting", async || logs() == "good morning\n").await;
    let patch = ["patch", "configmap", "app-config", "-n", "shop", "-p", "{\"data\":{\"greeting\":\"good evening\"}}"];
    stage.cluster.kubectl(&patch).expect("patched");
    stage.cluster.eventually("the second", async || logs() == "good morning\ngood evening\n").await;
}
