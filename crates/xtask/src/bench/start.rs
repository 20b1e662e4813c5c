//! `bench start`: how long one task takes from `kubectl` to running.

use anyhow::{Result, bail};
use drover_testkit::progress::Progress;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::args::BenchArgs;
use super::cluster::{AllocSeen, Allocations, Cluster, with_cluster};
use super::report::percentile;

pub(super) async fn run(args: &BenchArgs, progress: &Progress) -> Result<Map<String, Value>> {
    let n_jobs = args.count.unwrap_or(50);
    let mut seconds =
        with_cluster(args, false, progress, async |cluster| measure(cluster, n_jobs, progress).await).await?;
    seconds.sort_by(f64::total_cmp);
    let row = json!({
        "jobs": n_jobs,
        "p50Seconds": percentile(&seconds, 50),
        "p99Seconds": percentile(&seconds, 99),
        "minSeconds": percentile(&seconds, 0),
        "maxSeconds": percentile(&seconds, 100),
    });
    Ok(row.as_object().cloned().unwrap_or_default())
}

/// One job after the other: the next begins when all that is to be written about the one before has been written.
async fn measure(cluster: &Cluster<'_>, n_jobs: usize, progress: &Progress) -> Result<Vec<f64>> {
    let step = progress.step(format!("starting {n_jobs} jobs, one after the other"));
    let mut allocations = cluster.watch_allocations().await?;
    let mut seconds = Vec::new();
    for index in 0..n_jobs {
        let name = format!("start-{index}");
        let sent = Instant::now();
        cluster.create_job(&name, 1).await?;
        seconds.push(running(&mut allocations, &name).await?.duration_since(sent).as_secs_f64());
        step.moved("", index as u64 + 1, n_jobs as u64);
    }
    step.done("");
    Ok(seconds)
}

/// Returns when the job's allocation was first seen running, once it has also been seen healthy.
async fn running(allocations: &mut Allocations, wanted: &str) -> Result<Instant> {
    let mut first = None;
    loop {
        match allocations.next().await? {
            (at, AllocSeen::Present { job, client_status, is_healthy, .. })
                if job == wanted && client_status == "running" =>
            {
                let first = *first.get_or_insert(at);
                if is_healthy {
                    return Ok(first);
                }
            }
            (_, AllocSeen::Present { .. }) => {}
            (_, AllocSeen::Deleted { name }) => bail!("the allocation {name} was deleted"),
        }
    }
}
