//! Calls that agents answer, as clients of Nomad make them (`spec/api.md` 2.2 to 2.4): files, output, samples,
//! restarts, signals and commands, through the gateway and the tunnel of a real agent.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use drover_api::Allocation;
use drover_api::allocation::TaskRunState;
use drover_api::job::JobConditionType;
use drover_testkit::control_plane::User;
use futures::{SinkExt as _, StreamExt as _};
use http::Method;
use http_body_util::BodyExt as _;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use crate::cluster::{Cluster, LONG, client_status, job};
use crate::gateway::{API, Stage};
use crate::gateway_limits::{Door, Proof, token_of};
use crate::gateway_operations::of_each_kind;
use crate::gateway_sessions::{group, task};
use crate::nomad_api::{Nomad, Told};

/// An allocation and who asks for it.
struct Seen<'a> {
    nomad: &'a Nomad,
    uid: String,
}

impl Seen<'_> {
    async fn fs(&self, call: &str, query: &str) -> Told {
        self.nomad.get(&format!("client/fs/{call}/{}?namespace=shop&{query}", self.uid)).await
    }

    async fn put(&self, call: &str, body: &Value) -> Told {
        let path = format!("client/allocation/{}/{call}?namespace=shop", self.uid);
        self.nomad.send(Method::PUT, &path, &[], &body.to_string()).await
    }

    async fn get(&self, call: &str) -> Told {
        self.nomad.get(&format!("client/allocation/{}/{call}?namespace=shop", self.uid)).await
    }

    async fn output(&self, task: &str, kind: &str) -> String {
        self.fs("logs", &format!("task={task}&type={kind}&plain=true")).await.text
    }

    /// What the tasks have written into the file in which each says that it has begun.
    async fn order(&self) -> String {
        self.fs("cat", "path=alloc/order").await.text.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// The frames of an answer.
fn frames(text: &str) -> Vec<Value> {
    serde_json::Deserializer::from_str(text).into_iter().collect::<Result<_, _>>().expect("frames")
}

fn data(frame: &Value) -> String {
    let bytes = STANDARD.decode(frame["Data"].as_str().unwrap_or_default()).expect("base64");
    String::from_utf8(bytes).expect("text")
}

async fn of_job(cluster: &Cluster, name: &str) -> Allocation {
    let all = cluster.allocs("shop").await;
    all.into_iter().find(|alloc| alloc.spec.job_name == name).expect("an allocation")
}

fn uid(alloc: &Allocation) -> String {
    alloc.metadata.uid.clone().expect("a uid")
}

/// Runs a job, and waits until the gateway knows its allocation.
async fn run(stage: &Stage, nomad: &Nomad, spec: Value) -> String {
    let (cluster, name) = (&stage.cluster, spec["metadata"]["name"].as_str().expect("a name").to_owned());
    cluster.apply("shop", &spec);
    let placed = async || cluster.allocs("shop").await.iter().any(|alloc| alloc.spec.job_name == name);
    cluster.eventually("it is placed", placed).await;
    let uid = uid(&of_job(cluster, &name).await);
    let is_known = async || nomad.get(&format!("allocation/{uid}?namespace=shop")).await.code == 200;
    cluster.eventually("the gateway knows it", is_known).await;
    uid
}

/// A stream that is followed.
struct Followed {
    body: Body,
    bytes: Vec<u8>,
}

impl Followed {
    async fn begin(nomad: &Nomad, path: &str) -> Self {
        let request = http::Request::get(format!("/v1/client/fs/{path}")).body(Body::empty()).expect("a request");
        let answer = nomad.0.send(request).await.expect("an answer");
        assert_eq!(answer.status(), 200);
        Self { body: answer.into_body(), bytes: Vec::new() }
    }

    /// The next frame; none at the end, an error where it broke off.
    async fn next(&mut self) -> Result<Option<Value>, String> {
        loop {
            let mut whole = serde_json::Deserializer::from_slice(&self.bytes).into_iter::<Value>();
            if let Some(Ok(frame)) = whole.next() {
                let n = whole.byte_offset();
                self.bytes.drain(..n);
                return Ok(Some(frame));
            }
            let part = tokio::time::timeout(LONG, self.body.frame()).await.expect("more comes");
            match part {
                Some(Ok(frame)) => self.bytes.extend(frame.into_data().expect("data")),
                Some(Err(error)) => return Err(error.to_string()),
                None => return Ok(None),
            }
        }
    }

    /// The next frame that is no heartbeat.
    async fn frame(&mut self) -> Value {
        loop {
            let frame = self.next().await.expect("it goes on").expect("more");
            if frame != json!({}) {
                return frame;
            }
        }
    }
}

/// P-034, P-037, and what is refused.
async fn files_and_output(seen: &Seen<'_>) {
    // P-034: three files, in order, and the end of them.
    let numbers: String = (1..=400_000).fold(String::new(), |all, n: u32| all + &n.to_string() + "\n");
    assert!(seen.output("main", "stdout").await == numbers, "it is not the whole output in order");
    let last = seen.fs("logs", "task=main&type=stdout&plain=true&origin=end&offset=10").await;
    assert_eq!(last.text, numbers[numbers.len() - 10..]);
    let whole = frames(&seen.fs("logs", "task=main&type=stdout").await.text);
    assert!(whole.iter().map(data).collect::<String>() == numbers, "the frames are not the whole output");
    let mut names: Vec<&str> = whole.iter().filter_map(|frame| frame["File"].as_str()).collect();
    names.dedup();
    assert_eq!(names, ["alloc/logs/main.stdout.0", "alloc/logs/main.stdout.1", "alloc/logs/main.stdout.2"]);
    assert!(whole.iter().all(|frame| data(frame).len() <= 65536), "a frame is too large");
    let mut at = (String::new(), 0);
    for frame in &whole {
        let file = frame["File"].as_str().expect("a file");
        let wanted = if at.0 == file { at.1 } else { 0 };
        assert_eq!(frame["Offset"].as_u64().unwrap_or(0), wanted, "{file}");
        at = (file.to_owned(), wanted + u64::try_from(data(frame).len()).expect("a length"));
    }

    // P-037.
    assert!(seen.fs("ls", "path=/").await.each("Name").contains(&"alloc".to_owned()));
    assert_eq!(seen.fs("ls", "").await.json(), seen.fs("ls", "path=/").await.json());
    let stat = seen.fs("stat", "path=alloc/order").await.json();
    assert_eq!((&stat["Name"], &stat["Size"], &stat["IsDir"]), (&json!("order"), &json!(10), &json!(false)), "{stat}");
    assert!(stat["FileMode"].as_str().is_some_and(|mode| mode.starts_with("-rw")), "{stat}");
    assert!(stat["ModTime"].as_str().is_some_and(|time| time.starts_with("20")), "{stat}");
    assert_eq!(seen.fs("cat", "path=alloc/order").await.text, "init\nmain\n");
    assert_eq!(seen.fs("readat", "path=alloc/order&offset=5&limit=3").await.text, "mai");
    assert_eq!(seen.fs("readat", "path=alloc/order&offset=5&limit=-1").await.text, "main\n");
    for call in ["cat", "readat", "stream"] {
        for (path, code) in [
            ("../../etc/passwd", 400),
            ("alloc/../../x", 400),
            ("main/secrets/x", 403),
            ("alloc/none", 404),
            ("alloc", 400),
        ] {
            let told = seen.fs(call, &format!("path={path}&offset=0")).await;
            assert_eq!(told.code, code, "{call} {path}: {}", told.text);
            assert!(!told.text.contains("hush"), "{}", told.text);
        }
    }
    for call in ["ls", "stat"] {
        assert_eq!(seen.fs(call, "path=../../etc").await.code, 400, "{call}");
        assert_eq!(seen.fs(call, "path=none").await.code, 404, "{call}");
    }
    for (call, query, named) in [
        ("cat", "", "path"),
        ("stat", "", "path"),
        ("readat", "path=alloc/order", "offset"),
        ("stream", "path=alloc/order&follow=perhaps", "follow"),
        // P-036.
        ("logs", "task=main", "type"),
        ("logs", "type=stdout", "task"),
        ("logs", "task=nope&type=stdout", "unknown task"),
    ] {
        let told = seen.fs(call, query).await;
        assert!(told.code == 400 && told.text.contains(named), "{call} {query}: {} {}", told.code, told.text);
    }
    assert_eq!(seen.fs("logs", "task=post&type=stdout").await.code, 404, "it has not been started");
    a_file_is_followed(seen).await;
}

/// A stream of a file: from its end, what is added, what becomes of it.
async fn a_file_is_followed(seen: &Seen<'_>) {
    let once = frames(&seen.fs("stream", "path=alloc/order&follow=false&origin=end&offset=5").await.text);
    assert_eq!(once, [json!({ "Offset": 5, "Data": STANDARD.encode("main\n"), "File": "alloc/order" })]);
    let exec = async |command: &str| {
        let said =
            Wire::open(seen, &format!("task=main&command={}", list(&["/bin/sh", "-c", command]))).await.whole().await;
        assert_eq!(said.exit_code, Some(0), "{said:?}");
    };
    exec("echo one > ../alloc/followed").await;
    let path = format!("stream/{}?namespace=shop&path=alloc/followed", seen.uid);
    let mut stream = Followed::begin(seen.nomad, &path).await;
    assert_eq!(data(&stream.frame().await), "one\n");
    assert_eq!(stream.next().await, Ok(Some(json!({}))), "a heartbeat");
    exec("echo two >> ../alloc/followed").await;
    assert_eq!(
        stream.frame().await,
        json!({ "Offset": 4, "Data": STANDARD.encode("two\n"), "File": "alloc/followed" })
    );
    exec("echo 3 > ../alloc/followed").await;
    assert_eq!(stream.frame().await, json!({ "File": "alloc/followed", "FileEvent": "file truncated" }));
    assert_eq!(data(&stream.frame().await), "3\n");
    exec("rm ../alloc/followed").await;
    let gone = json!({ "Offset": 2, "File": "alloc/followed", "FileEvent": "file deleted" });
    assert_eq!(stream.frame().await, gone);
    assert_eq!(stream.next().await, Ok(None));
}

/// P-035.
async fn followed_output(stage: &Stage, nomad: &Nomad) {
    let script = "trap 'date +%s%N' HUP; \
                  if [ -e ../alloc/second ]; then trap 'exit 0' USR1; echo again; \
                  else touch ../alloc/second; trap 'exit 1' USR1; echo once; fi; while true; do sleep 0.05; done";
    let group =
        json!({ "name": "g", "count": 1, "ephemeralDisk": { "sizeMB": 110 }, "tasks": [task("t", script, None)] });
    let job = json!({ "apiVersion": "drover.dev/v1alpha1", "kind": "Job", "metadata": { "name": "followed" },
                      "spec": { "type": "batch", "groups": [group] } });
    let seen = Seen { nomad, uid: run(stage, nomad, job).await };
    stage.cluster.eventually("it has begun", async || seen.output("t", "stdout").await == "once\n").await;
    let path = format!("logs/{}?namespace=shop&task=t&type=stdout&follow=true&origin=end", seen.uid);
    let mut log = Followed::begin(nomad, &path).await;
    let since = Instant::now();
    for _ in 0..3 {
        assert_eq!(log.next().await, Ok(Some(json!({}))));
    }
    assert!(since.elapsed() >= Duration::from_millis(1900), "they come faster than one a second");
    let signal = async |name: &str| {
        let told = seen.put("signal", &json!({ "Task": "t", "Signal": name })).await;
        assert_eq!(told.code, 200, "{}", told.text);
    };
    // A machine that has other things to do makes some of them late, but not all.
    let mut fastest = Duration::MAX;
    for _ in 0..5 {
        let asked = Instant::now();
        signal("SIGHUP").await;
        assert!(data(&log.frame().await).trim_end().parse::<u64>().is_ok());
        fastest = fastest.min(asked.elapsed());
    }
    assert!(fastest < Duration::from_secs(1), "{fastest:?}");
    // Its first run fails, and it is started again: it is not dead for good.
    signal("SIGUSR1").await;
    assert_eq!(data(&log.frame().await), "again\n");
    signal("SIGUSR1").await;
    loop {
        match log.next().await {
            Ok(Some(frame)) => assert_eq!(frame, json!({}), "nothing more is written"),
            other => break assert_eq!(other, Ok(None)),
        }
    }
}

/// Calls without a right, of another namespace, of nothing, and by a wrong method.
async fn strangers(stage: &Stage, seen: &Seen<'_>) {
    let (cluster, nomad, uid) = (&stage.cluster, seen.nomad, &seen.uid);
    let call = format!("client/fs/cat/{uid}?path=alloc/order");
    let told = nomad.get(&call).await;
    assert!(told.code == 404 && told.text.contains(uid), "without a namespace it is default: {}", told.text);
    assert_eq!(nomad.get(&format!("{call}&namespace=*")).await.code, 404);
    assert_eq!(nomad.get(&format!("{call}&namespace=drover-system")).await.code, 404);
    let short = uid.get(..8).expect("a uid");
    assert_eq!(nomad.get(&format!("client/fs/cat/{short}?namespace=shop&path=alloc/order")).await.code, 404);
    assert_eq!(nomad.get("client/fs/cat/none?namespace=shop&path=alloc/order").await.code, 404);
    assert_eq!(nomad.send(Method::PUT, &format!("{call}&namespace=shop"), &[], "").await.code, 405);

    let nothing = Nomad(Door::of(stage).await.client(&Proof::Nothing).await);
    let told = nothing.get(&format!("{call}&namespace=shop")).await;
    assert!(told.code == 403 && told.text.contains("NOMAD_TOKEN"), "{} {}", told.code, told.text);

    // Each right is asked for by its own name, also where there is no such allocation.
    let developer = Nomad::of(stage, User::Developer).await;
    for (path, right) in [
        (format!("client/fs/cat/{uid}?path=alloc/order&namespace=shop"), "allocations/fs"),
        (format!("client/fs/logs/{uid}?task=main&type=stdout&namespace=shop"), "allocations/log"),
        (format!("client/allocation/{uid}/stats?namespace=shop"), "allocations/stats"),
        (format!("client/allocation/{uid}/checks?namespace=shop"), "allocations/checks"),
        ("client/fs/logs/none?task=main&type=stdout&namespace=shop".to_owned(), "allocations/log"),
    ] {
        let told = developer.get(&path).await;
        let named = format!("cannot create resource \"{right}\"");
        assert!(told.code == 403 && told.text.contains(&named), "{path}: {} {}", told.code, told.text);
    }
    for (name, right) in
        [("restart", "allocations/restart"), ("signal", "allocations/signal"), ("gc", "allocations/gc")]
    {
        let told = Seen { nomad: &developer, uid: uid.clone() }.put(name, &json!({ "Signal": "SIGHUP" })).await;
        assert!(told.code == 403 && told.text.contains(right), "{name}: {} {}", told.code, told.text);
    }
    let seen = Seen { nomad: &developer, uid: uid.clone() };
    let said = Wire::open(&seen, &format!("task=main&command={}", list(&["/bin/true"]))).await.whole().await;
    assert!(said.close.0 == 1008 && said.close.1.contains("allocations/exec"), "{said:?}");

    // Of files only the lines of the log tell, with the node and without parameters.
    let log = cluster.log("gateway");
    let line = log.lines().find(|line| line.contains(&format!("client/fs/cat/{uid}")) && line.contains("code=200"));
    let line = line.expect("a line");
    assert!(
        line.contains("node=\"n-1\"") && line.contains("verb=\"nomad\"") && !line.contains("alloc/order"),
        "{line}"
    );
}

/// What a right opened ends with it.
async fn rights_end(stage: &Stage, seen: &Seen<'_>) {
    let (cluster, uid) = (&stage.cluster, seen.uid.clone());
    let developer = Nomad::of(stage, User::Developer).await;
    stage.bind("edit", "drover-edit");
    stage.bind("admin", "drover-admin");
    let seen = Seen { nomad: &developer, uid };
    let may = async || seen.fs("logs", "task=main&type=stderr").await.code == 200;
    cluster.eventually("the role is in force", may).await;
    let path = format!("logs/{}?namespace=shop&task=main&type=stderr&follow=true", seen.uid);
    let mut log = Followed::begin(&developer, &path).await;
    assert_eq!(data(&log.frame().await), "written\n");
    let command = list(&["/bin/cat"]);
    let mut wire = Wire::open(&seen, &format!("task=main&command={command}")).await;
    wire.send(&json!({ "stdin": { "data": STANDARD.encode("there\n") } })).await;
    let mut said = Said::default();
    wire.hear(&mut said, |said| said.out == b"there\n").await;
    cluster.kubectl(&["delete", "rolebinding", "edit", "admin", "-n", "shop"]).expect("deleted");
    let ended = loop {
        match log.next().await {
            Ok(Some(frame)) => assert_eq!(frame, json!({})),
            other => break other,
        }
    };
    assert!(ended.is_err(), "it ends as if it were whole: {ended:?}");
    wire.hear(&mut said, |_| false).await;
    assert!(said.close.0 == 1008 && said.close.1.contains("allocations/exec"), "{said:?}");
    assert_eq!(said.exit_code, None);
}

/// P-021 to P-027.
async fn restarts_and_signals(stage: &Stage, seen: &Seen<'_>) {
    let (cluster, nomad) = (&stage.cluster, seen.nomad);
    let comes = async |wanted: &str| cluster.eventually(wanted, async || seen.order().await == wanted).await;
    // A run that is ended before it has written its output never does.
    let written = async |n: usize| {
        let lines = async || seen.output("main", "stderr").await.matches("written").count();
        cluster.eventually("its output is written", async || lines().await == n).await;
    };
    comes("init main").await;
    written(1).await;
    // P-021: what has ended stays so. A body may be left out.
    let path = format!("client/allocation/{}/restart?namespace=shop", seen.uid);
    let told = nomad.send(Method::POST, &path, &[], "").await;
    assert_eq!((told.code, told.text.as_str()), (200, "{}"));
    comes("init main main").await;
    written(2).await;
    // P-022.
    let told = seen.put("restart", &json!({ "TaskName": "init" })).await;
    assert!(told.code >= 400 && told.text.contains("Task not running"), "{} {}", told.code, told.text);
    let told = seen.put("restart", &json!({ "TaskName": "nope" })).await;
    assert!(told.code == 400 && told.text.contains("nope"), "{} {}", told.code, told.text);
    // P-024.
    let told = seen.put("restart", &json!({ "TaskName": "main", "AllTasks": true })).await;
    assert!(told.code == 400 && told.text.contains("AllTasks"), "{} {}", told.code, told.text);
    assert_eq!(seen.order().await, "init main main");
    // P-023.
    assert_eq!(seen.put("restart", &json!({ "AllTasks": true })).await.code, 200);
    comes("init main main init main").await;
    written(3).await;
    // P-026: people's restarts are no failures.
    for n in 1..=10 {
        assert_eq!(seen.put("restart", &json!({ "TaskName": "main" })).await.code, 200);
        cluster.eventually("it is started again", async || seen.order().await.matches("main").count() == 3 + n).await;
        written(3 + n).await;
    }
    let is_running = async || client_status(&of_job(cluster, "kinds").await).as_str() == "running";
    cluster.eventually("it is reported", is_running).await;
    assert!(!of_job(cluster, "kinds").await.status.expect("a status").task_states["main"].failed);

    // P-027.
    let told = seen.put("signal", &json!({ "Signal": "SIGHUP" })).await;
    let named = "init: Task not running; post: Task not running";
    assert!(told.code >= 400 && told.text.contains(named), "{} {}", told.code, told.text);
    cluster.eventually("those that run have it", async || seen.order().await.ends_with(" hup")).await;
    assert_eq!(seen.put("signal", &json!({ "Task": "main", "Signal": "SIGHUP" })).await.code, 200);
    cluster.eventually("it has it again", async || seen.order().await.ends_with(" hup hup")).await;
    for (body, code, reason) in [
        (json!({ "Task": "nope", "Signal": "SIGHUP" }), 400, "nope"),
        (json!({ "Task": "post", "Signal": "SIGHUP" }), 404, "Task not running"),
        (json!({ "Task": "main", "Signal": "SIGNONE" }), 400, "SIGNONE"),
        (json!({ "Task": "main" }), 400, "Signal"),
    ] {
        let told = seen.put("signal", &body).await;
        assert!(told.code == code && told.text.contains(reason), "{body}: {} {}", told.code, told.text);
    }
    assert_eq!(seen.get("signal").await.code, 405);
    assert_eq!(seen.get("restart").await.code, 405);
    let both = json!({ "groups": [group(&[task("one", HEARS, None), task("two", HEARS, None)])] });
    let both =
        json!({ "apiVersion": "drover.dev/v1alpha1", "kind": "Job", "metadata": { "name": "both" }, "spec": both });
    let both = Seen { nomad, uid: run(stage, nomad, both).await };
    for task in ["one", "two"] {
        cluster.eventually("it has begun", async || both.output(task, "stdout").await == "started\n").await;
    }
    assert_eq!(both.put("signal", &json!({ "Signal": "SIGHUP" })).await.code, 200);
    for task in ["one", "two"] {
        cluster.eventually("it has it", async || both.output(task, "stdout").await == "started\nhup\n").await;
    }
}

/// What says that its task has got SIGHUP.
const HEARS: &str = "trap 'echo hup' HUP; echo started; while true; do sleep 0.05; done";

/// P-025, P-039.
async fn an_end(stage: &Stage, seen: &Seen<'_>) {
    let (cluster, nomad) = (&stage.cluster, seen.nomad);
    let refused = seen.put("gc", &json!({})).await;
    assert!(refused.code >= 400 && refused.text.contains("has not ended"), "{} {}", refused.code, refused.text);
    assert!(seen.order().await.starts_with("init"), "something was destroyed");
    assert_eq!(Seen { nomad, uid: "none".to_owned() }.get("gc").await.code, 404);
    let stop = ["patch", "djob", "kinds", "-n", "shop", "--type=merge", "-p", r#"{"spec":{"stop":true}}"#];
    cluster.kubectl(&stop).expect("stopped");
    let has_ended = async || {
        let now = of_job(cluster, "kinds").await.status.unwrap_or_default();
        now.ended_at.is_some() && now.task_states["main"].state == TaskRunState::Dead
    };
    cluster.eventually("it has ended", has_ended).await;
    // P-025.
    let told = seen.put("restart", &json!({})).await;
    assert!(told.code >= 400, "{} {}", told.code, told.text);
    let followed = seen.fs("logs", "task=main&type=stderr&follow=true&plain=true").await;
    assert!(followed.text.starts_with("written\n"), "what is dead is not waited for: {}", followed.text);
    let is_given_up = async || {
        let told = seen.get("gc").await;
        told.code == 200 && told.text.is_empty()
    };
    cluster.eventually("it is given up", is_given_up).await;
    assert_eq!(seen.fs("logs", "task=main&type=stdout").await.code, 404);
    assert_eq!(seen.fs("ls", "path=/").await.code, 404);
    assert!(!cluster.path(&format!("n-1/allocs/{}", seen.uid)).exists());
    assert_eq!(nomad.get(&format!("allocation/{}?namespace=shop", seen.uid)).await.code, 200, "it still reads");
    assert!(seen.get("gc").await.code >= 400, "it is gone already");
}

/// All that has ended on a node goes at once, and what runs there stays.
async fn a_node_is_collected(stage: &Stage, nomad: &Nomad) {
    let cluster = &stage.cluster;
    let mut uids = Vec::new();
    for name in ["ends-1", "ends-2", "stays"] {
        uids.push(run(stage, nomad, job(name, 1, &json!({}), "exec sleep 1000")).await);
    }
    let is_there = |uid: &String| cluster.path(&format!("n-1/allocs/{uid}")).exists();
    cluster.eventually("all have begun", async || uids.iter().all(is_there)).await;
    for name in ["ends-1", "ends-2"] {
        let stop = ["patch", "djob", name, "-n", "shop", "--type=merge", "-p", r#"{"spec":{"stop":true}}"#];
        cluster.kubectl(&stop).expect("stopped");
    }
    let status = async |uid: &String| {
        nomad.get(&format!("allocation/{uid}?namespace=shop")).await.json()["ClientStatus"].clone()
    };
    for uid in &uids[..2] {
        cluster.eventually("it has ended", async || status(uid).await == "complete").await;
    }
    let node = nomad.get("nodes").await.each("ID").remove(0);
    let path = format!("client/gc?node_id={node}");
    // Who may collect those of one namespace, and who operates nodes, may not collect those of all.
    let developer = Nomad::of(stage, User::Developer).await;
    stage.bind("admin", "drover-admin");
    let user = format!("--user={}", User::Developer.name());
    let role = ["create", "clusterrolebinding", "nodes", "--clusterrole=drover-node-admin", &user];
    cluster.kubectl(&role).expect("a binding");
    let sample = format!("client/stats?node_id={node}");
    cluster.eventually("the role is in force", async || developer.get(&sample).await.code == 200).await;
    let denied = developer.get(&path).await;
    assert!(denied.code == 403 && denied.text.contains("\"allocations/gc\""), "{} {}", denied.code, denied.text);
    assert!(uids.iter().all(is_there), "something was destroyed");
    assert_eq!(nomad.get("client/gc").await.code, 400);
    assert_eq!(nomad.get("client/gc?node_id=none").await.code, 404);
    assert_eq!(nomad.send(Method::DELETE, &path, &[], "").await.code, 405);

    let are_gone = async || {
        let told = nomad.get(&path).await;
        assert!(told.code == 200 && told.text.is_empty(), "{} {}", told.code, told.text);
        !uids[..2].iter().any(is_there)
    };
    cluster.eventually("they are given up", are_gone).await;
    assert!(is_there(&uids[2]) && status(&uids[2]).await == "running");
    // Nothing is left to collect.
    assert_eq!(nomad.send(Method::PUT, &path, &[], "").await.code, 200);
}

/// A command as parameters name it.
fn list(words: &[&str]) -> String {
    percent_encoding::utf8_percent_encode(&json!(words).to_string(), percent_encoding::NON_ALPHANUMERIC).to_string()
}

/// A command's WebSocket.
struct Wire(WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>);

/// What a command has said: its output, its errors, its end, and how the connection was closed.
#[derive(Debug, Default)]
struct Said {
    out: Vec<u8>,
    err: String,
    exit_code: Option<i64>,
    is_out_closed: bool,
    close: (u16, String),
}

impl Wire {
    async fn open(seen: &Seen<'_>, query: &str) -> Self {
        let path = format!("/v1/client/allocation/{}/exec?namespace=shop&{query}", seen.uid);
        Self::at(&seen.nomad.0, &path, &[]).await.expect("a WebSocket")
    }

    /// The same at a path, or the code by which it is refused before.
    async fn at(client: &Client, path: &str, headers: &[(&str, &str)]) -> Result<Self, u16> {
        let mut request = http::Request::get(path)
            .header("Connection", "Upgrade")
            .header("Upgrade", "websocket")
            .header("Sec-WebSocket-Version", "13")
            .header("Sec-WebSocket-Key", generate_key());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = client.send(request.body(Body::empty()).expect("a request")).await.expect("an answer");
        if answer.status() != 101 {
            return Err(answer.status().as_u16());
        }
        let upgraded = hyper::upgrade::on(answer).await.expect("a WebSocket");
        Ok(Self(WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, None).await))
    }

    async fn send(&mut self, frame: &Value) {
        self.0.send(Message::Text(frame.to_string().into())).await.expect("sent");
    }

    /// Takes in what is said until `enough`, or until the end of the connection.
    async fn hear(&mut self, said: &mut Said, enough: impl Fn(&Said) -> bool) {
        while !enough(said) {
            let next = tokio::time::timeout(LONG, self.0.next()).await.expect("the command says more");
            let Some(message) = next else { return };
            let text = match message.expect("a message") {
                Message::Text(text) => text.to_string(),
                Message::Close(frame) => {
                    let frame = frame.expect("a code");
                    said.close = (frame.code.into(), frame.reason.to_string());
                    continue;
                }
                other => unreachable!("{other:?}"),
            };
            assert_eq!(said.exit_code, None, "more after its end: {text}");
            let frame: Value = serde_json::from_str(&text).expect("JSON");
            let bytes = |frame: &Value| STANDARD.decode(frame["data"].as_str().unwrap_or_default()).expect("base64");
            said.out.extend(bytes(&frame["stdout"]));
            said.err.push_str(&String::from_utf8_lossy(&bytes(&frame["stderr"])));
            said.is_out_closed |= frame["stdout"]["close"] == true;
            if frame["exited"] == true {
                said.exit_code = Some(frame["result"]["exit_code"].as_i64().expect("a code"));
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

/// P-028 to P-031, P-033.
async fn commands(stage: &Stage, seen: &Seen<'_>) {
    let open = async |words: &[&str]| Wire::open(seen, &format!("task=main&command={}", list(words))).await;
    // P-028, P-029: the input is left open.
    for (script, code) in [("echo out; echo err >&2; exit 7", 7), ("kill -9 $$", 137), ("exit 0", 0)] {
        let said = open(&["/bin/sh", "-c", script]).await.whole().await;
        assert_eq!((said.exit_code, said.close.0, said.is_out_closed), (Some(code), 1000, true), "{said:?}");
        let (out, err) = if code == 7 { ("out\n", "err\n") } else { ("", "") };
        assert_eq!((said.out.as_slice(), said.err.as_str()), (out.as_bytes(), err));
    }
    let said = open(&["/no/such/program"]).await.whole().await;
    assert!(said.close.0 == 1011 && said.close.1.contains("/no/such/program"), "{said:?}");
    assert_eq!(said.exit_code, None);

    // P-030.
    let script = "stty -echo; stty size; read line; stty size; read line; stty size";
    let query = format!("task=main&tty=true&command={}", list(&["/bin/sh", "-c", script]));
    let mut wire = Wire::open(seen, &query).await;
    for (height, width) in [(40, 120), (50, 100), (24, 80)] {
        wire.send(&json!({ "tty_size": { "height": height, "width": width } })).await;
        if height != 40 {
            wire.send(&json!({ "stdin": { "data": STANDARD.encode("go on\n") } })).await;
        }
        let mut said = Said::default();
        wire.hear(&mut said, |said| said.out.ends_with(b"\r\n")).await;
        assert_eq!(String::from_utf8_lossy(&said.out), format!("{height} {width}\r\n"));
    }
    assert_eq!(wire.whole().await.exit_code, Some(0));

    // P-031, in parts as clients send them, with heartbeats.
    let bytes: Vec<u8> = (0..1024 * 1024).map(|n: u32| n.to_le_bytes()[0] ^ n.to_le_bytes()[1]).collect();
    let (mut to, from) = open(&["/bin/cat"]).await.0.split();
    let sent = bytes.clone();
    let sends = async move {
        for part in sent.chunks(2048) {
            let frame = json!({ "stdin": { "data": STANDARD.encode(part) } });
            to.send(Message::Text(frame.to_string().into())).await.expect("sent");
        }
        for frame in ["{}", r#"{"stdin":{"close":true}}"#] {
            to.send(Message::Text(frame.into())).await.expect("sent");
        }
        to
    };
    let hears = from.fold((Vec::new(), None), async |(mut out, exit_code), message| {
        let Ok(Message::Text(text)) = message else { return (out, exit_code) };
        let frame: Value = serde_json::from_str(&text).expect("JSON");
        out.extend(STANDARD.decode(frame["stdout"]["data"].as_str().unwrap_or_default()).expect("base64"));
        (out, exit_code.or(frame["result"]["exit_code"].as_i64()))
    });
    let (_to, (out, exit_code)) = tokio::join!(sends, hears);
    assert!(out == bytes && exit_code == Some(0), "{} bytes, {exit_code:?}", out.len());

    // P-033.
    let none = Seen { nomad: seen.nomad, uid: "00000000-0000-0000-0000-000000000000".to_owned() };
    for (seen, query, reason) in [
        (seen, format!("task=nope&command={}", list(&["/bin/true"])), "unknown task"),
        (seen, format!("task=init&command={}", list(&["/bin/true"])), "not running"),
        (seen, format!("command={}", list(&["/bin/true"])), "task is missing"),
        (seen, "task=main".to_owned(), "command is missing"),
        (seen, format!("task=main&command={}", list(&[])), "command is empty"),
        (seen, "task=main&command=true".to_owned(), "command is no list"),
        (seen, format!("task=main&tty=perhaps&command={}", list(&["/bin/true"])), "tty"),
        (&none, format!("task=main&command={}", list(&["/bin/true"])), "not found"),
    ] {
        let said = Wire::open(seen, &query).await.whole().await;
        assert!(said.close.0 == 1008 && said.close.1.contains(reason), "{query}: {said:?}");
    }
    let mut wire = open(&["/bin/cat"]).await;
    wire.0.send(Message::Text("no JSON".into())).await.expect("sent");
    assert_eq!(wire.whole().await.close.0, 1008);
    browsers(stage, seen).await;
    through_the_api_server(stage, seen).await;
    a_command_ends_with_its_client(stage, seen).await;

    let log = stage.cluster.log("gateway");
    let lines: Vec<&str> = log.lines().filter(|line| line.contains(&format!("{}/exec", seen.uid))).collect();
    assert!(lines.iter().any(|line| line.contains("program=\"/bin/sh\"") && line.contains("code=101")), "{lines:?}");
    assert!(lines.iter().all(|line| !line.contains("stty")), "arguments are in the log");
}

/// A page cannot send a header: it shows its token first. What comes from elsewhere without one is refused.
async fn browsers(stage: &Stage, seen: &Seen<'_>) {
    let client = Door::of(stage).await.client(&Proof::Nothing).await;
    let base = format!("/v1/client/allocation/{}/exec?namespace=shop&task=main", seen.uid);
    let path = format!("{base}&ws_handshake=true&command={}", list(&["/bin/echo", "well"]));
    let elsewhere = [("Origin", "https://elsewhere.example")];
    for (token, code) in [(token_of(stage, User::Admin), 1000), ("wrong".to_owned(), 1008), (String::new(), 1008)] {
        let mut wire = Wire::at(&client, &path, &elsewhere).await.expect("a WebSocket");
        wire.send(&json!({ "version": 1, "auth_token": token })).await;
        let said = wire.whole().await;
        assert_eq!((said.close.0, said.exit_code), (code, (code == 1000).then_some(0)), "{said:?}");
        assert_eq!(said.out.as_slice(), if code == 1000 { &b"well\n"[..] } else { b"" });
    }
    // The token counts, not what the connection has proved.
    let mut wire = Wire::at(&seen.nomad.0, &path, &[]).await.expect("a WebSocket");
    wire.send(&json!({ "version": 1, "auth_token": "wrong" })).await;
    assert_eq!(wire.whole().await.close.0, 1008);
    let path = format!("{base}&command={}", list(&["/bin/true"]));
    assert_eq!(Wire::at(&seen.nomad.0, &path, &elsewhere).await.map(drop), Err(403));
    let said = Wire::at(&client, &path, &[]).await.expect("a WebSocket").whole().await;
    assert!(said.close.0 == 1008 && said.close.1.contains("Permission denied"), "{said:?}");
    let told = seen.get(&format!("exec?task=main&command={}", list(&["/bin/true"]))).await;
    assert_eq!(told.code, 400, "no WebSocket: {}", told.text);
}

/// By a kubeconfig alone: the API server carries streams and commands too.
async fn through_the_api_server(stage: &Stage, seen: &Seen<'_>) {
    let base = format!("{API}/gateways/nomad/proxy/v1/client");
    let path = format!(
        "{base}/allocation/{}/exec?namespace=shop&task=main&command={}",
        seen.uid,
        list(&["/bin/echo", "well"])
    );
    let said = Wire::at(&stage.cluster.client, &path, &[]).await.expect("a WebSocket").whole().await;
    assert_eq!((said.out.as_slice(), said.exit_code), (&b"well\n"[..], Some(0)), "{said:?}");
    let logs = format!("{base}/fs/logs/{}?namespace=shop&task=main&type=stderr&plain=true", seen.uid);
    assert_eq!(stage.cluster.kubectl(&["get", "--raw", &logs]).expect("output"), "written\n");
}

async fn a_command_ends_with_its_client(stage: &Stage, seen: &Seen<'_>) {
    let script = "echo $$; trap '' HUP; exec sleep 1000";
    let mut wire = Wire::open(seen, &format!("task=main&command={}", list(&["/bin/sh", "-c", script]))).await;
    let mut said = Said::default();
    wire.hear(&mut said, |said| said.out.ends_with(b"\n")).await;
    let pid = String::from_utf8(said.out).expect("text").trim().to_owned();
    let lives = || std::path::Path::new(&format!("/proc/{pid}")).exists();
    assert!(lives());
    drop(wire);
    stage.cluster.eventually("the command has ended", async || !lives()).await;
    let written = seen.output("main", "stderr").await;
    assert!(written.starts_with("written"), "the task goes on: {written}");
}

/// P-038.
async fn samples(stage: &Stage, nomad: &Nomad) {
    let cluster = &stage.cluster;
    let mut group = group(&[task("one", HEARS, None), task("two", HEARS, None)]);
    group["networks"] = json!([{ "ports": [{ "label": "http" }] }]);
    group["services"] = json!([{ "name": "silent", "portLabel": "http", "tags": ["blue"], "checks": [
        { "name": "up", "type": "tcp", "interval": "1s", "timeout": "1s" },
    ] }]);
    let job = json!({ "apiVersion": "drover.dev/v1alpha1", "kind": "Job", "metadata": { "name": "watched" },
                      "spec": { "groups": [group] } });
    let seen = Seen { nomad, uid: run(stage, nomad, job).await };
    let stats = async |more: &str| {
        let path = format!("client/allocation/{}/stats?namespace=shop{more}", seen.uid);
        let told = nomad.get(&path).await;
        if told.code == 200 { told.json() } else { Value::Null }
    };
    let uses = |usage: &Value| {
        let usage = &usage["ResourceUsage"];
        usage["MemoryStats"]["Usage"].as_u64() > Some(0) && usage["CpuStats"]["Percent"].as_f64() > Some(0.0)
    };
    let all_use = |stats: &Value| uses(stats) && ["one", "two"].iter().all(|task| uses(&stats["Tasks"][task]));
    cluster.eventually("both tasks use something", async || all_use(&stats("").await)).await;
    let one = stats("&task=one").await;
    assert_eq!(one["Tasks"].as_object().expect("a map").keys().collect::<Vec<_>>(), ["one"], "{one}");
    assert_eq!(one["ResourceUsage"], one["Tasks"]["one"]["ResourceUsage"]);
    assert!(one["Timestamp"].as_u64() > Some(1_000_000_000_000_000_000), "{one}");
    let none = stats("&task=nope").await;
    assert_eq!((&none["ResourceUsage"]["MemoryStats"]["Usage"], &none["Tasks"]), (&json!(0), &json!({})));

    // Nothing listens there.
    let of_agent = async || seen.get("checks").await;
    let has_failed = async || of_agent().await.text.contains("\"Status\":\"failure\"");
    cluster.eventually("the check has failed", has_failed).await;
    let checks = of_agent().await.json();
    let (id, check) = checks.as_object().expect("a map").iter().next().expect("a check");
    assert_eq!(
        (&check["ID"], &check["Check"], &check["Service"], &check["Group"], &check["Mode"]),
        (&json!(id), &json!("up"), &json!("silent"), &json!("watched.g[0]"), &json!("healthiness"))
    );
    assert!(check["Timestamp"].as_i64() > Some(1_000_000_000), "{check}");
    let of_all = async || nomad.get(&format!("allocation/{}/checks?namespace=shop", seen.uid)).await;
    let is_same = async || {
        let told = of_all().await;
        told.code == 200 && told.text.contains("\"Status\":\"failure\"")
    };
    cluster.eventually("it is reported", is_same).await;
    let services = async || nomad.get(&format!("allocation/{}/services?namespace=shop", seen.uid)).await.json();
    let is_registered = async || services().await.as_array().is_some_and(|all| all.len() == 1);
    cluster.eventually("its service is registered", is_registered).await;
    let service = services().await[0].clone();
    let alloc = of_job(cluster, "watched").await;
    let port = &alloc.spec.resources.ports[0];
    assert_eq!(
        (&service["ServiceName"], &service["Namespace"], &service["AllocID"], &service["JobID"], &service["Tags"]),
        (&json!("silent"), &json!("shop"), &json!(seen.uid), &json!("watched"), &json!(["blue"]))
    );
    assert_eq!((&service["Port"], &service["Address"]), (&json!(port.value), &json!(port.host_ip)), "{service}");
    // Without any there is null, and an empty list.
    let other = uid(&of_job(cluster, "both").await);
    for call in ["client/allocation/ID/checks", "allocation/ID/checks"] {
        let told = nomad.get(&format!("{}?namespace=shop", call.replace("ID", &other))).await;
        assert_eq!((told.code, told.text.as_str()), (200, "null"), "{call}");
    }
    assert_eq!(nomad.get(&format!("allocation/{other}/services?namespace=shop")).await.json(), json!([]));
    assert_eq!(nomad.get(&format!("allocation/{other}/services")).await.code, 404);
}

/// A node without an agent: the reason, and `node down` once the cluster knows it.
async fn a_node_that_is_gone(stage: &mut Stage, nomad: &Nomad) {
    let seen = Seen { nomad, uid: uid(&of_job(&stage.cluster, "both").await) };
    drop(stage.agent.take());
    let cluster = &stage.cluster;
    let told = async || seen.fs("logs", "task=one&type=stdout").await;
    let no_path = async || {
        let told = told().await;
        told.code == 404 && told.text.contains("no path to node")
    };
    cluster.eventually("there is no way", no_path).await;
    let nodes: Api<drover_api::ClientNode> = Api::all(cluster.client.clone());
    let is_down = async || {
        let node = nodes.get("n-1").await.expect("a node");
        node.status.is_some_and(|status| status.phase == drover_api::client_node::NodePhase::Down)
    };
    cluster.eventually("the node is down", is_down).await;
    let says_down = async || told().await.text.contains("node down");
    cluster.eventually("it is said", says_down).await;
    assert_eq!(told().await.code, 404);
}

/// Runs the job of each kind of task, and waits until it has written its output.
async fn of_kinds<'a>(stage: &Stage, nomad: &'a Nomad) -> Seen<'a> {
    let cluster = &stage.cluster;
    cluster.namespace("shop").await;
    let seen = Seen { nomad, uid: run(stage, nomad, of_each_kind()).await };
    cluster.condition("shop", "kinds", JobConditionType::Ready, "True").await;
    cluster.eventually("it has written", async || seen.output("main", "stderr").await == "written\n").await;
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_028_to_p_031_and_p_033_to_p_037_files_output_and_commands_are_for_clients_of_nomad_too() {
    let stage = Stage::start("nomad-files", "recheckEvery: 2s\n").await;
    let nomad = Nomad::of(&stage, User::Admin).await;
    let seen = of_kinds(&stage, &nomad).await;
    files_and_output(&seen).await;
    followed_output(&stage, &nomad).await;
    strangers(&stage, &seen).await;
    commands(&stage, &seen).await;
    rights_end(&stage, &seen).await;
    stage.cluster.kubectl(&["delete", "djob", "--all", "-n", "shop", "--timeout=60s"]).expect("deleted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_021_to_p_027_p_038_and_p_039_tasks_are_restarted_signalled_and_measured_for_clients_of_nomad_too() {
    let mut stage = Stage::start("nomad-tasks", "").await;
    let nomad = Nomad::of(&stage, User::Admin).await;
    let seen = of_kinds(&stage, &nomad).await;
    restarts_and_signals(&stage, &seen).await;
    samples(&stage, &nomad).await;
    an_end(&stage, &seen).await;
    a_node_is_collected(&stage, &nomad).await;
    a_node_that_is_gone(&mut stage, &nomad).await;
}
