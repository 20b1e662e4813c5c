//! `bench containers`: what a container's start takes from the create request on, beside `ctr run -d` in turn; what a
//! network on the node's bridge adds; memory; and how long a new agent takes to find its containers again.
//!
//! All of it runs in a network namespace of its own: bridges and their rules are not for the machine's.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use drover_testkit::containerd::OwnContainerd;
use drover_testkit::control_plane::Binaries;
use drover_testkit::process::ProcessId;
use drover_testkit::progress::Progress;
use drover_testkit::{cargo, cluster, image};
use kube::api::{DynamicObject, PostParams};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::agent::{all_running, processes, restore};
use super::args::BenchArgs;
use super::cluster::{Allocations, Cluster, with_cluster};
use super::report::percentile;
use super::waiting::until;

/// The image, which only waits.
const IMAGE: &str = "drover.dev/bench-pause:1";
/// The namespace of containerd in which `ctr` runs containers.
const CTR: &str = "bench";
/// Starts of each kind, in turn.
const SINGLE_STARTS: usize = 30;
/// How long the machine rests before each of them: what the last one has left to write, to collect and to prepare is no
/// part of the next one's start.
const REST: Duration = Duration::from_millis(300);
/// Allocations of several containers, and how many those have.
const LARGE: usize = 20;
const CONTAINERS_OF_LARGE: usize = 4;
/// All containers, unless `--count` says otherwise.
const CONTAINERS: usize = 200;
/// Says that this process is in a network namespace of the bench.
const PLACED: &str = "DROVER_BENCH_PLACED";

/// Whether this process may make bridges; if not, [`in_own_network`] is to run the bench.
pub(super) fn is_placed() -> bool {
    std::env::var_os(PLACED).is_some()
}

/// Builds what needs a network to be built, then runs this command again in a network namespace that has a loopback
/// device only.
pub(super) fn in_own_network(progress: &Progress) -> Result<ExitCode> {
    ensure!(rustix::process::geteuid().is_root(), "containers need root: run this as root");
    Binaries::find_or_build_for_user(progress)?;
    cluster::node_programs(progress)?;
    let mut fetch = cargo::command();
    let fetched = fetch.args(["fetch", "--locked"]).stdout(Stdio::null()).status().context("running cargo fetch")?;
    ensure!(fetched.success(), "cargo fetch ended with {fetched}");
    let program = std::env::current_exe().context("finding this program")?;
    let mut command = Command::new("unshare");
    command.args(["--net", "--", "sh", "-c", "ip link set lo up && exec \"$0\" \"$@\""]).arg(program);
    command.args(std::env::args_os().skip(1)).env(PLACED, "1").env("CARGO_NET_OFFLINE", "true");
    let ended = command.status().context("running unshare (package util-linux)")?;
    let code = ended.code().or_else(|| Some(128 + ended.signal()?)).context("it ended without a code")?;
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(2)))
}

pub(super) async fn run(args: &BenchArgs, progress: &Progress) -> Result<Map<String, Value>> {
    let n_containers = args.count.unwrap_or(CONTAINERS);
    let n_before = 2 * SINGLE_STARTS + LARGE * CONTAINERS_OF_LARGE;
    ensure!(n_containers > n_before, "--count: at least {} containers are measured", n_before + 1);
    with_cluster(args, true, progress, async |cluster| {
        Containers::open(cluster, progress)?.measure(n_containers - n_before, progress).await
    })
    .await
}

struct Containers<'a> {
    cluster: &'a Cluster<'a>,
    containerd: &'a OwnContainerd,
}

impl<'a> Containers<'a> {
    /// Gives containerd the image.
    fn open(cluster: &'a Cluster<'a>, progress: &Progress) -> Result<Self> {
        let step = progress.step("giving containerd an image");
        let containerd = cluster.session.containerd().context("no containerd runs")?;
        let archive = cluster.session.layout().root.join("image.tar");
        let archive = image::archive_of(IMAGE, "pause", &containerd.programs().join("pause"), &archive)?;
        for namespace in ["drover.dev", CTR] {
            containerd.ctr_in(namespace, &["images", "import", "--local", &archive.display().to_string()])?;
        }
        step.done("");
        Ok(Self { cluster, containerd })
    }

    async fn measure(&self, n_rest: usize, progress: &Progress) -> Result<Map<String, Value>> {
        let mut allocations = self.cluster.watch_allocations().await?;
        let own_before = self.own_pss()?;
        let singles = self.single_starts(&mut allocations, progress).await?;
        let step = progress.step(format!("starting {LARGE} allocations of {CONTAINERS_OF_LARGE} containers"));
        let of_singles = self.shims_pss(2 * SINGLE_STARTS).await?;
        self.create("large", "none", (LARGE, CONTAINERS_OF_LARGE)).await?;
        all_running(&mut allocations, "large", LARGE).await?;
        let of_large = self.shims_pss(2 * SINGLE_STARTS + LARGE).await?.saturating_sub(of_singles);
        step.done("");
        let step = progress.step(format!("starting {n_rest} more"));
        self.create("rest", "none", (n_rest, 1)).await?;
        all_running(&mut allocations, "rest", n_rest).await?;
        step.done("");
        let n_allocs = 2 * SINGLE_STARTS + LARGE + n_rest;
        let n_containers = n_allocs + LARGE * (CONTAINERS_OF_LARGE - 1);
        let own = self.own_pss()?.saturating_sub(own_before);
        let step = progress.step("killing the agent and starting another one");
        let before = self.tasks()?;
        let restored = restore(self.cluster, n_allocs).await?;
        ensure!(self.tasks()? == before, "containers are not those that ran before the agent's death");
        ensure!(before.len() == n_containers, "{} of {n_containers} containers run", before.len());
        step.done("");

        let first = per(of_singles, 2 * SINGLE_STARTS)?;
        let more = (per(of_large, LARGE)? - first) / as_f64(CONTAINERS_OF_LARGE - 1)?;
        let mut row = singles;
        let rest = json!({
            "containers": n_containers,
            "firstContainerPssBytes": first,
            "moreContainerPssBytes": more,
            "ownPssBytesPerContainer": per(own, n_containers)?,
            "restoreSeconds": restored.took.as_secs_f64(),
            "restoreEvents": restored.n_events,
        });
        row.extend(rest.as_object().cloned().unwrap_or_default());
        Ok(row)
    }

    /// Starts of drover's without and with a bridge, and such of `ctr`, in turn: what the machine does meanwhile meets
    /// all of them.
    async fn single_starts(&self, allocations: &mut Allocations, progress: &Progress) -> Result<Map<String, Value>> {
        let step = progress.step(format!("starting {SINGLE_STARTS} containers of each kind, one after the other"));
        let (mut plain, mut by_ctr, mut bridged) = (Vec::new(), Vec::new(), Vec::new());
        for n in 0..SINGLE_STARTS {
            tokio::time::sleep(REST).await;
            plain.push(self.start(allocations, &format!("plain-{n}"), "none").await?);
            tokio::time::sleep(REST).await;
            by_ctr.push(self.run_by_ctr(n)?.as_secs_f64());
            tokio::time::sleep(REST).await;
            bridged.push(self.start(allocations, &format!("bridge-{n}"), "bridge").await?);
            step.moved("", n as u64 + 1, SINGLE_STARTS as u64);
        }
        step.done("");
        for figures in [&mut plain, &mut by_ctr, &mut bridged] {
            figures.sort_by(f64::total_cmp);
        }
        let row = json!({
            "startP50Seconds": percentile(&plain, 50),
            "startP99Seconds": percentile(&plain, 99),
            "ctrRunP50Seconds": percentile(&by_ctr, 50),
            "startToCtrRun": percentile(&plain, 50) / percentile(&by_ctr, 50),
            "bridgeStartP50Seconds": percentile(&bridged, 50),
            "bridgeAddsSeconds": percentile(&bridged, 50) - percentile(&plain, 50),
        });
        Ok(row.as_object().cloned().unwrap_or_default())
    }

    /// From the create request to the event that shows the allocation running.
    async fn start(&self, allocations: &mut Allocations, job: &str, mode: &str) -> Result<f64> {
        let sent = Instant::now();
        self.create(job, mode, (1, 1)).await?;
        all_running(allocations, job, 1).await?;
        Ok(sent.elapsed().as_secs_f64())
    }

    /// How long `ctr run -d` takes; the container ends afterwards, which is not counted.
    fn run_by_ctr(&self, n: usize) -> Result<Duration> {
        let name = format!("ctr-{n}");
        let began = Instant::now();
        self.containerd.ctr_in(CTR, &["run", "-d", IMAGE, &name])?;
        let took = began.elapsed();
        self.containerd.ctr_in(CTR, &["tasks", "rm", "--force", &name])?;
        self.containerd.ctr_in(CTR, &["containers", "rm", &name])?;
        Ok(took)
    }

    /// The containers that run, with their processes.
    fn tasks(&self) -> Result<Vec<String>> {
        let listed = self.containerd.ctr(&["tasks", "ls"])?;
        let mut tasks: Vec<String> =
            listed.lines().filter(|line| line.contains("RUNNING")).map(str::to_owned).collect();
        tasks.sort();
        Ok(tasks)
    }

    /// Memory of the processes that look after containers, once what helped to start them is gone.
    async fn shims_pss(&self, wanted: usize) -> Result<u64> {
        let what = format!("a process each looks after {wanted} allocations");
        until(&what, async || Ok(self.containerd.shims().len() == wanted)).await?;
        Ok(self.containerd.shims().into_iter().map(ProcessId::pss_bytes).sum())
    }

    /// Memory of the agent and its supervisor.
    fn own_pss(&self) -> Result<u64> {
        Ok(processes(self.cluster)?.into_iter().map(ProcessId::pss_bytes).sum())
    }

    async fn create(&self, name: &str, mode: &str, (count, n_tasks): (usize, usize)) -> Result<()> {
        let task = |n: usize| {
            json!({
                "name": if n == 0 { "sleep".to_owned() } else { format!("sleep-{n}") },
                "driver": "containerd", "config": { "image": IMAGE }, "killSignal": "SIGKILL",
                "resources": { "cpu": 4, "memoryMB": 10 }, "logs": { "maxFiles": 1, "maxFileSizeMB": 1 },
            })
        };
        let job: DynamicObject = serde_json::from_value(json!({
            "apiVersion": drover_api::API_VERSION, "kind": "Job", "metadata": { "name": name },
            "spec": { "update": { "maxParallel": 0 }, "groups": [{
                "name": "sleep", "count": count, "ephemeralDisk": { "sizeMB": 10 }, "networks": [{ "mode": mode }],
                "tasks": (0..n_tasks).map(task).collect::<Vec<_>>(),
            }] },
        }))
        .context("building the job")?;
        let created = self.cluster.api("Job").create(&PostParams::default(), &job).await;
        created.map(drop).with_context(|| format!("creating djob/{name}"))
    }
}

fn as_f64(n: usize) -> Result<f64> {
    u32::try_from(n).map(f64::from).context("too many")
}

fn per(bytes: u64, n: usize) -> Result<f64> {
    let bytes = u32::try_from(bytes / 1024).context("more memory than can be")?;
    Ok(f64::from(bytes) * 1024.0 / as_f64(n)?)
}
