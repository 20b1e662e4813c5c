//! `bench status`: how long `drover job status -o wide` takes on a job with 10,000 allocations, and what it asks the
//! API server for.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use drover_testkit::progress::Progress;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Map, Value, json};
use tokio::process::Command;

use super::args::BenchArgs;
use super::cluster::NAMESPACE;
use super::cluster_stage::{CLIENTS, Stage, build};
use crate::interruption::unless_interrupted;

/// Allocations of the job, unless `--count` says otherwise.
const ALLOCATIONS: usize = 10_000;
/// How often the command is run; the first time warms the API server's caches and does not count.
const CALLS: usize = 11;
/// Events of a task, as many as an allocation keeps.
const EVENTS: usize = 10;

/// Measures; when it is interrupted, everything that was started ends.
pub(super) async fn run(args: &BenchArgs, progress: &Progress) -> Result<Map<String, Value>> {
    let stage = Stage::open(args, progress).await?;
    let drover = build("drover", args, progress)?;
    unless_interrupted(measure(args, &stage, &drover, progress)).await
}

async fn measure(args: &BenchArgs, stage: &Stage, drover: &Path, progress: &Progress) -> Result<Map<String, Value>> {
    let n_allocations = args.count.unwrap_or(ALLOCATIONS);
    let uid = create_job(stage).await?;
    let bytes = create_allocations(stage, &uid, n_allocations, progress).await?;
    let step = progress.step("running drover job status");
    let mut took = Vec::new();
    let before = stage.lists().await?;
    for _ in 0..CALLS {
        took.push(call(stage, drover, n_allocations).await?);
    }
    let lists = stage.lists().await? - before;
    step.done("");
    took.remove(0);
    took.sort_unstable();
    let row = json!({
        "allocations": n_allocations,
        "bytesPerAllocation": bytes,
        "p50Seconds": took[took.len() / 2].as_secs_f64(),
        "mostSeconds": took[took.len() - 1].as_secs_f64(),
        "allocationListsPerCall": f64::from(u32::try_from(lists)?) / f64::from(u32::try_from(CALLS)?),
    });
    Ok(row.as_object().cloned().unwrap_or_default())
}

/// One run of the command, from its start to its end.
async fn call(stage: &Stage, drover: &Path, n_allocations: usize) -> Result<Duration> {
    let began = Instant::now();
    let output = Command::new(drover)
        // Wide, because only that shows each of them.
        .args(["job", "status", "web", "-o", "wide", "-n", NAMESPACE, "--kubeconfig"])
        .arg(stage.kubeconfig())
        .stdin(Stdio::null())
        .output()
        .await
        .context("running drover")?;
    let took = began.elapsed();
    ensure!(output.status.success(), "drover job status: {}", String::from_utf8_lossy(&output.stderr).trim());
    let lines = String::from_utf8_lossy(&output.stdout).matches("web-g-").count();
    ensure!(lines == n_allocations, "drover job status shows {lines} of {n_allocations} allocations");
    Ok(took)
}

pub(super) async fn create_job(stage: &Stage) -> Result<String> {
    let job = json!({ "apiVersion": drover_api::API_VERSION, "kind": "Job", "metadata": { "name": "web" },
        "spec": { "groups": [{ "name": "g", "count": 10_000, "tasks": [{ "name": "t", "driver": "mock" }] }] } });
    let job: DynamicObject = serde_json::from_value(job).context("building a job")?;
    let created = stage.api("Job", NAMESPACE).create(&PostParams::default(), &job).await;
    created.context("creating djob/web")?.metadata.uid.context("an object without a uid")
}

/// Creates the allocations with the statuses of a life of some days; returns the size of one.
pub(super) async fn create_allocations(
    stage: &Stage,
    job_uid: &str,
    count: usize,
    progress: &Progress,
) -> Result<usize> {
    let step = progress.step(format!("creating {count} allocations"));
    let allocs = stage.api("Allocation", NAMESPACE);
    let status = Patch::Merge(json!({ "status": status() }));
    stream::iter(0..count)
        .map(async |index| {
            let name = format!("web-g-{index}");
            let alloc: DynamicObject = serde_json::from_value(allocation(&name, ("web", job_uid), index))?;
            allocs.create(&PostParams::default(), &alloc).await.with_context(|| format!("creating {name}"))?;
            let patched = allocs.patch_status(&name, &PatchParams::default(), &status).await;
            patched.map(|_| ()).with_context(|| format!("writing the status of {name}"))
        })
        .buffer_unordered(CLIENTS)
        .try_collect::<Vec<()>>()
        .await?;
    let mut one = allocs.get("web-g-0").await.context("reading an allocation")?;
    one.metadata.managed_fields = None;
    step.done("");
    Ok(serde_json::to_string(&one)?.len())
}

/// An allocation of a job, by its name and uid.
pub(super) fn allocation(name: &str, (job, job_uid): (&str, &str), index: usize) -> Value {
    json!({ "apiVersion": drover_api::API_VERSION, "kind": "Allocation",
        "metadata": { "name": name, "labels": { drover_api::label::JOB: job } },
        "spec": { "jobName": job, "jobUID": job_uid, "jobVersion": 3, "group": "g", "index": index,
            "nodeName": format!("n-{:05}", index % 1000), "deploymentName": "web-0a1b2c3d", "desiredStatus": "run",
            "resources": { "tasks": { "t": { "cpu": 100, "memoryMB": 256 } }, "shared": { "diskMB": 300 } },
            "metrics": { "nodesEvaluated": 1000, "nodesFiltered": 12, "nodesInPool": 1000 } } })
}

fn status() -> Value {
    let at = "2026-11-20T08:00:00Z";
    let condition = |kind: &str, reason: &str, message: &str| {
        json!({ "type": kind, "status": "True", "reason": reason, "message": message,
            "observedGeneration": 1, "lastTransitionTime": at })
    };
    let events: Vec<Value> = (0..EVENTS)
        .map(|n| json!({ "type": "Restarting", "time": at, "exitCode": 1,
            "message": format!("exit code 1; start {n} of its restart policy follows in 15 s, as its interval of 30 m has room for one more") }))
        .collect();
    json!({ "observedGeneration": 1, "clientStatus": "running", "modifiedAt": at,
        "columns": { "healthy": "true", "restarts": "9", "reason": "Running" },
        "health": { "healthy": true, "timestamp": at, "deploymentName": "web-0a1b2c3d" },
        "conditions": [condition("Ready", "Running", "its tasks run and are healthy"), condition("Healthy", "Healthy", "healthy for 10s")],
        "taskStates": { "t": { "state": "running", "failed": false, "restarts": 9, "startedAt": at, "events": events } } })
}
