//! `bench agent-neighbours`: a sandboxed task on a core of its own measures how late it wakes and how long a fixed piece of work
//! takes, first alone, then beside each kind of hog.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use kube::api::{DeleteParams, DynamicObject, PostParams};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::BenchArgs;
use super::cluster::{Allocations, Cluster, Seen, with_cluster};
use crate::progress::Progress;

/// Windows of which each state's figure is the median.
const WINDOWS: usize = 5;
/// Nothing is waited for longer than that.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Prints the 99th percentile of each second, in microseconds.
const MEASURE: &str = "
import time
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

/// What runs beside it: the figure's name, the script, memory in mebibytes.
const HOGS: [(&str, &str, i64); 4] = [
    ("cpuHog", "for n in 1 2 3; do (while :; do :; done) & done; wait", 64),
    ("memoryHog", "while :; do tail /dev/zero; done", 128),
    ("forkBomb", "exec python3 -c 'import os\nwhile True:\n  try: os.fork()\n  except OSError: pass'", 64),
    ("diskFiller", "while :; do dd if=/dev/zero of=/local/fill bs=1M count=512; done", 64),
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
    let log = cluster.session.layout().agent_alloc().join(uid).join("alloc/logs/t.stdout.0");
    let alone = figure(&log).await?;
    step.done(format!("p99 {alone} us"));
    let mut row = Map::new();
    row.insert("aloneP99Microseconds".to_owned(), json!(alone));
    for (name, script, memory_mb) in HOGS {
        let step = progress.step(format!("measuring it beside a {name}"));
        let job = name.to_lowercase();
        let config = json!({"command": "/bin/sh", "args": ["-c", script], "pidsLimit": 200});
        create(cluster, &job, config, &json!({"cpu": 100, "memoryMB": memory_mb})).await?;
        running(&mut allocations, &job).await?;
        let beside = figure(&log).await?;
        cluster
            .api("Job")
            .delete(&job, &DeleteParams::default())
            .await
            .with_context(|| format!("deleting djob/{job}"))?;
        gone(&mut allocations, &job).await?;
        step.done(format!("p99 {beside} us"));
        row.insert(format!("{name}P99Microseconds"), json!(beside));
        row.insert(format!("{name}Times"), json!(f64::from(beside) / f64::from(alone.max(1))));
    }
    Ok(row)
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
        if let Seen::Present { uid, job, client_status, .. } = allocations.next().await?.1
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
        if let Seen::Deleted { name } = allocations.next().await?.1
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
