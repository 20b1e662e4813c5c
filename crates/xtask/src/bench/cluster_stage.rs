//! A control plane with controllers and nodes that exist as objects only: nothing runs what is placed on them.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use drover_testkit::cargo;
use drover_testkit::cargo::Profile;
use drover_testkit::control_plane::{
    Binaries, Component, ControlPlane, Durability, Launch, Lifetime, Options, Place, Role, User,
};
use drover_testkit::process::ProcessId;
use drover_testkit::progress::Progress;
use drover_testkit::workspace;
use drover_testkit::{manifests, probe};
use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::args::BenchArgs;
use super::cluster::NAMESPACE;
use super::waiting::until;

/// Requests of ours that are under way at the same time.
pub(super) const CLIENTS: usize = 32;
/// The leader's Lease, in drover's namespace.
const LEADER: &str = "drover-controller";
/// Of the controllers: a busy machine renews Leases late, and nodes that are merely late must not be lost beside what
/// is measured. One namespace holds all that is.
const CONFIG: &str = "heartbeat: {grace: 60s}\nlimits: {allocationsPerNamespace: 1000000}\n";
/// Of gateways, which here no API server hands anything over to. A machine that is busy with its clients reads late:
/// lines are kept for longer than by default.
const GATEWAY_CONFIG: &str = "names: [localhost]\nusers: 127.0.0.1:0\nagents: 127.0.0.1:0\napiService: false\n\
                              events: {buffer: 2000}\n";
/// How long it may take until nothing is written any more: what no client waits for is written slowly.
const QUIET: Duration = Duration::from_mins(30);

/// The control plane and what was started on it. Ends with this value.
pub(super) struct Stage {
    pub(super) client: kube::Client,
    droverd: PathBuf,
    controllers: Vec<Component>,
    gateways: Vec<Component>,
    plane: ControlPlane,
    dir: tempfile::TempDir,
}

/// A replica of the gateway.
pub(super) struct Gateway {
    /// Where it answers users.
    pub(super) users: SocketAddr,
    /// Where it answers agents.
    pub(super) agents: SocketAddr,
    pub(super) process: ProcessId,
}

/// Writes that the API server has carried out, by resource.
pub(super) type Writes = BTreeMap<String, u64>;

/// The writes that came after others were counted.
pub(super) fn since(before: &Writes, after: Writes) -> Writes {
    let more = after.into_iter().map(|(resource, n)| {
        let n = n - before.get(&resource).unwrap_or(&0);
        (resource, n)
    });
    more.filter(|(_, n)| *n > 0).collect()
}

impl Stage {
    /// Starts the API server with drover's kinds.
    pub(super) async fn open(args: &BenchArgs, progress: &Progress) -> Result<Self> {
        let droverd = build("droverd", args, progress)?;
        let target = workspace::root().join("target");
        let dir = tempfile::Builder::new().prefix("bench-").tempdir_in(&target).context("making a data folder")?;
        let step = progress.step("starting the API server");
        let options = Options {
            data_dir: dir.path().join("plane"),
            binaries: Binaries::find_or_build(progress)?,
            durability: Durability::Fsync,
            audit: false,
            lifetime: Lifetime::BoundToThisProcess,
            // It would collect the copies that the bare loop makes.
            controller_manager: false,
            api_server_args: Vec::new(),
            place: Place::Loopback,
        };
        let plane = ControlPlane::start(options).await?;
        let client = plane.client(User::Admin).await?;
        manifests::apply_crds(&client, &manifests::crds_folder()).await?;
        let stage = Self { client, droverd, controllers: Vec::new(), gateways: Vec::new(), plane, dir };
        for namespace in [drover_api::SYSTEM_NAMESPACE, "bare"] {
            stage.make_namespace(namespace).await?;
        }
        step.done("");
        Ok(stage)
    }

    async fn make_namespace(&self, name: &str) -> Result<()> {
        let namespace = serde_json::from_value(json!({ "metadata": { "name": name } }))?;
        let api: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(self.client.clone());
        api.create(&PostParams::default(), &namespace).await.with_context(|| format!("creating namespace {name}"))?;
        Ok(())
    }

    /// Starts one more controller, and returns its process.
    pub(super) fn start_controller(&mut self) -> Result<ProcessId> {
        let number = self.controllers.len();
        let config = self.dir.path().join("controller.yaml");
        fs::write(&config, CONFIG).with_context(|| format!("writing {}", config.display()))?;
        let component = Component::start(Launch {
            role: Role::Controller,
            program: self.droverd.clone(),
            args: [
                "--log",
                "drover=info,drover_controller::job=debug",
                "controller",
                "--config",
                &config.display().to_string(),
                "--kubeconfig",
                &self.plane.kubeconfig(User::Admin).display().to_string(),
                "--identity",
                &identity(number),
                "--listen",
                "127.0.0.1:0",
            ]
            .map(str::to_owned)
            .to_vec(),
            env: Vec::new(),
            folder: self.dir.path().to_path_buf(),
            log: self.log_path(number),
            lifetime: Lifetime::BoundToThisProcess,
        })?;
        let id = component.id().context("the controller has ended")?;
        self.controllers.push(component);
        Ok(id)
    }

    /// Starts a replica of the gateway, and waits until it listens.
    pub(super) async fn start_gateway(&mut self, name: &str) -> Result<Gateway> {
        if self.gateways.is_empty() {
            for object in manifests::read(&workspace::root().join("charts/drover/files/gateway/certificates.yaml"))? {
                manifests::apply(&self.client, &object, drover_api::SYSTEM_NAMESPACE).await?;
            }
        }
        let (config, log) = (self.dir.path().join("gateway.yaml"), self.dir.path().join(format!("{name}.log")));
        fs::write(&config, GATEWAY_CONFIG).with_context(|| format!("writing {}", config.display()))?;
        let (config, kubeconfig) = (config.display().to_string(), self.kubeconfig().display().to_string());
        let component = Component::start(Launch {
            role: Role::Gateway,
            program: self.droverd.clone(),
            args: ["gateway", "--config", &config, "--kubeconfig", &kubeconfig, "--listen", "127.0.0.1:0"]
                .map(str::to_owned)
                .to_vec(),
            env: Vec::new(),
            folder: self.dir.path().to_path_buf(),
            log: log.clone(),
            lifetime: Lifetime::BoundToThisProcess,
        })?;
        let process = component.id().context("the gateway has ended")?;
        self.gateways.push(component);
        let listens = || probe::gateway_in(&fs::read_to_string(&log).unwrap_or_default(), "users");
        until("the gateway listens", async || Ok(listens().is_some())).await?;
        let read = fs::read_to_string(&log).unwrap_or_default();
        let at = |port| probe::gateway_in(&read, port).context("the gateway listens nowhere");
        Ok(Gateway { users: at("users")?, agents: at("agents")?, process })
    }

    /// Ends the controllers as a crash would.
    pub(super) async fn kill_controllers(&self) -> Result<()> {
        for id in self.controllers.iter().filter_map(Component::id) {
            id.signal(drover_testkit::process::Signal::KILL).context("killing a controller")?;
            ensure!(id.wait_gone(Duration::from_secs(10)).await?, "a killed controller does not end");
        }
        Ok(())
    }

    /// The controller that runs.
    pub(super) fn running(&self) -> Option<ProcessId> {
        self.controllers.iter().rev().find_map(Component::id)
    }

    /// The newest controller's number.
    pub(super) fn newest(&self) -> usize {
        self.controllers.len().saturating_sub(1)
    }

    fn log_path(&self, number: usize) -> PathBuf {
        self.dir.path().join(format!("controller-{number}.log"))
    }

    /// What a controller has logged.
    pub(super) fn log(&self, number: usize) -> Result<String> {
        let path = self.log_path(number);
        fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
    }

    /// The sum of all series of a metric of the newest controller.
    pub(super) async fn sum_of(&self, metric: &str) -> Result<f64> {
        let address = probe::address_in(&self.log(self.newest())?).context("the controller answers no scrapes yet")?;
        let (status, text) = probe::get(address, "/metrics").await?;
        ensure!(status.is_success(), "a scrape of the controller is answered with {status}");
        let series = text.lines().filter(|line| line.starts_with(metric));
        let values: Vec<f64> = series.filter_map(|line| line.rsplit_once(' ')?.1.parse().ok()).collect();
        ensure!(!values.is_empty(), "the controller says nothing of {metric}");
        Ok(values.iter().sum())
    }

    /// Waits until a controller leads; returns when that was seen.
    pub(super) async fn leads(&self, number: usize) -> Result<Instant> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), drover_api::SYSTEM_NAMESPACE);
        let wanted = identity(number);
        until(&format!("{wanted} leads"), async || {
            let lease = leases.get_opt(LEADER).await.context("reading the leader's Lease")?;
            Ok(lease.and_then(|lease| lease.spec?.holder_identity).as_deref() == Some(wanted.as_str()))
        })
        .await
    }

    /// Waits until nothing but Leases was written for three seconds.
    pub(super) async fn quiet(&self, progress: &Progress) -> Result<()> {
        let step = progress.step("waiting until nothing is written any more");
        let (mut before, mut since) = (self.writes().await?, Instant::now());
        let deadline = Instant::now() + QUIET;
        while since.elapsed() < Duration::from_secs(3) {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let now = self.writes().await?;
            if now != before {
                (before, since) = (now, Instant::now());
            }
            ensure!(Instant::now() < deadline, "it is still being written after {} s", QUIET.as_secs());
        }
        step.done("");
        Ok(())
    }

    /// The writes so far of drover's kinds.
    pub(super) async fn writes(&self) -> Result<Writes> {
        Ok(counted(&self.metrics().await?, |group, _| group == drover_api::GROUP))
    }

    /// The writes so far of whatever is kept, Leases aside.
    pub(super) async fn all_writes(&self) -> Result<Writes> {
        // Reviews and tokens are answered, and kept nowhere.
        let is_kept = |group: &str, resource: &str| {
            !group.ends_with("authentication.k8s.io")
                && !group.ends_with("authorization.k8s.io")
                && !["leases", "serviceaccounts"].contains(&resource)
        };
        Ok(counted(&self.metrics().await?, is_kept))
    }

    /// How many requests the API server was asked so far, without those for its metrics.
    pub(super) async fn requests(&self) -> Result<u64> {
        let metrics = self.metrics().await?;
        let of_objects = |line: &&str| {
            line.starts_with("apiserver_request_total{")
                && !line.contains("resource=\"\"")
                && !line.contains("\"WATCH\"")
        };
        Ok(metrics.lines().filter(of_objects).map(value).sum())
    }

    /// How often allocations were listed so far.
    pub(super) async fn lists(&self) -> Result<u64> {
        let metrics = self.metrics().await?;
        let lists = metrics.lines().filter(|line| {
            line.starts_with("apiserver_request_total{")
                && line.contains("resource=\"allocations\"")
                && line.contains("verb=\"LIST\"")
        });
        Ok(lists.map(value).sum())
    }

    /// The administrator's kubeconfig.
    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.plane.kubeconfig(User::Admin)
    }

    /// How many watches of drover's kinds are open.
    pub(super) async fn open_watches(&self) -> Result<u64> {
        let metrics = self.metrics().await?;
        let group = format!("group=\"{}\"", drover_api::GROUP);
        let of_ours = metrics.lines().filter(|line| {
            line.starts_with("apiserver_longrunning_requests{")
                && line.contains(&group)
                && line.contains("verb=\"WATCH\"")
        });
        Ok(of_ours.map(value).sum())
    }

    async fn metrics(&self) -> Result<String> {
        let request = http::Request::get("/metrics").body(Vec::new()).context("building the request")?;
        self.client.request_text(request).await.context("reading the API server's metrics")
    }

    /// Processor time of a program of the control plane.
    pub(super) fn cpu(&self, role: Role) -> Duration {
        self.plane.process(role).map_or(Duration::ZERO, ProcessId::cpu_time)
    }

    pub(super) fn api(&self, kind: &str, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &resource(kind))
    }

    pub(super) fn nodes(&self) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &resource("ClientNode"))
    }

    /// Makes nodes that are ready, as far as objects say.
    pub(super) async fn make_nodes(&self, range: std::ops::Range<usize>, progress: &Progress) -> Result<()> {
        self.make_nodes_with(range, 8192, progress).await
    }

    /// The same with so much memory.
    pub(super) async fn make_nodes_with(
        &self,
        range: std::ops::Range<usize>,
        memory: i64,
        progress: &Progress,
    ) -> Result<()> {
        let step = progress.step(format!("making {} nodes", range.len()));
        stream::iter(range)
            .map(|number| self.make_node(node_name(number), "load", memory))
            .buffer_unordered(CLIENTS)
            .try_collect::<Vec<()>>()
            .await?;
        step.done("");
        Ok(())
    }

    /// Makes nodes ready again that have stopped to beat. No controller may run.
    pub(super) async fn revive_nodes(&self, range: std::ops::Range<usize>) -> Result<()> {
        let (nodes, ready) = (self.nodes(), json!({ "status": { "phase": "ready" } }));
        stream::iter(range)
            .map(async |number| {
                let name = node_name(number);
                let patched = nodes.patch_status(&name, &PatchParams::default(), &Patch::Merge(&ready)).await;
                patched.map(|_| ()).with_context(|| format!("writing the status of {name}"))
            })
            .buffer_unordered(CLIENTS)
            .try_collect::<Vec<()>>()
            .await?;
        Ok(())
    }

    /// Makes one node that is ready.
    pub(super) async fn make_node(&self, name: String, pool: &str, memory: i64) -> Result<()> {
        let node = json!({ "apiVersion": drover_api::API_VERSION, "kind": "ClientNode", "metadata": { "name": name },
            "spec": { "datacenter": "dc1", "nodePool": pool } });
        let node = serde_json::from_value(node).context("building a node")?;
        let nodes = self.nodes();
        nodes.create(&PostParams::default(), &node).await.with_context(|| format!("creating {name}"))?;
        let status =
            json!({ "status": { "observedGeneration": 1, "phase": "ready", "fingerprint": fingerprint(memory) } });
        nodes
            .patch_status(&name, &PatchParams::default(), &Patch::Merge(&status))
            .await
            .with_context(|| format!("writing the status of {name}"))?;
        // An agent that registers renews its Lease at once.
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), drover_api::SYSTEM_NAMESPACE);
        renew(&leases, &name).await
    }

    /// Makes one node and lets it beat, until the controller that leads has found it ready.
    pub(super) async fn register_node(&self, name: &str, pool: &str, memory: i64) -> Result<()> {
        self.make_node(name.to_owned(), pool, memory).await?;
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), drover_api::SYSTEM_NAMESPACE);
        renew(&leases, name).await?;
        let nodes = self.nodes();
        until(&format!("{name} is ready"), async || {
            let node = nodes.get(name).await.context("reading a node")?;
            // The phase that was written with the node is not the controller's word; its conditions are.
            let has_conditions = node.data["status"]["conditions"].as_array().is_some_and(|all| !all.is_empty());
            Ok(has_conditions && node.data["status"]["phase"] == "ready")
        })
        .await?;
        Ok(())
    }

    /// Gives a node more memory.
    pub(super) async fn resize(&self, name: &str, memory: i64) -> Result<()> {
        let status = json!({ "status": { "fingerprint": fingerprint(memory) } });
        let done = self.nodes().patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await;
        done.with_context(|| format!("resizing {name}"))?;
        Ok(())
    }

    /// Creates a service job.
    pub(super) async fn create_job(&self, name: &str, pool: &str, count: usize, memory: i64) -> Result<()> {
        let job = json!({ "apiVersion": drover_api::API_VERSION, "kind": "Job", "metadata": { "name": name },
            "spec": { "nodePool": pool, "update": { "maxParallel": 0 }, "groups": [{ "name": "g", "count": count,
                "tasks": [{ "name": "t", "driver": "mock", "resources": { "cpu": 1000, "memoryMB": memory } }] }] } });
        let job = serde_json::from_value(job).context("building a job")?;
        let created = self.api("Job", NAMESPACE).create(&PostParams::default(), &job).await;
        created.with_context(|| format!("creating djob/{name}"))?;
        Ok(())
    }

    /// Renews the Leases of these nodes once each, so many per second; makes those that are missing.
    pub(super) async fn beat(&self, nodes: &[usize], per_second: u32) -> Result<()> {
        Self::beat_with(&self.client, nodes, per_second).await
    }

    /// The same, beside work that has the stage for itself.
    pub(super) async fn beat_with(client: &kube::Client, nodes: &[usize], per_second: u32) -> Result<()> {
        let leases: Api<Lease> = Api::namespaced(client.clone(), drover_api::SYSTEM_NAMESPACE);
        let leases = &leases;
        let renewed =
            paced(nodes.iter().copied(), per_second).map(|node| async move { renew(leases, &node_name(node)).await });
        renewed.buffer_unordered(CLIENTS).try_collect::<Vec<()>>().await?;
        Ok(())
    }

    /// Renews the Leases of these few nodes until it is dropped, beside work that has the stage for itself.
    pub(super) async fn keep_alive(client: &kube::Client, nodes: &[String]) -> Result<()> {
        let leases: Api<Lease> = Api::namespaced(client.clone(), drover_api::SYSTEM_NAMESPACE);
        let mut rounds = tokio::time::interval(Duration::from_secs(5));
        rounds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            rounds.tick().await;
            for node in nodes {
                renew(&leases, node).await?;
            }
        }
    }
}

async fn renew(leases: &Api<Lease>, node: &str) -> Result<()> {
    #[expect(clippy::disallowed_methods, reason = "a load generator has the machine's clock")]
    let now = Timestamp::now().to_string();
    let name = drover_api::names::node_lease_name(node);
    let body = json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": name },
        "spec": { "holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": micros(&now) } });
    match leases.patch(&name, &PatchParams::default(), &Patch::Merge(&body)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => {
            let lease = serde_json::from_value(body).context("building a Lease")?;
            match leases.create(&PostParams::default(), &lease).await {
                // Another beat of the same node was first.
                Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
                created => created.map(|_| ()).with_context(|| format!("creating {name}")),
            }
        }
        Err(error) => Err(error).with_context(|| format!("renewing {name}")),
    }
}

/// These, so many per second; what came late is made up for.
pub(super) fn paced<T>(items: impl Iterator<Item = T>, per_second: u32) -> impl Stream<Item = T> {
    let mut pace = tokio::time::interval(Duration::from_secs(1) / per_second);
    pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Burst);
    stream::unfold((items, pace), |(mut left, mut pace)| async move {
        let item = left.next()?;
        pace.tick().await;
        Some((item, (left, pace)))
    })
}

/// A time as Leases carry it: with six digits behind the point.
fn micros(text: &str) -> String {
    let (whole, fraction) = text.trim_end_matches('Z').split_once('.').unwrap_or((text.trim_end_matches('Z'), "0"));
    let digits: String = fraction.chars().chain("000000".chars()).take(6).collect();
    format!("{whole}.{digits}Z")
}

fn fingerprint(memory: i64) -> Value {
    json!({
        "attributes": { "kernel.name": "linux", "cpu.arch": "amd64" },
        "resources": { "cpu": 4000, "memoryMB": memory, "diskMB": 100_000, "cores": 4 },
        "drivers": { "mock": { "detected": true, "healthy": true } },
    })
}

pub(super) fn node_name(number: usize) -> String {
    format!("n-{number:05}")
}

fn identity(number: usize) -> String {
    format!("bench-{number}")
}

fn resource(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(drover_api::GROUP, drover_api::VERSION, kind))
}

/// Sums the carried out writes of these groups and resources, by resource, of what the API server counts.
fn counted(metrics: &str, is_meant: impl Fn(&str, &str) -> bool) -> Writes {
    let mut writes = Writes::new();
    let label = |line: &str, name: &str| {
        let (_, rest) = line.split_once(&format!("{name}=\""))?;
        rest.split_once('"').map(|(value, _)| value.to_owned())
    };
    for line in metrics.lines().filter(|line| line.starts_with("apiserver_request_total{")) {
        let is_write = label(line, "verb")
            .is_some_and(|verb| ["POST", "PUT", "PATCH", "APPLY", "DELETE"].contains(&verb.as_str()));
        let is_done = label(line, "code").is_some_and(|code| code.starts_with('2'));
        let (group, resource) = (label(line, "group").unwrap_or_default(), label(line, "resource").unwrap_or_default());
        if is_write && is_done && is_meant(&group, &resource) {
            *writes.entry(resource).or_default() += value(line);
        }
    }
    writes
}

/// The value of a line of metrics that counts something.
fn value(line: &str) -> u64 {
    let count = line.rsplit_once(' ').and_then(|(_, count)| count.parse::<f64>().ok()).unwrap_or(0.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "what is counted is whole")]
    let count = count as u64;
    count
}

/// Processor time of all threads of a process, in nanoseconds as the kernel counts them.
pub(super) fn cpu_nanos(id: ProcessId) -> Result<u64> {
    let folder = format!("/proc/{}/task", id.pid);
    let mut sum = 0;
    for thread in fs::read_dir(&folder).with_context(|| format!("reading {folder}"))? {
        let path = thread.context("reading a thread")?.path().join("schedstat");
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        sum += text.split_whitespace().next().and_then(|nanos| nanos.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(sum)
}

/// Builds a program of drover.
pub(super) fn build(program: &str, args: &BenchArgs, progress: &Progress) -> Result<PathBuf> {
    let step = progress.step(format!("building {program}"));
    let mut flags = vec!["build", "--package", "drover", "--bin", program];
    // As users run it. The user's command is a default feature.
    if program == "droverd" {
        flags.push("--no-default-features");
    }
    if args.profile == Profile::Release {
        flags.push("--release");
    }
    let built = cargo::build(&flags, &step)?;
    step.done("");
    let found = built.into_iter().find(|built| built.target == program);
    Ok(found.with_context(|| format!("cargo built no {program}"))?.executable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_counted_by_resource_and_refusals_are_not() {
        let line = |verb: &str, code: &str, group: &str, n: u32| {
            format!(
                "apiserver_request_total{{code=\"{code}\",group=\"{group}\",resource=\"jobs\",verb=\"{verb}\"}} {n}\n"
            )
        };
        let text = [
            line("POST", "201", "drover.dev", 2),
            line("APPLY", "200", "drover.dev", 3),
            line("GET", "200", "drover.dev", 9),
            line("POST", "409", "drover.dev", 9),
            line("POST", "201", "batch", 9),
        ];
        let of_ours = |group: &str, _: &str| group == drover_api::GROUP;
        assert_eq!(counted(&text.concat(), of_ours), BTreeMap::from([("jobs".to_owned(), 5)]));
        assert_eq!(micros("2026-01-01T00:00:00.5Z"), "2026-01-01T00:00:00.500000Z");
    }
}
