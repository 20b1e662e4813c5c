//! `bench agent-neighbours`: a sandboxed task on a core of its own measures how late it wakes and how long a fixed
//! piece of work takes, alone and beside each kind of hog.
//!
//! What is left to share when two programs have cores of their own (caches, interrupts, the kernel's own threads, the
//! host of a virtual machine) no control group divides. So the other cores are also kept as busy without drover, by
//! programs that are pinned to them by hand: what the neighbour pays then is the least that it can pay on this machine.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use drover_testkit::progress::Progress;
use drover_testkit::spawner::spawn_bound_to_this_process;
use kube::api::{DeleteParams, DynamicObject, PostParams};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::args::BenchArgs;
use super::cluster::{AllocSeen, Allocations, Cluster, with_cluster};

/// Windows of which each state's figure is the median.
const WINDOWS: usize = 15;
/// Nothing is waited for longer than that.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Prints the 99th percentile of each second, in microseconds.
const MEASURE: &str = "
import os, time
print('cores', *os.sched_getaffinity(0), flush=True)
def work():
  n = 0
  for i in range(3000): n += i
while True:
  late, end = [], time.monotonic() + 1
  while time.monotonic() < end:
    t = time.monotonic()
    time.sleep(0.001)
    work()
    late.append(time.monotonic() - t - 0.001)
  late.sort()
  print(int(late[len(late) * 99 // 100] * 1e6), flush=True)
";

/// What runs beside it.
struct Hog {
    /// The name of its figures.
    name: &'static str,
    script: &'static str,
    memory_mb: i64,
    /// What keeps the other cores as busy without drover, and harms no task.
    pinned: &'static [&'static str],
}

const SPIN: &str = "while :; do :; done";

const HOGS: [Hog; 4] = [
    Hog {
        name: "cpuHog",
        script: "for n in 1 2 3; do (while :; do :; done) & done; wait",
        memory_mb: 64,
        pinned: &[SPIN, SPIN, SPIN],
    },
    Hog { name: "memoryHog", script: "while :; do tail /dev/zero; done", memory_mb: 128, pinned: &[SPIN] },
    Hog {
        name: "forkBomb",
        script: "exec python3 -c 'import os\nwhile True:\n  try: os.fork()\n  except OSError: pass'",
        memory_mb: 64,
        pinned: &[SPIN],
    },
    Hog {
        name: "diskFiller",
        script: "while :; do dd if=/dev/zero of=/local/fill bs=1M count=512; done",
        memory_mb: 64,
        pinned: &["while :; do dd if=/dev/zero of=fill bs=1M count=512; done"],
    },
];

pub(super) async fn run(args: &BenchArgs, progress: &Progress) -> Result<Map<String, Value>> {
    with_cluster(args, false, progress, async |cluster| measure(cluster, progress).await).await
}

async fn measure(cluster: &Cluster<'_>, progress: &Progress) -> Result<Map<String, Value>> {
    let mut allocations = cluster.watch_allocations().await?;
    let step = progress.step("measuring a task that is alone");
    let quiet = json!({"command": "python3", "args": ["-c", MEASURE]});
    create(cluster, "neighbour", quiet, &json!({"cores": 1, "memoryMB": 64})).await?;
    let uid = running(&mut allocations, "neighbour").await?;
    let folder = cluster.session.layout().agent_alloc().join(uid);
    let log = folder.join("alloc/logs/t.stdout.0");
    let mut alone = vec![figure(&log).await?];
    step.done(format!("p99 {} us", alone[0]));
    let others = other_cores(&log)?;
    let mut row = Map::new();
    for hog in &HOGS {
        let beside = beside(cluster, &mut allocations, hog, &log, progress).await?;
        let step = progress.step("measuring the task alone again");
        let quiet = figure(&log).await?;
        alone.push(quiet);
        step.done(format!("p99 {quiet} us"));
        row.insert(format!("{}P99Microseconds", hog.name), json!(beside));
        let step = progress.step(format!("measuring it beside as much of a {} without drover", hog.name));
        let pinned = beside_pinned(hog, &others, &folder, &log).await?;
        step.done(format!("p99 {pinned} us"));
        row.insert(format!("{}PinnedP99Microseconds", hog.name), json!(pinned));
    }
    alone.sort_unstable();
    let alone = alone[alone.len() / 2];
    row.insert("aloneP99Microseconds".to_owned(), json!(alone));
    let alone = f64::from(alone);
    for hog in &HOGS {
        let figure = |what: &str| row.get(&format!("{}{what}", hog.name)).and_then(Value::as_f64).context("a figure");
        let (beside, pinned) = (figure("P99Microseconds")?, figure("PinnedP99Microseconds")?);
        row.insert(format!("{}Times", hog.name), json!(beside / alone));
        row.insert(format!("{}TimesOfLeast", hog.name), json!(beside / pinned.max(alone)));
    }
    Ok(row)
}

/// The neighbour's figure beside a hog that drover runs.
async fn beside(
    cluster: &Cluster<'_>,
    allocations: &mut Allocations,
    hog: &Hog,
    log: &Path,
    progress: &Progress,
) -> Result<u32> {
    let step = progress.step(format!("measuring it beside a {}", hog.name));
    let job = hog.name.to_lowercase();
    let config = json!({"command": "/bin/sh", "args": ["-c", hog.script], "pidsLimit": 200});
    create(cluster, &job, config, &json!({"cpu": 100, "memoryMB": hog.memory_mb})).await?;
    running(allocations, &job).await?;
    let beside = figure(log).await?;
    let deleted = cluster.api("Job").delete(&job, &DeleteParams::default()).await;
    deleted.with_context(|| format!("deleting djob/{job}"))?;
    gone(allocations, &job).await?;
    step.done(format!("p99 {beside} us"));
    Ok(beside)
}

/// The neighbour's figure beside the same hog on the other cores, which this program alone runs.
async fn beside_pinned(hog: &Hog, cores: &str, folder: &Path, log: &Path) -> Result<u32> {
    let mut running = Vec::new();
    for script in hog.pinned {
        let mut command = Command::new("taskset");
        command.args(["-c", cores, "sh", "-c", script]).current_dir(folder).stderr(Stdio::null());
        running.push(spawn_bound_to_this_process(command).context("starting taskset (package util-linux)")?);
    }
    let figure = figure(log).await;
    for mut program in running {
        program.kill().and_then(|()| program.wait()).context("ending a hog")?;
    }
    figure
}

/// The cores that the neighbour has not, as `taskset` takes them.
fn other_cores(log: &Path) -> Result<String> {
    let text = std::fs::read_to_string(log).with_context(|| format!("reading {}", log.display()))?;
    let own =
        text.lines().find_map(|line| line.strip_prefix("cores ")).context("the neighbour does not tell its cores")?;
    let own: Vec<&str> = own.split(' ').collect();
    let n_cores = std::thread::available_parallelism().context("counting the cores")?.get();
    let others: Vec<String> =
        (0..n_cores).map(|core| core.to_string()).filter(|core| !own.contains(&core.as_str())).collect();
    ensure!(!others.is_empty(), "the neighbour has all cores: this needs a machine with two");
    Ok(others.join(","))
}

/// The median over the next windows; the one under way is left out.
async fn figure(log: &Path) -> Result<u32> {
    let read = || -> Vec<u32> {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    };
    let before = read().len() + 1;
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let seen = read();
        if seen.len() >= before + WINDOWS {
            let mut last = seen.get(before..before + WINDOWS).unwrap_or_default().to_vec();
            last.sort_unstable();
            return last.get(WINDOWS / 2).copied().context("no figure");
        }
        if Instant::now() > deadline {
            bail!("the neighbour does not measure: see {}", log.display());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Waits until the job's allocation runs; returns its uid.
async fn running(allocations: &mut Allocations, wanted: &str) -> Result<String> {
    loop {
        if let AllocSeen::Present { uid, job, client_status, .. } = allocations.next().await?.1
            && job == wanted
        {
            match client_status.as_str() {
                "running" => return Ok(uid),
                "failed" | "complete" | "lost" => bail!("djob/{job} is {client_status}"),
                _ => {}
            }
        }
    }
}

async fn gone(allocations: &mut Allocations, job: &str) -> Result<()> {
    loop {
        if let AllocSeen::Deleted { name } = allocations.next().await?.1
            && name.starts_with(job)
        {
            return Ok(());
        }
    }
}

async fn create(cluster: &Cluster<'_>, name: &str, config: Value, resources: &Value) -> Result<()> {
    let job: DynamicObject = serde_json::from_value(json!({
        "apiVersion": drover_api::API_VERSION,
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"type": "service", "groups": [{
            "name": "g",
            "ephemeralDisk": {"sizeMB": 10},
            "tasks": [{
                "name": "t",
                "driver": "exec",
                "config": config,
                "killTimeout": "1s",
                "resources": resources,
                "logs": {"maxFiles": 1, "maxFileSizeMB": 1},
            }],
        }]},
    }))
    .context("building the job")?;
    let created = cluster.api("Job").create(&PostParams::default(), &job).await;
    created.map(drop).with_context(|| format!("creating djob/{name}"))
}
