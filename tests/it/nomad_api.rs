//! Nomad's HTTP API on a real API server, as its clients ask for it (`spec/api.md`, `spec/gateway.md` 6).

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use drover_api::CSIVolume;
use drover_api::job::JobConditionType;
use drover_api::names::object_name;
use drover_testkit::control_plane::{Role, User};
use drover_testkit::probe;
use http::{HeaderMap, Method};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::cluster::{Cluster, job};
use crate::gateway::{API, Stage, gateway};
use crate::gateway_limits::{Door, Proof, token_of};

/// What is not asked for in a path or a query.
const ESCAPED: &percent_encoding::AsciiSet = percent_encoding::NON_ALPHANUMERIC;

/// An answer of the gateway.
pub(crate) struct Told {
    pub(crate) code: u16,
    headers: HeaderMap,
    pub(crate) text: String,
}

impl Told {
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.code, 200, "{}", self.text);
        serde_json::from_str(&self.text).expect("JSON")
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    pub(crate) fn index(&self) -> u64 {
        self.header("x-nomad-index").parse().expect("an index")
    }

    /// The field of each object of a list.
    pub(crate) fn each(&self, field: &str) -> Vec<String> {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        self.json().as_array().expect("a list").iter().map(|it| text(&it[field])).collect()
    }
}

/// A client of Nomad.
#[derive(Clone)]
pub(crate) struct Nomad(pub(crate) Client);

impl Nomad {
    pub(crate) async fn of(stage: &Stage, user: User) -> Self {
        Self::at(stage, stage.users, user).await
    }

    /// The same at another replica.
    pub(crate) async fn at(stage: &Stage, users: SocketAddr, user: User) -> Self {
        let proof = Proof::Token(token_of(stage, user));
        Self(Door::of(stage).await.client_at(users, &proof).await)
    }

    pub(crate) async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: &str) -> Told {
        let mut request = http::Request::builder().method(method).uri(format!("/v1/{path}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.as_bytes().to_vec())).expect("a request");
        let answer = self.0.send(request).await.expect("an answer");
        Self::told(answer).await
    }

    async fn told(answer: http::Response<Body>) -> Told {
        let (code, headers) = (answer.status().as_u16(), answer.headers().clone());
        let body = answer.into_body().collect().await.expect("a body").to_bytes();
        Told { code, headers, text: String::from_utf8_lossy(&body).into_owned() }
    }

    pub(crate) async fn get(&self, path: &str) -> Told {
        self.send(Method::GET, path, &[], "").await
    }

    /// Whether a replica that has just begun answers, and which jobs it knows.
    pub(crate) async fn knows(&self, jobs: &[&str]) -> bool {
        let request = http::Request::get("/v1/jobs").body(Body::empty()).expect("a request");
        match self.0.send(request).await {
            Ok(answer) => {
                let told = Self::told(answer).await;
                told.code == 200 && told.each("ID") == jobs
            }
            // It has no certificate yet.
            Err(_) => false,
        }
    }

    async fn code(&self, method: Method, path: &str) -> u16 {
        self.send(method, path, &[], "").await.code
    }

    async fn search(&self, body: &Value) -> Value {
        self.send(Method::PUT, "search", &[], &body.to_string()).await.json()
    }

    async fn fuzzy(&self, body: &Value) -> Value {
        self.send(Method::PUT, "search/fuzzy", &[], &body.to_string()).await.json()
    }
}

fn escaped(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, ESCAPED).to_string()
}

/// A job of tasks that sleep.
fn sleeper(name: &str, count: i64) -> Value {
    job(name, count, &json!({ "update": { "minHealthyTime": "0s" } }), "exec sleep 1000")
}

async fn runs(cluster: &Cluster, namespace: &str, job: &Value) {
    cluster.apply(namespace, job);
    let name = job["metadata"]["name"].as_str().expect("a name");
    cluster.condition(namespace, name, JobConditionType::Ready, "True").await;
}

/// Changes a job in nothing that counts, and returns when that was done.
async fn touch(cluster: &Cluster, namespace: &str, name: &str, value: usize) -> Instant {
    let patch = json!({ "metadata": { "annotations": { "example.com/touched": value.to_string() } } });
    let jobs = cluster.jobs(namespace);
    jobs.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("changed");
    Instant::now()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_001_to_p_014_p_054_p_059_p_060_and_g_035_objects_are_read_as_clients_of_nomad_know_them() {
    let stage = Stage::start("nomad-reads", "").await;
    let cluster = &stage.cluster;
    cluster.namespace("shop").await;
    runs(cluster, "default", &sleeper("web", 4)).await;
    let mut strange = sleeper(&object_name("a/b"), 1);
    strange["spec"]["id"] = json!("a/b");
    runs(cluster, "default", &strange).await;
    runs(cluster, "shop", &sleeper("web", 1)).await;
    let nomad = Nomad::of(&stage, User::Admin).await;
    cluster.eventually("the gateway knows them", async || nomad.get("allocations").await.each("ID").len() == 5).await;

    allocations(&nomad).await;
    pages(&nomad).await;
    refusals(&nomad).await;
    jobs(&nomad).await;
    volumes(cluster, &nomad).await;
    searches(cluster, &nomad).await;
    proxied(&stage).await;
    cluster.kubectl(&["delete", "djob", "--all", "-A", "--timeout=90s"]).expect("deleted");
}

/// P-001, P-002, P-003, P-005, P-006, P-009, P-013, G-035.
async fn allocations(nomad: &Nomad) {
    let stubs = nomad.get("allocations").await;
    assert!((stubs.header("x-nomad-knownleader"), stubs.header("x-nomad-lastcontact")) == ("true", "0"));
    assert!(stubs.index() > 1 && stubs.header("content-type") == "application/json");
    for stub in stubs.json().as_array().expect("a list") {
        assert!(stub["TaskStates"]["t"]["Events"][0]["DisplayMessage"].is_string(), "{stub}");
        assert!(stub.get("AllocatedResources").is_none(), "{stub}");
        assert!(stub["NodeID"].as_str().is_some_and(|id| id.len() == 36), "{stub}");
    }
    for stub in nomad.get("allocations?resources=true").await.json().as_array().expect("a list") {
        assert_eq!(stub["AllocatedResources"]["Tasks"]["t"]["Memory"]["MemoryMB"], 10, "{stub}");
        assert!(stub["TaskStates"]["t"].is_object(), "{stub}");
    }
    for stub in nomad.get("allocations?task_states=false").await.json().as_array().expect("a list") {
        assert!(stub["TaskStates"].is_null() && stub.get("AllocatedResources").is_none(), "{stub}");
    }
    let plain = &nomad.get("nodes").await.json()[0];
    assert!(plain.get("NodeResources").is_none() && plain.get("ReservedResources").is_none(), "{plain}");
    let whole = &nomad.get("nodes?resources=true").await.json()[0];
    assert!(whole["NodeResources"]["Cpu"]["CpuShares"] == 100_000 && whole["ReservedResources"].is_object(), "{whole}");

    let ids = stubs.each("ID");
    for n in [1, 3, 4, 9] {
        let prefix: String = ids[0].chars().take(n).collect();
        let wanted: BTreeSet<&String> = ids.iter().filter(|id| id.starts_with(&prefix)).collect();
        let found = nomad.get(&format!("allocations?prefix={prefix}")).await.each("ID");
        assert_eq!(found.iter().collect::<BTreeSet<_>>(), wanted, "{prefix}");
    }
    let filtered = async |filter: &str| {
        let mut found = nomad.get(&format!("allocations?filter={}", escaped(filter))).await.each("JobID");
        found.sort();
        found
    };
    assert_eq!(filtered("ClientStatus == \"running\" and JobID matches \"^web\"").await, ["web"; 4]);
    assert_eq!(nomad.code(Method::GET, "allocations?filter=ClientStatus+%3D").await, 400);
    // G-035.
    assert_eq!(filtered("Metrics is not nil and NetworkStatus is nil and JobID != web").await, ["a/b"]);
    assert_eq!(filtered("Metrics is nil").await, [""; 0]);
    assert_eq!(nomad.get("allocations?stale").await.each("ID"), ids);
    assert_eq!(nomad.code(Method::GET, "allocations?stale=perhaps").await, 400);

    // P-013.
    let spaces = |told: &Told| told.each("Namespace").into_iter().collect::<BTreeSet<_>>();
    assert_eq!(spaces(&stubs), ["default".to_owned()].into());
    let all = nomad.get("allocations?namespace=*").await;
    assert_eq!(spaces(&all), ["default".to_owned(), "shop".to_owned()].into());
    let shop = nomad.get("allocations?namespace=shop").await.each("ID");
    let one = nomad.get(&format!("allocation/{}?namespace=*", ids[0])).await.json();
    assert!(one["Job"]["TaskGroups"][0]["Name"] == "g" && one["Metrics"]["ScoreMetaData"].is_array(), "{one}");
    assert_eq!(nomad.code(Method::GET, &format!("allocation/{}?namespace=*", shop[0])).await, 404);
    assert_eq!(nomad.code(Method::GET, &format!("allocation/{}?namespace=shop", shop[0])).await, 200);
    let on = nomad.get(&format!("node/{}/allocations", plain["ID"].as_str().expect("an id"))).await;
    assert_eq!(on.each("ID").len(), 6);
}

/// P-007, P-008.
async fn pages(nomad: &Nomad) {
    for more in ["", "&reverse=true"] {
        let whole = nomad.get(&format!("allocations?{more}")).await;
        let (mut sizes, mut found, mut token) = (Vec::new(), Vec::new(), String::new());
        loop {
            let page = nomad.get(&format!("allocations?per_page=2&next_token={token}{more}")).await;
            sizes.push(page.each("ID").len());
            found.extend(page.each("ID"));
            page.header("x-nomad-nexttoken").clone_into(&mut token);
            if token.is_empty() {
                break;
            }
        }
        assert_eq!(sizes, [2, 2, 1]);
        assert_eq!(found, whole.each("ID"), "no repeats, and none is left out");
        let times: Vec<u64> = whole.each("CreateIndex").iter().map(|it| it.parse().expect("a number")).collect();
        let is_ordered = |pair: &[u64]| if more.is_empty() { pair[0] <= pair[1] } else { pair[0] >= pair[1] };
        assert!(times.windows(2).all(is_ordered), "{times:?}");
    }
    assert_eq!(nomad.code(Method::GET, "allocations?per_page=two").await, 400);
}

/// P-004, P-010, P-011, P-012, and what is not served.
async fn refusals(nomad: &Nomad) {
    for path in [
        "allocations?resources=maybe",
        "allocations?task_states=maybe",
        "nodes?resources=maybe",
        "evaluations?status=blocked&filter=Status%3D%3Dblocked",
        "operator/snapshot",
    ] {
        assert_eq!(nomad.code(Method::GET, path).await, 400, "{path}");
    }
    assert_eq!(nomad.get("vars").await.json(), json!([]), "there never are any");
    let id = "00000000-0000-0000-0000-000000000000";
    for path in ["allocation/", "node/", "deployment/", "job/", "volume/csi/", "plugin/csi/"] {
        let told = nomad.get(&format!("{path}{id}")).await;
        assert!(told.code == 404 && told.text.contains(id), "{path}: {} {}", told.code, told.text);
        assert!(told.header("content-type").starts_with("text/plain"), "{path}");
    }
    assert_eq!(nomad.code(Method::POST, "allocations").await, 405);
    for path in ["search", "search/fuzzy", "job/web/stable", "job/web/versions/x/tag"] {
        assert_eq!(nomad.code(Method::GET, path).await, 405, "{path}");
    }
    assert_eq!(nomad.get("job/web/services").await.json(), json!([]), "it has none");
    assert_eq!(nomad.code(Method::GET, "job/none/services").await, 404);
    assert_eq!((nomad.code(Method::GET, "nothing").await, nomad.code(Method::PUT, "vars").await), (404, 400));
    let large = format!("{{\"Prefix\": \"{}\"}}", "x".repeat(1 << 20));
    assert_eq!(nomad.send(Method::PUT, "search", &[], &large).await.code, 413);
}

/// P-014, P-054, and what else is read of jobs.
async fn jobs(nomad: &Nomad) {
    for path in ["job/a%2Fb/allocations", "job/a/b/allocations"] {
        assert_eq!(nomad.get(path).await.each("JobID"), ["a/b"], "{path}");
    }
    assert_eq!(nomad.get("job/a%2Fb/summary").await.json()["Summary"]["g"]["Running"], 1);
    let stubs = nomad.get("jobs").await;
    assert_eq!(stubs.each("ID"), ["a/b", "web"]);
    assert_eq!(stubs.each("Status"), ["running", "running"]);
    assert_eq!(stubs.json()[1]["JobSummary"]["Summary"]["g"]["Running"], 4);

    let whole = nomad.get("job/a%2Fb").await.json();
    assert_eq!(
        (&whole["ID"], &whole["TaskGroups"][0]["Count"], &whole["Status"]),
        (&json!("a/b"), &json!(1), &json!("running"))
    );
    assert_eq!(whole["TaskGroups"][0]["Tasks"][0]["Driver"], "raw_exec");
    let services = nomad.get("jobs?filter=Type+%3D%3D+service+and+Periodic+is+nil").await;
    assert_eq!(services.each("ID"), ["a/b", "web"]);

    let newest = nomad.get("job/web/deployment").await.json();
    assert_eq!((&newest["Status"], &newest["JobID"]), (&json!("successful"), &json!("web")));
    let id = newest["ID"].as_str().expect("an id");
    assert_eq!(nomad.get(&format!("deployment/{id}")).await.json(), newest);
    assert_eq!(nomad.get(&format!("deployment/allocations/{id}")).await.each("JobID"), ["web"; 4]);
    assert_eq!(nomad.get("job/web/deployments").await.each("ID"), [id]);
    let none = nomad.get("job/none/deployment").await;
    assert_eq!((none.code, none.text.as_str()), (200, "null"));

    let evaluations = nomad.get("job/web/evaluations").await;
    let id = &evaluations.each("ID")[0];
    let one = nomad.get(&format!("evaluation/{id}")).await.json();
    assert_eq!((&one["JobID"], &one["Type"]), (&json!("web"), &json!("service")));
    assert!(nomad.get("evaluations?job=web").await.each("ID").contains(id));
    let versions = nomad.get("job/web/versions").await.json();
    assert_eq!((&versions["Versions"][0]["Version"], &versions["Versions"][0]["Stable"]), (&json!(0), &json!(true)));
    assert_eq!(nomad.get("regions").await.json(), json!(["global"]));
    assert!(nomad.get("namespaces").await.each("Name").contains(&"shop".to_owned()));
    assert_eq!(nomad.get("agent/self").await.json()["config"]["Region"], "global");
    assert_eq!(nomad.code(Method::GET, "agent/health").await, 200);
}

/// P-059.
async fn volumes(cluster: &Cluster, nomad: &Nomad) {
    let volume = json!({
        "apiVersion": "drover.dev/v1alpha1", "kind": "CSIVolume", "metadata": { "name": "data" },
        "spec": { "pluginID": "ebs", "externalID": "vol-1", "secretsRef": { "name": "top-secret" },
                  "capabilities": [{ "accessMode": "single-node-writer", "attachmentMode": "file-system" }] },
    });
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "top-secret" },
                         "stringData": { "key": "canary-of-a-volume" } });
    for object in [secret, volume] {
        cluster.kubectl_with(&["apply", "-f", "-"], Some(&object.to_string())).expect("applied");
    }
    let listed = async || nomad.get("volumes?type=csi").await.each("ID");
    cluster.eventually("the volume is listed", async || listed().await == ["data"]).await;
    let told = nomad.get("volume/csi/data").await;
    assert_eq!((&told.json()["Secrets"], &told.json()["ExternalID"]), (&json!({}), &json!("vol-1")));
    assert!(!told.text.contains("canary") && !told.text.contains("top-secret"), "{}", told.text);
    assert_eq!(nomad.get("volumes?type=host").await.json(), json!([]));
    assert_eq!(nomad.get("plugins").await.json(), json!([]));
}

/// P-060.
async fn searches(cluster: &Cluster, nomad: &Nomad) {
    let items: Vec<Value> = (0..25)
        .map(|n| {
            let mut job = sleeper(&format!("many-{n:02}"), 1);
            job["spec"]["stop"] = json!(true);
            job
        })
        .collect();
    let all = json!({ "apiVersion": "v1", "kind": "List", "items": items });
    cluster.kubectl_with(&["apply", "-f", "-"], Some(&all.to_string())).expect("applied");
    let n_known = async || nomad.get("jobs?prefix=many-").await.each("ID").len();
    cluster.eventually("the gateway knows the jobs", async || n_known().await == 25).await;
    let found = nomad.search(&json!({ "Prefix": "many-", "Context": "jobs" })).await;
    assert_eq!(found["Matches"]["jobs"].as_array().map(Vec::len), Some(20));
    assert_eq!(found["Truncations"], json!({ "jobs": true }));
    let found = nomad.search(&json!({ "Prefix": "web", "Context": "all" })).await;
    assert_eq!((&found["Matches"]["jobs"], &found["Truncations"]["jobs"]), (&json!(["web"]), &json!(false)));
    assert!(found["Matches"]["allocs"].is_null() && found["Truncations"]["vars"] == false, "{found}");
    let told = nomad.send(Method::POST, "search", &[], "{\"Context\": \"nothing\"}").await;
    assert!(told.code == 400 && told.text.contains("jobs"), "{}", told.text);

    let found = nomad.fuzzy(&json!({ "Text": "ANY-0", "Context": "jobs" })).await;
    let first = json!({ "ID": "many-00", "Scope": ["default", "many-00"] });
    assert_eq!((&found["Matches"]["jobs"][0], &found["Truncations"]["jobs"]), (&first, &json!(false)));
    let found = nomad.fuzzy(&json!({ "Text": "many" })).await;
    assert_eq!(found["Matches"]["jobs"].as_array().map(Vec::len), Some(20));
    assert_eq!(found["Truncations"]["jobs"], true);
    let found = nomad.fuzzy(&json!({ "Text": "n/sh" })).await;
    let command = json!({ "ID": "/bin/sh", "Scope": ["default", "a/b", "g", "t"] });
    assert_eq!((&found["Matches"]["commands"][0], &found["Truncations"]["commands"]), (&command, &json!(true)));
    let node = nomad.get("nodes").await.each("ID").remove(0);
    let found = nomad.fuzzy(&json!({ "Text": &node[..8], "Context": "nodes" })).await;
    assert_eq!(found["Matches"]["nodes"], json!([{ "ID": "n-1", "Scope": [node] }]));
    let told = nomad.send(Method::POST, "search/fuzzy", &[], "{\"Text\": \"a\"}").await;
    assert!(told.code == 400 && told.text.contains("2 characters"), "{}", told.text);
}

/// By a kubeconfig alone, through the API server, which decodes `%2F`.
async fn proxied(stage: &Stage) {
    let path = format!("{API}/gateways/nomad/proxy/v1");
    let get = |path: &str| stage.cluster.kubectl(&["get", "--raw", path]);
    let found: Value =
        serde_json::from_str(&get(&format!("{path}/job/a%2Fb/allocations")).expect("a list")).expect("JSON");
    assert_eq!((found.as_array().map(Vec::len), &found[0]["JobID"]), (Some(1), &json!("a/b")));
    let client = &stage.cluster.client;
    let request = http::Request::put(format!("{path}/search")).body(Body::from(b"{\"Prefix\": \"web\"}".to_vec()));
    let answer = client.send(request.expect("a request")).await.expect("an answer");
    assert_eq!(answer.status(), 200);
    // Without a right to the entrance the API server itself refuses; with it, what is inside is asked for by itself.
    let by_ann = |path: &str| stage.cluster.kubectl(&["--as", "ann", "get", "--raw", path]);
    let jobs = format!("{path}/jobs");
    assert!(by_ann(&jobs).expect_err("refused").contains("gateways/proxy"));
    stage
        .cluster
        .kubectl(&["create", "clusterrolebinding", "ann", "--clusterrole=drover-nomad", "--user=ann"])
        .expect("a binding");
    let inside = || by_ann(&jobs).err().unwrap_or_default().contains("cannot list resource \"jobs\"");
    stage.cluster.eventually("the gateway refuses her", async || inside()).await;
}

/// How many requests of a verb the gateway has sent to the API server.
async fn n_requests(door: &Door<'_>, verbs: &[&str]) -> f64 {
    let (_, text) = probe::get(door.metrics, "/metrics").await.expect("metrics");
    let of = |line: &&str| {
        line.starts_with("drover_kube_requests_total{")
            && verbs.iter().any(|verb| line.contains(&format!("verb=\"{verb}\"")))
    };
    text.lines().filter(of).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_015_p_016_p_017_p_018_and_g_038_reads_wait_for_changes() {
    let mut stage = Stage::start("nomad-waits", "").await;
    let mut stopped = sleeper("web", 1);
    stopped["spec"]["stop"] = json!(true);
    stage.cluster.apply("default", &stopped);
    stage.cluster.condition("default", "web", JobConditionType::Stopped, "True").await;
    let nomad = Nomad::of(&stage, User::Admin).await;
    let cluster = &stage.cluster;
    cluster.eventually("the gateway knows it", async || nomad.get("jobs").await.each("ID") == ["web"]).await;
    let index = async || nomad.get("jobs").await.index();

    // P-015.
    let settled = async || {
        let (before, since) = (index().await, Instant::now());
        let told = nomad.get(&format!("jobs?index={before}&wait=2s")).await;
        let took = since.elapsed();
        told.code == 200
            && told.index() == before
            && (Duration::from_secs(2)..Duration::from_millis(2250)).contains(&took)
    };
    cluster.eventually("a wait without a change is answered after its time", settled).await;

    // P-016: the change of the job is known to the test when the API server has answered it.
    let mut delays = Vec::new();
    for n in (0..10).step_by(2) {
        for (m, path) in ["jobs", "job/web"].into_iter().enumerate() {
            let before = nomad.get(path).await.index();
            let blocked = nomad.clone();
            let mut reads = JoinSet::new();
            reads.spawn(async move { (blocked.get(&format!("{path}?index={before}&wait=60s")).await, Instant::now()) });
            // There are no volumes: this one waits for its time.
            assert_eq!(nomad.get("volumes?index=1&wait=300ms").await.code, 200);
            assert!(reads.try_join_next().is_none(), "it is answered before anything has changed");
            let changed = touch(cluster, "default", "web", n + m).await;
            let (told, answered) = reads.join_next().await.expect("one").expect("joined");
            assert!(told.code == 200 && told.index() > before);
            delays.push(answered.duration_since(changed));
        }
    }
    delays.sort();
    assert!(delays[0] < Duration::from_millis(100), "{delays:?}");

    // P-017.
    let since = Instant::now();
    assert_eq!(nomad.code(Method::GET, "jobs?index=0&wait=60s").await, 200);
    assert!(since.elapsed() < Duration::from_secs(10));
    assert_eq!(nomad.code(Method::GET, "jobs?index=1&wait=abc").await, 400);
    assert_eq!(nomad.code(Method::GET, "jobs?index=x").await, 400);
    // One that asks for an hour is answered now, as there is something newer; that it is cut is tried on values.
    assert_eq!(nomad.code(Method::GET, "jobs?index=1&wait=1h").await, 200);

    idle_readers_cost_nothing(&stage, &nomad).await;
    an_index_holds_everywhere(&stage, &nomad).await;
    reads_go_on_without_the_api_server(&mut stage, &nomad).await;
}

/// Reads of a user that was known go on, and say for how long the API server has been silent.
async fn reads_go_on_without_the_api_server(stage: &mut Stage, nomad: &Nomad) {
    assert_eq!(nomad.get("jobs").await.header("x-nomad-knownleader"), "true");
    stage.cluster.plane.kill(Role::KubeApiserver).await.expect("killed");
    let is_missed = async || {
        let told = nomad.get("jobs").await;
        assert_eq!(told.each("ID"), ["web"]);
        let silent_for: u64 = told.header("x-nomad-lastcontact").parse().expect("milliseconds");
        told.header("x-nomad-knownleader") == "false" && silent_for > 0
    };
    stage.cluster.eventually("the API server is missed", is_missed).await;
    stage.cluster.plane.restart(Role::KubeApiserver).await.expect("started again");
    let is_back = async || nomad.get("jobs").await.header("x-nomad-knownleader") == "true";
    stage.cluster.eventually("it is there again", is_back).await;
    let before = nomad.get("jobs").await.index();
    touch(&stage.cluster, "default", "web", 200).await;
    let told = nomad.get(&format!("jobs?index={before}&wait=60s")).await;
    assert!(told.index() > before, "the watches go on");
}

/// P-018.
async fn idle_readers_cost_nothing(stage: &Stage, nomad: &Nomad) {
    let door = Door::of(stage).await;
    let before = nomad.get("nodes").await.index().max(nomad.get("volumes?namespace=*").await.index());
    let mut readers = JoinSet::new();
    for _ in 0..200 {
        let nomad = nomad.clone();
        readers.spawn(async move { nomad.get(&format!("volumes?namespace=*&index={before}&wait=20s")).await.code });
    }
    // The first of them have been let in: from now on nothing but their time passes.
    let pause = nomad.get(&format!("volumes?namespace=*&index={before}&wait=2s")).await;
    assert_eq!(pause.code, 200);
    let reads = ["get", "list", "watch"];
    let n_before = n_requests(&door, &reads).await;
    assert_eq!(nomad.get(&format!("volumes?namespace=*&index={before}&wait=5s")).await.code, 200);
    let n_after = n_requests(&door, &reads).await;
    assert!(readers.try_join_next().is_none(), "they wait no more");
    assert!((n_after - n_before).abs() < f64::EPSILON, "{} reads while all waited", n_after - n_before);
    while let Some(code) = readers.join_next().await {
        assert_eq!(code.expect("joined"), 200);
    }
}

/// G-038: at another replica and over a restart an index is answered by later changes only, all of them, and never by a
/// lower one.
async fn an_index_holds_everywhere(stage: &Stage, nomad: &Nomad) {
    let (_second, users, _) = gateway(&stage.cluster, "gateway-b", "").await;
    let other = Nomad::at(stage, users, User::Admin).await;
    let cluster = &stage.cluster;
    cluster.eventually("the second knows the job", async || other.knows(&["web"]).await).await;
    let before = nomad.get("jobs").await.index();
    let later = async |of: &Nomad, known: u64, n: usize| {
        let quiet = of.get(&format!("jobs?index={known}&wait=500ms")).await;
        assert!(quiet.index() >= known, "{} after {known}", quiet.index());
        let known = quiet.index();
        let path = format!("jobs?index={known}&wait=60s");
        let (told, _) = tokio::join!(of.get(&path), touch(cluster, "default", "web", n));
        assert!(told.index() > known);
        told.index()
    };
    later(&other, before, 100).await;

    // The newest change is a deletion, which a replica that starts later knows nothing of.
    let mut gone = sleeper("gone", 1);
    gone["spec"]["stop"] = json!(true);
    cluster.apply("default", &gone);
    cluster.condition("default", "gone", JobConditionType::Stopped, "True").await;
    cluster.kubectl(&["delete", "djob", "gone", "--timeout=60s"]).expect("deleted");
    let is_gone = async || nomad.get("jobs").await.each("ID") == ["web"];
    cluster.eventually("the first knows of it", async || is_gone().await).await;
    let known = nomad.get("jobs").await.index();
    let (_third, users, _) = gateway(cluster, "gateway-c", "").await;
    let third = Nomad::at(stage, users, User::Admin).await;
    cluster.eventually("the third knows the job", async || third.knows(&["web"]).await).await;
    assert!(third.get("jobs").await.index() < known, "it knows of no deletion");
    later(&third, known, 101).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g_043_g_044_rights_open_what_they_name_who_asks_is_shown_and_each_call_is_written_down() {
    let stage = Stage::start("nomad-rights", "").await;
    let cluster = &stage.cluster;
    let mut stopped = sleeper("web", 1);
    stopped["spec"]["stop"] = json!(true);
    for namespace in ["shop", "farm"] {
        cluster.namespace(namespace).await;
        cluster.apply(namespace, &stopped);
    }
    let door = Door::of(&stage).await;
    let nobody = Nomad(door.client(&Proof::Nothing).await);
    let told = nobody.get("jobs").await;
    assert!(told.code == 403 && told.text.contains("Permission denied"), "{} {}", told.code, told.text);
    assert_eq!(nobody.code(Method::GET, "agent/health").await, 200);
    let wrong = nobody.send(Method::GET, "jobs", &[("X-Nomad-Token", "wrong")], "").await;
    assert!(wrong.code == 401 && wrong.header("content-type").starts_with("text/plain"), "{}", wrong.text);

    // A token in the header of Nomad's clients; rights in one namespace alone.
    let token = token_of(&stage, User::Developer);
    let ask = async |path: &str| nobody.send(Method::GET, path, &[("X-Nomad-Token", token.as_str())], "").await;
    assert_eq!(ask("jobs?namespace=shop").await.code, 403);
    stage.bind("view", "drover-view");
    cluster.eventually("the role is in force", async || ask("jobs?namespace=shop").await.code == 200).await;
    assert_eq!(ask("jobs?namespace=farm").await.code, 403);
    cluster
        .eventually("every namespace that may be seen", async || {
            ask("jobs?namespace=*").await.each("Namespace") == ["shop"]
        })
        .await;
    let denied = ask("nodes").await;
    assert!(denied.code == 403 && denied.text.contains("cannot list resource \"clientnodes\""), "{}", denied.text);
    let found = nobody.send(Method::PUT, "search?namespace=*", &[("X-Nomad-Token", token.as_str())], "{}").await.json();
    assert_eq!((&found["Matches"]["jobs"], &found["Matches"]["nodes"]), (&json!(["web"]), &Value::Null));

    let body = "{\"Text\": \"we\"}";
    let path = "search/fuzzy?namespace=*";
    let found = nobody.send(Method::PUT, path, &[("X-Nomad-Token", token.as_str())], body).await.json();
    assert_eq!(found["Matches"]["jobs"], json!([{ "ID": "web", "Scope": ["shop", "web"] }]));

    identities(&stage, &nobody, &token).await;
    counted(&stage, &nobody, &token).await;
    few_of_many_namespaces(&stage, &nobody, &token).await;

    let log = cluster.log("gateway");
    let line = log.lines().find(|line| line.contains("drover_audit") && line.contains("path=\"nodes\""));
    let line = line.expect("a line for the call");
    assert!(line.contains("code=403") && line.contains("drover-developer") || line.contains("developer"), "{line}");
    assert!(!log.contains(token.as_str()), "a token is in the log");
}

/// G-044: who asks, and a login, which gives the token back; `nobody` gives none.
async fn identities(stage: &Stage, nobody: &Nomad, token: &str) {
    let own = nobody.send(Method::GET, "acl/token/self", &[("X-Nomad-Token", token)], "").await;
    let own_json = own.json();
    assert_eq!((&own_json["Type"], &own_json["SecretID"]), (&json!("client"), &json!("")));
    assert!(own_json["Name"].as_str().is_some_and(|name| name == User::Developer.name()), "{}", own.text);
    assert!(own_json["Policies"].as_array().is_some_and(|all| all.contains(&json!("system:authenticated"))));
    let admin = token_of(stage, User::Admin);
    let told = nobody.send(Method::GET, "acl/token/self", &[("X-Nomad-Token", &admin)], "").await.json();
    assert_eq!(told["Type"], "management");
    let told = nobody.get("acl/token/self").await;
    assert!(told.code == 403 && told.text.contains("Permission denied"), "{} {}", told.code, told.text);
    let methods = nobody.get("acl/auth-methods").await.json();
    assert_eq!((&methods[0]["Name"], &methods[0]["Default"]), (&json!("kubernetes"), &json!(true)));
    let login = async |token: &str| {
        let body = json!({ "AuthMethodName": "kubernetes", "LoginToken": token }).to_string();
        nobody.send(Method::PUT, "acl/login", &[], &body).await
    };
    let told = login(token).await.json();
    assert_eq!((&told["SecretID"], &told["Name"]), (&json!(token), &own_json["Name"]));
    assert_eq!(login("wrong").await.code, 403);
    let told = nobody.send(Method::PUT, "acl/token", &[("X-Nomad-Token", &admin)], "{}").await;
    assert!(told.code == 400 && told.text.contains("RBAC"), "{} {}", told.code, told.text);
}

/// What the gateway counts is for those who may scrape Kubernetes' own daemons.
async fn counted(stage: &Stage, nobody: &Nomad, token: &str) {
    let ask = async |path: &str, token: &str| nobody.send(Method::GET, path, &[("X-Nomad-Token", token)], "").await;
    assert_eq!(nobody.code(Method::GET, "metrics").await, 403);
    let denied = ask("metrics", token).await;
    assert!(denied.code == 403 && denied.text.contains("cannot get path \"/metrics\""), "{}", denied.text);
    let user = format!("--user={}", User::Developer.name());
    let role = ["create", "clusterrolebinding", "scrapes", "--clusterrole=system:monitoring", &user];
    stage.cluster.kubectl(&role).expect("a binding");
    stage.cluster.eventually("the role is in force", async || ask("metrics", token).await.code == 200).await;
    let summary = ask("metrics", token).await.json();
    let of = |kind: &str, name: &str| {
        let all = summary[kind].as_array().expect("a list").iter();
        all.filter(|one| one["Name"] == name).cloned().collect::<Vec<Value>>()
    };
    assert_eq!(of("Gauges", "drover_gateway_tunnels")[0]["Value"], 1.0, "{summary}");
    let calls = of("Counters", "drover_gateway_calls_total");
    let is_denial = |one: &&Value| one["Labels"] == json!({ "verb": "nomad", "code": "403" });
    assert!(calls.iter().find(is_denial).is_some_and(|one| one["Sum"].as_f64() > Some(1.0)), "{summary}");
    let admin = token_of(stage, User::Admin);
    let scraped = ask("metrics?format=prometheus", &admin).await;
    assert!(scraped.header("content-type").starts_with("application/openmetrics-text"), "{}", scraped.text);
    assert!(scraped.text.contains("# TYPE drover_gateway_tunnels gauge\n") && scraped.text.ends_with("# EOF\n"));
    assert_eq!(ask("metrics?format=xml", &admin).await.code, 400);
}

/// G-043, with the API server's own rules: of many namespaces those with a binding are found. How long it takes with
/// two thousand is a figure of `cargo xtask bench nomad-api`, and how it is asked for a test of the gateway's scopes.
async fn few_of_many_namespaces(stage: &Stage, nomad: &Nomad, token: &str) {
    let cluster = &stage.cluster;
    let spec = json!({ "pluginID": "ebs", "externalID": "v",
                       "capabilities": [{ "accessMode": "single-node-writer", "attachmentMode": "file-system" }] });
    let mut made = JoinSet::new();
    for n in 0..100 {
        let (client, spec, name) = (cluster.client.clone(), spec.clone(), format!("many-{n:02}"));
        made.spawn(async move {
            let namespaces: Api<Namespace> = Api::all(client.clone());
            let namespace = serde_json::from_value(json!({ "metadata": { "name": name } })).expect("a namespace");
            namespaces.create(&PostParams::default(), &namespace).await.expect("a namespace");
            let volumes: Api<CSIVolume> = Api::namespaced(client, &name);
            let volume = json!({ "metadata": { "name": "data" }, "spec": spec });
            let volume = serde_json::from_value(volume).expect("a volume");
            volumes.create(&PostParams::default(), &volume).await.expect("a volume");
        });
    }
    made.join_all().await;
    let wanted = ["many-07", "many-50", "many-99"];
    for name in wanted {
        let user = format!("--user={}", User::Developer.name());
        let args = ["create", "rolebinding", "view", "-n", name, "--clusterrole=drover-view", &user];
        cluster.kubectl(&args).expect("a binding");
    }
    let ask = async || nomad.send(Method::GET, "volumes?namespace=*", &[("X-Nomad-Token", token)], "").await;
    cluster.eventually("the three are found", async || ask().await.each("Namespace") == wanted).await;
}
