//! `cargo xtask up`, `down` and `status` as people use them: a binary of its own, so that nothing else runs while it
//! looks at the clock.

#![expect(clippy::unwrap_used, reason = "a test says by a panic that something is not as it should be")]

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use drover_testkit::documents::{Document, commands};
use drover_testkit::process::{ProcessId, Signal};
use drover_testkit::progress::Progress;
use drover_testkit::shell::Shell;
use drover_testkit::{cargo, cluster, containerd, image};
use serde_json::{Value, json};

/// What a warm start may take, also right after a `down`.
const WARM: Duration = Duration::from_secs(15);

/// The program that cargo would run.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let step = Progress::silent().step("building xtask");
        let built = cargo::build(&["build", "--bin", "xtask"], &step).unwrap();
        built.into_iter().find(|built| built.target == "xtask").unwrap().executable
    })
}

/// Runs `cargo xtask`.
fn xtask(args: &[&str], data: &Path) -> Command {
    let mut command = Command::new(program());
    command.args(args).arg("--data").arg(data).env_remove("RUSTC_BOOTSTRAP").stdin(Stdio::null());
    command
}

fn run(args: &[&str], data: &Path) -> Output {
    xtask(args, data).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn succeeds(output: &Output) -> String {
    assert!(output.status.success(), "{}\n{}{}", output.status, text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// A data folder that is emptied of processes even when the test fails.
struct Data(tempfile::TempDir);

impl Data {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("data")
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        let output = run(&["down"], &self.path());
        assert!(output.status.success() || std::thread::panicking(), "{}", text(&output.stderr));
    }
}

/// Processes that have the folder in their command line or environment.
fn processes_of(folder: &Path) -> Vec<String> {
    let mark = folder.to_string_lossy().into_owned();
    let numbers =
        fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_ours = |pid: &i32| {
        let read = |file: &str| text(&fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default());
        read("cmdline").contains(&mark) || read("environ").contains(&mark)
    };
    numbers
        .filter(|pid| *pid != i32::try_from(std::process::id()).unwrap())
        .filter(is_ours)
        .map(|pid| {
            format!("{pid}: {}", text(&fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()).replace('\0', " "))
        })
        .collect()
}

/// What is mounted in the data folder.
fn mounts(data: &Path) -> Vec<PathBuf> {
    drover_supervisor::mounts_below(data).unwrap()
}

/// The control groups of its agent's tasks, one in each hierarchy.
fn cgroups(data: &Path) -> Vec<PathBuf> {
    fn collect(folder: &Path, name: &OsStr, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_name() == name {
                found.push(entry.path());
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                collect(&entry.path(), name, found);
            }
        }
    }
    let mut found = Vec::new();
    let name = drover_supervisor::cgroup_name(&data.join("agent/state"));
    collect(Path::new("/sys/fs/cgroup"), OsStr::new(&name), &mut found);
    found
}

fn kubectl(data: &Path, args: &[&str]) -> String {
    let binaries = drover_testkit::control_plane::Binaries::find_or_build(&Progress::silent()).unwrap();
    let output =
        Command::new(binaries.kubectl()).arg("--kubeconfig").arg(data.join("kubeconfig")).args(args).output().unwrap();
    succeeds(&output)
}

fn allocations(data: &Path, job: &str) -> Vec<Value> {
    let list: Value = serde_json::from_str(&kubectl(data, &["get", "alloc", "-o", "json"])).unwrap();
    let all = list["items"].as_array().unwrap();
    all.iter().filter(|alloc| alloc["spec"]["jobName"] == job).cloned().collect()
}

fn get(port: u64) -> String {
    let mut connection = TcpStream::connect(("127.0.0.1", u16::try_from(port).unwrap())).unwrap();
    connection.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    connection.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    answer
}

/// Runs what the documents show for `up`, as if the data folder were that of the checkout.
fn assert_documents_are_right(data: &Path) {
    let checkout = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(data, checkout.path().join(".drover")).unwrap();
    let binaries = drover_testkit::control_plane::Binaries::find_or_build(&Progress::silent()).unwrap();
    let path = std::env::var_os("PATH").unwrap();
    let path = std::env::join_paths(binaries.folders().chain(std::env::split_paths(&path)));
    let path = path.unwrap();
    let environment = [("PATH", path.as_os_str()), ("XTASK", program().as_os_str()), ("DATA", data.as_os_str())];
    let mut shell = Shell::start(checkout.path(), environment).unwrap();
    let cargo = "cargo() { shift; \"$XTASK\" \"$@\" --data \"$DATA\"; }";
    assert_eq!(shell.run(cargo, WARM).unwrap().code, 0);
    let documents = Document::read_all().unwrap();
    assert!(documents.iter().any(|document| !commands(&document.text, &["up"]).is_empty()));
    for document in documents {
        assert_eq!(document.difference(&mut shell, &["up"], Duration::from_mins(2)), None);
    }
}

/// Every copy of the web example answers under its own index.
fn assert_web_answers(data: &Path) {
    let allocations = allocations(data, "web");
    assert_eq!(allocations.len(), 3);
    for alloc in allocations {
        let answer = get(alloc["spec"]["resources"]["ports"][0]["value"].as_u64().unwrap());
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains(&format!("hello from allocation {} of job web", alloc["spec"]["index"])), "{answer}");
    }
}

fn stdout_of(data: &Path, job: &str, task: &str) -> String {
    let uid = allocations(data, job)[0]["metadata"]["uid"].as_str().unwrap().to_owned();
    fs::read_to_string(data.join(format!("agent/alloc/{uid}/alloc/logs/{task}.stdout.0"))).unwrap()
}

fn processes(data: &Path) -> Vec<(String, ProcessId)> {
    // The exit code says whether all of it runs.
    let status: Value = serde_json::from_str(&text(&run(&["status", "-o", "json"], data).stdout)).unwrap();
    assert_eq!(status["kubeconfig"], data.join("kubeconfig").to_str().unwrap());
    assert_eq!(status["dataDir"], data.to_str().unwrap());
    let row = |row: &Value| {
        assert!(row["rssBytes"].is_u64(), "{row}");
        let pid = i32::try_from(row["pid"].as_i64().unwrap()).unwrap();
        // One may have ended since it was listed.
        Some((row["role"].as_str().unwrap().to_owned(), ProcessId::of(pid)?))
    };
    status["processes"].as_array().unwrap().iter().filter_map(row).collect()
}

/// Asks until the answer is yes: what is waited for happens in other processes.
fn wait_for<T>(what: &str, ask: impl Fn() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "no {what} within 30 s");
        std::thread::yield_now();
    }
}

#[test]
fn up_runs_the_examples_restarts_what_dies_and_down_leaves_nothing() {
    let data = Data::new();
    let path = data.path();
    let examples = ["--example", "web", "--example", "wordcount", "--example", "node-report"];
    let up = [&["up", "--detach", "--profile", "dev"], &examples[..]].concat();

    // Everything is built by this first one.
    let output = run(&up, &path);
    let shown = succeeds(&output);
    assert!(shown.contains(&format!("export KUBECONFIG={}", path.join("kubeconfig").display())), "{shown}");
    assert!(shown.contains("get djob,alloc,cnode") && shown.contains("cargo xtask down"), "{shown}");
    assert!(!cgroups(&path).is_empty(), "its tasks have control groups");
    let path_line = shown.lines().find_map(|line| line.trim().strip_prefix("export PATH=")).unwrap();
    let of_programs = path_line.split_once(":$PATH").unwrap().0;
    assert!(std::env::split_paths(of_programs).any(|folder| folder.join("kubectl").is_file()), "{path_line}");
    let progress = text(&output.stderr);
    for step in [
        "building droverd",
        "starting etcd and kube-apiserver",
        "custom resource definitions",
        "djob/web",
        "djob/wordcount",
        "djob/node-report",
    ] {
        assert!(
            progress.lines().any(|line| line.starts_with("ok ") && line.contains(step)),
            "no line about {step} in\n{progress}"
        );
    }

    // The examples do what they say.
    assert_web_answers(&path);
    let licence = fs::read_to_string(drover_testkit::workspace::root().join("LICENSE")).unwrap();
    let counted = stdout_of(&path, "wordcount", "count");
    assert!(counted.starts_with(&format!("words: {}\nthe: ", licence.split_whitespace().count())), "{counted}");
    let node = allocations(&path, "node-report")[0]["spec"]["nodeName"].as_str().unwrap().to_owned();
    wait_for("report of the node", || {
        stdout_of(&path, "node-report", "report").starts_with(&format!("node {node} (")).then_some(())
    });

    // A second one says that it runs.
    let again = succeeds(&run(&up, &path));
    assert!(again.starts_with(&format!("drover runs already in {}", path.display())), "{again}");

    assert_documents_are_right(&path);

    assert!(path.join("agent/state/agent.sock").exists());
    assert!(shown.contains("drover alloc logs NAME"), "{shown}");
    let name = allocations(&path, "node-report")[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let logs = || {
        Command::new(env!("CARGO_BIN_EXE_drover"))
            .args(["alloc", "logs", &name, "--kubeconfig"])
            .arg(path.join("kubeconfig"))
            .env_remove("DROVER_AGENT_SOCKET")
            .output()
            .unwrap()
    };
    wait_for("output through the gateway", || {
        let output = logs();
        String::from_utf8_lossy(&output.stdout).starts_with(&format!("node {node} (")).then_some(())
    });
    assert_eq!(run(&["status"], &path).status.code(), Some(0));

    // An agent that dies comes back, as a daemon set would have it.
    let before = processes(&path);
    let roles: Vec<&str> = before.iter().map(|(role, _)| role.as_str()).collect();
    assert_eq!(
        roles,
        ["etcd", "kube-apiserver", "kube-controller-manager", "controller", "gateway", "agent", "supervisor"]
    );
    let agent = before[5].1;
    agent.signal(Signal::KILL).unwrap();
    let find_agent = || processes(&path).into_iter().find(|(role, id)| role == "agent" && *id != agent);
    wait_for("new agent", find_agent);
    assert_web_answers(&path);

    let names =
        |job| allocations(&path, job).iter().map(|alloc| alloc["metadata"]["uid"].to_string()).collect::<BTreeSet<_>>();
    let web = names("web");

    // Down: no process, mount or cgroup is left.
    let before = processes(&path);
    succeeds(&run(&["down"], &path));
    assert_eq!(processes_of(&path), [""; 0]);
    assert!(before.iter().all(|(_, id)| !id.is_alive()));
    assert_eq!((mounts(&path), cgroups(&path)), (Vec::new(), Vec::new()));
    assert_eq!(run(&["status"], &path).status.code(), Some(1));

    // Up again, right afterwards: the same allocations run again in place, soon.
    let began = Instant::now();
    succeeds(&run(&["up", "--detach", "--profile", "dev"], &path));
    assert!(began.elapsed() < WARM, "healthy after {:?}", began.elapsed());
    assert_eq!(names("web"), web);
    assert_web_answers(&path);

    succeeds(&run(&["down", "--purge"], &path));
    assert!(!path.exists());
    assert_eq!(fs::read_dir(data.0.path()).unwrap().count(), 0, "nothing lies beside the data folder");
}

/// Reads what a program shows until it has shown this; it must not see the end of its reader.
fn shown_until(child: &mut Child, wanted: &str) -> ChildStdout {
    let mut shown = String::new();
    let mut stdout = child.stdout.take().unwrap();
    let mut buffer = [0; 1024];
    while !shown.contains(wanted) {
        let n_read = stdout.read(&mut buffer).unwrap();
        assert!(n_read > 0, "it ended with {:?} after\n{shown}", child.wait());
        shown += &text(&buffer[..n_read]);
    }
    stdout
}

/// Two containers of an image that is made here, and their processes.
fn run_containers(data: &Path) -> Vec<ProcessId> {
    let programs = cluster::node_programs(&Progress::silent()).unwrap();
    let socket = data.join("containerd/c.sock");
    let ctr = |args: &[&str]| containerd::ctr(&programs, &socket, "drover.dev", args).unwrap();
    let archive = data.join("pause.tar");
    image::archive_of("example.com/pause:1", "pause", &programs.join("pause"), &archive).unwrap();
    ctr(&["images", "import", "--local", archive.to_str().unwrap()]);
    let job = json!({
        "apiVersion": "drover.dev/v1alpha1", "kind": "Job", "metadata": { "name": "contained" },
        "spec": { "groups": [{ "name": "g", "count": 2, "networks": [{ "mode": "none" }], "tasks": [{
            "name": "t", "driver": "containerd", "resources": { "cpu": 20, "memoryMB": 16 },
            "config": { "image": "example.com/pause:1" },
        }] }] },
    });
    let manifest = data.join("contained.json");
    fs::write(&manifest, job.to_string()).unwrap();
    kubectl(data, &["apply", "-f", manifest.to_str().unwrap()]);
    let running = || {
        let all = allocations(data, "contained");
        (all.len() == 2 && all.iter().all(|alloc| alloc["status"]["clientStatus"] == "running")).then_some(())
    };
    wait_for("running containers", running);
    let listed = ctr(&["tasks", "ls"]);
    let pids = listed.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)?.parse().ok());
    let processes: Vec<ProcessId> = pids.filter_map(ProcessId::of).collect();
    assert_eq!(processes.len(), 2, "{listed}");
    processes
}

#[test]
fn an_interrupt_in_the_foreground_ends_everything_containers_too() {
    let data = Data::new();
    let path = data.path();
    let mut child = xtask(&["up", "--profile", "dev", "--example", "none", "--containers"], &path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let _stdout = shown_until(&mut child, "Ctrl-C");
    // The agent starts the supervisor by itself, and its node may be ready before that.
    wait_for("supervisor", || (processes(&path).len() == 7).then_some(()));
    let containers = run_containers(&path);
    ProcessId::of(i32::try_from(child.id()).unwrap()).unwrap().signal(Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(processes_of(&path), [""; 0]);
    assert!(containers.into_iter().all(|container| !container.is_alive()));
    assert_eq!(mounts(&path), Vec::<PathBuf>::new());
}

#[test]
fn what_has_lost_a_process_says_so_and_without_etcd_everything_ends() {
    everything_ends_without("etcd");
}

#[test]
fn without_an_api_server_everything_ends() {
    everything_ends_without("kube-apiserver");
}

/// One that is not restarted loses its agent, and then this process.
fn everything_ends_without(role: &str) {
    let data = Data::new();
    let path = data.path();
    let mut child = xtask(&["up", "--profile", "dev", "--example", "none", "--driver", "mock", "--no-restart"], &path)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _stdout = shown_until(&mut child, "Ctrl-C");
    let whole = wait_for("whole", || Some(processes(&path)).filter(|all| all.len() == 7));
    let of_role = |role: &str| whole.iter().find(|(known, _)| known == role).unwrap().1;
    let (ground, agent) = (of_role(role), of_role("agent"));
    assert_eq!(run(&["status"], &path).status.code(), Some(0));

    // What is not whole does not say that all is well.
    agent.signal(Signal::KILL).unwrap();
    wait_for("end of the agent", || (!agent.is_alive()).then_some(()));
    assert_eq!(run(&["status"], &path).status.code(), Some(1));
    let again = run(&["up"], &path);
    assert!(!again.status.success() && text(&again.stderr).contains("but without agent"), "{}", text(&again.stderr));

    ground.signal(Signal::KILL).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stderr) + &text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("{role} ended, and nothing works without it")), "{said}");
    assert_eq!(processes_of(&path), [""; 0]);
    assert_eq!(run(&["status"], &path).status.code(), Some(1));
}

#[test]
fn what_a_build_needs_of_the_machine_is_asked_for_before_anything_is_built() {
    let (data, empty) = (Data::new(), tempfile::tempdir().unwrap());
    let up = ["up", "--example", "none", "--containers"];
    // A new machine without pkg-config.
    let output =
        xtask(&up, &data.path()).env("XDG_CACHE_HOME", empty.path()).env("PATH", empty.path()).output().unwrap();
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("`apt-get install libseccomp-dev pkg-config`"), "{said}");
    assert!(!said.contains("building"), "{said}");
}

#[test]
fn wrong_words_are_answered_with_what_helps() {
    let data = Data::new();
    let refused = |args: &[&str], path: &Path| {
        let output = run(args, path);
        assert_eq!(output.status.code(), Some(1));
        text(&output.stderr)
    };
    let error = refused(&["up", "--detach", "--example", "wbe"], &data.path());
    assert!(
        error.contains(
            "there is no example \"wbe\": choose of container, nightly, node-report, report-monday, report, web-service, web, wordcount or none"
        ),
        "{error}"
    );
    fs::write(data.0.path().join("letter.txt"), "dear").unwrap();
    let error = refused(&["up", "--detach"], data.0.path());
    assert!(error.contains("is not empty and no data folder of drover"), "{error}");
    let error = refused(&["down", "--purge"], data.0.path());
    assert!(error.contains("nothing was deleted"), "{error}");
    let error = refused(&["status"], &data.path());
    assert_eq!(error, "");
}
