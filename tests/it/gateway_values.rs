//! Values of Secrets through the gateway: to the tasks that list them, and to no other node, object or file.

use std::path::Path;
use std::time::Instant;

use drover_api::Allocation;
use drover_api::allocation::{ClientStatus, TaskEventType};
use drover_api::job::JobConditionType;
use drover_testkit::agent_door::{AgentConnection, AgentDoor};
use drover_testkit::control_plane::User;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _};

use crate::cluster::{LONG, job};
use crate::gateway::{NODE, Stage, token};

/// What must be seen nowhere but in the task.
pub(crate) const CANARY: &str = "canary-81f4a6";

pub(crate) fn secret(cluster: &crate::cluster::Cluster, name: &str, value: &str) {
    let object = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "namespace": "shop" },
                         "stringData": { "password": value } });
    cluster.kubectl_with(&["apply", "-f", "-"], Some(&object.to_string())).expect("a Secret");
}

/// What the chart's `gateway.secretNamespaces` makes.
pub(crate) fn opened(stage: &Stage, names: &[&str]) {
    let names: Vec<String> = names.iter().map(|name| format!("--resource-name={name}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let role = ["create", "role", "values", "-n", "shop", "--verb=list,watch", "--resource=secrets,configmaps"];
    stage.cluster.kubectl(&[&role[..], &names].concat()).expect("a role");
    let user = format!("--user={}", User::Gateway.name());
    stage
        .cluster
        .kubectl(&["create", "rolebinding", "values", "-n", "shop", "--role=values", &user])
        .expect("a binding");
}

pub(crate) fn with_secrets(name: &str, script: &str, more: &Value) -> Value {
    let mut whole = job(name, 1, &json!({ "update": { "minHealthyTime": "0s" } }), script);
    let task = whole["spec"]["groups"][0]["tasks"][0].as_object_mut().expect("an object");
    task.extend(more.as_object().expect("an object").clone());
    whole
}

pub(crate) async fn alloc_of(stage: &Stage, job: &str) -> Allocation {
    let all = stage.cluster.allocs("shop").await;
    all.into_iter().find(|alloc| alloc.spec.job_name == job).expect("an allocation")
}

pub(crate) fn messages(alloc: &Allocation, of: TaskEventType) -> Vec<String> {
    let states = alloc.status.iter().flat_map(|status| status.task_states.values());
    states
        .flat_map(|state| &state.events)
        .filter(|event| event.r#type == of)
        .map(|event| event.message.clone())
        .collect()
}

/// Files below a folder that hold a text; sockets and pipes hold none.
pub(crate) fn holders(folder: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().expect("a kind"));
        if kind.is_dir() {
            found.extend(holders(&path, text));
        } else if kind.is_file() {
            let bytes = std::fs::read(&path).unwrap_or_default();
            if bytes.windows(text.len()).any(|window| window == text.as_bytes()) {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

/// A connection to the port for agents that was turned into this protocol by a node's token; else why not.
pub(crate) async fn turned(stage: &Stage, token: &str, asked: (&str, &str)) -> Result<AgentConnection, String> {
    let door = AgentDoor::new(&stage.authority(), stage.agents).expect("authorities");
    let entered = tokio::time::timeout(LONG, door.enter(token, asked)).await.expect("in time");
    entered.map_err(|error| format!("{error:#}"))
}

/// What a node asks values by.
struct Line(AgentConnection);

impl Line {
    async fn open(stage: &Stage, token: &str) -> Result<Self, String> {
        turned(stage, token, ("/values/v1", "drover-values/1")).await.map(Self)
    }

    async fn next(&mut self) -> String {
        let mut text = String::new();
        tokio::time::timeout(LONG, self.0.read_line(&mut text)).await.expect("in time").expect("a line");
        text
    }

    /// Whether the other side ends the connection; it does not say goodbye.
    async fn ends(&mut self) -> bool {
        let mut text = String::new();
        match tokio::time::timeout(LONG, self.0.read_line(&mut text)).await.expect("in time") {
            Ok(n) => n == 0,
            Err(error) => error.kind() == std::io::ErrorKind::UnexpectedEof,
        }
    }

    /// What a request is answered.
    async fn ask(&mut self, namespace: &str, name: &str, uid: &str, object: (&str, &str)) -> String {
        let ask = json!({ "follow": { "id": 7, "namespace": namespace, "allocation": name, "uid": uid,
                                      "object": { "kind": object.0, "name": object.1 } } });
        self.0.write_all(format!("{ask}\n").as_bytes()).await.expect("sent");
        self.0.flush().await.expect("sent");
        self.next().await
    }
}

/// The value is in no object but its own, and in no log or file of drover's.
fn nothing_else_holds_it(stage: &Stage) {
    for kind in ["jobs", "allocations", "jobversions", "deployments", "clientnodes"] {
        let all = stage.cluster.kubectl(&["get", &format!("{kind}.drover.dev"), "-A", "-o", "json"]).expect(kind);
        assert!(!all.contains(CANARY), "{kind} hold the value");
    }
    let events = stage.cluster.kubectl(&["get", "events", "-A", "-o", "json"]).expect("events");
    assert!(events.contains("TaskStarted") && !events.contains(CANARY), "{events}");
    for part in ["gateway", NODE, "controller"] {
        assert!(!stage.cluster.log(part).contains(CANARY), "the log of {part} holds the value");
    }
    // etcd holds the Secret itself.
    let files = holders(&stage.cluster.path(""), CANARY);
    let beside: Vec<&String> = files.iter().filter(|path| !path.contains("/plane/etcd/")).collect();
    assert_eq!(beside, Vec::<&String>::new(), "files hold the value");
    assert!(!files.is_empty(), "the search finds what is there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b_051_b_052_b_053_b_057_and_b_058_values_reach_the_tasks_that_list_them_and_nothing_else() {
    let mut stage = Stage::start("values", "").await;
    stage.cluster.namespace("shop").await;
    secret(&stage.cluster, "db-creds", CANARY);
    let create = ["create", "configmap", "app", "-n", "shop", "--from-literal=mode=fast"];
    stage.cluster.kubectl(&create).expect("a ConfigMap");
    opened(&stage, &["db-creds", "app", "late"]);
    let secrets = json!([
        { "name": "db", "path": "db-creds" },
        { "name": "app", "provider": "configmap", "path": "app" },
    ]);
    let script = "echo as-written $0; printf %s \"$URL\" | md5sum > ../alloc/sum; exec sleep 1000";
    let mut web = with_secrets(
        "web",
        script,
        &json!({ "env": { "URL": "pg://u:${secret.db.password}@db" }, "secrets": secrets }),
    );
    web["spec"]["groups"][0]["tasks"][0]["config"]["args"]
        .as_array_mut()
        .expect("a list")
        .push(json!("${secret.app.mode}"));
    stage.cluster.apply("shop", &web);
    stage.cluster.condition("shop", "web", JobConditionType::Ready, "True").await;
    let alloc = alloc_of(&stage, "web").await;
    let (name, uid) = (alloc.metadata.name.clone().expect("a name"), alloc.metadata.uid.clone().expect("a uid"));

    // B-051: in the variable and in the driver's settings, and in nothing of drover's.
    let read = || stage.alloc(User::Admin, &["fs", &name, "alloc/sum"]).text();
    let wanted = std::process::Command::new("sh")
        .args(["-c", &format!("printf %s pg://u:{CANARY}@db | md5sum")])
        .output()
        .expect("md5sum");
    let wanted = String::from_utf8_lossy(&wanted.stdout).into_owned();
    stage.cluster.eventually("the task has the value", async || read() == wanted).await;
    let logs = || stage.alloc(User::Admin, &["logs", &name]).text();
    stage.cluster.eventually("its setting has the other", async || logs().contains("as-written fast")).await;
    nothing_else_holds_it(&stage);

    // B-053: neither token opens the other's door.
    let own = token(&stage.cluster, "drover-agent", Some("gateway.drover.dev"), Some(NODE)).await;
    let for_api = token(&stage.cluster, "drover-agent", None, Some(NODE)).await;
    assert!(Line::open(&stage, &for_api).await.is_err_and(|first| first.contains("401")));
    let server = stage.cluster.kubectl(&["config", "view", "--raw", "-o", "jsonpath={.clusters[0].cluster.server}"]);
    let asked = std::process::Command::new("curl")
        .args(["-sk", "-H", &format!("Authorization: Bearer {own}"), &format!("{}/api", server.expect("a server"))])
        .output()
        .expect("curl");
    assert!(String::from_utf8_lossy(&asked.stdout).contains("401"), "{asked:?}");

    // B-052: what the node's own live allocations list, and nothing else.
    let mut line = Line::open(&stage, &own).await.expect("its own token");
    let db = ("Secret", "db-creds");
    let given = line.ask("shop", &name, &uid, db).await;
    assert!(given.contains("values"), "{given}");
    for (namespace, of, uid, object) in [
        ("shop", name.as_str(), uid.as_str(), ("Secret", "late")),
        ("shop", &name, &uid, ("ConfigMap", "db-creds")),
        ("shop", &name, "another", db),
        ("shop", "another", &uid, db),
        ("drover-system", &name, &uid, ("Secret", "drover-gateway-tls")),
    ] {
        let answer = line.ask(namespace, of, uid, object).await;
        assert!(answer.contains("refused") && !answer.contains("values"), "{namespace}/{of} {object:?}: {answer}");
    }
    // One that opens many has one.
    let mut newer = Line::open(&stage, &own).await.expect("its own token");
    assert!(line.ends().await, "the older one has ended");
    assert!(newer.ask("shop", &name, &uid, db).await.contains("values"));
    let other = token(&stage.cluster, "drover-agent", Some("gateway.drover.dev"), None).await;
    assert!(Line::open(&stage, &other).await.is_err_and(|first| first.contains("403")), "a token without a node");
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n-2" } });
    stage.cluster.kubectl_with(&["create", "-f", "-"], Some(&node.to_string())).expect("a node");
    let foreign = token(&stage.cluster, "drover-agent", Some("gateway.drover.dev"), Some("n-2")).await;
    let mut theirs = Line::open(&stage, &foreign).await.expect("a connection");
    let answer = theirs.ask("shop", &name, &uid, db).await;
    assert!(answer.contains("another node"), "{answer}");

    // B-057: without a gateway a start waits, says so, and goes on when it is there.
    secret(&stage.cluster, "late", "x");
    stage.gateway.take().expect("a gateway").kill();
    let late = json!({ "env": { "X": "${secret.l.password}" }, "secrets": [{ "name": "l", "path": "late" }] });
    stage.cluster.apply("shop", &with_secrets("late", "exec sleep 1000", &late));
    let said = async || {
        let all = stage.cluster.allocs("shop").await;
        let of_late = all.iter().find(|alloc| alloc.spec.job_name == "late");
        of_late.is_some_and(|alloc| {
            messages(alloc, TaskEventType::Template).iter().any(|text| text.contains("Secret late"))
        })
    };
    stage.cluster.eventually("it says what it waits for", said).await;
    let config = format!("names: [localhost]\nusers: {}\nagents: {}\n", stage.users, stage.agents);
    let kubeconfig = stage.cluster.plane.kubeconfig(User::Gateway);
    stage.gateway = Some(stage.cluster.gateway_by("gateway-2", &kubeconfig, &config));
    stage.cluster.condition("shop", "late", JobConditionType::Ready, "True").await;

    // B-058: those that ran have noticed nothing.
    let after = alloc_of(&stage, "web").await;
    let task = &after.status.as_ref().expect("a status").task_states["t"];
    assert_eq!((after.metadata.uid.as_deref(), task.restarts), (Some(uid.as_str()), 0));

    // B-052: what has ended gets nothing more.
    stage.cluster.kubectl(&["delete", "djob", "late", "-n", "shop", "--timeout=60s"]).expect("deleted");
    let stop = stage.drover(User::Admin, &["job", "stop", "web"]).wait_with_output().expect("its end");
    assert!(stop.status.success(), "{stop:?}");
    let ended = async || {
        let all = stage.cluster.allocs("shop").await;
        let status = all.iter().find(|it| it.metadata.name.as_deref() == Some(&name)).and_then(|it| it.status.as_ref());
        status.is_none_or(|status| status.client_status == ClientStatus::Complete)
    };
    stage.cluster.eventually("the allocation has ended", ended).await;
    let mut line = Line::open(&stage, &own).await.expect("its own token");
    let answer = line.ask("shop", &name, &uid, db).await;
    assert!(answer.contains("refused"), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_missing_or_closed_is_named_with_the_remedy() {
    let stage = Stage::start("values-missing", "").await;
    stage.cluster.namespace("shop").await;
    opened(&stage, &["there", "absent"]);
    secret(&stage.cluster, "there", "x");
    secret(&stage.cluster, "closed", "x");
    let once = json!({ "attempts": 0, "interval": "1h", "delay": "1s", "mode": "fail" });
    let run = |name: &str, path: &str, key: &str| {
        let more = json!({ "env": { "X": format!("${{secret.s.{key}}}") }, "restart": once,
                           "secrets": [{ "name": "s", "path": path }] });
        stage.cluster.apply("shop", &with_secrets(name, "exec sleep 1000", &more));
    };
    run("closed", "closed", "password");
    run("no-key", "there", "user");
    run("absent", "absent", "password");
    let began = Instant::now();
    for (name, of, parts) in [
        ("closed", TaskEventType::SetupFailure, ["Secret closed", "gateway.secretNamespaces"]),
        ("no-key", TaskEventType::SetupFailure, ["env.X", "Secret there has no key user"]),
        ("absent", TaskEventType::Template, ["Secret absent", "create it"]),
    ] {
        let mut told = Vec::new();
        while !told.iter().any(|text: &String| parts.iter().all(|part| text.contains(part))) {
            assert!(began.elapsed() < LONG, "{name}: {told:?}");
            let all = stage.cluster.allocs("shop").await;
            told = all.iter().filter(|it| it.spec.job_name == name).flat_map(|it| messages(it, of)).collect();
        }
    }
    // Once it is there, the start goes on.
    secret(&stage.cluster, "absent", "x");
    stage.cluster.condition("shop", "absent", JobConditionType::Ready, "True").await;
}
