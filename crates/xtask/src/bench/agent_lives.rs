//! `bench agent-lives`: allocations that begin over ten seconds, each watched until it is healthy: what is written
//! about it, and how long after its minimum time the API server shows its health.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use drover_testkit::control_plane::{AuditEvent, AuditLog};
use drover_testkit::progress::Progress;
use serde_json::{Map, Value, json};

use super::args::BenchArgs;
use super::cluster::{AllocSeen, Allocations, Cluster, now, with_cluster};
use super::report::percentile;

/// Jobs, which come evenly.
const JOBS: usize = 100;
/// The time from one job to the next.
const BETWEEN: Duration = Duration::from_millis(100);
/// How long a task runs before it is healthy: the default of `update.minHealthyTime`.
const MIN_HEALTHY: Duration = Duration::from_secs(10);
/// After the last verdict nothing more may be written; this long it is watched.
const AFTERWARDS: Duration = Duration::from_secs(3);

pub(super) async fn run(args: &BenchArgs, progress: &Progress) -> Result<Map<String, Value>> {
    with_cluster(args, true, progress, async |cluster| measure(cluster, args, progress).await).await
}

async fn measure(cluster: &Cluster<'_>, args: &BenchArgs, progress: &Progress) -> Result<Map<String, Value>> {
    let per_job = (args.count.unwrap_or(1000) / JOBS).max(1);
    let n_lives = per_job * JOBS;
    let mut log = AuditLog::at_end(&cluster.session.layout().audit_log())?;
    let mut allocations = cluster.watch_allocations().await?;
    let step = progress.step(format!("{n_lives} allocations of {JOBS} jobs begin, one job each {BETWEEN:?}"));
    let begin = async {
        let mut turns = tokio::time::interval(BETWEEN);
        for job in 0..JOBS {
            turns.tick().await;
            cluster.create_job(&format!("lives-{job}"), per_job).await?;
        }
        Ok(())
    };
    let (delays, ()) = futures::future::try_join(health_delays(&mut allocations, n_lives), begin).await?;
    step.done("");
    tokio::time::sleep(AFTERWARDS).await;
    let events = log.read_new()?;
    let of_agent = writes_each(&events, "agent");
    let of_controller = writes_each(&events, "controller");
    let most = |writes: &BTreeMap<&str, u32>| writes.values().copied().max().unwrap_or(0);
    let sum = |writes: &BTreeMap<&str, u32>| f64::from(writes.values().sum::<u32>());
    let n = f64::from(u32::try_from(n_lives).context("too many allocations")?);
    let row = json!({
        "allocations": n_lives,
        "agentWritesMost": most(&of_agent),
        "agentWritesMean": sum(&of_agent) / n,
        "controllerWritesMost": most(&of_controller),
        "controllerWritesMean": sum(&of_controller) / n,
        "healthDelayP50Seconds": percentile(&delays, 50),
        "healthDelayP99Seconds": percentile(&delays, 99),
        "healthDelayMaxSeconds": percentile(&delays, 100),
    });
    row.as_object().cloned().context("a row")
}

/// How long after its minimum time each allocation is first shown healthy, sorted.
async fn health_delays(allocations: &mut Allocations, n_lives: usize) -> Result<Vec<f64>> {
    let mut seen = BTreeSet::new();
    let mut delays = Vec::new();
    while delays.len() < n_lives {
        match allocations.next().await?.1 {
            AllocSeen::Present { name, is_healthy: true, started_at, .. } if !seen.contains(&name) => {
                let started = started_at.with_context(|| format!("the healthy allocation {name} has not started"))?;
                delays.push(now().duration_since(started).as_secs_f64() - MIN_HEALTHY.as_secs_f64());
                seen.insert(name);
            }
            AllocSeen::Present { name, client_status, .. }
                if matches!(client_status.as_str(), "failed" | "complete" | "lost") =>
            {
                bail!("the allocation {name} is {client_status}");
            }
            AllocSeen::Present { .. } => {}
            AllocSeen::Deleted { name } => bail!("the allocation {name} was deleted"),
        }
    }
    delays.sort_by(f64::total_cmp);
    Ok(delays)
}

/// Counts what a role wrote about each allocation, refused writes included.
fn writes_each<'a>(events: &'a [AuditEvent], role: &str) -> BTreeMap<&'a str, u32> {
    let mut writes = BTreeMap::new();
    let is_ours = |event: &&AuditEvent| event.user.contains(role) && event.resource.starts_with("allocations.");
    for event in events.iter().filter(is_ours) {
        *writes.entry(event.name.as_str()).or_default() += 1;
    }
    writes
}
