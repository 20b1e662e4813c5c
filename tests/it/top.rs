//! `drover top` on a real API server with a gateway: what it shows of nodes, jobs and allocations, and its live table.

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use drover_api::job::JobConditionType;
use drover_testkit::control_plane::User;
use rustix::pty::OpenptFlags;
use serde_json::json;
use tokio::sync::mpsc;

use crate::cluster::{LONG, Running, job};
use crate::gateway::{NODE, Ran, Stage};

/// The lines of a table without its head, each as its cells.
fn lines(stage: &Stage, args: &[&str]) -> Vec<Vec<String>> {
    let ran = Ran::of(stage.drover(User::Admin, &[&["top"], args].concat()).wait_with_output().expect("its end"));
    let text = ran.text();
    let (head, rest) = text.split_once('\n').expect("a head");
    let columns: Vec<&str> = head.split_whitespace().collect();
    assert_eq!(columns, ["NAME", "STATE", "CPU(MHz)", "MEMORY(MiB)", "TASKS", "REASON"]);
    rest.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

/// What is used, of `used/given`; none for a dash.
fn used(cell: &str) -> Option<u64> {
    cell.split_once('/').expect("used/given").0.parse().ok()
}

/// A terminal, and `drover top` on it.
struct Live {
    master: std::fs::File,
    program: Running,
}

impl Live {
    fn start(stage: &Stage) -> Self {
        let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        rustix::pty::grantpt(&master).expect("a terminal");
        rustix::pty::unlockpt(&master).expect("a terminal");
        let name = rustix::pty::ptsname(&master, Vec::new()).expect("its name").into_string().expect("text");
        let side = || Stdio::from(std::fs::File::options().read(true).write(true).open(&name).expect("its other side"));
        let program = Command::new(env!("CARGO_BIN_EXE_drover"))
            .args(["top", "allocs", "-n", "shop", "--kubeconfig"])
            .arg(stage.cluster.plane.kubeconfig(User::Admin))
            .stdin(side())
            .stdout(side())
            .stderr(side())
            .spawn()
            .expect("drover");
        Self { master: master.into(), program: Running(program) }
    }

    /// What it draws, part by part, until its end.
    fn parts(&self) -> mpsc::Receiver<String> {
        let (parts, drawn) = mpsc::channel(16);
        let mut from = self.master.try_clone().expect("a terminal");
        tokio::task::spawn_blocking(move || {
            let mut bytes = [0; 4096];
            // A terminal that no program has open any more is read with an error.
            while let Ok(n) = from.read(&mut bytes) {
                if n == 0 || parts.blocking_send(String::from_utf8_lossy(&bytes[..n]).into_owned()).is_err() {
                    return;
                }
            }
        });
        drawn
    }

    fn is_silent(&self) -> bool {
        let modes = rustix::termios::tcgetattr(&self.master).expect("its settings").local_modes;
        !modes.contains(rustix::termios::LocalModes::ECHO)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn top_shows_what_nodes_jobs_and_allocations_use_and_why_something_is_not_known() {
    let stage = Stage::start("gateway-top", "").await;
    stage.run("busy", "while true; do sleep 0.01; done").await;
    stage.run("idle", "exec sleep 1000").await;
    let cluster = &stage.cluster;

    // What uses the most comes first.
    let shown = lines(&stage, &["allocs", "--once"]);
    assert!(
        shown.len() == 2 && shown[0][0].starts_with("busy-g-0") && shown[1][0].starts_with("idle-g-0"),
        "{shown:?}"
    );
    for line in &shown {
        assert_eq!((line[1].as_str(), line[4].as_str(), line.len()), ("running", "1/1", 5), "{shown:?}");
        assert!(line[2].ends_with("/10") && line[3].ends_with("/10") && used(&line[3]) > Some(0), "{shown:?}");
    }
    assert!(used(&shown[0][2]) > Some(0) && used(&shown[1][2]) == Some(0), "{shown:?}");
    let shown = lines(&stage, &["jobs", "-A"]);
    assert_eq!((shown[0][0].as_str(), shown[1][0].as_str(), shown.len()), ("shop/busy", "shop/idle", 2), "{shown:?}");
    assert_eq!(shown[0][1], "running");

    // Its agent knows no gateway.
    let _other = cluster.agent("n-2").await;
    let there = json!({ "constraints": [{ "lTarget": "${node.unique.name}", "operand": "=", "rTarget": "n-2" }],
                        "update": { "minHealthyTime": "0s" } });
    cluster.apply("shop", &job("there", 1, &there, "exec sleep 1000"));
    cluster.condition("shop", "there", JobConditionType::Ready, "True").await;
    let shown = lines(&stage, &[]);
    assert_eq!((shown[0][..2].join(" "), shown[1][..2].join(" ")), (format!("{NODE} ready"), "n-2 ready".to_owned()));
    assert!(shown[0][2].ends_with("/20") && used(&shown[0][2]) > Some(0) && shown[0].len() == 5, "{shown:?}");
    assert_eq!(shown[1][2..5].join(" "), "-/10 -/10 1/1", "{shown:?}");
    assert!(shown[1][5..].join(" ").contains("node n-2 has no tunnel"), "{shown:?}");

    // The live table is drawn again over itself, and `q` ends it.
    let mut live = Live::start(&stage);
    let (mut drawn, mut text) = (live.parts(), String::new());
    while text.matches("NAME").count() < 2 {
        let part = tokio::time::timeout(LONG, drawn.recv()).await.expect("it draws");
        text.push_str(&part.unwrap_or_else(|| unreachable!("it has ended: {text}")));
    }
    let (_, second) = text.split_once("\x1b[4A\x1b[J").unwrap_or_else(|| unreachable!("not drawn over: {text}"));
    assert!(second.contains("NAME"), "{text}");
    assert!(live.is_silent());
    live.master.write_all(b"xq").expect("a key");
    while tokio::time::timeout(LONG, drawn.recv()).await.expect("it ends").is_some() {}
    assert_eq!(live.program.0.wait().expect("its end").code(), Some(0));
    assert!(!live.is_silent(), "the terminal has its settings again");
    cluster.kubectl(&["delete", "djob", "busy", "idle", "there", "-n", "shop", "--timeout=60s"]).expect("deleted");
}
