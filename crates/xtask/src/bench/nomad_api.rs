//! `bench nomad-api`: what clients of Nomad cost two replicas of the gateway. `nomad job status` of 10,000 allocations,
//! 1,000 reads that wait for one job to change, and 1,000 subscribers of the event stream.

use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use drover_testkit::nomad_cli;
use drover_testkit::progress::Progress;
use futures::{AsyncBufReadExt as _, AsyncReadExt as _, Stream, StreamExt as _, TryStreamExt as _};
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::{Map, Value, json};
use tokio::process::Command;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::args::BenchArgs;
use super::cluster::NAMESPACE;
use super::cluster_stage::{CLIENTS, Gateway, Stage, paced};
use super::door::{Door, trusted, url};
use super::report::{percentile, warm_median};
use super::status;
use super::waiting::until;
use crate::interruption::unless_interrupted;

/// Allocations of the job that is looked at, unless `--count` says otherwise.
const ALLOCATIONS: usize = 10_000;
/// How often `nomad job status` is run; the first time warms up and does not count.
const CALLS: usize = 6;
/// Reads that wait for a change of one job.
const BLOCKED: usize = 1000;
/// How long they wait while requests to the API server are counted.
const WAITING: Duration = Duration::from_secs(10);
/// Subscribers, half of them at each replica.
const SUBSCRIBERS: usize = 1000;
/// Of so many one measures; the others only read: programs that understand a million lines would be all that is
/// measured.
const EACH: usize = 20;
/// A user has at most 128 streams at a replica.
const USERS: usize = 4;
/// Allocations of which one is updated at a time, as by its agent: most events of a cluster are of that kind.
const UPDATED: usize = 100;
/// Events per second, and for how long.
const EVENTS_PER_SECOND: u32 = 100;
const TELLING: Duration = Duration::from_secs(10);
/// What an event is recognised by: when its change was sent, in microseconds since the bench began.
const MARK: &str = "sent-at:";

/// Measures; when it is interrupted, everything that was started ends.
pub(super) async fn run(args: &BenchArgs, progress: &Progress) -> Result<Map<String, Value>> {
    let nomad = nomad_cli::find_or_build(progress)?;
    let mut stage = Stage::open(args, progress).await?;
    unless_interrupted(measure(args, &mut stage, nomad, progress)).await
}

async fn measure(
    args: &BenchArgs,
    stage: &mut Stage,
    nomad: PathBuf,
    progress: &Progress,
) -> Result<Map<String, Value>> {
    let n_allocations = args.count.unwrap_or(ALLOCATIONS);
    let uid = status::create_job(stage).await?;
    status::create_allocations(stage, &uid, n_allocations, progress).await?;
    stage.create_job("job-0", "none", 1, 10).await?;
    let step = progress.step("starting two replicas of the gateway");
    let users = trusted(&stage.client, USERS).await?;
    let began = Instant::now();
    let first = stage.start_gateway("a").await?;
    let door = Door::open(&stage.client, users, began).await?;
    let client = door.client(first.users, &door.users[0]).await?;
    until("the gateway answers", async || Ok(ask(&client, "job/web").await.is_ok())).await?;
    let ready = began.elapsed();
    let replicas = [first, stage.start_gateway("b").await?];
    step.done("");

    let mut row = json!({ "allocations": n_allocations, "readySeconds": ready.as_secs_f64() });
    let parts = [
        looks(&door, &replicas[0], nomad, progress).await?,
        waits(stage, &door, &replicas[0], progress).await?,
        follows(stage, &door, &replicas, progress).await?,
    ];
    if let Some(row) = row.as_object_mut() {
        row.extend(parts.into_iter().flatten());
    }
    Ok(row.as_object().cloned().unwrap_or_default())
}

fn get(path: &str) -> Result<http::Request<Vec<u8>>> {
    http::Request::get(format!("/v1/{path}")).body(Vec::new()).context("building a request")
}

async fn ask(client: &kube::Client, path: &str) -> Result<String> {
    client.request_text(get(path)?).await.with_context(|| format!("asking for {path}"))
}

/// `nomad job status` of the large job: time of the command, and what it costs the replica.
async fn looks(door: &Door, replica: &Gateway, nomad: PathBuf, progress: &Progress) -> Result<Map<String, Value>> {
    let step = progress.step("running nomad job status");
    let (mut took, mut cost) = (Vec::new(), Vec::new());
    for _ in 0..CALLS {
        let (began, before) = (Instant::now(), replica.process.cpu_time());
        let output = Command::new(&nomad)
            .args(["job", "status", "web"])
            .env_clear()
            .env("NOMAD_ADDR", url(replica.users))
            .env("NOMAD_CACERT", door.authority_file())
            .env("NOMAD_TOKEN", &door.users[0])
            .stdin(Stdio::null())
            .output()
            .await
            .context("running nomad")?;
        took.push(began.elapsed().as_secs_f64());
        cost.push(replica.process.cpu_time().saturating_sub(before).as_secs_f64());
        ensure!(output.status.success(), "nomad job status: {}", String::from_utf8_lossy(&output.stderr).trim());
        ensure!(String::from_utf8_lossy(&output.stdout).contains("Allocations"), "it shows no allocations");
    }
    step.done("");
    let row = json!({
        "jobStatusSeconds": warm_median(took),
        "jobStatusGatewayCpuSeconds": warm_median(cost),
        "gatewayRssBytes": replica.process.rss_bytes(),
    });
    Ok(row.as_object().cloned().unwrap_or_default())
}

/// Reads that wait for one job: what they ask of the API server meanwhile, and how long a change takes to the last.
async fn waits(stage: &Stage, door: &Door, replica: &Gateway, progress: &Progress) -> Result<Map<String, Value>> {
    let step = progress.step(format!("waiting with {BLOCKED} reads"));
    let client = door.client(replica.users, &door.users[0]).await?;
    let index = version(&stage.api("Job", NAMESPACE).get("job-0").await.context("reading a job")?)?;
    let mut reads = JoinSet::new();
    for _ in 0..BLOCKED {
        let client = client.clone();
        reads.spawn(async move {
            let text = ask(&client, &format!("job/job-0?index={index}&wait=5m")).await?;
            anyhow::Ok((Instant::now(), text.contains("changed")))
        });
    }
    // Each of them has a connection of its own by then.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (before, cpu) = (stage.requests().await?, replica.process.cpu_time());
    tokio::time::sleep(WAITING).await;
    let (calls, cpu) = (stage.requests().await? - before, replica.process.cpu_time().saturating_sub(cpu));
    ensure!(reads.try_join_next().is_none(), "a read was answered before anything changed");
    let changed = Patch::Merge(json!({ "spec": { "meta": { "state": "changed" } } }));
    let patched = stage.api("Job", NAMESPACE).patch("job-0", &PatchParams::default(), &changed).await;
    patched.context("changing a job")?;
    let (at, mut last) = (Instant::now(), Duration::ZERO);
    while let Some(read) = reads.join_next().await {
        let (answered, is_changed) = read.context("a read has panicked")??;
        ensure!(is_changed, "a read was answered with the old state");
        last = last.max(answered.saturating_duration_since(at));
    }
    step.done("");
    let row = json!({
        "blockedReads": BLOCKED,
        "blockedIdleApiCalls": calls,
        "blockedIdleCpuFraction": cpu.as_secs_f64() / WAITING.as_secs_f64(),
        "blockedAllAnsweredSeconds": last.as_secs_f64(),
    });
    Ok(row.as_object().cloned().unwrap_or_default())
}

/// Subscribers of the event stream: from the moment a change is sent until each has its line.
async fn follows(stage: &Stage, door: &Door, replicas: &[Gateway], progress: &Progress) -> Result<Map<String, Value>> {
    let step = progress.step(format!("telling {SUBSCRIBERS} subscribers of {EVENTS_PER_SECOND} events per second"));
    let n_events = usize::try_from(u64::from(EVENTS_PER_SECOND) * TELLING.as_secs()).context("too many")?;
    create_updated(stage).await?;
    let are_there = Arc::new(Barrier::new(SUBSCRIBERS + 1));
    let (mut measured, mut others) = (JoinSet::new(), JoinSet::new());
    for n in 0..SUBSCRIBERS {
        let (at, began, are_there) = (replicas[n % replicas.len()].users, door.began, Arc::clone(&are_there));
        let client = door.client(at, &door.users[n / replicas.len() % USERS]).await?;
        let subscribed = async move {
            let mut stream = client.request_stream(get("event/stream?topic=Allocation&index=999999999")?).await?;
            let mut first = [0; 3];
            stream.read_exact(&mut first).await.context("reading the first line")?;
            ensure!(&first == b"{}\n", "a stream does not begin with an empty line");
            are_there.wait().await;
            anyhow::Ok(stream)
        };
        if n % EACH == 0 {
            measured.spawn(async move { delays(subscribed.await?.lines(), n_events, began).await });
        } else {
            others.spawn(async move {
                let mut stream = subscribed.await?;
                loop {
                    let n = stream.fill_buf().await.context("a stream broke off")?.len();
                    ensure!(n > 0, "a stream has ended");
                    stream.consume_unpin(n);
                }
            });
        }
    }
    tokio::select! {
        biased;
        Some(ended) = others.join_next() => return ended.context("a subscriber has panicked")?,
        _ = are_there.wait() => {}
    }
    let began = door.began;
    let allocations = stage.api("Allocation", NAMESPACE);
    let newest = allocations.list_metadata(&ListParams::default()).await.context("listing allocations")?.metadata;
    let plain = Box::pin(watched(allocations, newest.resource_version.unwrap_or_default(), n_events, began));
    let before = cpu_of(replicas);
    let (changes, plain) = tokio::try_join!(change(stage, door, n_events), plain)?;
    let mut all = Vec::new();
    while let Some(ended) = measured.join_next().await {
        all.extend(ended.context("a subscriber has panicked")??);
        step.moved("", all.len() as u64, (SUBSCRIBERS / EACH * n_events) as u64);
    }
    let cpu = cpu_of(replicas).saturating_sub(before);
    if let Some(ended) = others.try_join_next() {
        ended.context("a subscriber has panicked")??;
    }
    step.done("");
    all.sort_by(f64::total_cmp);
    let row = json!({
        "subscribers": SUBSCRIBERS,
        "linesMeasured": all.len(),
        "changeP50Seconds": percentile(&changes, 50),
        "changeP99Seconds": percentile(&changes, 99),
        "watchP50Seconds": percentile(&plain, 50),
        "watchP99Seconds": percentile(&plain, 99),
        "eventP50Seconds": percentile(&all, 50),
        "eventP99Seconds": percentile(&all, 99),
        "eventGatewayCpuSecondsPerLine": cpu.as_secs_f64() / f64::from(u32::try_from(SUBSCRIBERS * n_events)?),
        "gatewayRssBytesWithSubscribers": replicas[0].process.rss_bytes(),
    });
    Ok(row.as_object().cloned().unwrap_or_default())
}

/// How long each event took, from the moment its change was sent.
async fn delays(
    mut lines: impl Stream<Item = io::Result<String>> + Unpin,
    n_events: usize,
    began: Instant,
) -> Result<Vec<f64>> {
    let mut all = Vec::with_capacity(n_events);
    while all.len() < n_events {
        let line = lines.next().await.context("the stream has ended")?.context("the stream broke off")?;
        let now = began.elapsed();
        for (at, mark) in line.match_indices(MARK) {
            let digits: String = line[at + mark.len()..].chars().take_while(char::is_ascii_digit).collect();
            all.push(now.saturating_sub(Duration::from_micros(digits.parse()?)).as_secs_f64());
        }
    }
    Ok(all)
}

/// How long each change took to a plain watch of the API server, from the moment it was sent: what a subscriber cannot
/// be faster than.
async fn watched(
    allocations: Api<DynamicObject>,
    mut version: String,
    n_events: usize,
    began: Instant,
) -> Result<Vec<f64>> {
    let mut all = Vec::with_capacity(n_events);
    while all.len() < n_events {
        // The API server ends a watch when its reader lags, and goes on with the next one where it was.
        let events = allocations.watch(&WatchParams::default(), &version).await.context("watching allocations")?;
        let mut events = std::pin::pin!(events);
        while all.len() < n_events
            && let Some(event) = events.try_next().await.context("watching allocations")?
        {
            let now = began.elapsed();
            let WatchEvent::Modified(allocation) = event else { continue };
            version = allocation.metadata.resource_version.unwrap_or_default();
            let told = allocation.data.pointer("/status/clientDescription").and_then(Value::as_str);
            if let Some(sent) = told.and_then(|told| told.strip_prefix(MARK)) {
                all.push(now.saturating_sub(Duration::from_micros(sent.parse()?)).as_secs_f64());
            }
        }
    }
    all.sort_by(f64::total_cmp);
    Ok(all)
}

/// Makes the allocations that are updated, which have just started.
async fn create_updated(stage: &Stage) -> Result<()> {
    let allocations = stage.api("Allocation", NAMESPACE);
    let at = "2026-11-20T08:00:00Z";
    let started = json!({ "type": "Started", "time": at, "message": "Task started by client" });
    let status =
        Patch::Merge(json!({ "status": { "observedGeneration": 1, "clientStatus": "running", "modifiedAt": at,
        "taskStates": { "t": { "state": "running", "startedAt": at, "events": [started] } } } }));
    for n in 0..UPDATED {
        let name = format!("updated-{n}");
        let made = serde_json::from_value(status::allocation(&name, ("updated", "none"), n))?;
        allocations.create(&PostParams::default(), &made).await.with_context(|| format!("creating {name}"))?;
        let patched = allocations.patch_status(&name, &PatchParams::default(), &status).await;
        patched.with_context(|| format!("writing the status of {name}"))?;
    }
    Ok(())
}

/// Updates one allocation after the other, at the rate, each with the time at which that was sent. How long the API
/// server took for each, which the subscribers' figures have in them.
async fn change(stage: &Stage, door: &Door, n_events: usize) -> Result<Vec<f64>> {
    let allocations = stage.api("Allocation", NAMESPACE);
    let changed = paced(0..n_events, EVENTS_PER_SECOND).map(async |n| {
        let sent = door.began.elapsed();
        let told = format!("{MARK}{}", sent.as_micros());
        let patch = Patch::Merge(json!({ "status": { "clientDescription": told } }));
        let name = format!("updated-{}", n % UPDATED);
        let patched = allocations.patch_status(&name, &PatchParams::default(), &patch).await;
        patched.context("updating an allocation")?;
        anyhow::Ok(door.began.elapsed().saturating_sub(sent).as_secs_f64())
    });
    let mut took: Vec<f64> = changed.buffer_unordered(CLIENTS).try_collect().await?;
    took.sort_by(f64::total_cmp);
    Ok(took)
}

fn version(object: &DynamicObject) -> Result<u64> {
    let version = object.metadata.resource_version.as_deref().context("an object without a version")?;
    version.parse().context("a version that is no number")
}

/// Threads come and go: what those that ended have taken counts too.
fn cpu_of(replicas: &[Gateway]) -> Duration {
    replicas.iter().map(|replica| replica.process.cpu_time()).sum()
}
