//! Artifacts on a real node: a server on the loopback device, `droverd fetch`, and tasks that find the files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use drover_api::Allocation;
use drover_api::allocation::TaskEventType as E;
use drover_api::job::JobType;
use drover_testkit::process::ProcessId;
use serde_json::{Value, json};
use sha2::Digest as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::agent::{Node, events, eventually, shared_plane, shell};
use crate::git_server::{AUTHORIZATION, GitServer};
use crate::web_server::{head, serve};

/// Small limits, and a server that may be reached.
const CONFIG: &str = "artifacts: {maxSizeMB: 4, maxFiles: 100, timeout: 2m, allowedCIDRs: [127.0.0.0/8]}\n";
const BODY: &[u8] = b"what the task needs\n";

/// A server of artifacts that mean well and of others; it ends with the test.
struct Server {
    port: u16,
    asked: Arc<Mutex<BTreeMap<String, usize>>>,
    _answering: JoinSet<()>,
}

impl Server {
    async fn start() -> Self {
        let asked: Arc<Mutex<BTreeMap<String, usize>>> = Arc::default();
        let seen = Arc::clone(&asked);
        let (port, answering) = serve(move |stream| answer(stream, Arc::clone(&seen))).await;
        Self { port, asked, _answering: answering }
    }

    fn at(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port)
    }

    fn asked(&self, path: &str) -> usize {
        self.asked.lock().expect("no panic").get(path).copied().unwrap_or_default()
    }
}

async fn answer(mut stream: TcpStream, asked: Arc<Mutex<BTreeMap<String, usize>>>) {
    let Some(head) = head(&mut stream).await else { return };
    let path = head.split_whitespace().nth(1).unwrap_or_default().trim_start_matches('/').to_owned();
    let turn = {
        let mut asked = asked.lock().expect("no panic");
        let count = asked.entry(path.clone()).or_default();
        *count += 1;
        *count
    };
    let whole =
        |body: &[u8]| [format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes(), body].concat();
    let is_first = turn == 1;
    let (answer, hangs) = match path.as_str() {
        // The first time it stops in the middle.
        "slow" if is_first => (whole(BODY)[..50].to_vec(), true),
        "second-time" if is_first => (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n".to_vec(), false),
        "meta" => (
            b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest\r\nContent-Length: 0\r\n\r\n".to_vec(),
            false,
        ),
        "lies" => (b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nshort".to_vec(), false),
        "bomb.gz" => (whole(&gz(&vec![0; 64 << 20])), false),
        "links.tar" => (whole(&link()), false),
        "app.tar.gz" => (whole(&gz(&app())), false),
        _ => (whole(BODY), false),
    };
    // Who has had enough reads no more.
    drop(stream.write_all(&answer).await);
    if hangs {
        drop(stream.read_u8().await);
    }
}

fn gz(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(bytes).and_then(|()| packed.finish()).expect("packed")
}

fn app() -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    let script = b"#!/bin/sh\nid -u\ncat /local/notes\nls -ln /local/app/run\n";
    header.set_mode(0o755);
    header.set_size(script.len() as u64);
    tar.append_data(&mut header, "app/run", &script[..]).expect("packed");
    tar.into_inner().expect("packed")
}

fn link() -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Symlink);
    header.set_mode(0o777);
    header.set_size(0);
    tar.append_link(&mut header, "passwd", "/etc/passwd").expect("packed");
    tar.into_inner().expect("packed")
}

/// A task with these artifacts, which is not tried again.
fn task(artifacts: &Value, script: &str) -> Value {
    let mut task = shell(script);
    task["artifacts"] = artifacts.clone();
    task["restart"] = json!({ "attempts": 0, "interval": "1m", "delay": "1s", "mode": "fail" });
    task
}

fn local(node: &Node<'_>, allocation: &Allocation) -> PathBuf {
    node.path("allocs").join(allocation.metadata.uid.as_deref().expect("a uid")).join("t/local")
}

fn n_entries(dir: &Path) -> usize {
    std::fs::read_dir(dir).map_or(0, Iterator::count)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b_045_a_sandboxed_task_finds_its_artifacts_and_a_wrong_checksum_fails_it() {
    let (node, server) = (Node::start_with(shared_plane(), "artifacts", CONFIG).await, Server::start().await);
    let sum = sha2::Sha256::digest(BODY).iter().fold(String::new(), |sum, byte| sum + &format!("{byte:02x}"));
    let notes = |sum: &str| {
        json!({ "getterSource": server.at("notes"),
            "getterOptions": { "checksum": format!("sha256:{sum}") } })
    };
    let app = json!({ "getterSource": server.at("app.tar.gz"), "chown": true });
    let mut good = task(&json!([notes(&sum), app]), "exec /local/app/run");
    good["driver"] = json!("exec");
    let name = node.run("good", JobType::Batch, json!([good])).await;
    let ended = node.ended(&name).await;
    assert_eq!(events(&ended, "t"), [E::Received, E::TaskSetup, E::DownloadingArtifacts, E::Started, E::Terminated]);
    let out = node.log_of(&ended, "t.stdout.0");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.get(1), Some(&"what the task needs"), "{out} {}", node.log_of(&ended, "t.stderr.0"));
    let owner = lines.get(2).and_then(|line| line.split_whitespace().nth(2));
    assert_eq!(owner, lines.first().copied(), "what is given to the task's user is its own: {out}");

    let name = node.run("bad", JobType::Batch, json!([task(&json!([notes(&"0".repeat(64))]), "echo never")])).await;
    let ended = node.ended(&name).await;
    let shown = json!(ended.status).to_string();
    assert!(events(&ended, "t").contains(&E::FailedArtifactDownload), "{shown}");
    assert!(shown.contains(&format!("the checksum is {sum}")), "{shown}");
    assert_eq!(n_entries(&local(&node, &ended)), 0, "nothing that is wrong lies where the task is");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b_046_must_survive_servers_that_mean_no_good() {
    let (node, server) = (Node::start_with(shared_plane(), "hostile", CONFIG).await, Server::start().await);
    let agent = ProcessId::of(i32::try_from(node.agent_pid()).expect("a pid")).expect("an agent");
    let before = agent.rss_bytes();
    let mut placed = Vec::new();
    for (n, (source, says)) in [
        (server.at("meta"), "169.254.169.254 is not asked"),
        ("http://0xa9.254.169.254/latest".to_owned(), "its address is 169.254.169.254"),
        (server.at("lies"), "broke off"),
        (server.at("bomb.gz"), "artifacts.maxSizeMB"),
        (server.at("links.tar"), "is a link"),
    ]
    .into_iter()
    .enumerate()
    {
        let artifact = json!([{ "getterSource": source }]);
        placed.push((node.run(&format!("job{n}"), JobType::Batch, json!([task(&artifact, "echo never")])).await, says));
    }
    for (name, says) in placed {
        let ended = node.ended(&name).await;
        let shown = json!(ended.status).to_string();
        assert!(shown.contains(says) && !events(&ended, "t").contains(&E::Started), "{says}: {shown}");
        let local = local(&node, &ended);
        assert_eq!(n_entries(&local), 0, "{says}");
        let beside = local.parent().and_then(Path::parent).expect("the allocation's directory");
        assert_eq!(n_entries(beside), 2, "alloc and t alone are left: {says}");
    }
    let grown = agent.rss_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "what servers send costs the agent nothing: {grown} bytes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b_050_b_049_an_agent_that_is_killed_in_a_download_begins_it_again_and_only_it() {
    let (mut node, server) = (Node::start_with(shared_plane(), "half", CONFIG).await, Server::start().await);
    let artifacts = json!([
        { "getterSource": server.at("first") },
        { "getterSource": server.at("second-time") },
        { "getterSource": server.at("slow"), "relativeDest": "local/whole", "getterMode": "file" },
    ]);
    let mut patient = task(&artifacts, "cat local/first local/second-time local/whole; exec sleep 1000");
    patient["restart"] = json!({ "attempts": 3, "interval": "1h", "delay": "1s", "mode": "fail" });
    let name = node.run("half", JobType::Service, json!([patient])).await;
    eventually("the download is under way", || server.asked("slow") == 1).await;
    // What is done by then is in the state file.
    eventually("the others are done with", || server.asked("first") == 1 && server.asked("second-time") == 1).await;
    let placed = node.allocs().get(&name).await.expect("an allocation");
    eventually("the first is done", || node.agent_log().contains("an artifact is there")).await;
    assert!(local(&node, &placed).join("first").exists());
    let agent = ProcessId::of(i32::try_from(node.agent_pid()).expect("a pid")).expect("an agent");
    let is_fetch =
        |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().contains("fetch\0");
    let fetches: Vec<ProcessId> = agent.descendants().into_iter().filter(|process| is_fetch(process.pid)).collect();
    assert_eq!(fetches.len(), 1, "one is left: {fetches:?}");
    let pid = fetches[0].pid;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("its status");
    let field =
        |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim().to_owned();
    assert_eq!((field("NoNewPrivs:"), field("Seccomp:"), field("CapEff:")), ("1".into(), "2".into(), "0".repeat(16)));
    if rustix::process::geteuid().is_root() {
        assert!(field("Uid:").starts_with("65534\t65534"), "{status}");
    }
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let environment = String::from_utf8_lossy(&environment);
    let names: Vec<&str> =
        environment.split('\0').filter(|line| !line.is_empty() && !line.starts_with("SSL_CERT_")).collect();
    assert!(names.is_empty(), "nothing of the agent's environment: {names:?}");

    node.kill_agent();
    assert!(fetches[0].wait_gone(crate::cluster::LONG).await.expect("an answer"), "a download ends with its agent");
    assert!(!local(&node, &placed).join("whole").exists(), "no half file");
    node.start_agent();
    let running = node.running(&name).await;
    let wanted = [BODY, BODY, BODY].concat();
    eventually("the task has read all of it", || node.log_of(&running, "t.stdout.0").as_bytes() == wanted).await;
    assert_eq!((server.asked("first"), server.asked("slow")), (1, 2), "what is there is not fetched again");
    // Its failure was remembered with the others, or it was asked once more.
    assert_eq!(server.asked("second-time"), 2);
    let root = local(&node, &running);
    assert_eq!(n_entries(root.parent().and_then(Path::parent).expect("a directory")), 2, "nothing else is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b_048_commits_of_git_are_there_by_branch_tag_and_digits() {
    let (node, server) = (Node::start_with(shared_plane(), "git", CONFIG).await, GitServer::start().await);
    let known = json!({ "Authorization": AUTHORIZATION });
    let of = |what: &str, more: Value| {
        let mut artifact = json!({ "getterSource": server.at(what), "getterHeaders": known });
        artifact.as_object_mut().expect("an object").extend(more.as_object().cloned().expect("an object"));
        artifact
    };
    let artifacts = json!([
        of("", json!({ "relativeDest": "local/head" })),
        of("?ref=main&depth=1", json!({ "relativeDest": "local/main" })),
        of("", json!({ "relativeDest": "local/tag", "getterOptions": { "ref": "v1", "depth": "3" } })),
        of(&format!("?ref={}", server.earlier), json!({ "relativeDest": "local/digits" })),
        of("//bin?ref=refs/tags/v1", json!({ "relativeDest": "local/folder" })),
        of("//bin/run", json!({ "relativeDest": "local/program", "getterMode": "file" })),
        of("//bin?ref=links", json!({ "relativeDest": "local/beside" })),
    ]);
    let script = "cat local/head/notes local/main/notes local/tag/notes local/digits/notes; local/folder/run; \
                  local/program; wc -c < local/beside/deep/data; ls -A local/head";
    let name = node.run("all", JobType::Batch, json!([task(&artifacts, script)])).await;
    let ended = node.ended(&name).await;
    let out = node.log_of(&ended, "t.stdout.0");
    let wanted = "third\nthird\nfirst\nsecond\nrun\nrun\n20480\nbin\nnotes\n";
    assert_eq!(out, wanted, "{} {}", node.log_of(&ended, "t.stderr.0"), json!(ended.status));
    let local = local(&node, &ended);
    assert_eq!(n_entries(local.parent().and_then(Path::parent).expect("a directory")), 2, "nothing else is left");

    let mut placed = Vec::new();
    for (n, (artifact, says)) in [
        (of("?ref=nowhere", json!({})), "no branch and no tag \\\"nowhere\\\""),
        (of(&format!("?ref={}", "0a".repeat(20)), json!({})), "0a0a0a"),
        (of("//bin/none", json!({})), "has no bin/none"),
        (of("//bin", json!({ "getterMode": "file" })), "is a folder"),
        (of("?ref=links", json!({})), "\\\"passwd\\\" is a link"),
        (of("?ref=modules", json!({})), "\\\"library\\\" is a submodule"),
        (of("?ref=bomb", json!({})), "artifacts.maxSizeMB"),
        (of("?ref=large", json!({})), "128 MiB"),
        (json!({ "getterSource": server.at("") }), "give the header Authorization"),
    ]
    .into_iter()
    .enumerate()
    {
        placed.push((
            node.run(&format!("bad{n}"), JobType::Batch, json!([task(&json!([artifact]), "echo never")])).await,
            says,
        ));
    }
    for (name, says) in placed {
        let ended = node.ended(&name).await;
        let shown = json!(ended.status).to_string();
        assert!(shown.contains(says) && !events(&ended, "t").contains(&E::Started), "{says}: {shown}");
        assert!(!shown.contains("canary") && !shown.contains(AUTHORIZATION), "{shown}");
    }
}
