//! A whole cluster for tests: a real control plane, the controller and agents as processes, and a person with kubectl.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use drover_api::allocation::{ClientStatus, DesiredStatus};
use drover_api::job::JobConditionType;
use drover_api::{Allocation, ClientNode, Job, JobVersion};
use drover_testkit::control_plane::{Binaries, ControlPlane, Options, User};
use drover_testkit::probe;
use drover_testkit::process::{ProcessId, Signal};
use drover_testkit::progress::Progress;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::room::Room;

/// How long a test waits for what must happen. Where a busy machine lets the leader see nothing for a second, all nodes
/// have a fresh start (five minutes, `heartbeat::FRESH_START`), and one that is gone is only then missed.
pub(crate) const LONG: Duration = Duration::from_mins(7);

/// A control plane with CRDs, and the processes of drover that were started on it.
pub(crate) struct Cluster {
    pub(crate) plane: ControlPlane,
    pub(crate) client: Client,
    dir: tempfile::TempDir,
    settings: Settings,
    /// Drivers of its agents, beside those that all have.
    drivers: String,
    _room: Room,
}

/// What tests set otherwise than a user would.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Heartbeat TTL and grace, in seconds.
    pub(crate) ttl_and_grace: u64,
    /// How long the leader's Lease lasts, in seconds; a replica that follows a killed one waits for it.
    pub(crate) lease: u64,
    /// What the API server is told beside what all are told.
    pub(crate) api_server: Option<&'static str>,
}

impl Settings {
    /// A node is silent for long soon. The leader proves that it sees, at least every 1.8 s: on a busy machine it does.
    pub(crate) const SOON: Self = Self { ttl_and_grace: 2, lease: 6, api_server: None };
}

impl Default for Settings {
    fn default() -> Self {
        Self { ttl_and_grace: 10, lease: 2, api_server: None }
    }
}

/// A process of drover; it ends with this value.
pub(crate) struct Process {
    child: Child,
    supervisor_pid: Option<PathBuf>,
}

impl Process {
    /// As a crash would.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("its end");
    }

    /// Which process it is.
    pub(crate) fn id(&self) -> ProcessId {
        i32::try_from(self.child.id()).ok().and_then(ProcessId::of).expect("a process of ours")
    }

    /// Whether it has not ended.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a process of ours").is_none()
    }

    /// Asks it to end.
    pub(crate) fn terminate(&self) {
        self.signal(rustix::process::Signal::TERM);
    }

    /// Waits for its end; how it ended.
    pub(crate) async fn ended(mut self) -> std::process::ExitStatus {
        let deadline = Instant::now() + LONG;
        loop {
            if let Some(status) = self.child.try_wait().expect("a process of ours") {
                return status;
            }
            assert!(Instant::now() < deadline, "it does not end");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// As a machine that stands still would: it goes on later and knows nothing of it.
    pub(crate) fn freeze(&self) {
        self.signal(rustix::process::Signal::STOP);
    }

    /// It goes on.
    pub(crate) fn thaw(&self) {
        self.signal(rustix::process::Signal::CONT);
    }

    /// As a crash that says why: tasks go on, as with [`Process::abandon`].
    pub(crate) fn abort(self) {
        self.signal(rustix::process::Signal::ABORT);
        self.abandon();
    }

    /// The same, where cores of any size are collected; how it ended.
    pub(crate) fn abort_among_cores(mut self) -> std::process::ExitStatus {
        use rustix::process::{Resource, Rlimit};
        let limit = Rlimit { current: None, maximum: None };
        rustix::process::prlimit(Some(self.pid()), Resource::Core, limit).expect("a limit");
        self.signal(rustix::process::Signal::ABORT);
        self.child.wait().expect("its end")
    }

    fn pid(&self) -> rustix::process::Pid {
        i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw).expect("a process id")
    }

    fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(self.pid(), signal).expect("signalled");
    }
}

impl Process {
    /// As a crash of an agent would: its supervisor and its tasks go on. The next agent of the node ends them in its
    /// turn.
    pub(crate) fn abandon(mut self) {
        self.supervisor_pid = None;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A test that fails must not leave processes behind; that they may have ended already is fine.
        self.child.kill().ok();
        self.child.wait().ok();
        let supervisor = self.supervisor_pid.as_ref().and_then(|path| std::fs::read_to_string(path).ok());
        if let Some(pid) = supervisor.and_then(|text| text.trim().parse().ok()).and_then(rustix::process::Pid::from_raw)
        {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).ok();
        }
    }
}

/// A process that ends with this value.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        // That it has ended already is fine.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// What a test leaves mounted would outlive it, and hold its directory.
impl Drop for Cluster {
    fn drop(&mut self) {
        // It may be gone: a driver that ends unmounts, too.
        drover_supervisor::unmount_below(self.dir.path()).ok();
    }
}

impl Cluster {
    /// A control plane of its own, for tests that take it away.
    pub(crate) async fn start(name: &str, settings: Settings) -> Self {
        let cluster = Self::bare(name, settings).await;
        drover_testkit::manifests::apply_crds(&cluster.client, &drover_testkit::manifests::crds_folder())
            .await
            .expect("CRDs");
        cluster.namespace("drover-system").await;
        cluster
    }

    /// The same, whose agents have this driver too.
    pub(crate) fn with_driver(mut self, text: &str) -> Self {
        self.drivers = format!(", {text}");
        self
    }

    /// A control plane that has never heard of drover.
    pub(crate) async fn bare(name: &str, settings: Settings) -> Self {
        let room = Room::take().await;
        let dir = tempfile::Builder::new().prefix(name).tempdir().expect("a directory");
        let binaries = Binaries::find_or_build(&Progress::silent()).expect("the programs of a control plane");
        let api_server_args = settings.api_server.map(str::to_owned).into_iter().collect();
        let options = Options { api_server_args, ..Options::for_tests(dir.path().join("plane"), binaries) };
        let plane = ControlPlane::start(options).await.expect("a control plane");
        let client = plane.client(User::Admin).await.expect("a client");
        Self { plane, client, dir, settings, drivers: String::new(), _room: room }
    }

    pub(crate) async fn namespace(&self, name: &str) {
        let namespace = serde_json::from_value(json!({ "metadata": { "name": name } })).expect("a namespace");
        let api: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(self.client.clone());
        api.create(&PostParams::default(), &namespace).await.expect("a namespace");
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn spawn(&self, name: &str, role: &str, config: &str, more: &[&str]) -> Child {
        self.spawn_by((name, role), config, &self.plane.kubeconfig(User::Admin), more)
    }

    fn spawn_by(&self, process: (&str, &str), config: &str, kubeconfig: &Path, more: &[&str]) -> Child {
        self.daemon(process, config, kubeconfig, more).spawn().expect("a process of drover")
    }

    /// The command that is a process of drover, by its name and role.
    fn daemon(&self, (name, role): (&str, &str), config: &str, kubeconfig: &Path, more: &[&str]) -> Command {
        let file = self.path(&format!("{name}.yaml"));
        std::fs::write(&file, config).expect("a configuration");
        let mut command = Command::new(env!("CARGO_BIN_EXE_droverd"));
        command.args(["--log", "drover=debug", role, "--config"]).arg(file).arg("--kubeconfig").arg(kubeconfig);
        command.args(more).stdin(Stdio::null()).stderr(self.log_file(name));
        command.env("PATH", path_with([self.bin()]));
        command
    }

    /// A folder on the `PATH` of agents, and so of their tasks. What is put there is found by its name alone.
    pub(crate) fn bin(&self) -> PathBuf {
        self.path("bin")
    }

    /// Starts a controller.
    pub(crate) fn controller(&self) -> Process {
        Process { child: self.spawn("controller", "controller", &self.controller_config(), &[]), supervisor_pid: None }
    }

    /// Starts a controller under a name of its own, which reaches the API server as this kubeconfig says, with more in
    /// its configuration.
    pub(crate) fn controller_by(&self, name: &str, kubeconfig: &Path, more: &str) -> Process {
        let config = format!("{}{more}", self.controller_config());
        let child = self.spawn_by((name, "controller"), &config, kubeconfig, &["--identity", name]);
        Process { child, supervisor_pid: None }
    }

    /// Lets a user do everything.
    pub(crate) fn empower(&self, user: User) {
        let name = user.name();
        let args = ["create", "clusterrolebinding", name, "--clusterrole", "cluster-admin", "--user", name];
        self.kubectl(&args).expect("a binding");
    }

    /// Starts a controller that names jobs in its metrics and answers scrapes; returns where.
    pub(crate) async fn scraped_controller(&self) -> (Process, SocketAddr) {
        let config = format!("{}metrics: {{perJob: true}}\n", self.controller_config());
        let child = self.spawn("controller", "controller", &config, &["--listen", "127.0.0.1:0"]);
        (Process { child, supervisor_pid: None }, self.listens("controller").await)
    }

    /// Starts a controller that reaches the API server as this kubeconfig says and answers probes, with more in its
    /// configuration; returns where.
    pub(crate) async fn probed_controller(&self, name: &str, kubeconfig: &Path, more: &str) -> (Process, SocketAddr) {
        let config = format!("{}{more}", self.controller_config());
        let child = self.spawn_by((name, "controller"), &config, kubeconfig, &["--listen", "127.0.0.1:0"]);
        (Process { child, supervisor_pid: None }, self.listens(name).await)
    }

    /// Where a process of drover answers scrapes.
    pub(crate) async fn listens(&self, name: &str) -> SocketAddr {
        let found = || probe::address_in(&self.log(name));
        self.eventually(&format!("{name} listens"), async || found().is_some()).await;
        found().expect("an address")
    }

    fn controller_config(&self) -> String {
        let Settings { ttl_and_grace: seconds, lease, .. } = self.settings;
        format!(
            "heartbeat: {{minTTL: {seconds}s, grace: {seconds}s}}\n\
             leaderElection: {{leaseDuration: {lease}s, renewDeadline: {}ms, retryPeriod: {}ms}}\n",
            lease * 750,
            lease * 150,
        )
    }

    /// Starts the agent of a node, and waits until the node is ready.
    pub(crate) async fn agent(&self, node: &str) -> Process {
        let process = self.agent_unready(node);
        self.ready(node).await;
        process
    }

    /// Starts the agent of a node that answers scrapes, and waits until the node is ready; returns where.
    pub(crate) async fn scraped_agent(&self, node: &str) -> (Process, SocketAddr) {
        let process = self.agent_with(node, &self.plane.kubeconfig(User::Admin), &["--listen", "127.0.0.1:0"]);
        self.ready(node).await;
        (process, self.listens(node).await)
    }

    /// Starts the agent of a node that answers scrapes at this address, and waits until the node is ready.
    pub(crate) async fn agent_listening(&self, node: &str, at: SocketAddr) -> Process {
        let process = self.agent_listening_unready(node, at);
        self.ready(node).await;
        self.listens(node).await;
        process
    }

    /// The same, which waits for nothing.
    pub(crate) fn agent_listening_unready(&self, node: &str, at: SocketAddr) -> Process {
        self.agent_with(node, &self.plane.kubeconfig(User::Admin), &["--listen", &at.to_string()])
    }

    /// Starts the agent of a node that says it has this address, and waits until the node is ready.
    pub(crate) async fn agent_at(&self, node: &str, address: &str) -> Process {
        let config = self.agent_config(node).replace("address: 127.0.0.1", &format!("address: {address}"));
        let child = self.spawn(node, "agent", &config, &[]);
        let process = Process { child, supervisor_pid: Some(self.supervisor_pid(node)) };
        self.ready(node).await;
        process
    }

    pub(crate) async fn ready(&self, node: &str) {
        let nodes: Api<ClientNode> = Api::all(self.client.clone());
        self.eventually(&format!("node {node} is ready"), async || {
            let found = nodes.get_opt(node).await.expect("an answer");
            found.and_then(|node| node.status).is_some_and(|status| status.phase.as_str() == "ready")
        })
        .await;
    }

    /// Starts the agent of a node.
    pub(crate) fn agent_unready(&self, node: &str) -> Process {
        self.agent_by(node, &self.plane.kubeconfig(User::Admin))
    }

    /// Starts the agent of a node that reaches the API server as this kubeconfig says.
    pub(crate) fn agent_by(&self, node: &str, kubeconfig: &Path) -> Process {
        self.agent_with(node, kubeconfig, &[])
    }

    /// Starts the agent of a node with more in its configuration.
    pub(crate) fn agent_more(&self, node: &str, kubeconfig: &Path, more: &str) -> Process {
        let config = format!("{}{more}", self.agent_config(node));
        let child = self.spawn_by((node, "agent"), &config, kubeconfig, &[]);
        Process { child, supervisor_pid: Some(self.supervisor_pid(node)) }
    }

    /// Starts a gateway that answers probes.
    pub(crate) fn gateway_by(&self, name: &str, kubeconfig: &Path, config: &str) -> Process {
        let child = self.spawn_by((name, "gateway"), config, kubeconfig, &["--listen", "127.0.0.1:0"]);
        Process { child, supervisor_pid: None }
    }

    fn agent_with(&self, node: &str, kubeconfig: &Path, more: &[&str]) -> Process {
        let child = self.spawn_by((node, "agent"), &self.agent_config(node), kubeconfig, more);
        Process { child, supervisor_pid: Some(self.supervisor_pid(node)) }
    }

    /// Starts the agent of a node as root with these capabilities and no others, and returns where it answers probes.
    pub(crate) async fn agent_with_capabilities(&self, node: &str, names: &[String]) -> (Process, SocketAddr) {
        let kubeconfig = self.plane.kubeconfig(User::Admin);
        let daemon = self.daemon((node, "agent"), &self.agent_config(node), &kubeconfig, &["--listen", "127.0.0.1:0"]);
        let wanted = names.iter().fold(String::new(), |all, name| all + ",+" + &name.to_lowercase());
        let mut command = Command::new("setpriv");
        command.arg(format!("--bounding-set=-all{wanted}")).arg(daemon.get_program()).args(daemon.get_args());
        let child = command.stdin(Stdio::null()).stderr(self.log_file(node)).spawn().expect("a process of drover");
        let process = Process { child, supervisor_pid: Some(self.supervisor_pid(node)) };
        (process, self.listens(node).await)
    }

    fn supervisor_pid(&self, node: &str) -> PathBuf {
        self.path(&format!("{node}/state/supervisor.pid"))
    }

    fn agent_config(&self, node: &str) -> String {
        format!(
            // How full the disk of whoever runs the tests is must not take ended allocations away.
            "nodeName: {node}\nstateDir: {}\nallocDir: {}\naddress: 127.0.0.1\ndrivers: {{rawExec: {{enabled: true}}, exec: {{allowHostNetwork: true}}{}}}\n\
             gc: {{diskUsagePercent: 100, inodeUsagePercent: 100}}\n\
             resources: {{cpu: 100000, memoryMB: 200000, diskMB: 1000000, cores: 8}}\nheartbeat: {{ttl: {}s}}\n\
             csi: {{kubeletDir: {}}}\n",
            self.path(&format!("{node}/state")).display(),
            self.path(&format!("{node}/allocs")).display(),
            self.drivers,
            self.settings.ttl_and_grace,
            // Not that of the machine on which tests run.
            self.path(&format!("{node}/kubelet")).display(),
        )
    }

    fn log_file(&self, name: &str) -> std::fs::File {
        let path = self.path(&format!("{name}.log"));
        std::fs::OpenOptions::new().create(true).append(true).open(path).expect("a log")
    }

    /// Takes the power of a node away: its agent, its supervisor and its tasks end at once, and nothing is mounted any
    /// more.
    pub(crate) fn power_off(&self, node: &str, agent: Process) {
        let text = std::fs::read_to_string(self.supervisor_pid(node)).expect("the pid of a supervisor");
        let supervisor = text.trim().parse().ok().and_then(ProcessId::of).expect("a supervisor");
        let tasks = supervisor.descendants();
        agent.kill();
        for process in [supervisor].into_iter().chain(tasks) {
            // The end of the one before may have taken it along.
            process.signal(Signal::KILL).expect("signalled");
        }
        drover_supervisor::unmount_below(&self.path(node)).expect("unmounted");
    }

    /// What a process of drover logged.
    pub(crate) fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default()
    }

    /// Waits for something that must happen, and says what each process logged when it does not.
    pub(crate) async fn eventually(&self, what: &str, check: impl AsyncFn() -> bool) {
        self.eventually_none(what, async || if check().await { Vec::new() } else { vec![String::new()] }).await;
    }

    /// The same, until nothing is left that keeps it from happening; what is left is told too.
    pub(crate) async fn eventually_none(&self, what: &str, left: impl AsyncFn() -> Vec<String>) {
        let deadline = Instant::now() + LONG;
        loop {
            let left = left().await;
            if left.is_empty() {
                return;
            }
            let tail = |name: &str| {
                let log = self.log(name);
                log.lines().rev().take(25).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n")
            };
            assert!(
                Instant::now() < deadline,
                "it did not happen that {what}\n{}\ncontroller:\n{}\nn-1:\n{}",
                left.join("\n"),
                tail("controller"),
                tail("n-1")
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Runs kubectl as the administrator; its output, or its error.
    pub(crate) fn kubectl(&self, args: &[&str]) -> Result<String, String> {
        self.kubectl_with(args, None)
    }

    /// Runs kubectl with a manifest on its standard input.
    pub(crate) fn kubectl_with(&self, args: &[&str], stdin: Option<&str>) -> Result<String, String> {
        self.kubectl_saying(args, stdin).map(|(out, _)| out)
    }

    /// Runs kubectl; what it writes to standard output and to standard error, where warnings are.
    pub(crate) fn kubectl_saying(&self, args: &[&str], stdin: Option<&str>) -> Result<(String, String), String> {
        let output = self.kubectl_output(args, stdin);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        if output.status.success() { Ok((out, err)) } else { Err(err) }
    }

    /// kubectl as the administrator.
    pub(crate) fn kubectl_command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.plane.binaries().kubectl());
        command.arg("--kubeconfig").arg(self.plane.kubeconfig(User::Admin)).args(args);
        command
    }

    /// Runs kubectl, with what it writes on both streams.
    pub(crate) fn kubectl_output(&self, args: &[&str], stdin: Option<&str>) -> std::process::Output {
        use std::io::Write as _;
        let mut child = self
            .kubectl_command(args)
            .stdin(if stdin.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kubectl");
        if let (Some(text), Some(mut pipe)) = (stdin, child.stdin.take()) {
            pipe.write_all(text.as_bytes()).expect("a manifest written");
        }
        child.wait_with_output().expect("the end of kubectl")
    }

    /// Applies a job.
    pub(crate) fn apply(&self, namespace: &str, job: &Value) {
        self.kubectl_with(&["apply", "-n", namespace, "-f", "-"], Some(&job.to_string())).expect("applied");
    }

    pub(crate) fn jobs(&self, namespace: &str) -> Api<Job> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(crate) fn versions(&self, namespace: &str) -> Api<JobVersion> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// All allocations of a namespace.
    pub(crate) async fn allocs(&self, namespace: &str) -> Vec<Allocation> {
        let api: Api<Allocation> = Api::namespaced(self.client.clone(), namespace);
        api.list(&ListParams::default()).await.expect("a list").items
    }

    /// Slots of the allocations that are to run and do, sorted.
    pub(crate) async fn running(&self, namespace: &str) -> Vec<i64> {
        let mut slots: Vec<i64> = self
            .allocs(namespace)
            .await
            .iter()
            .filter(|alloc| {
                alloc.spec.desired_status == DesiredStatus::Run && alloc.metadata.deletion_timestamp.is_none()
            })
            .filter(|alloc| client_status(alloc) == ClientStatus::Running)
            .map(|alloc| alloc.spec.index)
            .collect();
        slots.sort_unstable();
        slots
    }

    /// Waits until exactly these slots run.
    pub(crate) async fn runs(&self, namespace: &str, slots: &[i64]) {
        self.eventually(&format!("slots {slots:?} of {namespace} run"), async || {
            self.running(namespace).await == slots
        })
        .await;
    }

    /// Waits until a job has a condition with this status.
    pub(crate) async fn condition(&self, namespace: &str, job: &str, kind: JobConditionType, status: &str) -> String {
        let jobs = self.jobs(namespace);
        self.eventually(&format!("{kind} of {namespace}/{job} is {status}"), async || {
            let found = jobs.get_opt(job).await.expect("an answer");
            found.is_some_and(|job| condition(&job, kind).is_some_and(|(now, _)| now == status))
        })
        .await;
        let job = jobs.get(job).await.expect("the job");
        condition(&job, kind).map(|(_, message)| message).unwrap_or_default()
    }
}

/// Status and message of a job's condition, if it is about its present generation.
pub(crate) fn condition(job: &Job, kind: JobConditionType) -> Option<(String, String)> {
    let status = job.status.as_ref()?;
    (Some(status.observed_generation) == job.metadata.generation).then_some(())?;
    let found = status.conditions.iter().find(|condition| condition.r#type == kind)?;
    Some((found.status.to_string(), found.message.clone()))
}

pub(crate) fn client_status(alloc: &Allocation) -> ClientStatus {
    alloc.status.as_ref().map_or(ClientStatus::Pending, |status| status.client_status)
}

/// The process id that a task wrote as the first line of its log.
pub(crate) fn logged(cluster: &Cluster, node: &str, alloc: &Allocation, task: &str) -> String {
    let uid = alloc.metadata.uid.clone().unwrap_or_default();
    let path = cluster.path(&format!("{node}/allocs/{uid}/alloc/logs/{task}.stdout.0"));
    std::fs::read_to_string(path).unwrap_or_default()
}

/// A job of one group with one task.
pub(crate) fn job(name: &str, count: i64, group: &Value, script: &str) -> Value {
    let mut whole = json!({
        "name": "g", "count": count, "ephemeralDisk": { "sizeMB": 110 },
        "tasks": [{ "name": "t", "driver": "raw_exec", "config": { "command": "/bin/sh", "args": ["-c", script] },
                    "killTimeout": "2s", "resources": { "cpu": 10, "memoryMB": 10 } }],
    });
    for (field, value) in group.as_object().expect("an object") {
        whole[field] = value.clone();
    }
    json!({ "apiVersion": "drover.dev/v1alpha1", "kind": "Job", "metadata": { "name": name }, "spec": { "groups": [whole] } })
}

/// A cluster that tests share which leave it as it is: a controller and the node `n-1`.
pub(crate) struct Shared {
    // Dropped in this order: drover first, then what it talks to, then what drives the connections.
    _drover: (Process, Process),
    cluster: Cluster,
    _runtime: Background,
}

impl std::ops::Deref for Shared {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

/// A runtime that may end inside another one.
struct Background(Option<tokio::runtime::Runtime>);

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// A client whose connections live on the runtime that this is called on, whoever asks: else the end of the test that
/// opened a connection would break the request that another test sends over it.
fn driven_here(client: Client) -> Client {
    let here = tokio::runtime::Handle::current();
    let service = tower::service_fn(move |request| {
        let client = client.clone();
        let answer = here.spawn(async move { client.send(request).await });
        async move { answer.await.expect("a runtime that outlives its users") }
    });
    Client::new(service, "default")
}

/// The shared cluster. It ends with the last test that holds it, so that nothing outlives the test binary.
pub(crate) fn shared() -> Arc<Shared> {
    static SHARED: Mutex<Weak<Shared>> = Mutex::new(Weak::new());
    let mut slot = SHARED.lock().expect("no test failed in here");
    if let Some(shared) = slot.upgrade() {
        return shared;
    }
    // A thread of its own, because a runtime cannot wait inside the test's.
    let made = std::thread::spawn(|| {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let (cluster, controller, agent) = runtime.block_on(async {
            let mut cluster = Cluster::start("shared", Settings::default()).await;
            cluster.client = driven_here(cluster.client.clone());
            let controller = cluster.controller();
            let agent = cluster.agent("n-1").await;
            (cluster, controller, agent)
        });
        Arc::new(Shared { _drover: (agent, controller), cluster, _runtime: Background(Some(runtime)) })
    });
    let shared = made.join().expect("a cluster");
    *slot = Arc::downgrade(&shared);
    shared
}

/// The `PATH` of this process with more folders before the others.
pub(crate) fn path_with(first: impl IntoIterator<Item = PathBuf>) -> std::ffi::OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(first.into_iter().chain(std::env::split_paths(&path))).expect("folders without a colon")
}

/// The manifest of an example.
pub(crate) fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name);
    std::fs::read_to_string(path).expect("an example")
}

/// Where something is mounted below a folder, the deepest first.
pub(crate) fn mounts_below(folder: &Path) -> Vec<PathBuf> {
    drover_supervisor::mounts_below(folder).expect("a table of mounts")
}
