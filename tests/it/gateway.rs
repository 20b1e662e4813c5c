//! Operations from anywhere: a real API server with its aggregation layer, the gateway, and agents that dial it.
//! Nothing here reaches an agent but through its own tunnel.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use drover_api::Allocation;
use drover_api::job::JobConditionType;
use drover_testkit::control_plane::User;
use drover_testkit::{agent_door, probe};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Process, Settings, job};

pub(crate) const NODE: &str = "n-1";
pub(crate) const API: &str = "/apis/subresources.drover.dev/v1alpha1";

/// A cluster whose gateway serves, with one node that has a tunnel to it.
pub(crate) struct Stage {
    pub(crate) gateway: Option<Process>,
    pub(crate) agent: Option<Process>,
    pub(crate) controller: Process,
    pub(crate) agents: SocketAddr,
    pub(crate) users: SocketAddr,
    pub(crate) cluster: Cluster,
}

pub(crate) fn chart_file(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/drover/files").join(path).display().to_string()
}

/// A token for an audience, bound to a node or to nothing.
pub(crate) async fn token(cluster: &Cluster, account: &str, audience: Option<&str>, node: Option<&str>) -> String {
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), "drover-system");
    let bound = node.map(|name| json!({ "kind": "Node", "apiVersion": "v1", "name": name }));
    let audiences: Vec<&str> = audience.into_iter().collect();
    let spec = json!({ "audiences": audiences, "boundObjectRef": bound, "expirationSeconds": 3600 });
    agent_door::token(&accounts, account, &spec).await.expect("a token")
}

impl Stage {
    pub(crate) async fn start(name: &str, config: &str) -> Self {
        Self::start_with(name, config, Finds::ByName).await
    }

    /// The same, with an agent that finds the gateway's replicas in this way.
    pub(crate) async fn start_with(name: &str, config: &str, finds: Finds) -> Self {
        Self::start_in(Cluster::start(name, Settings::default()).await, config, finds).await
    }

    /// The same, in a cluster of other settings.
    pub(crate) async fn start_in(cluster: Cluster, config: &str, finds: Finds) -> Self {
        for folder in ["rbac", "gateway"] {
            cluster.kubectl(&["apply", "-f", &chart_file(folder)]).expect("the chart's objects");
        }
        for (user, role) in [(User::Gateway, "drover-gateway"), (User::Agent, "drover-agent")] {
            let user = format!("--user={}", user.name());
            cluster.kubectl(&["create", "clusterrolebinding", role, "--clusterrole", role, &user]).expect("a binding");
            let own = ["create", "rolebinding", role, "-n", "drover-system", "--role", role, &user];
            cluster.kubectl(&own).expect("a binding");
        }
        let writes = format!("--user={}", User::Gateway.name());
        let role = "drover-gateway-writes";
        cluster.kubectl(&["create", "clusterrolebinding", role, "--clusterrole", role, &writes]).expect("a binding");
        let reader = "--role=extension-apiserver-authentication-reader";
        let user = format!("--user={}", User::Gateway.name());
        cluster.kubectl(&["create", "rolebinding", "gateway", "-n", "kube-system", reader, &user]).expect("a binding");
        cluster.kubectl(&["create", "serviceaccount", "drover-agent", "-n", "drover-system"]).expect("an account");
        cluster
            .kubectl_with(
                &["create", "-f", "-"],
                Some(&json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": NODE } }).to_string()),
            )
            .expect("a node");
        let (gateway, users, agents) = gateway(&cluster, "gateway", config).await;
        aggregate(&cluster, users);
        let controller = cluster.controller();
        let named = match finds {
            Finds::ByName => Some((agents, users)),
            Finds::BySlices => {
                slice(&cluster, "a", agents);
                None
            }
        };
        let config = agent_config(&cluster, NODE, named).await;
        let agent = cluster.agent_more(NODE, &cluster.plane.kubeconfig(User::Agent), &config);
        cluster.ready(NODE).await;
        let stage = Self { gateway: Some(gateway), agent: Some(agent), controller, agents, users, cluster };
        stage.is_connected("gateway").await;
        stage
    }

    pub(crate) async fn is_connected(&self, gateway: &str) {
        let is_open = || self.cluster.log(gateway).contains("a tunnel is open");
        self.cluster.eventually("the node has a tunnel", async || is_open()).await;
        self.cluster
            .eventually("the API is available", async || self.cluster.kubectl(&["get", "--raw", API]).is_ok())
            .await;
    }

    /// The authorities by which the gateway is known, in PEM.
    pub(crate) fn authority(&self) -> String {
        let get = ["get", "configmap", "drover-gateway-ca", "-n", "drover-system", "-o", "jsonpath={.data.ca\\.crt}"];
        self.cluster.kubectl(&get).expect("the authority")
    }

    /// Runs a script and returns its allocation.
    pub(crate) async fn run(&self, name: &str, script: &str) -> Allocation {
        self.run_with(name, &json!({ "update": { "minHealthyTime": "0s" } }), script).await
    }

    /// The same on a node.
    pub(crate) async fn run_on(&self, node: &str, name: &str, script: &str) -> Allocation {
        let group = json!({ "constraints": [{ "lTarget": "${node.unique.name}", "operand": "=", "rTarget": node }],
                            "update": { "minHealthyTime": "0s" } });
        self.run_with(name, &group, script).await
    }

    async fn run_with(&self, name: &str, group: &Value, script: &str) -> Allocation {
        let cluster = &self.cluster;
        if cluster.kubectl(&["get", "namespace", "shop"]).is_err() {
            cluster.namespace("shop").await;
        }
        cluster.apply("shop", &job(name, 1, group, script));
        cluster.condition("shop", name, JobConditionType::Ready, "True").await;
        let all = cluster.allocs("shop").await;
        all.into_iter().find(|alloc| alloc.spec.job_name == name).expect("an allocation")
    }

    /// The command of a user in `shop`.
    pub(crate) fn command(&self, user: User, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
        command.args(args).arg("--kubeconfig").arg(self.cluster.plane.kubeconfig(user)).args(["-n", "shop"]);
        command.env_remove("DROVER_AGENT_SOCKET");
        command
    }

    pub(crate) fn drover(&self, user: User, args: &[&str]) -> Child {
        self.command(user, args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("drover")
    }

    pub(crate) fn alloc(&self, user: User, args: &[&str]) -> Ran {
        Ran::of(self.drover(user, &[&["alloc"], args].concat()).wait_with_output().expect("its end"))
    }

    pub(crate) fn job(&self, user: User, args: &[&str]) -> Ran {
        Ran::of(self.drover(user, &[&["job"], args].concat()).wait_with_output().expect("its end"))
    }

    /// Begins a command, which comes last, in a task where several run.
    pub(crate) fn spawn_exec(&self, user: User, name: &str, task: &[&str], command: &[&str]) -> Child {
        let kubeconfig = self.cluster.plane.kubeconfig(user).display().to_string();
        Command::new(env!("CARGO_BIN_EXE_drover"))
            .args(["alloc", "exec", "-i", "--kubeconfig", &kubeconfig, "-n", "shop", name])
            .args(task)
            .arg("--")
            .args(command)
            .env_remove("DROVER_AGENT_SOCKET")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("drover")
    }

    /// Runs a command with this input.
    pub(crate) fn exec(&self, user: User, name: &str, command: &[&str], input: &[u8]) -> Ran {
        use std::io::Write as _;
        let mut child = self.spawn_exec(user, name, &[], command);
        let mut stdin = child.stdin.take().expect("a pipe");
        let input = input.to_vec();
        // A command may end without reading it.
        let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let ran = Ran::of(child.wait_with_output().expect("its end"));
        writer.join().expect("written");
        ran
    }

    pub(crate) fn bind(&self, name: &str, role: &str) {
        let user = format!("--user={}", User::Developer.name());
        let args = ["create", "rolebinding", name, "-n", "shop", &format!("--clusterrole={role}"), &user];
        self.cluster.kubectl(&args).expect("a binding");
    }

    /// What a user is answered by a request for a subresource, or why not.
    pub(crate) fn raw(&self, user: &str, path: &str) -> Result<String, String> {
        let groups: &[&str] = if user == "admin" { &["--as-group", "system:masters"] } else { &[] };
        let path = format!("{API}/namespaces/shop/allocations/{path}");
        self.cluster.kubectl(&[&["--as", user], groups, &["get", "--raw", &path]].concat())
    }
}

/// What a command wrote, and its exit code.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
    pub(crate) code: i32,
}

impl Ran {
    pub(crate) fn of(output: Output) -> Self {
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        Self { out: output.stdout, err, code: output.status.code().expect("a code") }
    }

    /// That of a command which goes on beside the test.
    pub(crate) async fn at_end(child: Child) -> Self {
        Self::of(tokio::task::spawn_blocking(|| child.wait_with_output()).await.expect("joined").expect("its end"))
    }

    pub(crate) fn text(&self) -> String {
        assert_eq!(self.code, 0, "{}", self.err);
        String::from_utf8_lossy(&self.out).into_owned()
    }
}

/// What a task writes that counts: `line 0`, `line 1`, …, so many lines.
pub(crate) fn counted(n: usize) -> String {
    (0..n).fold(String::new(), |all, n| all + "line " + &n.to_string() + "\n")
}

pub(crate) async fn gateway(cluster: &Cluster, name: &str, config: &str) -> (Process, SocketAddr, SocketAddr) {
    gateway_by(cluster, (name, &cluster.plane.kubeconfig(User::Gateway)), config).await
}

/// The same, which reaches the API server as this kubeconfig says.
pub(crate) async fn gateway_by(
    cluster: &Cluster,
    (name, kubeconfig): (&str, &Path),
    config: &str,
) -> (Process, SocketAddr, SocketAddr) {
    let config = format!("names: [localhost]\nusers: 127.0.0.1:0\nagents: 127.0.0.1:0\n{config}");
    let process = cluster.gateway_by(name, kubeconfig, &config);
    let at = |who: &str| probe::gateway_in(&cluster.log(name), who);
    cluster.eventually(&format!("{name} listens"), async || at("users").is_some() && at("agents").is_some()).await;
    (process, at("users").expect("an address"), at("agents").expect("an address"))
}

/// Has the API server hand the group over to the gateway.
pub(crate) fn aggregate(cluster: &Cluster, users: SocketAddr) {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "drover-gateway", "namespace": "drover-system" },
        "spec": { "type": "ExternalName", "externalName": "localhost" },
    });
    let api = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": { "name": "v1alpha1.subresources.drover.dev" },
        "spec": {
            "group": "subresources.drover.dev", "version": "v1alpha1", "groupPriorityMinimum": 1000, "versionPriority": 15,
            "service": { "name": "drover-gateway", "namespace": "drover-system", "port": users.port() },
        },
    });
    for object in [service, api] {
        cluster.kubectl_with(&["apply", "-f", "-"], Some(&object.to_string())).expect("applied");
    }
}

/// How an agent finds the gateway's replicas.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Finds {
    /// Its configuration names them.
    ByName,
    /// By the Service's slices.
    BySlices,
}

/// Says in the cluster that a replica answers agents there; in others a controller does.
pub(crate) fn slice(cluster: &Cluster, name: &str, at: SocketAddr) {
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        // The API server takes no loopback address, unless it is called a name.
        "addressType": "FQDN",
        "metadata": {
            "name": format!("drover-gateway-{name}"), "namespace": "drover-system",
            "labels": { "kubernetes.io/service-name": "drover-gateway" },
        },
        "ports": [{ "name": "agents", "port": at.port() }],
        "endpoints": [{ "addresses": [at.ip().to_string()], "conditions": { "ready": true } }],
    });
    cluster.kubectl_with(&["apply", "-f", "-"], Some(&slice.to_string())).expect("a slice");
}

/// What an agent's configuration says of the gateway.
pub(crate) async fn agent_config(cluster: &Cluster, node: &str, named: Option<(SocketAddr, SocketAddr)>) -> String {
    let path = cluster.path(&format!("gateway-token-{node}"));
    let token = token(cluster, "drover-agent", Some("gateway.drover.dev"), Some(node)).await;
    std::fs::write(&path, token).expect("a token");
    let named = named.map(|(agents, users)| format!(", replicas: [\"{agents}\"], users: [\"{users}\"]"));
    format!("meta: {{rack: r1}}\ngateway: {{tokenFile: {}{}}}\n", path.display(), named.unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g_014_and_g_026_a_kubeconfig_is_enough_to_operate_allocations_of_a_node_that_nothing_can_dial() {
    let stage = Stage::start("gateway", "").await;
    let script = "trap 'echo hup' HUP; echo started; while true; do sleep 0.1; done";
    let alloc = stage.run("web", script).await;
    let name = alloc.metadata.name.clone().expect("a name");
    let ask = |args: &[&str]| stage.alloc(User::Admin, &[args, &[name.as_str()]].concat());

    let cluster = &stage.cluster;
    cluster.eventually("its output comes", async || ask(&["logs"]).text() == "started\n").await;
    assert!(ask(&["fs"]).text().contains("alloc"), "files");
    let file = |path: &str| stage.alloc(User::Admin, &["fs", &name, path]);
    assert_eq!(file("alloc/logs/t.stdout.0").text(), "started\n");
    assert!(file("../../etc/passwd").err.contains("path escapes"));
    let stats: Value = serde_json::from_str(&ask(&["stats", "-o", "json"]).text()).expect("JSON");
    assert!(stats.to_string().contains("memoryBytes"), "{stats}");

    let ran = stage.exec(User::Admin, &name, &["/bin/sh", "-c", "echo out; echo err >&2; exit 7"], b"");
    assert_eq!((ran.code, ran.out.as_slice(), ran.err.as_str()), (7, &b"out\n"[..], "err\n"));
    let ran = stage.exec(User::Admin, &name, &["/no/such/program"], b"");
    assert!(ran.code == 1 && ran.err.contains("/no/such/program"), "{ran:?}");

    let signalled = stage.alloc(User::Admin, &["signal", &name, "-s", "SIGHUP"]);
    assert_eq!(signalled.code, 0, "{signalled:?}");
    cluster.eventually("the signal arrives", async || ask(&["logs"]).text().contains("hup")).await;
    assert!(stage.alloc(User::Admin, &["signal", &name, "-s", "SIGNONE"]).err.contains("no signal"));
    assert_eq!(ask(&["restart"]).code, 0);
    cluster.eventually("it starts again", async || ask(&["logs"]).text().matches("started").count() == 2).await;
    assert_eq!(stage.alloc(User::Admin, &["logs", "none-g-0"]).code, 1);

    // The controller stops it and places another one.
    let stopped = ask(&["stop"]);
    assert_eq!(stopped.code, 0, "{stopped:?}");
    let uid = alloc.metadata.uid.clone();
    cluster
        .eventually("another one runs", async || {
            let all = cluster.allocs("shop").await;
            all.iter().any(|it| it.metadata.uid != uid && crate::cluster::client_status(it).as_str() == "running")
        })
        .await;
    let log = cluster.log("gateway");
    let audited = |verb: &str| {
        log.lines().any(|line| line.contains("drover_audit") && line.contains(verb) && line.contains(&name))
    };
    for verb in ["log", "exec", "fs", "stats", "restart", "signal", "stop"] {
        assert!(audited(&format!("verb=\"{verb}\"")), "no line for {verb}");
    }
    let shown = stage.job(User::Admin, &["logs", "web"]).text();
    let is_prefixed = |line: &str| line.starts_with("web-g-0") && line.ends_with(" t started");
    assert!(shown.lines().count() == 1 && shown.lines().all(is_prefixed), "{shown}");
    crate::gateway_operations::check(&stage).await;
    cluster.kubectl(&["delete", "djob", "web", "kinds", "-n", "shop", "--timeout=60s"]).expect("deleted");
    g_026_the_group_disturbs_nothing_else(cluster);
}

/// G-026: what lists all resources, ends namespaces and brings a cluster to what Git holds goes on as without it.
fn g_026_the_group_disturbs_nothing_else(cluster: &Cluster) {
    let kubectl = |args: &[&str]| Ran::of(cluster.kubectl_output(args, None));
    let known = kubectl(&["api-resources"]);
    assert!(known.err.is_empty() && known.text().contains("clientnodes"), "{known:?}");
    let listed = kubectl(&["api-resources", "--verbs=list", "--api-group=subresources.drover.dev", "--no-headers"]);
    assert!(listed.out.is_empty() && listed.code == 0, "{listed:?}");
    // By way of all resources, those of the group among them.
    kubectl(&["delete", "namespace", "shop", "--timeout=60s"]).text();
    for folder in ["gateway", "rbac"] {
        let again = kubectl(&["diff", "-f", &chart_file(folder)]);
        assert!(again.code == 0 && again.out.is_empty(), "{again:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g_003_g_007_p_031_g_009_g_010_g_018_and_g_027_rights_open_what_they_name_and_end_what_they_opened() {
    let stage = Stage::start("gateway-rights", "recheckEvery: 2s\n").await;
    let alloc = stage.run("web", "echo started; exec sleep 1000").await;
    let (cluster, name) = (&stage.cluster, alloc.metadata.name.clone().expect("a name"));
    let developer = User::Developer;

    // G-003: who may only read everything is told which right opens this.
    let reader = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": { "name": "reader", "namespace": "shop" },
        "rules": [{ "apiGroups": ["subresources.drover.dev"], "resources": ["*"], "verbs": ["get"] }],
    });
    cluster.kubectl_with(&["apply", "-f", "-"], Some(&reader.to_string())).expect("a role");
    cluster
        .kubectl(&["create", "rolebinding", "reader", "-n", "shop", "--role=reader", "--user=ann"])
        .expect("a binding");
    let refused = || stage.raw("ann", &format!("{name}/log?task=t&type=stdout")).expect_err("refused");
    cluster.eventually("ann is refused by the gateway", async || refused().contains("cannot create resource")).await;
    assert!(refused().contains("allocations/log"), "{}", refused());

    // G-027.
    stage.bind("edit", "drover-edit");
    cluster.eventually("the role is in force", async || stage.alloc(developer, &["logs", &name]).code == 0).await;
    assert_eq!(stage.alloc(developer, &["restart", &name]).code, 0);
    assert!(stage.alloc(developer, &["fs", &name]).err.contains("drover-admin"));
    let refused = stage.exec(developer, &name, &["/bin/true"], b"");
    assert!(refused.code == 1 && refused.err.contains("drover-admin"), "{refused:?}");

    // G-007, P-031.
    stage.bind("admin", "drover-admin");
    cluster
        .eventually("the role is in force", async || stage.exec(developer, &name, &["/bin/true"], b"").code == 0)
        .await;
    let bytes: Vec<u8> = (0..1024 * 1024).map(|n: u32| n.to_le_bytes()[0] ^ n.to_le_bytes()[1]).collect();
    let ran = stage.exec(developer, &name, &["/bin/sh", "-c", "cat; exit 7"], &bytes);
    assert!(ran.code == 7 && ran.out == bytes, "{} bytes, {} {}", ran.out.len(), ran.code, ran.err);
    let path = format!("{API}/namespaces/shop/allocations/{name}/exec?task=t&command=true");
    let spdy = http::Request::get(path).header("Connection", "Upgrade").header("Upgrade", "SPDY/3.1");
    let answer =
        cluster.client.send(spdy.body(kube::client::Body::empty()).expect("a request")).await.expect("an answer");
    assert_eq!(answer.status(), 400);

    // G-009: what the binding opened ends with it.
    let followed = stage.drover(developer, &["alloc", "logs", "-f", &name]);
    let pid = followed.id();
    cluster.kubectl(&["delete", "rolebinding", "edit", "admin", "-n", "shop"]).expect("deleted");
    let ended = Ran::at_end(followed).await;
    assert!(ended.code == 1 && ended.err.contains("cannot create resource"), "{pid}: {ended:?}");

    crate::gateway_sessions::g_010_a_command_ends_with_the_token_that_began_it_and_its_task_goes_on(&stage, &name)
        .await;

    // Tokens of no node, for another audience, and of another account open no tunnel.
    cluster.kubectl(&["create", "serviceaccount", "other", "-n", "drover-system"]).expect("an account");
    let audience = Some("gateway.drover.dev");
    let file = cluster.path("other-token");
    let config = format!("gateway: {{tokenFile: {}, replicas: [\"{}\"]}}\n", file.display(), stage.agents);
    let tokens = [
        (token(cluster, "drover-agent", audience, None).await, "the token names no node"),
        (token(cluster, "drover-agent", None, Some(NODE)).await, "the token is not valid here"),
        (
            token(cluster, "other", audience, Some(NODE)).await,
            "only system:serviceaccount:drover-system:drover-agent is answered here",
        ),
    ];
    std::fs::write(&file, &tokens[0].0).expect("a token");
    let _other = cluster.agent_more("n-2", &cluster.plane.kubeconfig(User::Admin), &config);
    for (token, reason) in &tokens {
        std::fs::write(&file, token).expect("a token");
        cluster.eventually(&format!("it is told that {reason}"), async || cluster.log("n-2").contains(reason)).await;
        assert!(!cluster.log("gateway").contains(token.as_str()), "a token is in the log");
    }
    assert_eq!(cluster.log("gateway").matches("a tunnel is open").count(), 1);

    // G-018: a token of n-1 opens no tunnel of n-2, whoever shows it: what is for n-2 does not get there.
    cluster.ready("n-2").await;
    let there = stage.run_on("n-2", "there", "exec sleep 1000").await.metadata.name.expect("a name");
    let of_first = token(cluster, "drover-agent", audience, Some(NODE)).await;
    std::fs::write(&file, &of_first).expect("a token");
    let n_open = || cluster.log("gateway").matches("a tunnel is open").count();
    cluster.eventually("it is taken for n-1", async || n_open() > 1).await;
    let refused = stage.raw("admin", &format!("{there}/stats")).expect_err("refused");
    assert!(refused.contains("node n-2 has no tunnel"), "{refused}");
    cluster.kubectl(&["delete", "djob", "web", "there", "-n", "shop", "--timeout=60s"]).expect("deleted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g_017_a_gateway_that_goes_comes_back_and_tasks_never_notice() {
    let mut stage = Stage::start("gateway-faults", "").await;
    let script = "n=0; while [ $n -lt 2000 ]; do echo line $n; n=$((n+1)); [ -e ../slow ] || sleep 0.02; done; touch ../done; exec sleep 1000";
    let alloc = stage.run("web", script).await;
    let name = alloc.metadata.name.clone().expect("a name");

    // Its followers go on where they were.
    let mut followed = stage.drover(User::Admin, &["alloc", "logs", "-f", &name]);
    let whole = counted(2000);
    let (mut reader, mut said) = (followed.stdout.take().expect("a pipe"), followed.stderr.take().expect("a pipe"));
    let n_whole = whole.len();
    let (begun, begins) = tokio::sync::oneshot::channel();
    let read = tokio::task::spawn_blocking(move || {
        use std::io::Read as _;
        let mut bytes = vec![0; n_whole];
        let (first, rest) = bytes.split_at_mut(10);
        reader.read_exact(first).expect("a beginning");
        begun.send(()).expect("a waiting test");
        if let Err(error) = reader.read_exact(rest) {
            let mut why = String::new();
            said.read_to_string(&mut why).expect("text");
            panic!("not everything: {error}: {why}");
        }
        String::from_utf8(bytes).expect("text")
    });
    begins.await.expect("it follows");
    for again in ["gateway-2", "gateway-3"] {
        stage.gateway.take().expect("a gateway").kill();
        let config = format!("names: [localhost]\nusers: {}\nagents: {}\n", stage.users, stage.agents);
        let kubeconfig = stage.cluster.plane.kubeconfig(User::Gateway);
        stage.gateway = Some(stage.cluster.gateway_by(again, &kubeconfig, &config));
        stage.is_connected(again).await;
    }
    assert_eq!(read.await.expect("joined"), whole);
    followed.kill().expect("ended");
    followed.wait().expect("its end");
    let now = stage.cluster.allocs("shop").await;
    let task = &now[0].status.as_ref().expect("a status").task_states["t"];
    assert_eq!((now.len(), task.restarts), (1, 0), "the task never noticed");

    // An emptied Secret is filled again, and everybody believes the new authority.
    let secret = ["patch", "secret", "drover-gateway-tls", "-n", "drover-system", "--type=json"];
    let emptied = [&secret[..], &["-p", r#"[{"op": "remove", "path": "/data"}]"#]].concat();
    stage.cluster.kubectl(&emptied).expect("emptied");
    let cluster = &stage.cluster;
    cluster
        .eventually("the Secret is filled", async || {
            let args =
                ["get", "secret", "drover-gateway-tls", "-n", "drover-system", "-o", "jsonpath={.data.tls\\.crt}"];
            cluster.kubectl(&args).is_ok_and(|text| !text.is_empty())
        })
        .await;
    let works = || stage.alloc(User::Admin, &["logs", "--tail", "10", &name]).code == 0;
    cluster.eventually("calls are answered under the new authority", async || works()).await;

    // An agent that stands still is told of, its tunnel ends, and it comes back by itself.
    let log = stage.cluster.log("gateway-3");
    assert!(!log.contains("panicked"), "{log}");
    stage.agent.as_ref().expect("an agent").freeze();
    let asked = tokio::time::Instant::now();
    let refused = stage.raw("admin", &format!("{name}/stats")).expect_err("refused");
    assert!(refused.contains("does not answer") && asked.elapsed() < Duration::from_secs(15), "{refused}");
    assert!(asked.elapsed() >= Duration::from_secs(5) && refused.contains("Timeout"), "{refused}");
    let is_gone = || stage.cluster.log("gateway-3").contains("its agent has gone silent");
    stage.cluster.eventually("its tunnel ends", async || is_gone()).await;
    assert!(asked.elapsed() < Duration::from_secs(35), "{:?}", asked.elapsed());
    let refused = stage.raw("admin", &format!("{name}/stats")).expect_err("refused");
    assert!(refused.contains("has no tunnel to the gateway since 20"), "{refused}");
    stage.agent.as_ref().expect("an agent").thaw();
    stage.cluster.eventually("it answers again", async || works()).await;
    stage.cluster.kubectl(&["delete", "djob", "web", "-n", "shop", "--timeout=60s"]).expect("deleted");
}
