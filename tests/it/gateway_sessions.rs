//! Signals, commands, followed output and samples (`spec/api.md`, section 2), asked for through the API server and the
//! gateway: what each row of its table means for the aggregated API.

use std::path::Path;
use std::time::Duration;

use drover_api::Allocation;
use drover_clock::{Clock as _, SystemClock};
use drover_socket::channels::{CLOSE, ERROR, RESIZE, STDERR, STDIN, STDOUT};
use drover_socket::client::{Exchange, Reply};
use drover_socket::protocol::Answer;
use drover_testkit::control_plane::User;
use futures::stream::BoxStream;
use futures::{Sink, SinkExt as _, StreamExt as _};
use http_body_util::BodyExt as _;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_tungstenite::tungstenite::{Error as SocketError, Message};

use crate::cluster::LONG;
use crate::gateway::{API, Ran, Stage};
use crate::gateway_limits::{Door, Proof};

/// What says that its task has got SIGHUP.
const HEARS: &str = "trap 'echo hup' HUP; echo started; while true; do sleep 0.05; done";

pub(crate) fn task(name: &str, script: &str, hook: Option<&str>) -> Value {
    let mut task = json!({
        "name": name, "driver": "raw_exec", "config": { "command": "/bin/sh", "args": ["-c", script] },
        "killTimeout": "2s", "resources": { "cpu": 10, "memoryMB": 10 },
        "restart": { "attempts": 1, "interval": "1h", "delay": "0s", "mode": "fail" },
    });
    if let Some(hook) = hook {
        task["lifecycle"] = json!({ "hook": hook });
    }
    task
}

/// Runs a job of these tasks and returns its allocation, once this output of a task of it is there.
async fn run(stage: &Stage, name: &str, spec: Value, seen: (&str, &str)) -> Allocation {
    let cluster = &stage.cluster;
    let job = json!({ "apiVersion": "drover.dev/v1alpha1", "kind": "Job", "metadata": { "name": name }, "spec": spec });
    cluster.apply("shop", &job);
    let found = async || cluster.allocs("shop").await.into_iter().find(|alloc| alloc.spec.job_name == name);
    cluster.eventually("it is placed", async || found().await.is_some()).await;
    let alloc = found().await.expect("an allocation");
    let (task, text) = seen;
    let written = || output(stage, name_of(&alloc), task).is_some_and(|output| output.contains(text));
    cluster.eventually("its output comes", async || written()).await;
    alloc
}

pub(crate) fn group(tasks: &[Value]) -> Value {
    json!({ "name": "g", "count": 1, "ephemeralDisk": { "sizeMB": 110 }, "tasks": tasks,
            "update": { "minHealthyTime": "0s", "healthCheck": "task_states" } })
}

fn name_of(alloc: &Allocation) -> &str {
    alloc.metadata.name.as_deref().expect("a name")
}

/// The standard output of a task, where there is one.
fn output(stage: &Stage, alloc: &str, task: &str) -> Option<String> {
    stage.raw("admin", &format!("{alloc}/log?task={task}&type=stdout")).ok()
}

/// A command's WebSocket, as kubectl speaks it.
struct Wire {
    to: std::pin::Pin<Box<dyn Sink<Message, Error = SocketError> + Send>>,
    from: BoxStream<'static, Result<Message, SocketError>>,
}

/// What a command has said: its output, its errors, its last word.
#[derive(Debug, Default)]
struct Said {
    out: String,
    err: String,
    status: Option<Value>,
}

impl Wire {
    async fn open(stage: &Stage, alloc: &str, query: &str) -> Self {
        Self::by(&stage.cluster.client, alloc, query).await
    }

    async fn by(client: &Client, alloc: &str, query: &str) -> Self {
        let path = format!("{API}/namespaces/shop/allocations/{alloc}/exec?{query}");
        let request = http::Request::get(path).body(Vec::new()).expect("a request");
        let (to, from) = client.connect(request).await.expect("a WebSocket").into_stream().split();
        Self { to: Box::pin(to), from: from.boxed() }
    }

    async fn send(&mut self, channel: u8, bytes: &[u8]) {
        let message = [&[channel], bytes].concat();
        self.to.send(Message::Binary(message.into())).await.expect("sent");
    }

    /// Takes what is said in until `enough`, or until the end of the connection.
    async fn hear(&mut self, said: &mut Said, enough: impl Fn(&Said) -> bool) {
        while !enough(said) {
            let next = tokio::time::timeout(LONG, self.from.next()).await.expect("the command says more");
            let Some(message) = next else { return };
            let Message::Binary(bytes) = message.expect("a message") else { continue };
            let (channel, bytes) = bytes.split_first().expect("a channel");
            let text = String::from_utf8_lossy(bytes);
            match *channel {
                STDOUT => said.out.push_str(&text),
                STDERR => said.err.push_str(&text),
                ERROR => {
                    let before = said.status.replace(serde_json::from_str(&text).expect("JSON"));
                    assert!(before.is_none(), "a second last word: {said:?}");
                }
                other => unreachable!("channel {other}: {text}"),
            }
        }
    }

    /// Everything up to the end.
    async fn whole(&mut self) -> Said {
        let mut said = Said::default();
        self.hear(&mut said, |_| false).await;
        said
    }
}

/// A log that is followed, in frames.
struct Followed {
    body: Body,
    bytes: Vec<u8>,
}

impl Followed {
    async fn begin(stage: &Stage, alloc: &str, task: &str) -> Self {
        let path =
            format!("{API}/namespaces/shop/allocations/{alloc}/log?task={task}&type=stdout&origin=end&follow=true");
        let request = http::Request::get(path).header("Accept", "application/vnd.drover.frames");
        let answer = stage.cluster.client.send(request.body(Body::empty()).expect("a request")).await;
        let answer = answer.expect("an answer");
        assert_eq!(answer.status(), 200);
        Self { body: answer.into_body(), bytes: Vec::new() }
    }

    /// The next reply; none at the end.
    async fn next(&mut self) -> Option<Reply> {
        loop {
            if let Some((head, _)) = self.bytes.split_first_chunk::<4>() {
                let n = 4 + usize::try_from(u32::from_be_bytes(*head)).expect("a length");
                if self.bytes.len() >= n {
                    let frame: Vec<u8> = self.bytes.drain(..n).collect();
                    let mut replies = Exchange::over(std::io::Cursor::new(frame), tokio::io::sink()).replies;
                    return replies.next().await.expect("a frame");
                }
            }
            let part = tokio::time::timeout(LONG, self.body.frame()).await.expect("the log says more");
            let frame = part?.expect("a part");
            self.bytes.extend(frame.into_data().expect("data"));
        }
    }

    /// The next line that the task writes.
    async fn line(&mut self) -> String {
        let mut line = String::new();
        while !line.ends_with('\n') {
            match self.next().await.expect("more") {
                Reply::Data(bytes) => line.push_str(&String::from_utf8(bytes).expect("text")),
                Reply::Answer(Answer::At { .. }) => {}
                other => unreachable!("{other:?} after {line:?}"),
            }
        }
        line.trim_end().to_owned()
    }
}

fn signal(stage: &Stage, args: &[&str]) -> Ran {
    stage.alloc(User::Admin, &[&["signal"], args].concat())
}

/// P-027
async fn p_027_a_signal_for_all_names_those_that_do_not_run_and_the_others_get_it(stage: &Stage) {
    let cluster = &stage.cluster;
    let tasks = [task("one", HEARS, None), task("two", HEARS, None)];
    let both = run(stage, "both", json!({ "groups": [group(&tasks)] }), ("one", "started")).await;
    let n_heard = |alloc: &str, task: &str| output(stage, alloc, task).unwrap_or_default().matches("hup").count();
    let written = || output(stage, name_of(&both), "two").unwrap_or_default();
    cluster.eventually("the other one runs", async || written().contains("started")).await;
    let sent = signal(stage, &[name_of(&both), "-s", "SIGHUP"]);
    assert_eq!(sent.code, 0, "{sent:?}");
    for task in ["one", "two"] {
        cluster.eventually("it has the signal", async || n_heard(name_of(&both), task) == 1).await;
    }

    let more = [&tasks[..], &[task("init", "exit 0", Some("prestart")), task("post", "exit 0", Some("poststop"))]];
    let late = run(stage, "late", json!({ "groups": [group(&more.concat())] }), ("two", "started")).await;
    let written = || output(stage, name_of(&late), "one").unwrap_or_default();
    cluster.eventually("the other one runs", async || written().contains("started")).await;
    let refused = signal(stage, &[name_of(&late), "-s", "SIGHUP"]);
    let named = "init: Task not running; post: Task not running";
    assert!(refused.code == 1 && refused.err.contains(named), "{refused:?}");
    for task in ["one", "two"] {
        cluster.eventually("it has the signal", async || n_heard(name_of(&late), task) == 1).await;
    }
    let refused = signal(stage, &[name_of(&late), "post", "-s", "SIGHUP"]);
    assert!(refused.code == 1 && refused.err.contains("Task not running"), "{refused:?}");
    let refused = signal(stage, &[name_of(&late), "nope", "-s", "SIGHUP"]);
    assert!(refused.code == 1 && refused.err.contains("unknown task \"nope\""), "{refused:?}");
    let got = stage.raw("admin", &format!("{}/signal?signal=SIGHUP", name_of(&late))).expect_err("refused");
    assert!(got.contains("MethodNotAllowed"), "{got}");
    assert_eq!((n_heard(name_of(&late), "one"), n_heard(name_of(&late), "two")), (1, 1));
}

/// P-029
async fn p_029_a_command_that_ends_well_has_a_last_word_that_says_so(stage: &Stage, alloc: &str) {
    let said = Wire::open(stage, alloc, "task=one&command=/bin/sh&command=-c&command=echo+well").await.whole().await;
    let status = said.status.expect("a last word");
    assert_eq!((said.out.as_str(), said.err.as_str(), &status["status"]), ("well\n", "", &json!("Success")));
    let ran = stage.spawn_exec(User::Admin, alloc, &["--task", "one"], &["/bin/true"]).wait_with_output();
    assert_eq!(Ran::of(ran.expect("its end")).code, 0);
}

/// P-030
async fn p_030_a_terminal_has_its_size_from_the_first_moment_and_sees_another_one(stage: &Stage, alloc: &str) {
    let script = "stty+size%3B+read+line%3B+stty+size%3B+read+line%3B+stty+size";
    let query =
        format!("task=one&tty=true&height=40&width=120&command=/bin/sh&command=-c&command=stty+-echo%3B+{script}");
    let mut wire = Wire::open(stage, alloc, &query).await;
    let mut said = Said::default();
    wire.hear(&mut said, |said| said.out.ends_with("\r\n")).await;
    assert_eq!(said.out, "40 120\r\n");
    for (height, width) in [(50, 100), (24, 80)] {
        wire.send(RESIZE, json!({ "Width": width, "Height": height }).to_string().as_bytes()).await;
        wire.send(STDIN, b"go on\n").await;
        said = Said::default();
        wire.hear(&mut said, |said| said.out.ends_with("\r\n")).await;
        assert_eq!(said.out, format!("{height} {width}\r\n"));
    }
    assert_eq!(wire.whole().await.status.expect("a last word")["status"], "Success");
}

/// P-032: `idle` was opened long ago, and nothing was sent since.
async fn p_032_an_idle_command_is_still_there_and_heartbeats_are_answered(idle: &mut Wire) {
    idle.to.send(Message::Ping(b"alive"[..].to_vec().into())).await.expect("sent");
    loop {
        match idle.from.next().await.expect("a message").expect("a message") {
            Message::Pong(text) => break assert_eq!(&text[..], b"alive"),
            Message::Binary(bytes) => assert_eq!(bytes.len(), 1, "only what opens a channel"),
            other => unreachable!("{other:?}"),
        }
    }
    // An empty part of its input is a heartbeat too, as clients can send it that cannot ping.
    idle.send(STDIN, b"").await;
    idle.send(STDIN, b"still there\n").await;
    let mut said = Said::default();
    idle.hear(&mut said, |said| said.out.ends_with('\n')).await;
    assert_eq!(said.out, "still there\n");
    idle.send(CLOSE, &[STDIN]).await;
    assert_eq!(idle.whole().await.status.expect("a last word")["status"], "Success");
}

/// P-033: `alloc` has tasks of which one runs and one is dead.
async fn p_033_a_command_without_a_place_is_refused_with_the_reason(stage: &Stage, alloc: &str) {
    for (task, code, reason) in [("nope", 400, "unknown task \"nope\""), ("init", 404, "not running")] {
        let said = Wire::open(stage, alloc, &format!("task={task}&command=/bin/true")).await.whole().await;
        let status = said.status.expect("a last word");
        let message = status["message"].as_str().expect("a message");
        assert!(status["code"] == code && message.contains(reason), "{status}");
        let ran = stage.spawn_exec(User::Admin, alloc, &["--task", task], &["/bin/true"]).wait_with_output();
        let ran = Ran::of(ran.expect("its end"));
        assert!(ran.code == 1 && ran.err.contains(reason), "{ran:?}");
    }
    for (query, reason) in [
        ("command=/bin/true", "task is missing"),
        ("task=one", "command is missing"),
        ("task=one&command=", "command is missing"),
    ] {
        let refused = stage.raw("admin", &format!("{alloc}/exec?{query}")).expect_err("refused");
        assert!(refused.contains("BadRequest") && refused.contains(reason), "{query}: {refused}");
    }
    let refused = stage.raw("admin", "none-g-0/exec?task=one&command=/bin/true").expect_err("refused");
    assert!(refused.contains("NotFound") && refused.contains("none-g-0"), "{refused}");
    // The command line knows the tasks, and takes the only one where there is one.
    let ran = Ran::of(stage.spawn_exec(User::Admin, alloc, &[], &["/bin/true"]).wait_with_output().expect("its end"));
    assert!(ran.code == 1 && ran.err.contains("several tasks: name one of"), "{ran:?}");
}

/// A token of a `ServiceAccount` in `shop`, which the API server takes for as long again as it lets clocks differ.
fn expiring_token(stage: &Stage, account: &str) -> String {
    let cluster = &stage.cluster;
    cluster.kubectl(&["create", "serviceaccount", account, "-n", "shop"]).expect("an account");
    let get = ["get", "serviceaccount", account, "-n", "shop", "-o", "jsonpath={.metadata.uid}"];
    let uid = cluster.kubectl(&get).expect("a uid");
    let now = SystemClock.now().as_second();
    let issuer = "https://kubernetes.default.svc";
    let claims = json!({
        "iss": issuer, "aud": [issuer], "sub": format!("system:serviceaccount:shop:{account}"),
        "iat": now, "nbf": now, "exp": now + 1, "jti": uid,
        "kubernetes.io": { "namespace": "shop", "serviceaccount": { "name": account, "uid": uid } },
    });
    let key = PrivatePkcs8KeyDer::from_pem_file(cluster.plane.account_key()).expect("a key");
    let key = EncodingKey::from_ec_der(key.secret_pkcs8_der());
    jsonwebtoken::encode(&Header::new(Algorithm::ES256), &claims, &key).expect("a token")
}

/// G-010: who shows the gateway itself a token that expires. The only task of `alloc` is `t`.
pub(crate) async fn g_010_a_command_ends_with_the_token_that_began_it_and_its_task_goes_on(stage: &Stage, alloc: &str) {
    let cluster = &stage.cluster;
    let restarts = async || {
        let all = cluster.allocs("shop").await;
        let status = all.into_iter().find(|it| name_of(it) == alloc).and_then(|it| it.status).expect("a status");
        (status.task_states["t"].state, status.task_states["t"].restarts)
    };
    let before = restarts().await;
    let token = expiring_token(stage, "brief");
    let account = "--serviceaccount=shop:brief";
    cluster
        .kubectl(&["create", "rolebinding", "brief", "-n", "shop", "--clusterrole=drover-admin", account])
        .expect("a binding");
    let client = Door::of(stage).await.client(&Proof::Token(token)).await;
    let path = format!("{API}/namespaces/shop/allocations/{alloc}/fs?op=ls&path=/");
    let may =
        async || client.request_text(http::Request::get(&*path).body(Vec::new()).expect("a request")).await.is_ok();
    cluster.eventually("the role is in force", may).await;
    let mut wire = Wire::by(&client, alloc, "task=t&command=/bin/sh&command=-c&command=echo+$$;exec+sleep+600").await;
    let mut said = Said::default();
    wire.hear(&mut said, |said| said.out.ends_with('\n')).await;
    let process = format!("/proc/{}", said.out.trim());
    assert!(Path::new(&process).exists(), "{process}");
    let status = wire.whole().await.status.expect("a last word");
    assert!(status["code"] == 401 && status["message"] == "the token is not valid here", "{status}");
    cluster.eventually("the command is killed", async || !Path::new(&process).exists()).await;
    assert_eq!(restarts().await, before, "the task goes on");
}

/// P-035
async fn p_035_a_followed_log_has_heartbeats_and_new_lines_at_once_and_ends_with_its_task(stage: &Stage) {
    let script = "trap 'date +%s%N' HUP; \
                  if [ -e ../alloc/second ]; then trap 'exit 0' USR1; echo again; \
                  else touch ../alloc/second; trap 'exit 1' USR1; echo once; fi; while true; do sleep 0.05; done";
    let spec = json!({ "type": "batch", "groups": [{
        "name": "g", "count": 1, "ephemeralDisk": { "sizeMB": 110 }, "tasks": [task("t", script, None)],
    }] });
    let alloc = run(stage, "followed", spec, ("t", "once")).await;
    let mut log = Followed::begin(stage, name_of(&alloc), "t").await;
    for _ in 0..2 {
        // Two in a row: nothing else came in between.
        let silent = loop {
            match log.next().await.expect("it is followed") {
                Reply::Answer(Answer::At { .. }) => {}
                other => break other,
            }
        };
        assert_eq!(silent, Reply::Data(Vec::new()));
    }
    // Each line is asked for when the one before has come, so that all are as late as the way is slow; a machine that
    // has other things to do makes some of them late, but not all.
    let mut fastest = Duration::MAX;
    for _ in 0..5 {
        assert_eq!(signal(stage, &[name_of(&alloc), "-s", "SIGHUP"]).code, 0);
        let written: i128 = log.line().await.parse().expect("nanoseconds");
        let late = u64::try_from(SystemClock.now().as_nanosecond() - written).expect("it came after it was written");
        fastest = fastest.min(Duration::from_nanos(late));
    }
    assert!(fastest < Duration::from_secs(1), "{fastest:?}");

    // Its first run fails, and it is started again: it is not dead for good.
    assert_eq!(signal(stage, &[name_of(&alloc), "-s", "SIGUSR1"]).code, 0);
    assert_eq!(log.line().await, "again");
    assert_eq!(signal(stage, &[name_of(&alloc), "-s", "SIGUSR1"]).code, 0);
    loop {
        match log.next().await.expect("a last word") {
            Reply::Data(bytes) => assert_eq!(bytes, b"", "nothing more is written"),
            Reply::Answer(Answer::Done) => break,
            other => unreachable!("{other:?}"),
        }
    }
    assert_eq!(log.next().await, None);
}

/// P-036: `post` has not been started.
fn p_036_a_log_without_task_or_type_is_a_wrong_request_and_one_that_is_not_there_is_not_found(
    stage: &Stage,
    alloc: &str,
) {
    for (query, code, reason) in [
        ("task=one", "BadRequest", "type is missing"),
        ("type=stdout", "BadRequest", "task is missing"),
        ("task=nope&type=stdout", "BadRequest", "unknown task"),
        ("task=post&type=stdout", "NotFound", "post"),
    ] {
        let refused = stage.raw("admin", &format!("{alloc}/log?{query}")).expect_err("refused");
        assert!(refused.contains(code) && refused.contains(reason), "{query}: {refused}");
    }
}

/// P-038
async fn p_038_samples_name_each_task_and_checks_and_services_have_their_states(stage: &Stage) {
    let mut group = group(&[task("one", HEARS, None), task("two", HEARS, None)]);
    group["networks"] = json!([{ "ports": [{ "label": "http" }] }]);
    group["services"] = json!([{ "name": "silent", "portLabel": "http", "checks": [
        { "name": "up", "type": "tcp", "interval": "1s", "timeout": "1s" },
    ] }]);
    let alloc = run(stage, "watched", json!({ "groups": [group] }), ("two", "started")).await;
    let (cluster, name) = (&stage.cluster, name_of(&alloc));
    let get = |path: &str| -> Value {
        serde_json::from_str(&stage.raw("admin", &format!("{name}/{path}")).expect("a sample")).expect("JSON")
    };
    let number = |of: &Value, name: &str| of[name].as_u64().expect("a number");
    let stats = || get("stats?intervalMs=100");
    let has_all = |stats: &Value| {
        ["one", "two"].iter().all(|task| {
            let used = &stats["tasks"][task];
            used["cpuNanos"].as_u64() > Some(0) && used["memoryBytes"].as_u64() > Some(0)
        })
    };
    cluster.eventually("both tasks use something", async || has_all(&stats())).await;
    let stats = stats();
    for used in ["cpuNanos", "memoryBytes", "pids"] {
        let [one, two] = ["one", "two"].map(|task| number(&stats["tasks"][task], used));
        assert_eq!(number(&stats["total"], used), one + two, "{stats}");
    }
    assert!(stats["tasks"]["one"]["cpuFraction"].is_f64() && stats["total"]["cpuFraction"].is_f64(), "{stats}");

    // Nothing listens there.
    let is_failing = || {
        let found = get("checks");
        let checks = found["checks"].as_object().expect("a map").clone();
        checks.len() == 1 && checks.iter().all(|(id, check)| id.contains("silent") && check["status"] == "failure")
    };
    cluster.eventually("the check has failed", async || is_failing()).await;
    // Services are objects of Kubernetes; which of them an allocation is part of stands in its status.
    let known = async || cluster.allocs("shop").await.into_iter().find(|one| one.metadata.uid == alloc.metadata.uid);
    let services = async || known().await.and_then(|alloc| alloc.status).unwrap_or_default().services;
    cluster.eventually("its service is reported", async || services().await.len() == 1).await;
    let found = services().await;
    assert_eq!((found[0].service_name.as_str(), found[0].ready), ("silent", false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_027_p_029_p_030_p_032_p_033_p_035_p_036_and_p_038_operations_are_what_users_of_nomad_know() {
    let stage = Stage::start("gateway-sessions", "").await;
    stage.cluster.namespace("shop").await;
    p_027_a_signal_for_all_names_those_that_do_not_run_and_the_others_get_it(&stage).await;
    let all = stage.cluster.allocs("shop").await;
    let late = name_of(all.iter().find(|alloc| alloc.spec.job_name == "late").expect("an allocation"));
    let mut idle = Wire::open(&stage, late, "task=two&command=cat").await;
    p_029_a_command_that_ends_well_has_a_last_word_that_says_so(&stage, late).await;
    p_030_a_terminal_has_its_size_from_the_first_moment_and_sees_another_one(&stage, late).await;
    p_033_a_command_without_a_place_is_refused_with_the_reason(&stage, late).await;
    p_035_a_followed_log_has_heartbeats_and_new_lines_at_once_and_ends_with_its_task(&stage).await;
    p_036_a_log_without_task_or_type_is_a_wrong_request_and_one_that_is_not_there_is_not_found(&stage, late);
    p_038_samples_name_each_task_and_checks_and_services_have_their_states(&stage).await;
    p_032_an_idle_command_is_still_there_and_heartbeats_are_answered(&mut idle).await;
    let jobs = ["both", "late", "followed", "watched"];
    let delete = [&["delete", "djob"], &jobs[..], &["-n", "shop", "--timeout=60s"]].concat();
    stage.cluster.kubectl(&delete).expect("deleted");
}
