//! The agent as the API server and the machine see it. There is no controller here: the tests write what a controller
//! would.

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use drover_api::allocation::{
    AllocatedPort, AllocatedResources, ClientStatus, DesiredStatus, TaskEventType as E, TaskResources, TaskRunState,
};
use drover_api::job::JobType;
use drover_api::{Allocation, AllocationSpec, ClientNode, JobSpec, JobVersion, JobVersionSpec, names};
use drover_testkit::control_plane::{Binaries, ControlPlane, Options, Role, User};
use drover_testkit::progress::Progress;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::cluster::{LONG, mounts_below};

/// One control plane for all tests of this file; it ends with the test binary.
pub(crate) fn shared_plane() -> &'static ControlPlane {
    static PLANE: OnceLock<ControlPlane> = OnceLock::new();
    PLANE.get_or_init(|| {
        let (sender, plane) = std::sync::mpsc::channel();
        // Its runtime has to outlive the test that comes first.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().expect("a runtime");
            let plane = runtime.block_on(start_plane("agent"));
            sender.send(plane).expect("a waiting test");
            runtime.block_on(std::future::pending::<()>());
        });
        plane.recv().expect("a control plane")
    })
}

pub(crate) async fn start_plane(name: &str) -> ControlPlane {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("it-{name}-{}", std::process::id()));
    let binaries = Binaries::find_or_build(&Progress::silent()).expect("the programs of a control plane");
    let plane = ControlPlane::start(Options::for_tests(dir, binaries)).await.expect("a control plane");
    let client = plane.client(User::Admin).await.expect("a client");
    drover_testkit::manifests::apply_crds(&client, &drover_testkit::manifests::crds_folder()).await.expect("CRDs");
    create_namespace(&client, "drover-system").await;
    plane
}

async fn create_namespace(client: &Client, name: &str) {
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}})).expect("a namespace");
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await.expect("a namespace");
}

/// One node with its agent, and a namespace.
pub(crate) struct Node<'a> {
    plane: &'a ControlPlane,
    pub(crate) client: Client,
    pub(crate) name: String,
    dir: tempfile::TempDir,
    /// More lines of the agent's configuration.
    config: String,
    /// What the agent is started by: it takes the agent's command line as its last arguments.
    launcher: Vec<String>,
    agent: Option<Child>,
}

impl<'a> Node<'a> {
    /// A node whose agent is up. Its name is the namespace's too.
    pub(crate) async fn start(plane: &'a ControlPlane, name: &str) -> Self {
        Self::start_with(plane, name, "").await
    }

    /// The same, with more lines in the agent's configuration.
    pub(crate) async fn start_with(plane: &'a ControlPlane, name: &str, config: &str) -> Self {
        Self::start_by(plane, name, config, Vec::new()).await
    }

    /// The same, by a program that puts the agent elsewhere. The configuration says its address.
    pub(crate) async fn start_by(plane: &'a ControlPlane, name: &str, config: &str, launcher: Vec<String>) -> Self {
        let client = plane.client(User::Admin).await.expect("a client");
        create_namespace(&client, name).await;
        let dir = tempfile::tempdir().expect("a directory");
        let (name, config) = (name.to_owned(), config.to_owned());
        let mut node = Self { plane, client, name, dir, config, launcher, agent: None };
        node.start_agent();
        node.is_up().await;
        node
    }

    async fn is_up(&self) {
        self.registered().await;
        // Whoever turns the power off needs it.
        eventually("a supervisor", || self.path("state/supervisor.pid").exists()).await;
    }

    /// From now on the agent is started by this.
    pub(crate) fn move_to(&mut self, launcher: Vec<String>) {
        self.launcher = launcher;
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    pub(crate) fn start_agent(&mut self) {
        let config = self.path("agent.yaml");
        let text = format!(
            "nodeName: {}\nstateDir: {}\nallocDir: {}\n{}{}heartbeat: {{ttl: 2s}}\n{}{}",
            self.name,
            self.path("state").display(),
            self.path("allocs").display(),
            if self.config.contains("address:") { "" } else { "address: 127.0.0.1\n" },
            if self.config.contains("drivers:") {
                ""
            } else {
                "drivers: {rawExec: {enabled: true}, exec: {allowHostNetwork: true}}\n"
            },
            // How full the disk of whoever runs the tests is must not take the logs of ended tasks away.
            if self.config.contains("gc:") { "" } else { "gc: {diskUsagePercent: 100, inodeUsagePercent: 100}\n" },
            self.config
        );
        std::fs::write(&config, text).expect("a configuration");
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.path("agent.log")).expect("a log");
        let mut words = self.launcher.iter().map(String::as_str).chain([env!("CARGO_BIN_EXE_droverd")]);
        let agent = Command::new(words.next().expect("a program"))
            .args(words)
            .args(["--log", "drover=debug", "agent", "--config"])
            .arg(config)
            .arg("--kubeconfig")
            .arg(self.plane.kubeconfig(User::Admin))
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("an agent");
        self.agent = Some(agent);
    }

    /// As a crash or the OOM killer would.
    pub(crate) fn kill_agent(&mut self) {
        let mut agent = self.agent.take().expect("a running agent");
        agent.kill().expect("killed");
        agent.wait().expect("its end");
    }

    /// As a restart of its pod would.
    pub(crate) fn terminate_agent(&mut self) {
        let mut agent = self.agent.take().expect("a running agent");
        signal(i32::try_from(agent.id()).expect("a pid"), rustix::process::Signal::TERM);
        assert!(agent.wait().expect("its end").success(), "SIGTERM is a clean end");
    }

    /// As `cargo xtask down` does after the agent.
    pub(crate) async fn power_off(&self) {
        let pid = self.supervisor_pid();
        signal(pid, rustix::process::Signal::TERM);
        eventually("the end of the supervisor", || !lives(pid)).await;
    }

    pub(crate) fn agent_pid(&self) -> u32 {
        self.agent.as_ref().expect("a running agent").id()
    }

    pub(crate) fn supervisor_pid(&self) -> i32 {
        std::fs::read_to_string(self.path("state/supervisor.pid")).expect("pid file").trim().parse().expect("a pid")
    }

    pub(crate) async fn registered(&self) {
        let nodes: Api<ClientNode> = Api::all(self.client.clone());
        let deadline = Instant::now() + LONG;
        loop {
            let found = nodes.get_opt(&self.name).await.expect("an answer");
            if found.and_then(|node| node.status?.fingerprint).is_some() {
                return;
            }
            assert!(Instant::now() < deadline, "not registered: {}", self.agent_log());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) async fn mark_node(&self, phase: &str) {
        let nodes: Api<ClientNode> = Api::all(self.client.clone());
        let patch = Patch::Merge(json!({"status": {"phase": phase}}));
        nodes.patch_status(&self.name, &PatchParams::default(), &patch).await.expect("a mark");
    }

    pub(crate) fn agent_log(&self) -> String {
        std::fs::read_to_string(self.path("agent.log")).unwrap_or_default()
    }

    pub(crate) fn allocs(&self) -> Api<Allocation> {
        Api::namespaced(self.client.clone(), &self.name)
    }

    /// Creates the first version of a job with one group `g`.
    pub(crate) async fn job(&self, job: &str, r#type: JobType, group: Value) {
        self.job_version(job, 0, r#type, group).await;
    }

    /// Creates a version of a job with one group `g`.
    pub(crate) async fn job_version(&self, job: &str, number: i64, r#type: JobType, group: Value) {
        let mut whole = json!({"name": "g", "migrate": {"minHealthyTime": "0s"}});
        for (name, value) in group.as_object().expect("an object") {
            whole[name] = value.clone();
        }
        let spec: JobSpec = serde_json::from_value(json!({"type": r#type, "groups": [whole]})).expect("a job");
        let version = JobVersion::new(
            &names::job_version_name(job, number),
            JobVersionSpec {
                job_name: job.to_owned(),
                job_uid: format!("uid-{job}"),
                version: number,
                job_generation: 1,
                group_names: "g".into(),
                job: spec,
                submitted_at: Timestamp::UNIX_EPOCH,
                revert_of: None,
                intent: String::new(),
            },
        );
        Api::namespaced(self.client.clone(), &self.name)
            .create(&PostParams::default(), &version)
            .await
            .expect("a version");
    }

    /// Places an allocation of the job here and returns its name.
    pub(crate) async fn place(&self, job: &str, index: i64, resources: AllocatedResources) -> String {
        let name = format!("{job}-g-{index}-00000000");
        let spec = AllocationSpec {
            job_name: job.to_owned(),
            job_uid: format!("uid-{job}"),
            group: "g".into(),
            index,
            node_name: self.name.clone(),
            resources,
            ..AllocationSpec::default()
        };
        self.allocs().create(&PostParams::default(), &Allocation::new(&name, spec)).await.expect("an allocation");
        name
    }

    /// Places an allocation of the job here in the place of an earlier one, and returns its name.
    pub(crate) async fn place_after(&self, job: &str, previous: &str) -> String {
        let name = format!("{job}-g-0-00000000");
        let spec = AllocationSpec {
            job_name: job.to_owned(),
            job_uid: format!("uid-{job}"),
            group: "g".into(),
            node_name: self.name.clone(),
            resources: small_task(),
            previous_allocation: previous.to_owned(),
            ..AllocationSpec::default()
        };
        self.allocs().create(&PostParams::default(), &Allocation::new(&name, spec)).await.expect("an allocation");
        name
    }

    pub(crate) async fn run(&self, job: &str, r#type: JobType, tasks: Value) -> String {
        self.job(job, r#type, json!({"tasks": tasks})).await;
        self.place(job, 0, one_task()).await
    }

    /// Waits until the allocation looks like this.
    pub(crate) async fn until(&self, name: &str, what: &str, seen: impl Fn(&Allocation) -> bool) -> Allocation {
        let deadline = Instant::now() + LONG;
        loop {
            let found = self.allocs().get(name).await.expect("an allocation");
            if seen(&found) {
                return found;
            }
            assert!(Instant::now() < deadline, "{name} is never {what}: {:#?}\n{}", found.status, self.agent_log());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) async fn running(&self, name: &str) -> Allocation {
        self.until(name, "running", |it| status(it) == ClientStatus::Running).await
    }

    pub(crate) async fn ended(&self, name: &str) -> Allocation {
        self.until(name, "ended", |it| it.status.as_ref().is_some_and(|status| status.ended_at.is_some())).await
    }

    pub(crate) async fn stop(&self, name: &str) {
        let patch = Patch::Merge(json!({"spec": {"desiredStatus": DesiredStatus::Stop}}));
        self.allocs().patch(name, &PatchParams::default(), &patch).await.expect("a stop");
    }

    pub(crate) fn log_of(&self, allocation: &Allocation, file: &str) -> String {
        let uid = allocation.metadata.uid.as_deref().expect("a uid");
        std::fs::read_to_string(self.path("allocs").join(uid).join("alloc/logs").join(file)).unwrap_or_default()
    }

    /// The pid that the task wrote as its first line.
    pub(crate) async fn pid_of(&self, allocation: &Allocation, task: &str) -> i32 {
        let file = format!("{task}.stdout.0");
        eventually("a pid in the log", || self.log_of(allocation, &file).contains('\n')).await;
        self.log_of(allocation, &file).lines().next().and_then(|line| line.parse().ok()).expect("a pid")
    }
}

impl Drop for Node<'_> {
    fn drop(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            agent.kill().expect("killed");
            agent.wait().expect("its end");
        }
        let Ok(pid) = std::fs::read_to_string(self.path("state/supervisor.pid")) else { return };
        let Ok(pid) = pid.trim().parse() else { return };
        signal(pid, rustix::process::Signal::TERM);
        let deadline = Instant::now() + LONG;
        while lives(pid) && Instant::now() < deadline {
            std::thread::yield_now();
        }
    }
}

fn task_of(cpu: i64, memory_mb: i64) -> AllocatedResources {
    let resources = TaskResources { cpu, memory_mb, ..TaskResources::default() };
    AllocatedResources { tasks: [("t".to_owned(), resources)].into(), ..AllocatedResources::default() }
}

pub(crate) fn one_task() -> AllocatedResources {
    task_of(100, 32)
}

/// So little that a node has room for hundreds.
pub(crate) fn small_task() -> AllocatedResources {
    task_of(1, 10)
}

fn with_port(value: i64) -> AllocatedResources {
    let ports = vec![AllocatedPort { label: "http".into(), value, to: 0, host_ip: "127.0.0.1".into() }];
    AllocatedResources { ports, ..one_task() }
}

pub(crate) fn shell(script: &str) -> Value {
    json!({"name": "t", "driver": "raw_exec", "killSignal": "SIGTERM", "config": {"command": "/bin/sh", "args": ["-c", script]}})
}

pub(crate) fn status(allocation: &Allocation) -> ClientStatus {
    allocation.status.as_ref().map(|status| status.client_status).unwrap_or_default()
}

pub(crate) fn events(allocation: &Allocation, task: &str) -> Vec<E> {
    let status = allocation.status.as_ref().expect("a status");
    status.task_states[task].events.iter().map(|event| event.r#type).collect()
}

pub(crate) fn messages(allocation: &Allocation, task: &str) -> String {
    let status = allocation.status.as_ref().expect("a status");
    status.task_states[task].events.iter().map(|event| event.message.as_str()).collect::<Vec<_>>().join("; ")
}

pub(crate) fn signal(pid: i32, signal: rustix::process::Signal) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid) {
        // It may have ended.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

pub(crate) fn lives(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

pub(crate) async fn eventually(what: &str, mut seen: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !seen() {
        assert!(Instant::now() < deadline, "not seen in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Writes its pid, then counts, so that gaps and repeats show.
const COUNTER: &str = "echo $$; n=0; while :; do n=$((n+1)); echo $n; sleep 0.01; done";

fn assert_counts_on(log: &str) {
    for (n, line) in log.lines().skip(1).enumerate() {
        assert_eq!(line.parse(), Ok(n + 1), "a gap or a repeat in the log");
    }
}

#[tokio::test]
async fn a_life_is_running_healthy_and_stopped_in_at_most_three_writes() {
    let node = Node::start(shared_plane(), "life").await;
    let mut audit = shared_plane().audit_log().expect("an audit log");
    let name = node.run("web", JobType::Service, json!([shell(COUNTER)])).await;
    let running = node.running(&name).await;
    let found = running.status.as_ref().expect("a status");
    assert!(found.health.as_ref().is_some_and(|health| health.healthy), "{found:#?}");
    assert_eq!((found.columns.healthy.as_str(), found.columns.reason.as_str()), ("true", "Running"));
    assert_eq!(events(&running, "t"), [E::Received, E::TaskSetup, E::Started]);
    let pid = node.pid_of(&running, "t").await;
    node.stop(&name).await;
    let ended = node.ended(&name).await;
    assert!(!lives(pid));
    assert_eq!(status(&ended), ClientStatus::Complete);
    let last: Vec<_> = events(&ended, "t").into_iter().skip(3).collect();
    assert_eq!(last, [E::Killing, E::Terminated, E::Killed]);
    let writes = audit.read_new().expect("the audit log").into_iter().filter(|event| {
        event.resource.starts_with("allocations") && event.resource.ends_with("/status") && event.namespace == "life"
    });
    let writes: Vec<_> = writes.collect();
    assert!(writes.len() <= 3, "{writes:#?}");
    node.allocs().delete(&name, &DeleteParams::default()).await.expect("deleted");
    let uid = ended.metadata.uid.expect("a uid");
    eventually("the directory is gone", || !node.path("allocs").join(&uid).exists()).await;
}

#[tokio::test]
async fn a_failing_task_restarts_by_policy_and_then_fails_with_its_reasons() {
    let node = Node::start(shared_plane(), "fails").await;
    let mut task = shell("exit 3");
    task["restart"] = json!({"attempts": 1, "delay": "100ms", "interval": "1m", "mode": "fail"});
    let name = node.run("bad", JobType::Service, json!([task])).await;
    let ended = node.ended(&name).await;
    let found = ended.status.as_ref().expect("a status");
    assert_eq!((found.client_status, found.task_states["t"].restarts), (ClientStatus::Failed, 1));
    assert!(found.task_states["t"].failed && found.health.as_ref().is_some_and(|health| !health.healthy));
    let wanted = [
        E::Received,
        E::TaskSetup,
        E::Started,
        E::Terminated,
        E::Restarting,
        E::Started,
        E::Terminated,
        E::NotRestarting,
    ];
    assert_eq!(events(&ended, "t"), wanted);
    assert!(messages(&ended, "t").contains("exit=3"));
    let stalled = found.conditions.iter().find(|found| found.r#type.as_str() == "Stalled").expect("a condition");
    assert!(stalled.message.starts_with("task t ended with exit code 3; `drover alloc logs bad-g-0-"), "{stalled:#?}");
}

#[tokio::test]
async fn what_cannot_run_says_why_and_leaves_the_agent_up() {
    let node = Node::start(shared_plane(), "cannot").await;
    let unknown = node.run("unknown", JobType::Service, json!([{"name": "t", "driver": "warp"}])).await;
    let mut missing = shell("");
    missing["config"] = json!({"command": "no-such-program"});
    let missing = node.run("missing", JobType::Service, json!([missing])).await;
    let mut typo = shell("");
    typo["config"] = json!({"command": "/bin/true", "args": ["${NOMAD_PROT_http}"]});
    let typo = node.run("typo", JobType::Service, json!([typo])).await;
    for (name, cause) in [(&unknown, "warp"), (&missing, "no-such-program"), (&typo, "${NOMAD_PROT_http}")] {
        let ended = node.ended(name).await;
        assert_eq!(status(&ended), ClientStatus::Failed);
        assert!(messages(&ended, "t").contains(cause), "{}", messages(&ended, "t"));
    }
    let fine = node.run("fine", JobType::Batch, json!([shell("exit 0")])).await;
    assert_eq!(status(&node.ended(&fine).await), ClientStatus::Complete);
}

#[tokio::test]
async fn a_killed_agent_finds_its_tasks_again_and_writes_nothing_new() {
    let mut node = Node::start(shared_plane(), "reattach").await;
    let name = node.run("count", JobType::Service, json!([shell(COUNTER)])).await;
    // Everything about it is told.
    let before =
        node.until(&name, "healthy", |it| it.status.as_ref().is_some_and(|status| status.health.is_some())).await;
    let pid = node.pid_of(&before, "t").await;
    // The agent keeps what was accepted; a second of output later it has.
    eventually("a second of output", || node.log_of(&before, "t.stdout.0").lines().count() > 100).await;
    for clean in [false, true] {
        if clean {
            node.terminate_agent();
        } else {
            node.kill_agent();
        }
        assert!(lives(pid), "the task outlives its agent");
        let mut audit = shared_plane().audit_log().expect("an audit log");
        let lines = node.agent_log().matches("supervisor is connected").count();
        node.start_agent();
        eventually("a connected supervisor", || node.agent_log().matches("supervisor is connected").count() > lines)
            .await;
        let seen = node.log_of(&before, "t.stdout.0").lines().count();
        eventually("more output", || node.log_of(&before, "t.stdout.0").lines().count() > seen + 150).await;
        let writes = audit.read_new().expect("the audit log");
        let status_writes: Vec<_> = writes
            .iter()
            .filter(|event| event.resource.starts_with("allocations") && event.namespace == "reattach")
            .collect();
        assert!(status_writes.is_empty(), "{status_writes:#?}");
        assert!(lives(pid));
    }
    node.stop(&name).await;
    let ended = node.ended(&name).await;
    assert!(!lives(pid));
    assert_counts_on(&node.log_of(&ended, "t.stdout.0"));
}

#[tokio::test]
async fn what_happened_while_the_agent_was_away_is_reported_later() {
    let mut node = Node::start(shared_plane(), "away").await;
    let ends = node
        .run("ends", JobType::Batch, json!([shell("echo $$; while [ ! -e ../go ]; do sleep 0.01; done; exit 0")]))
        .await;
    let stops = node.run("stops", JobType::Service, json!([shell(COUNTER)])).await;
    let (ends_running, stops_running) = (node.running(&ends).await, node.running(&stops).await);
    let ends_pid = node.pid_of(&ends_running, "t").await;
    let stops_pid = node.pid_of(&stops_running, "t").await;
    node.kill_agent();
    let uid = ends_running.metadata.uid.as_deref().expect("a uid");
    std::fs::write(node.path("allocs").join(uid).join("go"), "").expect("a file");
    eventually("the end of the task", || !lives(ends_pid)).await;
    node.stop(&stops).await;
    assert!(lives(stops_pid), "nobody is there to stop it");
    node.start_agent();
    assert_eq!(status(&node.ended(&ends).await), ClientStatus::Complete);
    assert_eq!(status(&node.ended(&stops).await), ClientStatus::Complete);
    assert!(!lives(stops_pid));
}

#[tokio::test]
async fn after_a_power_off_the_same_allocations_run_again_in_place() {
    let mut node = Node::start(shared_plane(), "power").await;
    let name = node.run("count", JobType::Service, json!([shell(COUNTER)])).await;
    let before = node.running(&name).await;
    let pid = node.pid_of(&before, "t").await;
    node.terminate_agent();
    node.power_off().await;
    assert!(!lives(pid));
    let left = mounts_below(&node.path("allocs"));
    assert!(left.is_empty(), "{left:?}");
    node.start_agent();
    let is_restored = |it: &Allocation| {
        events(it, "t").contains(&E::FailedRestoringTask)
            && status(it) == ClientStatus::Running
            && events(it, "t").last() == Some(&E::Started)
    };
    let again = node.until(&name, "running again", is_restored).await;
    assert_eq!(again.metadata.uid, before.metadata.uid);
    let state = &again.status.as_ref().expect("a status").task_states["t"];
    assert_eq!((state.state, state.failed, state.restarts), (TaskRunState::Running, false, 0));
}

#[tokio::test]
async fn an_object_that_vanished_leaves_nothing_behind() {
    let node = Node::start(shared_plane(), "vanish").await;
    let name = node.run("count", JobType::Service, json!([shell(COUNTER)])).await;
    let running = node.running(&name).await;
    let pid = node.pid_of(&running, "t").await;
    node.allocs().delete(&name, &DeleteParams::default()).await.expect("deleted");
    eventually("the end of the task", || !lives(pid)).await;
    let uid = running.metadata.uid.expect("a uid");
    eventually("the directory is gone", || !node.path("allocs").join(&uid).exists()).await;
}

#[tokio::test]
async fn a_port_is_waited_for_while_its_holder_stops_and_else_the_holder_is_named() {
    let node = Node::start(shared_plane(), "ports").await;
    let mut slow = shell("trap '' TERM; echo $$; while :; do sleep 0.1; done");
    slow["killTimeout"] = json!("1s");
    node.job("web", JobType::Service, json!({"tasks": [slow]})).await;
    let first = node.place("web", 0, with_port(21000)).await;
    let holder = node.running(&first).await;
    let pid = node.pid_of(&holder, "t").await;
    let second = node.place("web", 1, with_port(21000)).await;
    let refused = node.ended(&second).await;
    assert_eq!(status(&refused), ClientStatus::Failed);
    assert!(messages(&refused, "t").contains(&first), "{}", messages(&refused, "t"));
    node.stop(&first).await;
    node.until(&first, "stopping", |it| {
        it.status.as_ref().is_some_and(|status| status.columns.reason == "Stopping" || status.ended_at.is_some())
    })
    .await;
    let third = node.place("web", 2, with_port(21000)).await;
    node.running(&third).await;
    assert!(!lives(pid), "the holder ended first");
}

#[tokio::test]
async fn tasks_live_through_outages_of_the_api_server_and_the_truth_follows() {
    let plane = start_plane("outage").await;
    let node = Node::start(&plane, "outage").await;
    let lives_on = node.run("count", JobType::Service, json!([shell(COUNTER)])).await;
    let ends = node
        .run("ends", JobType::Batch, json!([shell("echo $$; while [ ! -e ../go ]; do sleep 0.01; done; exit 0")]))
        .await;
    let (counter, ends_running) = (node.running(&lives_on).await, node.running(&ends).await);
    let pid = node.pid_of(&counter, "t").await;
    let ends_pid = node.pid_of(&ends_running, "t").await;
    plane.pause(Role::KubeApiserver).expect("held");
    let uid = ends_running.metadata.uid.as_deref().expect("a uid");
    std::fs::write(node.path("allocs").join(uid).join("go"), "").expect("a file");
    eventually("the end of the task", || !lives(ends_pid)).await;
    eventually("a request that got no answer", || node.agent_log().contains("no answer within")).await;
    plane.resume(Role::KubeApiserver).await.expect("resumed");
    assert_eq!(status(&node.ended(&ends).await), ClientStatus::Complete);
    plane.terminate(Role::KubeApiserver).await.expect("ended");
    assert!(lives(pid));
    plane.restart(Role::KubeApiserver).await.expect("back");
    node.stop(&lives_on).await;
    let ended = node.ended(&lives_on).await;
    assert_eq!(ended.status.as_ref().expect("a status").task_states["t"].restarts, 0);
    assert_counts_on(&node.log_of(&ended, "t.stdout.0"));
}

#[tokio::test]
async fn a_037_a_039_and_p_074_an_unknown_allocation_is_reported_running_only_once_the_node_is_ready() {
    // reconnected, with an event on each task and no restart.
    let node = Node::start(shared_plane(), "unknown").await;
    let name = node.run("count", JobType::Service, json!([shell(COUNTER)])).await;
    let running = node.running(&name).await;
    let pid = node.pid_of(&running, "t").await;
    node.mark_node("disconnected").await;
    eventually("the agent sees its node's phase", || node.agent_log().contains("phase=disconnected")).await;
    let mark = Patch::Merge(json!({"status": {"clientStatus": "unknown"}}));
    let marked = node.allocs().patch_status(&name, &PatchParams::default(), &mark).await.expect("a mark");
    eventually("the agent waits for its node", || node.agent_log().contains("a heartbeat goes first")).await;
    let seen = node.allocs().get(&name).await.expect("an allocation");
    assert_eq!(seen.metadata.resource_version, marked.metadata.resource_version, "nothing was written meanwhile");
    node.mark_node("ready").await;
    let again = node.running(&name).await;
    assert!(events(&again, "t").contains(&E::Reconnected), "{:?}", events(&again, "t"));
    assert!(lives(pid), "the task was not touched");
}

#[tokio::test]
async fn an_agent_that_dies_again_and_again_never_runs_a_task_twice() {
    let mut node = Node::start(shared_plane(), "chaos").await;
    let script = "echo $$; exec sleep 100000";
    node.job("many", JobType::Service, json!({"tasks": [shell(script)]})).await;
    let mut names = Vec::new();
    for round in 0..5 {
        for n in 0..6 {
            names.push(node.place("many", round * 6 + n, one_task()).await);
        }
        node.kill_agent();
        node.start_agent();
    }
    let mut pids = Vec::new();
    for name in &names {
        let running = node.running(name).await;
        eventually("a pid in the log", || node.log_of(&running, "t.stdout.0").ends_with('\n')).await;
        let file = node.log_of(&running, "t.stdout.0");
        let last: i32 = file.lines().last().and_then(|line| line.parse().ok()).expect("a pid");
        let earlier = file.lines().count() - 1;
        assert!(lives(last), "{name} is running");
        // An earlier start of which no record was kept was ended.
        let all: Vec<i32> = file.lines().take(earlier).filter_map(|line| line.parse().ok()).collect();
        eventually("earlier runs are gone", || all.iter().all(|pid| !lives(*pid))).await;
        pids.push(last);
    }
    assert_eq!(pids.len(), names.len());
    for name in &names {
        node.stop(name).await;
    }
    for name in &names {
        node.ended(name).await;
    }
    assert!(pids.iter().all(|pid| !lives(*pid)));
}

#[tokio::test]
async fn a_full_disk_fails_the_allocation_with_its_cause_and_not_the_agent() {
    if !rustix::process::geteuid().is_root() {
        // Only root can make a small disk.
        return;
    }
    let node = Node::start(shared_plane(), "full").await;
    let allocs = node.path("allocs");
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("tmpfs", &allocs, "tmpfs", flags, c"nr_inodes=4").expect("a small disk");
    let name = node.run("any", JobType::Batch, json!([shell("exit 0")])).await;
    let ended = node.ended(&name).await;
    assert_eq!(status(&ended), ClientStatus::Failed);
    assert!(messages(&ended, "t").contains("No space left"), "{}", messages(&ended, "t"));
    rustix::mount::unmount(&allocs, rustix::mount::UnmountFlags::DETACH).expect("unmounted");
    let fine = node.run("fine", JobType::Batch, json!([shell("exit 0")])).await;
    assert_eq!(status(&node.ended(&fine).await), ClientStatus::Complete);
}

/// Writes into the state file what no agent would.
fn damage(path: &Path) {
    let mut bytes = std::fs::read(path).expect("the state file");
    for at in (0..bytes.len()).step_by(97) {
        bytes[at] ^= 0x55;
    }
    std::fs::write(path, bytes).expect("written");
}

#[tokio::test]
async fn a_damaged_state_file_is_set_aside_and_what_runs_goes_on() {
    let mut node = Node::start(shared_plane(), "damaged").await;
    let kept = node.run("kept", JobType::Service, json!([shell(COUNTER)])).await;
    let stopped = node.run("stopped", JobType::Service, json!([shell(COUNTER)])).await;
    let done = node.run("done", JobType::Batch, json!([shell("exit 0")])).await;
    node.ended(&done).await;
    let (kept_pid, stopped_pid) =
        (node.pid_of(&node.running(&kept).await, "t").await, node.pid_of(&node.running(&stopped).await, "t").await);
    node.kill_agent();
    damage(&node.path("state/agent.redb"));
    node.stop(&stopped).await;
    node.start_agent();
    let ended = node.ended(&stopped).await;
    assert_eq!(status(&ended), ClientStatus::Complete);
    assert!(!lives(stopped_pid), "what is not wanted any more is ended");
    eventually("all tasks known again", || node.agent_log().contains("every task was found again or given up")).await;
    assert!(lives(kept_pid), "what is wanted goes on in its process");
    let names: Vec<String> = std::fs::read_dir(node.path("state"))
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    assert!(names.iter().any(|name| name.starts_with("agent.redb.damaged-")), "{names:?}");
    let events: Api<k8s_openapi::api::events::v1::Event> = Api::namespaced(node.client.clone(), "default");
    let deadline = Instant::now() + LONG;
    loop {
        let found = events.list(&kube::api::ListParams::default()).await.expect("events");
        let told = found.items.iter().find(|event| {
            event.reason.as_deref() == Some("StateDamaged")
                && event.regarding.as_ref().and_then(|about| about.name.as_deref()) == Some("damaged")
        });
        if let Some(event) = told {
            assert!(event.note.as_deref().unwrap_or_default().contains("agent.redb.damaged-"), "{event:#?}");
            break;
        }
        assert!(Instant::now() < deadline, "nobody is told: {}", node.agent_log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // The next agent knows everything as if nothing had been.
    node.kill_agent();
    node.start_agent();
    let fine = node.run("fine", JobType::Batch, json!([shell("exit 0")])).await;
    assert_eq!(status(&node.ended(&fine).await), ClientStatus::Complete);
    assert!(lives(kept_pid));
    let found = node.running(&kept).await;
    assert_eq!(events_of_failure(&found), 0, "{}", messages(&found, "t"));
}

fn events_of_failure(allocation: &Allocation) -> usize {
    let failures = [E::FailedRestoringTask, E::Terminated, E::Restarting, E::DriverFailure, E::SetupFailure];
    events(allocation, "t").iter().filter(|event| failures.contains(event)).count()
}

#[tokio::test]
async fn a_state_file_on_a_read_only_disk_keeps_new_tasks_away_and_lets_old_ones_go_on() {
    if !rustix::process::geteuid().is_root() {
        // Only root can mount.
        return;
    }
    let mut node = Node::start(shared_plane(), "readonly").await;
    let kept = node.run("kept", JobType::Service, json!([shell(COUNTER)])).await;
    let pid = node.pid_of(&node.running(&kept).await, "t").await;
    node.kill_agent();
    // The file alone: sockets and FIFOs live beside it.
    let file = node.path("state/agent.redb");
    rustix::mount::mount_bind(&file, &file).expect("mounted");
    let flags = rustix::mount::MountFlags::RDONLY | rustix::mount::MountFlags::BIND;
    rustix::mount::mount_remount(&file, flags, "").expect("read-only");
    node.start_agent();
    let nodes: Api<ClientNode> = Api::all(node.client.clone());
    let told = |node: &ClientNode| -> String {
        let found = node.status.as_ref().and_then(|status| status.fingerprint.as_ref());
        found
            .and_then(|found| found.drivers.get("raw_exec"))
            .map(|driver| driver.description.clone())
            .unwrap_or_default()
    };
    let deadline = Instant::now() + LONG;
    while !told(&nodes.get("readonly").await.expect("a node")).contains("state file cannot be written") {
        assert!(Instant::now() < deadline, "the node does not say so: {}", node.agent_log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let refused = node.run("new", JobType::Service, json!([shell(COUNTER)])).await;
    let ended = node.ended(&refused).await;
    let description = ended.status.as_ref().expect("a status").client_description.clone();
    assert_eq!(status(&ended), ClientStatus::Failed);
    assert!(description.contains("agent.redb") && description.contains("Read-only"), "{description}");
    assert!(lives(pid), "what runs goes on");
    node.kill_agent();
    rustix::mount::unmount(&file, rustix::mount::UnmountFlags::DETACH).expect("unmounted");
}

/// Takes all the room that a disk has; the room comes back when the file is removed.
fn fill(dir: &Path) -> std::path::PathBuf {
    let path = dir.join("everything");
    let mut file = std::fs::File::create(&path).expect("a file");
    for size in [1 << 20, 4096, 1] {
        while std::io::Write::write_all(&mut file, &vec![0; size]).is_ok() {}
    }
    path
}

#[tokio::test]
async fn a_state_file_on_a_full_disk_keeps_new_tasks_away_until_there_is_room_and_lets_old_ones_go_on() {
    if !rustix::process::geteuid().is_root() {
        // Only root can make a small disk.
        return;
    }
    let mut node = Node::start(shared_plane(), "fullstate").await;
    node.kill_agent();
    node.power_off().await;
    let state = node.path("state");
    std::fs::remove_dir_all(&state).expect("nothing is left");
    std::fs::create_dir(&state).expect("a directory");
    let flags = rustix::mount::MountFlags::empty();
    // The supervisor's program is a copy of the agent's there.
    let program = std::fs::metadata(env!("CARGO_BIN_EXE_droverd")).expect("the agent's program").len();
    let size = CString::new(format!("size={}", program + (32 << 20))).expect("a text");
    rustix::mount::mount("tmpfs", &state, "tmpfs", flags, size.as_c_str()).expect("a small disk");
    node.start_agent();
    let kept = node.run("kept", JobType::Service, json!([shell(COUNTER)])).await;
    let pid = node.pid_of(&node.running(&kept).await, "t").await;
    let everything = fill(&state);
    // The file has some room of its own: a few starts still find a place in it.
    let mut once = shell("exec sleep 100000");
    once["restart"] = json!({"attempts": 0, "mode": "fail"});
    node.job("new", JobType::Service, json!({"tasks": [once]})).await;
    let (mut running, mut refused) = (Vec::new(), None);
    while refused.is_none() {
        let index = i64::try_from(running.len()).expect("a number");
        assert!(index < 200, "a full disk takes everything");
        let name = node.place("new", index, small_task()).await;
        let is_decided = |it: &Allocation| status(it).is_terminal() || status(it) == ClientStatus::Running;
        let decided = node.until(&name, "decided", is_decided).await;
        if status(&decided) == ClientStatus::Running {
            running.push(decided);
        } else {
            refused = Some(decided);
        }
    }
    let refused = refused.expect("one");
    // What comes first and cannot be kept refuses it: its user, or the task.
    let description = refused.status.as_ref().map(|status| status.client_description.as_str()).unwrap_or_default();
    let told = format!("{description}; {}", messages(&refused, "t"));
    assert!(told.contains("agent.redb") && told.contains("No space left"), "{told}");
    assert!(!events(&refused, "t").contains(&E::Started));
    assert!(lives(pid), "what runs goes on");
    std::fs::remove_file(everything).expect("room");
    let fine = node.run("fine", JobType::Batch, json!([shell("exit 0")])).await;
    assert_eq!(status(&node.ended(&fine).await), ClientStatus::Complete, "{}", node.agent_log());
    node.kill_agent();
    // Earlier lives may have been too short to say so.
    let n_known = |node: &Node| node.agent_log().matches("every task was found again").count();
    let before = n_known(&node);
    node.start_agent();
    eventually("all tasks known again", || n_known(&node) > before).await;
    for started in &running {
        let found = node.running(&started.name_any()).await;
        assert_eq!(events_of_failure(&found), 0, "{}", messages(&found, "t"));
    }
    assert!(lives(pid));
    node.kill_agent();
    node.power_off().await;
    rustix::mount::unmount(&state, rustix::mount::UnmountFlags::DETACH).expect("unmounted");
}
