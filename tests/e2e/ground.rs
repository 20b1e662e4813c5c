//! The cluster that all cases stand on, with drover's chart installed once.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use drover_testkit::cluster::{Cluster, ClusterOptions};
use drover_testkit::control_plane::Role;
use drover_testkit::image;
use drover_testkit::process::ProcessId;
use drover_testkit::progress::Progress;
use serde_json::Value;
use tokio::runtime::Runtime;

/// drover's namespace.
pub(crate) const SYSTEM: &str = "drover-system";
/// drover's kinds, as the API server names them.
pub(crate) const KINDS: &[&str] = &[
    "jobs.drover.dev",
    "jobversions.drover.dev",
    "allocations.drover.dev",
    "deployments.drover.dev",
    "clientnodes.drover.dev",
    "csivolumes.drover.dev",
];
/// What the tasks of examples/web.yaml execute.
const PROGRAM: &str = "drover-example-web";
/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_mins(2);

/// The cluster and who may use it.
pub(crate) struct Ground {
    pub(crate) cluster: Cluster,
    runtime: Runtime,
    is_installed: Cell<bool>,
    _folder: tempfile::TempDir,
}

impl Ground {
    /// Starts it with so many nodes, and with what makes addresses of Services lead somewhere where that is wanted.
    pub(crate) fn start(nodes: u8, has_service_network: bool) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("drover-e2e-").tempdir().context("making a folder")?;
        let runtime = Runtime::new().context("starting the runtime")?;
        let options = ClusterOptions {
            data_dir: folder.path().join("c"),
            nodes,
            images: vec![named("DROVER_E2E_IMAGE")?],
            xtask: named("DROVER_E2E_XTASK")?,
            bin: named("DROVER_E2E_BIN")?,
            has_service_network,
        };
        let cluster = runtime.block_on(Cluster::start(options, &Progress::for_people()))?;
        Ok(Self { cluster, runtime, is_installed: Cell::new(false), _folder: folder })
    }

    pub(crate) fn stop(self) -> Result<()> {
        self.runtime.block_on(self.cluster.stop())
    }

    /// Runs kubectl and returns what it says.
    pub(crate) fn kubectl(&self, args: &[&str]) -> Result<String> {
        said(self.cluster.kubectl(args), args)
    }

    /// Runs Helm and returns what it says.
    pub(crate) fn helm(&self, args: &[&str]) -> Result<String> {
        said(self.cluster.helm(args), args)
    }

    /// An object, or a list of them.
    pub(crate) fn read(&self, args: &[&str]) -> Result<Value> {
        let text = self.kubectl(&[&["get"], args, &["-o", "json"]].concat())?;
        serde_json::from_str(&text).context("reading what kubectl says")
    }

    /// Runs drover's command line and returns what it says.
    pub(crate) fn drover(&self, args: &[&str]) -> Result<String> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
        command.args(args).env("KUBECONFIG", self.cluster.kubeconfig());
        said(command, args)
    }

    /// Installs the chart, unless a case before has.
    pub(crate) fn installed(&self) -> Result<()> {
        if !self.is_installed.replace(true) {
            self.install(&chart(), &[])?;
        }
        Ok(())
    }

    /// Installs a chart with more values.
    pub(crate) fn install(&self, chart: &str, values: &[&str]) -> Result<()> {
        let install = ["install", "drover", chart, "-n", SYSTEM, "--create-namespace", "--wait", "--timeout", "180s"];
        let values = ["agent.drivers.rawExec=true"].iter().chain(values).flat_map(|value| ["--set", value]);
        self.helm(&install.into_iter().chain(values).collect::<Vec<_>>())?;
        self.is_installed.set(true);
        Ok(())
    }

    /// Upgrades the release to this tree's chart with these values.
    pub(crate) fn upgrade(&self, values: &[&str]) -> Result<()> {
        let chart = chart();
        let upgrade =
            ["upgrade", "drover", &chart, "-n", SYSTEM, "--reset-then-reuse-values", "--wait", "--timeout", "180s"];
        let values = values.iter().flat_map(|value| ["--set", value]);
        self.helm(&upgrade.into_iter().chain(values).collect::<Vec<_>>()).map(drop)
    }

    /// Lets agents use the containerd of their nodes.
    pub(crate) fn offer_containers(&self) -> Result<()> {
        let address = format!("agent.containerd.address={}", Cluster::CONTAINERD);
        self.upgrade(&[&address, "agent.containerd.snapshotter=native"])
    }

    /// Gives drover's containers and the kubelet's an image of these programs of the machine.
    pub(crate) fn give_tools(&self, name: &str, tools: &[&str]) -> Result<()> {
        let folder = tempfile::tempdir().context("a folder for an image")?;
        let archive = image::of_tools(name, tools, &folder.path().join("tools.tar"))?;
        self.cluster.load(&archive)?;
        self.cluster.give_image(&archive)
    }

    /// Uninstalls the release and waits until its pods are gone.
    pub(crate) fn uninstall(&self) -> Result<()> {
        self.helm(&["uninstall", "drover", "-n", SYSTEM, "--wait", "--timeout", "180s"])?;
        self.is_installed.set(false);
        Ok(())
    }

    /// Uninstalls what a case before has installed.
    pub(crate) fn uninstall_if_installed(&self) -> Result<()> {
        if self.is_installed.get() { self.uninstall() } else { Ok(()) }
    }

    /// After commands of a document, which may have installed the release or taken it away.
    pub(crate) fn look_for_install(&self) -> Result<()> {
        let releases = self.helm(&["list", "-n", SYSTEM, "--short"])?;
        self.is_installed.set(releases.lines().any(|release| release == "drover"));
        Ok(())
    }

    /// After the release went away with something else.
    pub(crate) fn forget_install(&self) {
        self.is_installed.set(false);
    }

    /// Applies what a text says.
    pub(crate) fn apply(&self, text: &str) -> Result<()> {
        let file = tempfile::NamedTempFile::new().context("a file to apply")?;
        fs::write(file.path(), text).context("writing what is applied")?;
        self.kubectl(&["apply", "-f", &file.path().display().to_string()]).map(drop)
    }

    /// Applies examples/web.yaml, unless it is there, and waits until it is healthy.
    pub(crate) fn web(&self) -> Result<()> {
        self.installed()?;
        self.kubectl(&["apply", "-f", &example("web.yaml")])?;
        self.kubectl(&["wait", "--for=condition=Ready", "djob/web", "--timeout", "120s"]).map(drop)
    }

    /// Waits until `look` gives something.
    pub(crate) fn eventually<T>(&self, what: &str, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = look()? {
                return Ok(found);
            }
            ensure!(Instant::now() < deadline, "not within {} s: {what}", PATIENCE.as_secs());
            self.runtime.block_on(async { tokio::time::sleep(Duration::from_millis(100)).await });
        }
    }

    /// Kills the API server and starts it again.
    pub(crate) fn restart_api_server(&self) -> Result<()> {
        let plane = self.cluster.plane();
        self.runtime.block_on(async {
            plane.kill(Role::KubeApiserver).await?;
            plane.restart(Role::KubeApiserver).await
        })
    }

    /// Looks each second for as long as that.
    pub(crate) fn through(&self, time: Duration, mut look: impl FnMut() -> Result<()>) -> Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            look()?;
            self.runtime.block_on(async { tokio::time::sleep(Duration::from_secs(1)).await });
        }
        Ok(())
    }

    /// The processes of droverd on the first node that do this part of its work, for example `agent`.
    pub(crate) fn processes(&self, part: &str) -> Result<Vec<ProcessId>> {
        self.programs("droverd", |args| args.first().is_some_and(|arg| arg == part))
    }

    /// The processes of a program on the first node whose arguments are like that.
    pub(crate) fn programs(&self, program: &str, is_meant: impl Fn(&[String]) -> bool) -> Result<Vec<ProcessId>> {
        let is_it = |id: &ProcessId| {
            let words = id.words();
            words.split_first().is_some_and(|(path, args)| path.ends_with(program) && is_meant(args))
        };
        Ok(self.cluster.processes("n1")?.into_iter().filter(is_it).collect())
    }

    /// The processes of examples/web.yaml on the first node, by their allocation's id.
    pub(crate) fn tasks(&self) -> Result<BTreeMap<String, ProcessId>> {
        self.tasks_on("n1")
    }

    /// The same on a node.
    pub(crate) fn tasks_on(&self, node: &str) -> Result<BTreeMap<String, ProcessId>> {
        let mut found = BTreeMap::new();
        for id in self.cluster.processes(node)? {
            let read = |file: &str| fs::read(format!("/proc/{}/{file}", id.pid)).unwrap_or_default();
            let (name, environment) = (read("comm"), read("environ"));
            let is_task = PROGRAM.starts_with(String::from_utf8_lossy(&name).trim());
            let environment = String::from_utf8_lossy(&environment).into_owned();
            let allocation = environment.split('\0').find_map(|pair| pair.strip_prefix("NOMAD_ALLOC_ID="));
            if let (true, Some(allocation)) = (is_task, allocation) {
                found.insert(allocation.to_owned(), id);
            }
        }
        Ok(found)
    }

    /// The pods of a role.
    pub(crate) fn pods(&self, role: &str) -> Result<Vec<Value>> {
        let label = format!("app.kubernetes.io/component={role}");
        let list = self.read(&["pods", "-n", SYSTEM, "-l", &label])?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }
}

/// Whether a pod, or a job, is ready.
pub(crate) fn is_ready(object: &Value) -> bool {
    holds(object, "Ready")
}

/// Whether a condition of an object is true.
pub(crate) fn holds(object: &Value, condition: &str) -> bool {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|known| known["type"] == condition && known["status"] == "True")
}

/// A text in an object.
pub(crate) fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn chart() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/drover").display().to_string()
}

pub(crate) fn example(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name).display().to_string()
}

pub(crate) fn named(variable: &str) -> Result<PathBuf> {
    let path =
        std::env::var_os(variable).with_context(|| format!("{variable} is not set: run `cargo xtask cluster test`"))?;
    Ok(PathBuf::from(path))
}

/// Runs a command that must succeed.
pub(crate) fn said(mut command: Command, args: &[&str]) -> Result<String> {
    let output = command.output().with_context(|| format!("running {}", args.join(" ")))?;
    if !output.status.success() {
        bail!("{}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
