//! `bench start`: how long one task takes from `kubectl` to running.

use anyhow::Result;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::BenchArgs;
use super::cluster::{Allocations, Cluster, Seen};
use super::report::percentile;
use crate::progress::Progress;

pub(super) async fn run(args: &BenchArgs, progress: &Progress) -> Result<Map<String, Value>> {
    let n_jobs = args.count.unwrap_or(50);
    let cluster = Cluster::start(args, false, progress).await?;
    let measured = measure(&cluster, n_jobs, progress).await;
    cluster.stop(progress).await?;
    let mut seconds = measured?;
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

/// One job after the other: the next begins when nothing of the one before is left.
async fn measure(cluster: &Cluster, n_jobs: usize, progress: &Progress) -> Result<Vec<f64>> {
    let step = progress.step(format!("starting {n_jobs} jobs, one after the other"));
    let mut allocations = cluster.watch_allocations().await?;
    let mut seconds = Vec::new();
    for index in 0..n_jobs {
        let name = format!("start-{index}");
        let sent = Instant::now();
        cluster.create_job(&name, 1).await?;
        let seen = running(&mut allocations).await?;
        seconds.push(seen.duration_since(sent).as_secs_f64());
        cluster.delete_job(&name).await?;
        deleted(&mut allocations, &name).await?;
        step.moved("", index as u64 + 1, n_jobs as u64);
    }
    step.done("");
    Ok(seconds)
}

async fn running(allocations: &mut Allocations) -> Result<Instant> {
    loop {
        match allocations.next().await? {
            (at, Seen::Present { client_status, .. }) if client_status == "running" => return Ok(at),
            (_, Seen::Present { .. } | Seen::Deleted { .. }) => {}
        }
    }
}

async fn deleted(allocations: &mut Allocations, wanted: &str) -> Result<()> {
    loop {
        match allocations.next().await? {
            (_, Seen::Deleted { job }) if job == wanted => return Ok(()),
            (_, Seen::Present { .. } | Seen::Deleted { .. }) => {}
        }
    }
}
