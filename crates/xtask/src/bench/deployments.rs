//! `bench deployments`: thousands of roll-outs under way at once. What a change of one costs, what one adds to the
//! controller's memory, how many watches are open, and what a roll-out writes from its beginning to its end.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use drover_api::Allocation;
use drover_testkit::process::ProcessId;
use drover_testkit::progress::Progress;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::args::BenchArgs;
use super::cluster::NAMESPACE;
use super::cluster_stage::{CLIENTS, Stage, Writes, cpu_nanos, paced, since};
use super::waiting::{PATIENCE, until};
use crate::interruption::unless_interrupted;

/// How many roll-outs are under way in each row.
const SIZES: [usize; 3] = [1000, 10_000, 30_000];
/// Nodes, enough for the tasks of all.
const NODES: usize = 100;
/// How long changes are measured: one of a hundred roll-outs changes each second.
const CHANGING: Duration = Duration::from_secs(20);
/// How long nothing changes, to know what the controller costs by itself.
const RESTING: Duration = Duration::from_secs(10);
/// Allocations of the roll-out that goes to its end.
const ROLLED: usize = 10;

/// Measures; on Ctrl-C everything that was started ends.
pub(super) async fn run(args: &BenchArgs, progress: &Progress) -> Result<Vec<Map<String, Value>>> {
    let mut stage = Stage::open(args, progress).await?;
    stage.make_nodes(0..NODES, progress).await?;
    stage.start_controller()?;
    stage.leads(stage.newest()).await?;
    let (client, nodes): (_, Vec<usize>) = (stage.client.clone(), (0..NODES).collect());
    let beating = async {
        loop {
            Stage::beat_with(&client, &nodes, 20).await?;
        }
    };
    unless_interrupted(async {
        tokio::select! {
            biased;
            stopped = beating => stopped,
            measured = measure(args, &mut stage, progress) => measured,
        }
    })
    .await
}

async fn measure(args: &BenchArgs, stage: &mut Stage, progress: &Progress) -> Result<Vec<Map<String, Value>>> {
    let writes = finished(stage, progress).await?;
    let sizes: Vec<usize> = SIZES.into_iter().filter(|size| args.count.is_none_or(|most| *size <= most)).collect();
    ensure!(!sizes.is_empty(), "--count must be at least {}", SIZES[0]);
    let (mut rows, mut present) = (Vec::new(), 0);
    for size in sizes {
        begin(stage, present..size, progress).await?;
        present = size;
        rows.push(changes(stage, size, progress).await?);
    }
    let bytes = bytes_per_deployment(stage, present, progress).await?;
    summarize(&mut rows, &writes, bytes);
    Ok(rows)
}

/// The figures that the targets name, in the last row.
fn summarize(rows: &mut [Map<String, Value>], writes: &Writes, bytes: f64) {
    let figure = |row: Option<&Map<String, Value>>, field: &str| row?.get(field)?.as_f64();
    let (first, last) = (rows.first(), rows.last());
    let ratio = |field: &str| Some(figure(last, field)? / figure(first, field)?);
    let growth = || Some(figure(last, "openWatches")? - figure(first, "openWatches")?);
    let beyond: u64 = writes.iter().filter(|(kind, _)| *kind != "allocations").map(|(_, n)| n).sum();
    let figures = json!({
        "changeCostRatio": ratio("cpuSecondsPerChange"),
        "openWatchesGrowth": growth(),
        "bytesPerDeployment": bytes,
        "writesPerDeployment": beyond,
        "writesByKind": writes,
    });
    if let (Some(row), Value::Object(figures)) = (rows.last_mut(), figures) {
        row.extend(figures);
    }
}

fn job(name: &str, count: usize, release: &str) -> Result<DynamicObject> {
    let job = json!({ "apiVersion": drover_api::API_VERSION, "kind": "Job", "metadata": { "name": name },
        "spec": { "nodePool": "load", "meta": { "release": release },
            "update": { "maxParallel": 2, "minHealthyTime": "0s", "healthyDeadline": "23h", "progressDeadline": "24h" },
            "groups": [{ "name": "g", "count": count, "ephemeralDisk": { "sizeMB": 10 }, "tasks": [{ "name": "t", "driver": "mock",
                "env": { "RELEASE": release }, "logs": { "maxFiles": 1, "maxFileSizeMB": 1 }, "resources": { "cpu": 1, "memoryMB": 10 } }] }] } });
    serde_json::from_value(job).context("building a job")
}

/// Begins roll-outs that stay under way: of two allocations none is healthy.
async fn begin(stage: &Stage, range: std::ops::Range<usize>, progress: &Progress) -> Result<()> {
    let step = progress.step(format!("beginning {} roll-outs", range.len()));
    let jobs = stage.api("Job", NAMESPACE);
    stream::iter(range.clone())
        .map(async |number| {
            let created = jobs.create(&PostParams::default(), &job(&format!("roll-{number}"), 2, "1")?).await;
            created.map(|_| ()).with_context(|| format!("creating djob/roll-{number}"))
        })
        .buffer_unordered(CLIENTS)
        .try_collect::<Vec<()>>()
        .await?;
    let deployments = stage.api("Deployment", NAMESPACE);
    let (mut known, mut since) = (0, Instant::now());
    while known < range.end {
        // A page of one says how many there are beside it.
        let page = deployments.list_metadata(&ListParams::default().limit(1)).await.context("counting Deployments")?;
        let others = usize::try_from(page.metadata.remaining_item_count.unwrap_or(0)).context("fewer than none")?;
        let n = page.items.len() + others;
        if n > known {
            (known, since) = (n, Instant::now());
        }
        ensure!(
            since.elapsed() < PATIENCE,
            "{known} of {} roll-outs began, and no other one since {} s",
            range.end,
            PATIENCE.as_secs()
        );
        step.moved("", known as u64, range.end as u64);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    step.done("");
    stage.quiet(progress).await
}

/// What changes cost while so many roll-outs are under way.
async fn changes(stage: &Stage, size: usize, progress: &Progress) -> Result<Map<String, Value>> {
    let controller = stage.running().context("no controller runs")?;
    let step = progress.step(format!("changing one of a hundred of {size} roll-outs each second"));
    let one_of_each = allocations_of_jobs(stage).await?;
    ensure!(one_of_each.len() >= size, "{} of {size} roll-outs have allocations", one_of_each.len());
    let idle = cost(controller, async {
        tokio::time::sleep(RESTING).await;
        Ok(())
    })
    .await?
        / RESTING.as_secs_f64();
    let per_second = size / 100;
    let n_changes = per_second * usize::try_from(CHANGING.as_secs()).unwrap_or(0);
    // Another round of changes finds other roll-outs than the one before.
    let chosen: Vec<&String> = one_of_each.values().rev().take(n_changes).collect();
    let before = stage.writes().await?;
    let began = Instant::now();
    let spent = cost(controller, async {
        let changed = judge_healthy(stage, &chosen, per_second).await;
        // What follows from the last change is part of its cost.
        tokio::time::sleep(Duration::from_secs(5)).await;
        changed
    })
    .await?;
    let took = began.elapsed().as_secs_f64();
    let after = stage.writes().await?;
    let written = |kind: &str| after.get(kind).unwrap_or(&0) - before.get(kind).unwrap_or(&0);
    let changes = f64::from(u32::try_from(n_changes).context("too many changes")?);
    let each = (spent - idle * took).max(0.0) / changes;
    let row = json!({
        "deployments": size,
        "changesPerSecond": per_second,
        "cpuSecondsPerChange": each,
        "idleCpuFraction": idle,
        "openWatches": stage.open_watches().await?,
        "controllerRssBytes": controller.rss_bytes(),
        "deploymentWrites": written("deployments"),
        "jobWrites": written("jobs"),
    });
    step.done(format!("{:.0} µs of processor time each", each * 1e6));
    Ok(row.as_object().cloned().unwrap_or_default())
}

/// Processor seconds of a process while something happens.
async fn cost(process: ProcessId, work: impl Future<Output = Result<()>>) -> Result<f64> {
    let before = cpu_nanos(process)?;
    work.await?;
    Ok(Duration::from_nanos(cpu_nanos(process)? - before).as_secs_f64())
}

/// One allocation of each job.
async fn allocations_of_jobs(stage: &Stage) -> Result<BTreeMap<String, String>> {
    let api: Api<Allocation> = Api::namespaced(stage.client.clone(), NAMESPACE);
    let mut params = ListParams::default().limit(5000);
    let mut found = BTreeMap::new();
    loop {
        let page = api.list_metadata(&params).await.context("listing Allocations")?;
        for item in page.items {
            let job = item.metadata.labels.and_then(|mut labels| labels.remove(drover_api::label::JOB));
            if let (Some(job), Some(name)) = (job.filter(|job| job.starts_with("roll-")), item.metadata.name) {
                found.insert(job, name);
            }
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(found),
        }
    }
}

/// Says of each allocation that it runs and is healthy, so many per second.
async fn judge_healthy(stage: &Stage, names: &[&String], per_second: usize) -> Result<()> {
    let api = stage.api("Allocation", NAMESPACE);
    let per_second = u32::try_from(per_second.max(1)).context("too many changes per second")?;
    let paced = paced(names.iter().copied(), per_second);
    paced.map(async |name| report(&api, name, "running", true).await).buffer_unordered(CLIENTS).try_collect().await
}

/// Writes an allocation's status as its node would.
async fn report(api: &Api<DynamicObject>, name: &str, client_status: &str, is_healthy: bool) -> Result<()> {
    #[expect(clippy::disallowed_methods, reason = "a load generator has the machine's clock")]
    let now = Timestamp::now().to_string();
    let object = api.get(name).await.with_context(|| format!("reading {name}"))?;
    let deployment = object.data["spec"]["deploymentName"].as_str().unwrap_or_default();
    let mut status =
        json!({ "clientStatus": client_status, "observedGeneration": object.metadata.generation, "modifiedAt": now });
    if is_healthy {
        status["health"] = json!({ "healthy": true, "timestamp": now, "deploymentName": deployment });
    }
    let patch = Patch::Merge(json!({ "status": status }));
    let written = api.patch_status(name, &PatchParams::default(), &patch).await;
    written.map(|_| ()).with_context(|| format!("writing the status of {name}"))
}

/// The writes of a roll-out of ten allocations, two at a time, from the new manifest to the end.
async fn finished(stage: &Stage, progress: &Progress) -> Result<Writes> {
    let step = progress.step("rolling ten allocations out, two at a time");
    let jobs = stage.api("Job", NAMESPACE);
    jobs.create(&PostParams::default(), &job("rolled", ROLLED, "1")?).await.context("creating djob/rolled")?;
    play(stage, 0).await?;
    stage.quiet(progress).await?;
    let before = stage.writes().await?;
    let change = json!({ "spec": job("rolled", ROLLED, "2")?.data["spec"] });
    jobs.patch("rolled", &PatchParams::default(), &Patch::Merge(&change)).await.context("changing djob/rolled")?;
    play(stage, 1).await?;
    stage.quiet(progress).await?;
    let mut writes = since(&before, stage.writes().await?);
    step.done("");
    writes.remove("clientnodes");
    // The change itself is the user's.
    if let Some(jobs) = writes.get_mut("jobs") {
        *jobs -= 1;
    }
    Ok(writes)
}

/// Plays the nodes of the job until the roll-out of a version is over.
async fn play(stage: &Stage, version: i64) -> Result<()> {
    let (allocs, deployments) = (stage.api("Allocation", NAMESPACE), stage.api("Deployment", NAMESPACE));
    let of_job = ListParams::default().fields("spec.jobName=rolled");
    until(&format!("version {version} is rolled out"), async || {
        for alloc in allocs.list(&of_job).await.context("listing Allocations")?.items {
            let name = alloc.metadata.name.clone().unwrap_or_default();
            let status = alloc.data["status"]["clientStatus"].as_str().unwrap_or("pending");
            match (alloc.data["spec"]["desiredStatus"].as_str(), status) {
                (Some("run"), "pending") => report(&allocs, &name, "running", true).await?,
                (Some("stop"), "pending" | "running") => report(&allocs, &name, "complete", false).await?,
                _ => {}
            }
        }
        let all = deployments.list(&of_job).await.context("listing Deployments")?.items;
        Ok(all
            .iter()
            .any(|one| one.data["spec"]["jobVersion"] == version && one.data["status"]["phase"] == "successful"))
    })
    .await?;
    Ok(())
}

/// What the deployments add to a new leader's memory, beyond their jobs and allocations.
async fn bytes_per_deployment(stage: &mut Stage, size: usize, progress: &Progress) -> Result<f64> {
    let step = progress.step("comparing leaders with and without the deployments");
    let with = fresh_leader(stage, progress).await?;
    stage.kill_controllers().await?;
    let deployments = stage.api("Deployment", NAMESPACE);
    let all = deployments.list_metadata(&ListParams::default()).await.context("listing Deployments")?;
    // One by one: the API server gives up on a request after a minute, and on all at once it needs longer.
    stream::iter(all.items.into_iter().filter_map(|one| one.metadata.name))
        .map(async |name| deployments.delete(&name, &DeleteParams::default()).await.map(|_| ()))
        .buffer_unordered(CLIENTS)
        .try_collect::<Vec<()>>()
        .await
        .context("deleting Deployments")?;
    let without = fresh_leader(stage, progress).await?;
    let left = deployments.list_metadata(&ListParams::default().limit(1)).await.context("listing Deployments")?;
    ensure!(left.items.is_empty(), "a leader made deployments of jobs whose allocations were there");
    step.done("");
    let kilobytes = |bytes: u64| u32::try_from(bytes / 1024).map(f64::from);
    Ok((kilobytes(with)? - kilobytes(without)?) * 1024.0 / f64::from(u32::try_from(size)?))
}

/// The memory of a leader that has just begun.
async fn fresh_leader(stage: &mut Stage, progress: &Progress) -> Result<u64> {
    stage.kill_controllers().await?;
    let controller = stage.start_controller()?;
    stage.leads(stage.newest()).await?;
    stage.quiet(progress).await?;
    Ok(controller.rss_bytes())
}
