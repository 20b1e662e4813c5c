//! What the gateway withstands: those who are not who they say, those who ask too much, those who take nothing, and an
//! API server that is gone. Calls here go to the gateway itself, as those of a user with a token or a certificate do.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use drover_testkit::control_plane::{Role, User};
use drover_testkit::probe;
use http::StatusCode;
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::gateway::{API, Stage};

/// By what a caller proves itself.
pub(crate) enum Proof {
    Nothing,
    Token(String),
    Certificate { certificate: String, key: String },
}

/// An authority of the test's own.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.distinguished_name.push(DnType::CommonName, "authority of the test");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).expect("an authority").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    pub(crate) fn issue(&self, name: &str, has_expired: bool) -> Proof {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if has_expired {
            params.not_after = rcgen::date_time_ymd(2025, 1, 1);
        }
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate").pem();
        Proof::Certificate { certificate, key: key.serialize_pem() }
    }
}

/// The gateway itself, and what is known of it.
pub(crate) struct Door<'a> {
    stage: &'a Stage,
    authority: String,
    pub(crate) metrics: SocketAddr,
}

impl<'a> Door<'a> {
    pub(crate) async fn of(stage: &'a Stage) -> Self {
        let authority = stage.authority();
        std::fs::write(stage.cluster.path("gateway-ca"), &authority).expect("a file");
        Self { stage, authority, metrics: stage.cluster.listens("gateway").await }
    }

    pub(crate) async fn client(&self, proof: &Proof) -> Client {
        self.client_at(self.stage.users, proof).await
    }

    /// A client of another replica.
    pub(crate) async fn client_at(&self, users: SocketAddr, proof: &Proof) -> Client {
        let data = |text: &str| kube_data(text);
        let user = match proof {
            Proof::Nothing => json!({}),
            Proof::Token(token) => json!({ "token": token }),
            Proof::Certificate { certificate, key } => {
                json!({ "client-certificate-data": data(certificate), "client-key-data": data(key) })
            }
        };
        let server = format!("https://localhost:{}", users.port());
        let config: Kubeconfig = serde_json::from_value(json!({
            "clusters": [{ "name": "c", "cluster": { "server": server, "certificate-authority-data": data(&self.authority) } }],
            "users": [{ "name": "u", "user": user }],
            "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
            "current-context": "c",
        }))
        .expect("a kubeconfig");
        let mut config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.expect("a config");
        // What the gateway answers first is what is looked at.
        config.default_retry = false;
        Client::try_from(config).expect("a client")
    }

    /// A number of the gateway's metrics.
    async fn metric(&self, series: &str) -> f64 {
        let (_, text) = probe::get(self.metrics, "/metrics").await.expect("metrics");
        let found = text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok());
        found.unwrap_or_else(|| unreachable!("no {series} in {text}"))
    }

    async fn reviews(&self, kind: &str) -> f64 {
        let mut sum = 0.0;
        for result in ["yes", "no", "error"] {
            sum += self.metric(&format!("drover_gateway_reviews_total{{kind=\"{kind}\",result=\"{result}\"}}")).await;
        }
        sum
    }
}

fn kube_data(text: &str) -> String {
    serde_json::to_value(k8s_openapi::ByteString(text.as_bytes().to_vec()))
        .ok()
        .and_then(|value| value.as_str().map(str::to_owned))
        .expect("base64")
}

/// What a path is answered, with its code; none where no connection came about.
async fn call(client: &Client, path: &str, headers: &[(&str, &str)]) -> Option<(StatusCode, String)> {
    let mut request = http::Request::get(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = client.send(request.body(Body::empty()).expect("a request")).await.ok()?;
    let code = answer.status();
    let body = answer.into_body().collect().await.ok()?.to_bytes();
    Some((code, String::from_utf8_lossy(&body).into_owned()))
}

pub(crate) fn token_of(stage: &Stage, user: User) -> String {
    let text = std::fs::read_to_string(stage.cluster.plane.kubeconfig(user)).expect("a kubeconfig");
    let config = Kubeconfig::from_yaml(&text).expect("a kubeconfig");
    let of_all: Value = serde_json::to_value(&config).expect("JSON");
    of_all["users"][0]["user"]["token"].as_str().expect("a token").to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g_004_g_006_g_011_g_021_g_025_g_029_g_030_and_g_032_the_door_holds() {
    let mut stage = Stage::start("gateway-door", "recheckEvery: 2s\n").await;
    let script = "head -c 67108864 /dev/zero | tr '\\0' x; echo >&2 written; exec sleep 1000";
    let alloc = stage.run("web", script).await;
    let name = alloc.metadata.name.clone().expect("a name");
    let base = format!("{API}/namespaces/shop/allocations/{name}");
    let stopped = readers_that_stop(&stage, &base).await;
    strangers_are_told_so(&stage, &base).await;
    nothing_secret_is_written(&stage, &name, &base).await;
    many_calls_are_few_reviews(&stage, &base).await;
    readers_that_take_nothing_are_cut(&stage, stopped).await;
    without_the_api_server(&mut stage, &base).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g_005_one_authority_for_users_and_proxies_without_names_is_no_proxy() {
    let stage = Stage::start("gateway-one-authority", "").await;
    let alloc = stage.run("web", "exec sleep 1000").await;
    let (cluster, name) = (&stage.cluster, alloc.metadata.name.clone().expect("a name"));
    let door = Door::of(&stage).await;
    let ready = async || probe::get(door.metrics, "/readyz").await.expect("an answer");
    cluster.eventually("it is ready", async || ready().await.0 == 200).await;
    let as_admin = [("X-Remote-User", "admin"), ("X-Remote-Group", "system:masters")];
    let stats = format!("{API}/namespaces/shop/allocations/{name}/stats");

    // Whom the cluster's authority has issued anything to could name anyone.
    let own = Authority::new();
    let anyone = door.client(&own.issue("anyone", false)).await;
    let data = json!({ "client-ca-file": own.pem, "requestheader-client-ca-file": own.pem, "requestheader-allowed-names": "[]" });
    let patch = json!({ "data": data }).to_string();
    let args = ["patch", "configmap", "extension-apiserver-authentication", "-n", "kube-system", "--type=merge", "-p"];
    cluster.kubectl(&[&args[..], &[&patch]].concat()).expect("patched");
    let is_told = async || {
        let (code, text) = ready().await;
        code == 503 && text.contains("--requestheader-allowed-names")
    };
    cluster.eventually("it is not ready and says why", is_told).await;
    let (code, text) = call(&anyone, &stats, &as_admin).await.expect("an answer");
    assert!(code == 403 && text.contains("\\\"anyone\\\""), "it is itself and no other: {code} {text}");
}

async fn strangers_are_told_so(stage: &Stage, base: &str) {
    let (door, cluster) = (Door::of(stage).await, &stage.cluster);
    let log = format!("{base}/log?task=t&type=stderr");

    // G-032: no credentials, at each listener. G-025 is below.
    let nobody = door.client(&Proof::Nothing).await;
    let (code, text) = call(&nobody, &log, &[]).await.expect("an answer");
    assert!(code == 403 && text.contains("system:anonymous"), "{code} {text}");
    let tunnel = format!("https://{}/tunnel/v1", stage.agents);
    let args = ["-sk", "-X", "POST", "-H", "Upgrade: drover-tunnel/1", "-H", "Connection: Upgrade", "--max-time", "60"];
    let answer = Command::new("curl").args(args).arg(&tunnel).output().expect("curl");
    let answer = String::from_utf8_lossy(&answer.stdout).into_owned();
    assert!(answer.contains("a tunnel needs a token"), "{answer}");

    // G-004: who is no proxy says nothing of others.
    let developer = door.client(&Proof::Token(token_of(stage, User::Developer))).await;
    let as_admin = [("X-Remote-User", "admin"), ("X-Remote-Group", "system:masters")];
    let (code, text) = call(&developer, &log, &as_admin).await.expect("an answer");
    assert!(code == 403 && text.contains("developer"), "{code} {text}");

    // G-006: another authority of proxies, which nothing is restarted for.
    let own = Authority::new();
    let (proxy, other, late) =
        (own.issue("front-proxy-client", false), own.issue("other", false), own.issue("front-proxy-client", true));
    assert!(call(&door.client(&proxy).await, &log, &as_admin).await.is_none(), "not trusted yet");
    let map = ["get", "configmap", "extension-apiserver-authentication", "-n", "kube-system", "-o", "json"];
    let map: Value = serde_json::from_str(&cluster.kubectl(&map).expect("a map")).expect("JSON");
    let before = map["data"]["requestheader-client-ca-file"].as_str().expect("an authority");
    let patch = json!({ "data": { "requestheader-client-ca-file": format!("{before}{}", own.pem) } }).to_string();
    let args = ["patch", "configmap", "extension-apiserver-authentication", "-n", "kube-system", "--type=merge", "-p"];
    cluster.kubectl(&[&args[..], &[&patch]].concat()).expect("patched");
    let changed = Instant::now();
    let client = door.client(&proxy).await;
    cluster
        .eventually("the new authority is believed", async || {
            call(&client, &log, &as_admin).await.is_some_and(|(code, _)| code == 200)
        })
        .await;
    assert!(changed.elapsed() < Duration::from_secs(10), "{:?}", changed.elapsed());
    let (code, text) = call(&door.client(&other).await, &log, &as_admin).await.expect("an answer");
    assert!(code == 401 && text.contains("other"), "{code} {text}");
    assert!(call(&door.client(&late).await, &log, &as_admin).await.is_none(), "G-032: it has expired");
}

async fn nothing_secret_is_written(stage: &Stage, name: &str, base: &str) {
    let (door, cluster) = (Door::of(stage).await, &stage.cluster);
    let guess = door.client(&Proof::Token("canary-of-a-token".to_owned())).await;
    let (code, _) = call(&guess, &format!("{base}/stats"), &[]).await.expect("an answer");
    assert_eq!(code, 401);
    let command = ["/bin/sh", "-c", "cat >/dev/null; exit 3", "canary-of-an-argument"];
    let ran = stage.exec(User::Admin, name, &command, b"canary-of-input");
    assert_eq!(ran.code, 3, "{}", ran.err);
    let ended = || cluster.log("gateway").contains("verb=\"exec\"");
    cluster.eventually("the command is in the audit", async || ended()).await;
    let metrics = probe::get(door.metrics, "/metrics").await.expect("metrics").1;
    let events = cluster.kubectl(&["get", "events", "-A", "-o", "json"]).expect("events");
    crate::metrics::check_gateway(&metrics);
    for text in [cluster.log("gateway"), cluster.log("controller"), cluster.log("n-1"), metrics, events] {
        assert!(!text.contains("canary"), "{text}");
    }
    assert!(cluster.log("gateway").contains("program=\"/bin/sh\""));
}

/// G-030.
async fn many_calls_are_few_reviews(stage: &Stage, base: &str) {
    let door = Door::of(stage).await;
    let client = door.client(&Proof::Token(token_of(stage, User::Developer))).await;
    let (before, since, path) = (door.reviews("access").await, Instant::now(), format!("{base}/stats"));
    let mut callers = JoinSet::new();
    for _ in 0..8 {
        let (client, path) = (client.clone(), path.clone());
        callers.spawn(async move {
            for _ in 0..1250 {
                let (code, _) = call(&client, &path, &[]).await.expect("an answer");
                assert_eq!(code, 403);
            }
        });
    }
    while let Some(ended) = callers.join_next().await {
        ended.expect("calls");
    }
    let asked = door.reviews("access").await - before;
    let allowed = 2.0 + since.elapsed().as_secs_f64() / 10.0;
    // Those who follow are asked for again meanwhile: the readers that have stopped are one tuple.
    assert!(asked <= allowed * 2.0, "{asked} reviews in {:?}", since.elapsed());
}

/// A reader of an output, as `log`'s query says.
fn reader(stage: &Stage, base: &str, query: &str) -> Child {
    let token = format!("Authorization: Bearer {}", token_of(stage, User::Admin));
    Command::new("curl")
        .args(["-sSN", "--fail", "--cacert"])
        .arg(stage.cluster.path("gateway-ca"))
        .args(["-H", &token])
        .arg(format!("https://localhost:{}{base}/log?task=t&{query}", stage.users.port()))
        .stdout(Stdio::piped())
        .spawn()
        .expect("curl")
}

/// G-021: the others of a node do not notice those that take nothing.
async fn readers_that_stop(stage: &Stage, base: &str) -> Vec<Child> {
    let door = Door::of(stage).await;
    let admin = door.client(&Proof::Token(token_of(stage, User::Admin))).await;
    let written = format!("{base}/log?task=t&type=stderr");
    stage
        .cluster
        .eventually("the output is written", async || {
            call(&admin, &written, &[]).await.is_some_and(|(_, text)| text == "written\n")
        })
        .await;
    let stopped: Vec<Child> = (0..32).map(|_| reader(stage, base, "type=stdout")).collect();
    let n_open = async || door.metric("drover_gateway_open{kind=\"call\"}").await;
    stage.cluster.eventually("all read", async || n_open().await >= 32.0).await;
    let another = reader(stage, base, "type=stdout");
    let output = tokio::task::spawn_blocking(|| another.wait_with_output()).await.expect("joined").expect("its end");
    assert!(output.status.success() && output.stdout.len() == 64 * 1024 * 1024, "{} bytes", output.stdout.len());
    // It did not wait until they were cut.
    assert!(n_open().await >= 32.0, "some were cut before");
    stopped
}

async fn readers_that_take_nothing_are_cut(stage: &Stage, mut stopped: Vec<Child>) {
    let door = Door::of(stage).await;
    stage
        .cluster
        .eventually("they are cut", async || door.metric("drover_gateway_open{kind=\"call\"}").await < 1.0)
        .await;
    for child in &mut stopped {
        child.kill().expect("ended");
        child.wait().expect("its end");
    }
}

/// How long there is no API server.
const GONE_FOR: Duration = Duration::from_mins(2);

/// G-011, G-025.
async fn without_the_api_server(stage: &mut Stage, base: &str) {
    let ticks = stage.run("ticks", "while :; do date +%s; sleep 0.5; done").await;
    let of_ticks = format!("{API}/namespaces/shop/allocations/{}", ticks.metadata.name.expect("a name"));
    let door = Door::of(stage).await;
    let admin = door.client(&Proof::Token(token_of(stage, User::Admin))).await;
    let log = format!("{base}/log?task=t&type=stderr");
    assert_eq!(call(&admin, &log, &[]).await.expect("an answer").0, 200);
    // What is open, as one who asks the gateway itself has it: when the newest line was written.
    let newest = Arc::new(AtomicU64::new(0));
    let mut follower = reader(stage, &of_ticks, "type=stdout&follow=true");
    let (lines, seen) = (BufReader::new(follower.stdout.take().expect("a pipe")).lines(), Arc::clone(&newest));
    let reads = std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            seen.store(line.parse().expect("seconds"), Ordering::Relaxed);
        }
    });
    let newest = || newest.load(Ordering::Relaxed);
    stage.cluster.eventually("it is followed", async || newest() > 0).await;

    stage.cluster.plane.kill(Role::KubeApiserver).await.expect("killed");
    let (gone, last) = (Instant::now(), newest());
    let errors = async || door.metric("drover_gateway_reviews_total{kind=\"access\",result=\"error\"}").await;
    let before = errors().await;
    let nobody = door.client(&Proof::Nothing).await;
    assert_eq!(call(&nobody, API, &[]).await.expect("an answer").0, 200);
    // Until what was answered has aged, nothing is asked.
    stage
        .cluster
        .eventually("the API server is missed, for long", async || {
            let (code, text) = call(&admin, &log, &[]).await.expect("an answer");
            assert!(code == 200 && text == "written\n", "{code} {text}");
            gone.elapsed() > GONE_FOR && errors().await > before
        })
        .await;
    let (code, text) = call(&admin, &format!("{base}/exec?task=t&command=true"), &[]).await.expect("an answer");
    assert_eq!(code, 503, "{text}");
    let goes_on = async || newest() >= last + GONE_FOR.as_secs();
    stage.cluster.eventually("what was open goes on", goes_on).await;
    follower.kill().expect("ended");
    follower.wait().expect("its end");
    reads.join().expect("read");
    stage.cluster.plane.restart(Role::KubeApiserver).await.expect("started again");
}
