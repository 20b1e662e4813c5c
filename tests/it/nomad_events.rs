//! Nomad's event stream on a real API server, as its clients follow it (`spec/api.md` 6, `spec/gateway.md` 6).

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use drover_api::job::JobConditionType;
use drover_api::{CSIVolume, ClientNode};
use drover_testkit::control_plane::User;
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::cluster::{Cluster, job};
use crate::gateway::{API, NODE, Stage, gateway, token};
use crate::gateway_limits::{Door, Proof, token_of};
use crate::nomad_api::Nomad;

/// One who subscribes.
struct Subscriber(Client);

/// A stream, as it comes.
struct Lines {
    body: Body,
    text: Vec<u8>,
}

impl Subscriber {
    async fn of(stage: &Stage, token: String) -> Self {
        Self(Door::of(stage).await.client(&Proof::Token(token)).await)
    }

    async fn admin(stage: &Stage) -> Self {
        Self::of(stage, token_of(stage, User::Admin)).await
    }

    /// The same at another replica.
    async fn at(stage: &Stage, users: SocketAddr) -> Self {
        let proof = Proof::Token(token_of(stage, User::Admin));
        Self(Door::of(stage).await.client_at(users, &proof).await)
    }

    async fn ask(&self, query: &str) -> http::Response<Body> {
        let request = http::Request::get(format!("/v1/event/stream?{query}")).body(Body::empty());
        self.0.send(request.expect("a request")).await.expect("an answer")
    }

    async fn code(&self, query: &str) -> u16 {
        self.ask(query).await.status().as_u16()
    }

    /// Whether a replica that has just begun answers for its caches.
    async fn is_served(&self) -> bool {
        let request = http::Request::get("/v1/jobs").body(Body::empty()).expect("a request");
        // It may have no certificate yet.
        self.0.send(request).await.is_ok_and(|answer| answer.status() == 200)
    }

    /// A stream whose first line has come.
    async fn follow(&self, query: &str) -> Lines {
        let answer = self.ask(query).await;
        assert_eq!(answer.status(), 200, "{query}");
        assert_eq!(answer.headers()["content-type"], "application/json");
        let mut lines = Lines { body: answer.into_body(), text: Vec::new() };
        assert_eq!(lines.line().await, Ok(Some(json!({}))), "{query}");
        lines
    }
}

impl Lines {
    /// The next line; none: the stream has ended well. An error: it has broken off.
    async fn line(&mut self) -> Result<Option<Value>, String> {
        loop {
            if let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.text.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&line).expect("one JSON document per line")));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Ok(frame)) => self.text.extend_from_slice(&frame.into_data().expect("data")),
                Some(Err(error)) => return Err(error.to_string()),
            }
        }
    }

    /// Waits until it breaks off, with nothing but signs of life before.
    async fn breaks_off(mut self) {
        while let Ok(line) = self.line().await {
            assert_eq!(line, Some(json!({})), "it goes on, or ends well");
        }
    }

    /// The next line that holds events.
    async fn events(&mut self) -> Value {
        loop {
            let line = self.line().await.expect("no error").expect("a line");
            if line != json!({}) {
                return line;
            }
        }
    }

    /// The first line from now on of which this holds.
    async fn that(&mut self, is_it: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = self.events().await;
            if is_it(&line) {
                return line;
            }
        }
    }

    /// All lines with events until one holds this key, which is left out.
    async fn until(&mut self, key: &str) -> Vec<Value> {
        let mut found = Vec::new();
        loop {
            let line = self.events().await;
            if line["Events"][0]["Key"] == key {
                break;
            }
            found.push(line);
        }
        let indexes: Vec<u64> = found.iter().map(index).collect();
        assert!(indexes.is_sorted_by(|a, b| a < b), "indexes strictly increase: {indexes:?}");
        found
    }
}

fn index(line: &Value) -> u64 {
    line["Index"].as_u64().expect("an index")
}

/// The events of lines, each of which has the index of its line.
fn events(lines: &[Value]) -> Vec<&Value> {
    let of = |line: &'_ Value| -> usize {
        line["Events"].as_array().expect("events").iter().filter(|it| it["Index"] == line["Index"]).count()
    };
    let all: Vec<&Value> = lines.iter().flat_map(|line| line["Events"].as_array().expect("events")).collect();
    assert_eq!(lines.iter().map(of).sum::<usize>(), all.len());
    all
}

fn keys(lines: &[Value]) -> Vec<String> {
    events(lines).iter().map(|event| event["Key"].as_str().expect("a key").to_owned()).collect()
}

fn topics<'a>(events: &[&'a Value]) -> BTreeSet<&'a str> {
    events.iter().filter_map(|event| event["Topic"].as_str()).collect()
}

/// A job of a task that sleeps.
fn sleeper(name: &str) -> Value {
    job(name, 1, &json!({ "update": { "minHealthyTime": "0s" } }), "exec sleep 1000")
}

async fn runs(cluster: &Cluster, namespace: &str, name: &str) {
    cluster.apply(namespace, &sleeper(name));
    cluster.condition(namespace, name, JobConditionType::Ready, "True").await;
}

/// Makes a volume that no plugin serves, with so many kilobytes in it; its version.
async fn volume(cluster: &Cluster, namespace: &str, name: &str, kilobytes: usize) -> u64 {
    let context: BTreeMap<String, String> = (0..kilobytes).map(|n| (format!("k-{n}"), "x".repeat(1000))).collect();
    let volume = json!({
        "apiVersion": "drover.dev/v1alpha1", "kind": "CSIVolume", "metadata": { "name": name },
        "spec": { "pluginID": "ebs", "externalID": name, "context": context,
                  "capabilities": [{ "accessMode": "single-node-writer", "attachmentMode": "file-system" }] },
    });
    let api: Api<CSIVolume> = Api::namespaced(cluster.client.clone(), namespace);
    let volume = serde_json::from_value(volume).expect("a volume");
    let made = api.create(&PostParams::default(), &volume).await.expect("a volume");
    made.metadata.resource_version.expect("a version").parse().expect("a number")
}

async fn eligibility(cluster: &Cluster, eligibility: &str) {
    let nodes: Api<ClientNode> = Api::all(cluster.client.clone());
    let patch = Patch::Merge(json!({ "spec": { "eligibility": eligibility } }));
    nodes.patch(NODE, &PatchParams::default(), &patch).await.expect("changed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_063_p_064_p_065_p_066_and_p_069_events_are_told_to_those_who_ask_for_them() {
    let stage = Stage::start("nomad-events", "").await;
    let cluster = &stage.cluster;
    cluster.namespace("shop").await;
    let nomad = Subscriber::admin(&stage).await;
    cluster.eventually("the gateway knows all objects", async || nomad.is_served().await).await;
    // P-065.
    for query in ["topic=Job:a:b", "topic=Jobs", "index=x"] {
        assert_eq!(nomad.code(query).await, 400, "{query}");
    }
    // Each is told of one volume too, which is the last thing that happens.
    let mut deployments = nomad.follow("topic=Deployment:web&topic=CSIVolume:last").await;
    let mut of_web = nomad.follow("topic=*:web&topic=CSIVolume:last").await;
    let mut all = nomad.follow("").await;
    let mut shop = nomad.follow("namespace=shop").await;
    for (namespace, name) in [("default", "web"), ("default", "db"), ("shop", "web")] {
        runs(cluster, namespace, name).await;
    }
    eligibility(cluster, "ineligible").await;
    for namespace in ["default", "shop"] {
        volume(cluster, namespace, "last", 0).await;
    }
    let (deployments, of_web) = (deployments.until("last").await, of_web.until("last").await);
    let (all, shop) = (all.until("last").await, shop.until("last").await);

    // P-063.
    let found = events(&deployments);
    assert!(!found.is_empty() && topics(&found) == ["Deployment"].into(), "{found:?}");
    for event in &found {
        assert_eq!((&event["FilterKeys"], &event["Namespace"]), (&json!(["web"]), &json!("default")));
        assert_eq!(event["Payload"]["Deployment"]["JobID"], "web");
    }
    let causes: BTreeSet<&str> = found.iter().filter_map(|event| event["Type"].as_str()).collect();
    assert!(causes.contains("PlanResult") && causes.contains("DeploymentStatusUpdate"), "{causes:?}");

    // P-064.
    let found = events(&of_web);
    assert_eq!(topics(&found), ["Allocation", "Deployment", "Evaluation", "Job"].into());
    let mut told = BTreeMap::new();
    for event in &found {
        let is_of_web =
            event["Key"] == "web" || event["FilterKeys"].as_array().is_some_and(|it| it.contains(&json!("web")));
        assert!(is_of_web && event["Namespace"] == "default", "{event}");
        *told.entry((event["Topic"].to_string(), event["Key"].to_string(), event["Index"].to_string())).or_insert(0) +=
            1;
    }
    assert!(told.values().all(|n| *n == 1), "each once: {told:?}");
    let registered = found.iter().find(|event| event["Topic"] == "Job").expect("the job");
    assert_eq!((&registered["Type"], &registered["Payload"]["Job"]["ID"]), (&json!("JobRegistered"), &json!("web")));
    // What one gets by topics is what is in the whole.
    let whole = events(&all);
    assert!(found.iter().all(|event| whole.contains(event)), "something is told to some alone");

    // P-066.
    for (lines, own, other) in [(&shop, "shop", "default"), (&all, "default", "shop")] {
        let found = events(lines);
        let of = |namespace: &str| found.iter().filter(|event| event["Namespace"] == namespace).count();
        assert!(of(own) > 0 && of(other) == 0, "{own}");
        let node = found.iter().find(|event| event["Type"] == "NodeEligibility").expect("the node");
        assert_eq!((&node["Topic"], &node["Namespace"]), (&json!("Node"), &json!("")));
    }

    // P-069.
    for event in &whole {
        if event["Topic"] == "Allocation" {
            let shown = event["Payload"]["Allocation"].as_object().expect("an allocation");
            assert!(shown.contains_key("ClientStatus") && !shown.contains_key("Job"), "{event}");
        }
        if event["Topic"] == "Node" {
            let shown = event["Payload"]["Node"].as_object().expect("a node");
            assert!(shown.contains_key("SchedulingEligibility") && !shown.contains_key("SecretID"), "{event}");
        }
    }
    by_the_api_server(&stage).await;
    turned_off(&stage).await;
    eligibility(cluster, "eligible").await;
    cluster.kubectl(&["delete", "djob", "--all", "-A", "--timeout=90s"]).expect("deleted");
}

/// By a kubeconfig alone, through the API server.
async fn by_the_api_server(stage: &Stage) {
    let path = format!("{API}/gateways/nomad/proxy/v1/event/stream?topic=CSIVolume&index=1");
    let request = http::Request::get(path).body(Body::empty()).expect("a request");
    let answer = stage.cluster.client.send(request).await.expect("an answer");
    let mut lines = Lines { body: answer.into_body(), text: Vec::new() };
    assert_eq!(lines.line().await, Ok(Some(json!({}))));
    assert_eq!(lines.events().await["Events"][0]["Key"], "last");
}

/// A replica whose configuration has no event stream says so.
async fn turned_off(stage: &Stage) {
    let (_process, users, _) = gateway(&stage.cluster, "gateway-off", "events: {enabled: false}\n").await;
    let other = Subscriber::at(stage, users).await;
    stage.cluster.eventually("it knows all objects", async || other.is_served().await).await;
    let answer = other.ask("").await;
    assert_eq!(answer.status(), 400);
    let text = answer.into_body().collect().await.expect("a body").to_bytes();
    assert!(String::from_utf8_lossy(&text).contains("events.enabled"), "{text:?}");
}

/// How many events of each topic a line has, all of which are of one type.
fn of_one_type(line: &Value, cause: &str) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for event in events(std::slice::from_ref(line)) {
        assert_eq!(event["Type"], cause, "{event}");
        *found.entry(event["Topic"].as_str().expect("a topic").to_owned()).or_insert(0) += 1;
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_062_and_g_040_what_nomad_writes_at_once_is_on_one_line() {
    let stage = Stage::start("nomad-lines", "").await;
    let cluster = &stage.cluster;
    let (nomad, subscriber) = (Nomad::of(&stage, User::Admin).await, Subscriber::admin(&stage).await);
    cluster.eventually("the gateway knows all objects", async || subscriber.is_served().await).await;
    let of = |cause: &'static str| move |line: &Value| line["Events"][0]["Type"] == cause;
    let counts = |of: &[(&str, usize)]| -> BTreeMap<String, usize> {
        of.iter().map(|(topic, n)| ((*topic).to_owned(), *n)).collect()
    };

    // A job comes with the evaluation that follows it, and its plan is one write.
    let mut lines = subscriber.follow("").await;
    let canaries = json!({ "update": { "minHealthyTime": "0s", "canary": 2 } });
    let web = |script: &str| job("web", 2, &canaries, script);
    cluster.apply("default", &web("exec sleep 1000"));
    let line = lines.that(of("JobRegistered")).await;
    assert_eq!(of_one_type(&line, "JobRegistered"), counts(&[("Job", 1), ("Evaluation", 1)]));
    let evaluation = &line["Events"][1]["Payload"]["Evaluation"];
    assert_eq!((&evaluation["JobID"], &evaluation["TriggeredBy"]), (&json!("web"), &json!("job-register")));
    let line = lines.that(of("PlanResult")).await;
    assert_eq!(of_one_type(&line, "PlanResult"), counts(&[("Deployment", 1), ("Allocation", 2)]));
    cluster.condition("default", "web", JobConditionType::Ready, "True").await;

    // A promotion, with the evaluation that its client is told of.
    cluster.apply("default", &web("exec sleep 2000"));
    let deployment = async || nomad.get("job/web/deployment").await.json();
    let is_ready = async || {
        let group = &deployment().await["TaskGroups"]["g"];
        (&group["DesiredCanaries"], &group["HealthyAllocs"]) == (&json!(2), &json!(2))
    };
    cluster.eventually("the canaries are healthy", is_ready).await;
    let id = deployment().await["ID"].as_str().expect("an id").to_owned();
    let asked = json!({ "DeploymentID": id, "All": true }).to_string();
    let answer = nomad.send(http::Method::PUT, &format!("deployment/promote/{id}"), &[], &asked).await.json();
    let line = lines.that(of("DeploymentPromotion")).await;
    let found = of_one_type(&line, "DeploymentPromotion");
    assert_eq!(found, counts(&[("Deployment", 1), ("Evaluation", 1), ("Allocation", 2)]));
    for event in events(std::slice::from_ref(&line)) {
        match event["Topic"].as_str() {
            Some("Evaluation") => assert_eq!(event["Key"], answer["EvalID"]),
            Some("Allocation") => {
                assert_eq!(event["Payload"]["Allocation"]["DeploymentStatus"]["Canary"], false, "{event}");
            }
            _ => assert_eq!(event["Payload"]["Deployment"]["TaskGroups"]["g"]["Promoted"], true, "{event}"),
        }
    }

    // G-040: a plan of fifty objects. Their agent stands still, so that nothing else happens to them.
    let agent = stage.agent.as_ref().expect("an agent");
    agent.freeze();
    cluster.apply("default", &job("many", 49, &json!({}), "exec sleep 1000"));
    let is_of_many = |line: &Value| {
        let is_it = |event: &Value| event["FilterKeys"].as_array().is_some_and(|it| it.contains(&json!("many")));
        of("PlanResult")(line) && line["Events"].as_array().is_some_and(|events| events.iter().any(is_it))
    };
    let (began, mut n_lines, mut found) = (Instant::now(), 0, BTreeMap::new());
    while found != counts(&[("Deployment", 1), ("Allocation", 49)]) {
        for (topic, n) in of_one_type(&lines.that(is_of_many).await, "PlanResult") {
            *found.entry(topic).or_insert(0) += n;
        }
        n_lines += 1;
    }
    // What a machine under load takes longer than a second to write is not held back for longer.
    assert!(n_lines == 1 || began.elapsed() > Duration::from_secs(1), "{n_lines} lines");
    agent.thaw();
    cluster.kubectl(&["delete", "djob", "--all", "-A", "--timeout=90s"]).expect("deleted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_067_a_hundred_commits_are_kept_and_one_begins_where_one_asks_to() {
    let stage = Stage::start("nomad-events-kept", "").await;
    let cluster = &stage.cluster;
    let nomad = Subscriber::admin(&stage).await;
    cluster.eventually("the gateway knows all objects", async || nomad.is_served().await).await;
    let mut versions = Vec::new();
    for n in 0..150 {
        versions.push(volume(cluster, "default", &format!("v-{n}"), 0).await);
    }
    nomad.follow("topic=CSIVolume").await.until("v-149").await;
    for query in ["index=1", "index=0", ""] {
        let kept = nomad.follow(query).await.until("v-149").await;
        // The nodes may have changed meanwhile: those commits count too.
        let volumes: Vec<String> = keys(&kept).into_iter().filter(|key| key.starts_with("v-")).collect();
        let n_others = kept.len() - volumes.len();
        assert_eq!(kept.len(), 99, "{query}");
        let expected: Vec<String> = (50 + n_others..149).map(|n| format!("v-{n}")).collect();
        assert_eq!(volumes, expected, "{query}");
    }
    for (asked, begins) in [(versions[120], 120), (versions[120] + 1, 121), (u64::MAX, 149)] {
        let first = nomad.follow(&format!("topic=CSIVolume&index={asked}")).await.events().await;
        assert_eq!(index(&first), versions[begins], "{asked}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_068_a_reader_that_stops_is_told_so_and_nothing_waits_for_it() {
    let stage = Stage::start("nomad-events-slow", "").await;
    let cluster = &stage.cluster;
    let nomad = Subscriber::admin(&stage).await;
    cluster.eventually("the gateway knows all objects", async || nomad.is_served().await).await;
    let mut quick = nomad.follow("topic=CSIVolume").await;
    // More than what lies between the two can hold.
    let writes = async |from: usize| {
        let mut took = Vec::new();
        for n in from..from + 200 {
            let since = Instant::now();
            volume(cluster, "default", &format!("v-{n:03}"), 60).await;
            took.push(since.elapsed());
        }
        took.sort();
        took[100]
    };
    let (before, early) = tokio::join!(writes(0), quick.until("v-199"));
    let mut slow = Subscriber::admin(&stage).await.follow("topic=CSIVolume&index=9999999999").await;
    let (after, late) = tokio::join!(writes(200), quick.until("v-399"));
    let expected = |from: usize| (from..from + 199).map(|n| format!("v-{n:03}")).collect::<Vec<_>>();
    assert_eq!((keys(&early), keys(&late)), (expected(0), expected(200)), "the other gets all");
    assert!(after < before * 3 + Duration::from_millis(20), "a write takes {after:?}, after {before:?}");
    let mut n_lines = 0;
    let ended = loop {
        match slow.line().await {
            Ok(Some(_)) => n_lines += 1,
            ended => break ended,
        }
    };
    assert!(ended.is_err() && n_lines < 150, "{ended:?} after {n_lines} lines");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_070_a_stream_ends_with_its_token_and_its_rights() {
    let stage = Stage::start("nomad-events-rights", "recheckEvery: 1s\n").await;
    let cluster = &stage.cluster;
    cluster.namespace("shop").await;
    let admin = Subscriber::admin(&stage).await;
    cluster.eventually("the gateway knows all objects", async || admin.is_served().await).await;
    let developer = Subscriber::of(&stage, token_of(&stage, User::Developer)).await;
    assert_eq!(developer.code("topic=Job&namespace=shop").await, 403);
    stage.bind("view", "drover-view");
    let is_allowed = async || developer.code("topic=Job&namespace=shop").await == 200;
    cluster.eventually("the role is in force", is_allowed).await;
    for query in
        ["topic=Node&namespace=shop", "topic=Job&namespace=farm", "namespace=shop", "namespace=shop&topic=*:web"]
    {
        assert_eq!(developer.code(query).await, 403, "{query}");
    }
    let stranger = Subscriber(Door::of(&stage).await.client(&Proof::Nothing).await);
    assert_eq!(stranger.code("topic=Job&namespace=shop").await, 403);

    // Of all namespaces one gets what one may see.
    let mut own = developer.follow("topic=CSIVolume&namespace=*").await;
    let mut by_right = developer.follow("topic=CSIVolume&namespace=shop").await;
    volume(cluster, "default", "foreign", 0).await;
    volume(cluster, "shop", "own", 0).await;
    for lines in [&mut own, &mut by_right] {
        assert_eq!(keys(&[lines.events().await]), ["own"]);
    }
    cluster.kubectl(&["delete", "rolebinding", "view", "-n", "shop"]).expect("deleted");
    for lines in [own, by_right] {
        lines.breaks_off().await;
    }

    cluster.kubectl(&["create", "serviceaccount", "reader", "-n", "drover-system"]).expect("an account");
    let subject = "--serviceaccount=drover-system:reader";
    cluster
        .kubectl(&["create", "clusterrolebinding", "reader", "--clusterrole=drover-view", subject])
        .expect("a binding");
    let reader = Subscriber::of(&stage, token(cluster, "reader", None, None).await).await;
    cluster.eventually("its role is in force", async || reader.code("topic=Job").await == 200).await;
    let by_token = reader.follow("topic=Job").await;
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), "drover-system");
    accounts.delete("reader", &DeleteParams::default()).await.expect("deleted");
    by_token.breaks_off().await;
    assert!(!cluster.log("gateway").contains("event/stream?"), "parameters are in the log");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g_039_one_goes_on_at_another_replica_without_a_gap() {
    let stage = Stage::start("nomad-events-replicas", "").await;
    let cluster = &stage.cluster;
    let (_second, users, _) = gateway(cluster, "gateway-b", "").await;
    let (first, second) = (Subscriber::admin(&stage).await, Subscriber::at(&stage, users).await);
    for replica in [&first, &second] {
        cluster.eventually("it knows all objects", async || replica.is_served().await).await;
    }
    let query = "topic=CSIVolume&topic=Node";
    let mut at_first = first.follow(query).await;
    // Of two kinds, so that two watches tell of them.
    let changes = async {
        for n in 0..20 {
            volume(cluster, "default", &format!("v-{n}"), 0).await;
            eligibility(cluster, if n % 2 == 0 { "ineligible" } else { "eligible" }).await;
        }
        volume(cluster, "default", "last", 0).await;
    };
    let reads = async {
        let mut found = Vec::new();
        while found.len() < 17 {
            found.push(at_first.events().await);
        }
        drop(at_first);
        let next = found.last().map(index).expect("a line") + 1;
        found.extend(second.follow(&format!("{query}&index={next}")).await.until("last").await);
        found
    };
    let ((), found) = tokio::join!(changes, reads);
    let told = |topic: &str| events(&found).iter().filter(|event| event["Topic"] == topic).count();
    let volumes: Vec<String> = keys(&found).into_iter().filter(|key| key.starts_with("v-")).collect();
    // A line may come from both.
    let mut known = BTreeSet::new();
    let volumes: Vec<String> = volumes.into_iter().filter(|key| known.insert(key.clone())).collect();
    assert_eq!(volumes, (0..20).map(|n| format!("v-{n}")).collect::<Vec<_>>());
    assert!(told("Node") >= 20, "{} changes of the node", told("Node"));
}
