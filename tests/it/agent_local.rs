//! The agent's socket: logs, files, statistics, commands in tasks, restarts and signals.

use std::time::{Duration, Instant};

use drover_api::Allocation;
use drover_api::allocation::TaskEventType as E;
use drover_api::job::JobType;
use drover_socket::client::{self, Exchange, Reply};
use drover_socket::protocol::{Answer, FileInfo, Input, LogStream, Origin, Request, TtySize};
use drover_testkit::process::ProcessId;
use serde_json::{Value, json};

use crate::agent::{Node, events, eventually, lives, shared_plane, shell};
use crate::cluster::LONG;

/// Everything that came back.
#[derive(Debug, Default)]
pub(crate) struct Got {
    pub(crate) answers: Vec<Answer>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Got {
    fn last(&self) -> &Answer {
        self.answers.last().expect("an answer")
    }

    pub(crate) fn code(&self) -> u16 {
        match self.last() {
            Answer::Error { code, .. } => *code,
            other => unreachable!("no error: {other:?}"),
        }
    }
}

pub(crate) async fn begin(node: &Node<'_>, request: &Request) -> Exchange {
    client::ask(&node.path("state/agent.sock"), request).await.expect("a connection")
}

pub(crate) async fn finish(exchange: &mut Exchange) -> Got {
    let mut got = Got::default();
    let read = async {
        while let Some(reply) = exchange.replies.next().await.expect("a reply") {
            match reply {
                Reply::Answer(answer) => got.answers.push(answer),
                Reply::Data(bytes) => got.out += &String::from_utf8_lossy(&bytes),
                Reply::ErrorData(bytes) => got.err += &String::from_utf8_lossy(&bytes),
            }
        }
    };
    tokio::time::timeout(LONG, read).await.expect("an end in time");
    got
}

pub(crate) async fn ask(node: &Node<'_>, request: Request) -> Got {
    finish(&mut begin(node, &request).await).await
}

pub(crate) fn id(allocation: &Allocation) -> String {
    allocation.metadata.uid.clone().expect("a uid")
}

fn logs(allocation: &str) -> Request {
    Request::Logs {
        allocation: allocation.to_owned(),
        task: "t".into(),
        stream: LogStream::Stdout,
        origin: Origin::Start,
        offset: 0,
        file: None,
        follow: false,
    }
}

pub(crate) fn exec(allocation: &str, command: &[&str]) -> Request {
    Request::Exec {
        allocation: allocation.to_owned(),
        task: "t".into(),
        command: command.iter().map(|part| (*part).to_owned()).collect(),
        tty: false,
        size: None,
    }
}

fn sandboxed(script: &str) -> Value {
    let mut task = shell(script);
    task["driver"] = json!("exec");
    task
}

#[tokio::test]
async fn a_125_and_a_126_output_is_read_over_rotated_files_and_followed_to_the_end() {
    // a task that has not started has no output.
    let node = Node::start(shared_plane(), "local-logs").await;
    let script = "while [ ! -e ../go ]; do sleep 0.01; done; echo 3; exit 0";
    let name = node.run("logs", JobType::Batch, json!([shell(script)])).await;
    let running = node.running(&name).await;
    let uid = id(&running);
    let dir = node.path("allocs").join(&uid);
    for n in 0..3 {
        std::fs::write(dir.join(format!("alloc/logs/x.stdout.{n}")), n.to_string()).expect("a file");
        std::fs::write(dir.join(format!("alloc/logs/t.stdout.{n}")), n.to_string()).expect("a file");
    }
    let whole = ask(&node, logs(&uid)).await;
    assert_eq!((whole.out.as_str(), whole.last()), ("012", &Answer::Done));
    let mut tail = logs(&uid);
    if let Request::Logs { origin, offset, follow, .. } = &mut tail {
        (*origin, *offset, *follow) = (Origin::End, 2, true);
    }
    let mut followed = begin(&node, &tail).await;
    std::fs::write(dir.join("go"), "").expect("a file");
    let got = finish(&mut followed).await;
    // The task writes into the file that it had open, the first one; what follows is what was asked for.
    assert!(got.out.starts_with("12") && got.last() == &Answer::Done, "{got:?}");
    node.ended(&name).await;

    let wait = node.run("wait", JobType::Service, json!([
        {"name": "first", "driver": "raw_exec", "lifecycle": {"hook": "prestart"}, "config": {"command": "/bin/sleep", "args": ["1000"]}},
        shell("echo never")
    ])).await;
    let waiting =
        node.until(&wait, "first runs", |it| it.status.as_ref().is_some_and(|it| !it.task_states.is_empty())).await;
    eventually("no output", || true).await;
    assert_eq!(ask(&node, logs(&id(&waiting))).await.code(), 404, "a task that has not started");
    assert_eq!(ask(&node, logs("no-such-allocation")).await.code(), 404);
    let mut unknown = logs(&id(&waiting));
    if let Request::Logs { task, .. } = &mut unknown {
        *task = "u".into();
    }
    assert_eq!(ask(&node, unknown).await.code(), 400);
}

#[tokio::test]
async fn files_are_listed_described_and_read() {
    let node = Node::start(shared_plane(), "local-fs").await;
    let script = "ln -s /etc local/out; echo hello > local/note.txt; sleep 1000";
    let name = node.run("fs", JobType::Service, json!([shell(script)])).await;
    let uid = id(&node.running(&name).await);
    let written = node.path("allocs").join(&uid).join("t/local/note.txt");
    eventually("the note", || std::fs::read_to_string(&written).is_ok_and(|it| !it.is_empty())).await;
    let allocation = || uid[..8].to_owned();
    let listed = ask(&node, Request::List { allocation: allocation(), path: "/t/local".into() }).await;
    let Answer::Files(files) = &listed.answers[0] else { panic!("{listed:?}") };
    assert_eq!(files.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["note.txt", "out"]);
    let described = ask(&node, Request::Stat { allocation: allocation(), path: "t/local/note.txt".into() }).await;
    assert!(matches!(&described.answers[0], Answer::File(FileInfo { size: 6, .. })), "{described:?}");
    let read = |path: &str| Request::Read {
        allocation: allocation(),
        path: path.into(),
        origin: Origin::Start,
        offset: 1,
        limit: Some(3),
    };
    assert_eq!(ask(&node, read("t/local/note.txt")).await.out, "ell");
    assert_eq!(ask(&node, read("t/local/out/passwd")).await.code(), 400);
    assert_eq!(ask(&node, read("t/secrets/x")).await.code(), 403);
}

#[tokio::test]
async fn commands_run_in_tasks_of_both_drivers_with_their_rights() {
    let node = Node::start(shared_plane(), "local-exec").await;
    for (job, task) in [("raw", shell("sleep 1000")), ("boxed", sandboxed("sleep 1000"))] {
        let name = node.run(job, JobType::Service, json!([task])).await;
        let uid = id(&node.running(&name).await);
        let got =
            ask(&node, exec(&uid, &["/bin/sh", "-c", "echo $NOMAD_TASK_NAME; id -u; echo oops >&2; exit 7"])).await;
        // The files of an allocation are its user's.
        let own = node.path("allocs").join(&uid).join("alloc").metadata().expect("a directory");
        let user = if job == "raw" { 0 } else { std::os::unix::fs::MetadataExt::uid(&own) };
        assert_eq!((got.out, got.err.as_str()), (format!("t\n{user}\n"), "oops\n"), "{job}");
        assert_eq!(got.answers, [Answer::Exited { exit_code: 7 }], "{job}");

        let killed = ask(&node, exec(&uid, &["/bin/sh", "-c", "kill -9 $$"])).await;
        assert_eq!(killed.answers, [Answer::Exited { exit_code: 137 }], "{job}");
        let missing = ask(&node, exec(&uid, &["no-such-program"])).await;
        assert_eq!(missing.code(), 500, "never an exit code: {missing:?}");

        let mut cat = begin(&node, &exec(&uid, &["cat"])).await;
        cat.inputs.data(b"one\ntwo\n").await.expect("sent");
        cat.inputs.tell(Input::Close).await.expect("sent");
        assert_eq!(finish(&mut cat).await.out, "one\ntwo\n", "{job}");

        // The exit is told although the client holds its input open.
        let mut open = begin(&node, &exec(&uid, &["true"])).await;
        assert_eq!(finish(&mut open).await.answers, [Answer::Exited { exit_code: 0 }], "{job}");
    }
}

#[tokio::test]
async fn a_terminal_has_its_size_and_ends_with_its_client() {
    let node = Node::start(shared_plane(), "local-tty").await;
    let name = node.run("tty", JobType::Service, json!([sandboxed("sleep 1000")])).await;
    let uid = id(&node.running(&name).await);
    let request = |command: &[&str]| match exec(&uid, command) {
        Request::Exec { allocation, task, command, .. } => {
            Request::Exec { allocation, task, command, tty: true, size: Some(TtySize { height: 33, width: 111 }) }
        }
        other => other,
    };
    let script = "stty size; while ! stty size | grep -q '^44 '; do sleep 0.05; done; echo resized; exit 3";
    let mut sized = begin(&node, &request(&["/bin/sh", "-c", script])).await;
    let first = tokio::time::timeout(LONG, sized.replies.next()).await.expect("in time").expect("a reply");
    let Some(Reply::Data(first)) = first else { panic!("{first:?}") };
    assert_eq!(String::from_utf8_lossy(&first), "33 111\r\n");
    sized.inputs.tell(Input::Resize(TtySize { height: 44, width: 99 })).await.expect("sent");
    let got = finish(&mut sized).await;
    assert!(got.out.contains("resized"), "{got:?}");
    assert_eq!(got.answers, [Answer::Exited { exit_code: 3 }]);

    let mut left = begin(&node, &request(&["/bin/sh", "-c", "echo begun; exec sleep 4711"])).await;
    let seen = tokio::time::timeout(LONG, left.replies.next()).await.expect("in time").expect("a reply");
    assert!(matches!(seen, Some(Reply::Data(_))), "{seen:?}");
    let sleeps = || ProcessId::all().any(|id| id.words() == ["sleep", "4711"]);
    eventually("the command", sleeps).await;
    drop(left);
    eventually("its end", || !sleeps()).await;
}

#[tokio::test]
async fn a_065_restarts_and_signals_reach_tasks() {
    let node = Node::start(shared_plane(), "local-restart").await;
    // `wait` ends at once for a trap; a shell that forks a command in the foreground may lose a signal meanwhile.
    let script = "trap 'echo hup' HUP; echo $$; while :; do sleep 1000 & wait; done";
    let name = node.run("web", JobType::Service, json!([shell(script)])).await;
    let running = node.running(&name).await;
    let uid = id(&running);
    let pid = node.pid_of(&running, "t").await;
    // Its first line comes after the trap is set.
    eventually("the trap", || !node.log_of(&running, "t.stdout.0").is_empty()).await;
    let restart = |task: Option<&str>, all_tasks| Request::Restart {
        allocation: uid.clone(),
        task: task.map(str::to_owned),
        all_tasks,
    };
    assert_eq!(ask(&node, restart(Some("t"), true)).await.code(), 400);
    assert!(lives(pid), "nothing was restarted");
    let signal = |signal: &str| Request::Signal { allocation: uid.clone(), task: None, signal: signal.into() };
    assert_eq!(ask(&node, signal("SIGHUP")).await.answers, [Answer::Done]);
    eventually("the signal", || node.log_of(&running, "t.stdout.0").contains("hup")).await;
    assert_eq!(ask(&node, signal("SIGHOP")).await.code(), 400);
    assert_eq!(ask(&node, restart(Some("t"), false)).await.answers, [Answer::Done]);
    let again = node
        .until(&name, "restarted", |it| {
            let state = it.status.as_ref().map(|status| status.task_states["t"].clone()).unwrap_or_default();
            state.restarts == 1 && state.state.as_str() == "running"
        })
        .await;
    assert!(!lives(pid) && events(&again, "t").contains(&E::RestartSignaled));
}

#[tokio::test]
async fn statistics_say_what_a_task_uses() {
    let node = Node::start(shared_plane(), "local-stats").await;
    let name = node.run("busy", JobType::Service, json!([shell("while :; do :; done")])).await;
    let uid = id(&node.running(&name).await);
    let mut stats = begin(&node, &Request::Stats { allocation: uid, every_ms: Some(300) }).await;
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        assert!(Instant::now() < deadline, "never busy");
        let Some(Reply::Answer(Answer::Stats(sample))) = stats.replies.next().await.expect("a reply") else {
            panic!("no sample");
        };
        let task = sample.tasks.get("t").copied().unwrap_or_default();
        assert!((sample.total.memory_bytes, sample.total.pids) == (task.memory_bytes, task.pids));
        if task.cpu_fraction > 0.1 && task.memory_bytes > 0 && task.pids == 1 {
            break;
        }
    }
}

/// What `drover alloc` printed, and its exit code.
struct Ran {
    out: String,
    err: String,
    code: i32,
}

fn drover(node: &Node<'_>, args: &[&str], input: &str) -> Ran {
    use std::io::Write;
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_drover"))
        .arg("alloc")
        .args(args)
        .env("DROVER_AGENT_SOCKET", node.path("state/agent.sock"))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("drover");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("written");
    let output = child.wait_with_output().expect("its end");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    Ran { out: text(output.stdout), err: text(output.stderr), code: output.status.code().expect("a code") }
}

#[tokio::test]
async fn people_on_the_node_see_and_steer_its_allocations() {
    let node = Node::start(shared_plane(), "people").await;
    let script = "trap 'echo hup' HUP; echo out; echo err >&2; while :; do sleep 1000 & wait; done";
    let name = node.run("web", JobType::Service, json!([shell(script)])).await;
    let running = node.running(&name).await;
    let uid = id(&running);
    for (log, text) in [("t.stdout.0", "out\n"), ("t.stderr.0", "err\n")] {
        eventually("output", || node.log_of(&running, log) == text).await;
    }
    let short = &uid[..8];
    let listed = drover(&node, &["list", "-o", "json"], "");
    let all: Value = serde_json::from_str(&listed.out).expect("JSON and nothing else");
    assert_eq!(all["allocations"][0]["tasks"], json!({"t": "running"}));
    assert_eq!(drover(&node, &["list", "-o", "name"], "").out, format!("alloc/{name}\n"));
    assert_eq!(drover(&node, &["logs", short], "").out, "out\n");
    assert_eq!(drover(&node, &["logs", short, "t", "--stderr"], "").out, "err\n");
    assert_eq!(drover(&node, &["logs", &format!("people/{name}"), "--tail", "3"], "").out, "ut\n");
    let files = drover(&node, &["fs", short, "-o", "name"], "").out;
    assert_eq!(files.lines().collect::<Vec<_>>(), ["alloc", "t"]);
    assert_eq!(drover(&node, &["fs", short, "alloc/logs/t.stdout.0"], "").out, "out\n");
    assert!(drover(&node, &["fs", short, "alloc", "--stat"], "").out.contains("drwxrwxrwx"));
    let refused = drover(&node, &["fs", short, "t/secrets/key"], "");
    assert_eq!((refused.code, refused.out.as_str()), (1, ""), "{}", refused.err);
    let stats: Value = serde_json::from_str(&drover(&node, &["stats", short, "-o", "json"], "").out).expect("JSON");
    assert!(stats["tasks"]["t"]["memoryBytes"].as_u64().is_some_and(|bytes| bytes > 0), "{stats}");
    let ran = drover(&node, &["exec", short, "-i", "--", "/bin/sh", "-c", "cat; echo no >&2; exit 7"], "yes");
    assert_eq!((ran.out.as_str(), ran.err.as_str(), ran.code), ("yes", "no\n", 7));
    let ran = drover(&node, &["exec", short, "--", "/bin/sh", "-c", "kill -9 $$"], "");
    assert_eq!(ran.code, 137, "{}", ran.err);
    let ran = drover(&node, &["exec", short, "--", "/no/such/program"], "");
    assert!(ran.code == 1 && ran.err.contains("/no/such/program"), "{}", ran.err);
    assert_eq!(drover(&node, &["signal", short, "-s", "SIGHUP"], "").code, 0);
    eventually("the trap", || node.log_of(&running, "t.stdout.0").contains("hup")).await;
    let refused = drover(&node, &["signal", short, "-s", "SIGNONE"], "");
    assert!(refused.code == 1 && refused.err.contains("SIGNONE"), "{}", refused.err);
    assert_eq!(drover(&node, &["restart", short], "").code, 0);
    node.until(&name, "restarted", |it| it.status.as_ref().is_some_and(|it| it.task_states["t"].restarts == 1)).await;
    node.running(&name).await;
    let stopped = drover(&node, &["stop", &name, "-n", "people", "--detach"], "");
    assert!(stopped.code == 0 && stopped.err.contains("the controller is asked to stop it"), "{}", stopped.err);
    let asked =
        node.until(&name, "asked", |it| it.status.as_ref().is_some_and(|it| it.stop_requested_at.is_some())).await;
    assert_eq!(crate::agent::status(&asked), drover_api::allocation::ClientStatus::Running, "no controller is there");
    node.stop(&name).await;
    let ended = node.ended(&name).await;
    assert!(crate::agent::messages(&ended, "t").contains("stopped by a person"), "{:?}", ended.status);
    let gone = drover(&node, &["logs", "ffff", "t"], "");
    assert!(gone.code == 1 && gone.err.contains("unknown allocation"), "{}", gone.err);
}

/// What a person sees, with the names that differ from run to run written as they are called.
fn transcript(node: &Node<'_>, uid: &str, lines: &[&[&str]], socket: Option<&str>, runs_as: Option<u32>) -> String {
    use std::fmt::Write as _;
    use std::os::unix::process::CommandExt as _;

    let folder = node.path("").display().to_string();
    let mut text = String::new();
    for arguments in lines {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_drover"));
        command.arg("alloc").args(*arguments).env("NO_COLOR", "1");
        command.env("DROVER_AGENT_SOCKET", node.path(socket.unwrap_or("state/agent.sock")));
        if let Some(user) = runs_as {
            command.uid(user);
        }
        let output = command.output().expect("drover");
        let code = output.status.code().expect("a code");
        writeln!(text, "$ drover alloc {}", arguments.join(" ")).expect("text");
        for (stream, bytes) in [("", output.stdout), ("! ", output.stderr)] {
            for line in String::from_utf8(bytes).expect("text").lines() {
                writeln!(text, "{stream}{line}").expect("text");
            }
        }
        writeln!(text, "[{code}]").expect("text");
    }
    text.replace(&folder, "DIR/").replace(uid, "UID").replace(&uid[..8], "UID8")
}

#[tokio::test]
async fn the_words_of_drover_alloc() {
    use std::os::unix::fs::PermissionsExt as _;

    let node = Node::start(shared_plane(), "words").await;
    let mut second = shell("sleep 1000");
    second["name"] = json!("u");
    let name = node.run("web", JobType::Service, json!([shell("echo hello; sleep 1000"), second])).await;
    let both_run = |it: &Allocation| {
        let states = it.status.as_ref().map(|status| &status.task_states);
        states.is_some_and(|all| all.len() == 2 && all.values().all(|task| task.state.as_str() == "running"))
    };
    let running = node.until(&name, "running with both tasks", both_run).await;
    let uid = id(&running);
    eventually("output", || node.log_of(&running, "t.stdout.0").contains("hello")).await;
    let short = &uid[..8];
    let misuse: &[&[&str]] = &[
        &["list", "-o", "json"],
        &["list", "-o", "yaml"],
        &["list", "-o", "name"],
        &["logs", "no-such-allocation", "t"],
        &["logs", short],
        &["logs", short, "v"],
        &["logs", short, "t"],
        &["fs", short, "../../etc"],
        &["fs", short, "t/secrets/key"],
        &["fs", short, "t/nothing"],
        &["stats", "ffffffff"],
        &["restart", short, "v"],
        &["restart", short, "t", "--all-tasks"],
        &["signal", short, "-s", "SIGNONE"],
        &["exec", short, "--task", "v", "--", "true"],
        &["exec", short, "--task", "t", "--", "/no/such/program"],
        &["exec", short, "--task", "t", "--", "/bin/sh", "-c", "exit 9"],
        &["exec", short, "--task", "t", "--", "/bin/sh", "-c", "kill -TERM $$"],
        &["stop", "ffffffff"],
        &["stop", short, "--detach"],
    ];
    let mut text = transcript(&node, &uid, misuse, None, None);
    text += "# no agent there\n";
    text += &transcript(&node, &uid, &[&["list"]], Some("state/none.sock"), None);
    text += "# another user\n";
    // Only the socket keeps that user out: the folders above are opened to everybody.
    for path in ["", "state"] {
        std::fs::set_permissions(node.path(path), std::fs::Permissions::from_mode(0o755)).expect("a mode");
    }
    text += &transcript(&node, &uid, &[&["list"]], None, Some(65534));
    expect_test::expect_file!["../golden/alloc/words.txt"].assert_eq(&text);
}

#[tokio::test]
async fn metadata_of_the_node_is_set_and_hidden_at_run_time() {
    let mut node = Node::start_with(shared_plane(), "meta", "meta: {a: \"1\"}\n").await;
    let change = |changes: &[(&str, Option<&str>)]| Request::SetMeta {
        changes: changes.iter().map(|(key, value)| ((*key).to_owned(), value.map(str::to_owned))).collect(),
    };
    let got = ask(&node, change(&[("a", None), ("b", Some("2")), ("c", None)])).await;
    let Answer::Meta(info) = got.last() else { unreachable!("{got:?}") };
    assert_eq!(json!(info), json!({"meta": {"b": "2"}, "dynamic": {"a": null, "b": "2"}, "static": {"a": "1"}}));
    let empty = ask(&node, change(&[("b", Some(""))])).await;
    assert_eq!(empty.code(), 400);
    node.kill_agent();
    node.start_agent();
    let deadline = Instant::now() + LONG;
    let nodes: kube::Api<drover_api::ClientNode> = kube::Api::all(node.client.clone());
    loop {
        let found = nodes.get("meta").await.expect("a node").status.and_then(|status| status.fingerprint);
        let dynamic = found.map(|found| found.meta.dynamic).unwrap_or_default();
        if dynamic == [("a".to_owned(), String::new()), ("b".to_owned(), "2".to_owned())].into() {
            break;
        }
        assert!(Instant::now() < deadline, "{dynamic:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
