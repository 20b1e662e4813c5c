//! `bench cluster`: a controller in front of thousands of nodes. How fast it places against a bare loop of creates,
//! what a new leader costs, what heartbeats cost, and how soon freed room is used.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use drover_api::Allocation;
use drover_testkit::control_plane::Role;
use drover_testkit::process::ProcessId;
use drover_testkit::progress::Progress;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, PostParams, WatchEvent, WatchParams};
use kube::core::PartialObjectMeta;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::args::BenchArgs;
use super::cluster::NAMESPACE;
use super::cluster_stage::{CLIENTS, Stage, cpu_nanos, node_name, since};
use super::report::percentile;
use super::waiting::until;
use crate::interruption::unless_interrupted;

/// Nodes while jobs are placed, and allocations of each job.
const NODES: usize = 5000;
const PER_JOB: usize = 100;
/// Nodes of the two measurements of heartbeats, and how many fail of the greater.
const BEATING: [usize; 2] = [1000, 10_000];
const FAILING: usize = 100;
/// Heartbeats per second, as the controller allows, and how many are measured.
const BEATS_PER_SECOND: u32 = 250;
const BEATS: usize = 10_000;
/// How often room appears for a job that waits.
const ROUNDS: usize = 20;
/// Memory of a task: two fit on a node.
const TASK_MB: i64 = 3000;
/// The node of the job by which a new leader is known to plan, and that job.
const PROBE: &str = "probe";
/// What the controller logs of a node whose heartbeats do not arrive.
const SILENT: &str = "a node has been silent for too long";
/// What it logs when it has taken everything in.
const COMPLETE: &str = "caches are complete";
/// How long a new leader is watched for writes.
const WATCHED: Duration = Duration::from_secs(10);

/// Measures; when it is interrupted, everything that was started ends.
pub(super) async fn run(args: &BenchArgs, progress: &Progress) -> Result<Map<String, Value>> {
    unless_interrupted(measure(args, progress)).await
}

async fn measure(args: &BenchArgs, progress: &Progress) -> Result<Map<String, Value>> {
    let mut stage = Stage::open(args, progress).await?;
    let n_jobs = args.count.unwrap_or(100);
    let mut row = Map::new();
    stage.make_nodes(0..BEATING[0], progress).await?;
    let few = beats(&mut stage, BEATING[0], progress).await?;
    stage.kill_controllers().await?;
    stage.revive_nodes(0..BEATING[0]).await?;
    stage.make_nodes(BEATING[0]..NODES, progress).await?;
    place(&mut stage, n_jobs, &mut row, progress).await?;
    // What these nodes run must not be lost beside what is measured.
    let late: Vec<String> = (0..ROUNDS).map(late_name).chain([PROBE.to_owned()]).collect();
    let client = stage.client.clone();
    let rest = async {
        unblock(&stage, &mut row, progress).await?;
        fail_over(&mut stage, &mut row, progress).await?;
        stage.kill_controllers().await?;
        bare_loop(&stage, &mut row, progress).await?;
        stage.make_nodes(NODES..BEATING[1], progress).await?;
        let many = beats(&mut stage, BEATING[1], progress).await?;
        row.insert("cpuSecondsPerBeatAt1000".to_owned(), json!(few));
        row.insert("cpuSecondsPerBeatAt10000".to_owned(), json!(many));
        row.insert("beatCostRatio".to_owned(), json!(many / few));
        fail_nodes(&stage, &mut row, progress).await
    };
    tokio::select! {
        biased;
        stopped = Stage::keep_alive(&client, &late) => stopped?,
        measured = rest => measured?,
    }
    let ratio = |row: &Map<String, Value>| {
        let rate = |field: &str| row.get(field).and_then(Value::as_f64);
        Some(rate("allocationsPerSecond")? / rate("bareCreatesPerSecond")?)
    };
    row.insert("rateOverBare".to_owned(), json!(ratio(&row)));
    Ok(row)
}

/// The node of a job that waits for room, and the job.
fn late_name(round: usize) -> String {
    format!("late-{round}")
}

fn count(n: usize) -> f64 {
    u32::try_from(n).map_or(f64::MAX, f64::from)
}

/// Jobs of many allocations, from the first create request to the last allocation.
async fn place(stage: &mut Stage, n_jobs: usize, row: &mut Map<String, Value>, progress: &Progress) -> Result<()> {
    stage.kill_controllers().await?;
    let controller = stage.start_controller()?;
    stage.leads(stage.newest()).await?;
    stage.quiet(progress).await?;
    let total = n_jobs * PER_JOB;
    let step = progress.step(format!("placing {n_jobs} jobs of {PER_JOB}"));
    let (writes, cpu) = (stage.writes().await?, stage.cpu(Role::KubeApiserver));
    let own_cpu = cpu_nanos(controller)?;
    let mut seen = Watched::open(stage, NAMESPACE).await?;
    let began = Instant::now();
    let names: Vec<String> = (0..n_jobs).map(|job| format!("load-{job}")).collect();
    let creating = stream::iter(names.clone())
        .map(async |name| {
            let sent = Instant::now();
            stage.create_job(&name, "load", PER_JOB, TASK_MB).await.map(|()| (name, sent))
        })
        .buffer_unordered(8)
        .try_collect::<BTreeMap<String, Instant>>();
    let placing = async {
        let mut placed = Vec::new();
        while placed.len() < total {
            placed.push(seen.next().await?);
            step.moved("", placed.len() as u64, total as u64);
        }
        anyhow::Ok(placed)
    };
    let (sent, placed) = tokio::try_join!(creating, placing)?;
    let took = began.elapsed().as_secs_f64();
    step.done(format!("{:.0} per second", count(total) / took));
    let peak = controller.rss_bytes();
    stage.quiet(progress).await?;
    let writes = since(&writes, stage.writes().await?);
    let written = |resource: &str| *writes.get(resource).unwrap_or(&0);
    let mut seconds: Vec<f64> =
        placed.iter().filter_map(|(job, at)| Some(at.duration_since(*sent.get(job)?).as_secs_f64())).collect();
    seconds.sort_by(f64::total_cmp);
    let writes_of_kinds: u64 = ["jobs", "jobversions", "deployments"].into_iter().map(written).sum();
    let figures = json!({
        "nodes": NODES, "jobs": n_jobs, "allocations": total,
        "allocationsPerSecond": count(total) / took,
        "p50Seconds": percentile(&seconds, 50),
        "p99Seconds": percentile(&seconds, 99),
        "writesPerAllocation": whole(written("allocations")) / count(total),
        "writesByKind": writes,
        "otherWritesPerJob": whole(writes_of_kinds) / count(n_jobs),
        "controllerRssBytes": peak.max(controller.rss_bytes()),
        "controllerCpuSecondsPerAllocation": seconds_of(cpu_nanos(controller)? - own_cpu) / count(total),
        "apiserverCpuSecondsPerAllocation": stage.cpu(Role::KubeApiserver).saturating_sub(cpu).as_secs_f64() / count(total),
    });
    row.extend(figures.as_object().cloned().unwrap_or_default());
    Ok(())
}

fn whole(n: u64) -> f64 {
    u32::try_from(n).map_or(f64::MAX, f64::from)
}

fn seconds_of(nanos: u64) -> f64 {
    Duration::from_nanos(nanos).as_secs_f64()
}

/// The same objects, created by a loop that does nothing else, with one watch open.
async fn bare_loop(stage: &Stage, row: &mut Map<String, Value>, progress: &Progress) -> Result<()> {
    let placed =
        stage.api("Allocation", NAMESPACE).list(&ListParams::default()).await.context("listing Allocations")?;
    let copies: Vec<DynamicObject> = placed
        .items
        .into_iter()
        .map(|mut object| {
            object.metadata.namespace = Some("bare".to_owned());
            (object.metadata.uid, object.metadata.resource_version) = (None, None);
            object.metadata.managed_fields = None;
            // No agent is there that would take it away.
            object.metadata.finalizers = None;
            object
        })
        .collect();
    let (total, step) = (copies.len(), progress.step("creating the same objects in a bare loop"));
    let api = stage.api("Allocation", "bare");
    let mut seen = Watched::open(stage, "bare").await?;
    let began = Instant::now();
    let creating = async {
        let (api, params) = (&api, &PostParams::default());
        stream::iter(&copies)
            .map(async |copy| api.create(params, copy).await.map(|_| ()))
            .buffer_unordered(CLIENTS)
            .try_collect::<Vec<()>>()
            .await
            .context("creating a copy")
    };
    let watching = async {
        for _ in 0..total {
            seen.next().await?;
        }
        anyhow::Ok(())
    };
    tokio::try_join!(creating, watching)?;
    let rate = count(total) / began.elapsed().as_secs_f64();
    step.done(format!("{rate:.0} per second"));
    row.insert("bareCreatesPerSecond".to_owned(), json!(rate));
    // A controller would stop what belongs to no job, beside what is measured next.
    let deleted = api.delete_collection(&DeleteParams::default(), &ListParams::default()).await;
    deleted.map(|_| ()).context("deleting the copies")
}

/// Jobs that wait for memory, each on a node of its own, which then has it.
async fn unblock(stage: &Stage, row: &mut Map<String, Value>, progress: &Progress) -> Result<()> {
    let step = progress.step("giving room to jobs that wait for it");
    let mut seconds = Vec::new();
    for round in 0..ROUNDS {
        let name = late_name(round);
        stage.register_node(&name, &name, 1000).await?;
        stage.create_job(&name, &name, 1, TASK_MB).await?;
        let jobs = stage.api("Job", NAMESPACE);
        until(&format!("djob/{name} waits"), async || {
            let job = jobs.get(&name).await.context("reading a job")?;
            Ok(!job.data["status"]["blocked"].is_null())
        })
        .await?;
        let mut seen = Watched::open(stage, NAMESPACE).await?;
        let sent = Instant::now();
        let (resized, placed) = tokio::join!(stage.resize(&name, 8192), seen.next());
        resized?;
        let (job, at) = placed?;
        ensure!(job == name, "an allocation of djob/{job} was placed instead of one of djob/{name}");
        seconds.push(at.duration_since(sent).as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    step.done(format!("at most {:.3} s", percentile(&seconds, 100)));
    row.insert("unblockedP50Seconds".to_owned(), json!(percentile(&seconds, 50)));
    row.insert("unblockedMaxSeconds".to_owned(), json!(percentile(&seconds, 100)));
    Ok(())
}

/// The leader is killed twice: once nothing is to be done, once a job waits for the new leader.
async fn fail_over(stage: &mut Stage, row: &mut Map<String, Value>, progress: &Progress) -> Result<()> {
    stage.quiet(progress).await?;
    let step = progress.step("killing the leader");
    let before = stage.writes().await?;
    let follower = replace_leader(stage).await?;
    stage.leads(stage.newest()).await?;
    tokio::time::sleep(WATCHED).await;
    let differences = since(&before, stage.writes().await?);
    row.insert("newLeaderWrites".to_owned(), json!(differences.values().sum::<u64>()));
    row.insert("newLeaderWritten".to_owned(), json!(differences));
    let rss = follower.rss_bytes();
    row.insert("newLeaderRssBytes".to_owned(), json!(rss));
    stage.register_node(PROBE, PROBE, 8192).await?;
    replace_leader(stage).await?;
    stage.create_job(PROBE, PROBE, 1, TASK_MB).await?;
    let mut seen = Watched::open(stage, NAMESPACE).await?;
    let leads = stage.leads(stage.newest()).await?;
    let (_, at) = seen.next().await?;
    let planned_after = at.duration_since(leads).as_secs_f64();
    row.insert("newLeaderSeconds".to_owned(), json!(planned_after));
    let memory = follower.rss_bytes().max(rss) / 1_000_000;
    step.done(format!(
        "it planned {planned_after:.2} s after it led; {memory} MB; wrote {differences:?} without a need"
    ));
    Ok(())
}

/// Kills the leader while another controller waits for its Lease.
async fn replace_leader(stage: &mut Stage) -> Result<ProcessId> {
    let leader = stage.running().context("no controller runs")?;
    let follower = stage.start_controller()?;
    // It follows once it has looked at the Lease.
    tokio::time::sleep(Duration::from_secs(3)).await;
    leader.signal(drover_testkit::process::Signal::KILL).context("killing the leader")?;
    Ok(follower)
}

/// Processor time of one heartbeat while so many nodes beat.
async fn beats(stage: &mut Stage, n_nodes: usize, progress: &Progress) -> Result<f64> {
    stage.kill_controllers().await?;
    let controller = stage.start_controller()?;
    stage.leads(stage.newest()).await?;
    // Before that it writes nothing, and is not done.
    until("the controller knows everything", async || Ok(stage.log(stage.newest())?.contains(COMPLETE))).await?;
    stage.quiet(progress).await?;
    let nodes: Vec<usize> = (0..n_nodes).collect();
    let step = progress.step(format!("the first heartbeats of {n_nodes} nodes"));
    stage.beat(&nodes, BEATS_PER_SECOND).await?;
    step.done("");
    let rounds = BEATS / n_nodes;
    let step = progress.step(format!("{BEATS} heartbeats of {n_nodes} nodes"));
    let (writes, before) = (stage.writes().await?, cpu_nanos(controller)?);
    for _ in 0..rounds {
        stage.beat(&nodes, BEATS_PER_SECOND).await?;
    }
    let each = seconds_of(cpu_nanos(controller)? - before) / count(rounds * n_nodes);
    let written = since(&writes, stage.writes().await?);
    ensure!(written.is_empty(), "heartbeats of ready nodes led to writes: {written:?}");
    let silent = stage.log(stage.newest())?.matches(SILENT).count();
    ensure!(
        silent == 0,
        "{silent} nodes were found silent: the machine is too busy for {BEATS_PER_SECOND} heartbeats per second"
    );
    step.done(format!("{:.1} µs of processor time each", each * 1e6));
    Ok(each)
}

/// One in a hundred nodes falls silent; whose jobs are evaluated?
async fn fail_nodes(stage: &Stage, row: &mut Map<String, Value>, progress: &Progress) -> Result<()> {
    let (failing, theirs) = failing_nodes(stage).await?;
    let alive: Vec<usize> = (0..BEATING[1]).filter(|node| !failing.contains(&node_name(*node))).collect();
    let step = progress.step(format!("{} nodes fall silent", failing.len()));
    let skip = stage.log(stage.newest())?.len();
    let nodes = stage.nodes();
    let down = async || {
        let listed = nodes.list(&ListParams::default().fields("status.phase=down")).await.context("listing nodes")?;
        anyhow::Ok(
            listed
                .items
                .iter()
                .filter_map(|node| node.metadata.name.as_ref())
                .filter(|name| failing.contains(*name))
                .count(),
        )
    };
    let mut silent_for = 0;
    while down().await? < failing.len() {
        ensure!(silent_for < 8, "the silent nodes are not down after {silent_for} rounds of heartbeats");
        stage.beat(&alive, BEATS_PER_SECOND).await?;
        silent_for += 1;
    }
    stage.quiet(progress).await?;
    let log = stage.log(stage.newest())?;
    let evaluations: Vec<&str> = log[skip..]
        .lines()
        .filter(|line| line.contains("a job is evaluated"))
        .filter_map(|line| line.split_once("job=default/")?.1.split_whitespace().next())
        .collect();
    let evaluated: BTreeSet<&str> = evaluations.iter().copied().collect();
    let strangers = evaluated.iter().filter(|job| !theirs.contains(**job)).count();
    step.done(format!(
        "{} evaluations of {} jobs, {strangers} of them of other jobs than their {}",
        evaluations.len(),
        evaluated.len(),
        theirs.len()
    ));
    row.insert("evaluations".to_owned(), json!(evaluations.len()));
    row.insert("failedNodes".to_owned(), json!(failing.len()));
    row.insert("jobsOfFailedNodes".to_owned(), json!(theirs.len()));
    row.insert("jobsEvaluated".to_owned(), json!(evaluated.len()));
    row.insert("strangersEvaluated".to_owned(), json!(strangers));
    Ok(())
}

/// Nodes that shall fail, taken job by job so that most jobs have none of them; and the jobs that do.
async fn failing_nodes(stage: &Stage) -> Result<(BTreeSet<String>, BTreeSet<String>)> {
    let allocs =
        stage.api("Allocation", NAMESPACE).list(&ListParams::default()).await.context("listing Allocations")?;
    let text = |object: &DynamicObject, field: &str| object.data["spec"][field].as_str().unwrap_or_default().to_owned();
    let of_load = allocs.items.iter().filter(|alloc| text(alloc, "jobName").starts_with("load-"));
    let placed: BTreeSet<(String, String)> =
        of_load.map(|alloc| (text(alloc, "jobName"), text(alloc, "nodeName"))).collect();
    let mut failing = BTreeSet::new();
    for (_, node) in &placed {
        if failing.len() < FAILING {
            failing.insert(node.clone());
        }
    }
    let theirs = placed.iter().filter(|(_, node)| failing.contains(node)).map(|(job, _)| job.clone()).collect();
    Ok((failing, theirs))
}

/// The allocations that appear, by the name of their job.
struct Watched {
    api: Api<Allocation>,
    /// The newest write that was seen.
    version: String,
    events: stream::BoxStream<'static, kube::Result<WatchEvent<PartialObjectMeta<Allocation>>>>,
}

impl Watched {
    /// Allocations that are made from now on.
    async fn open(stage: &Stage, namespace: &str) -> Result<Self> {
        let api: Api<Allocation> = Api::namespaced(stage.client.clone(), namespace);
        let now = api.list_metadata(&ListParams::default().limit(1)).await.context("listing Allocations")?;
        let version = now.metadata.resource_version.context("a list without resourceVersion")?;
        let events = watch(&api, &version).await?;
        Ok(Self { api, version, events })
    }

    /// The next one. The API server ends the watch of a reader that it finds too slow; it goes on where it ended.
    async fn next(&mut self) -> Result<(String, Instant)> {
        loop {
            let event = tokio::time::timeout(Duration::from_mins(2), self.events.next()).await;
            match event.context("no new Allocation within 2 min")? {
                Some(Ok(WatchEvent::Added(object))) => {
                    self.version = object.metadata.resource_version.unwrap_or_default();
                    let labels = object.metadata.labels.unwrap_or_default();
                    return Ok((labels.get(drover_api::label::JOB).cloned().unwrap_or_default(), Instant::now()));
                }
                Some(Ok(WatchEvent::Modified(object) | WatchEvent::Deleted(object))) => {
                    self.version = object.metadata.resource_version.unwrap_or_default();
                }
                Some(Ok(WatchEvent::Bookmark(_))) => {}
                Some(Ok(WatchEvent::Error(status))) => bail!("the watch failed: {}", status.message),
                Some(Err(_)) | None => self.events = watch(&self.api, &self.version).await?,
            }
        }
    }
}

async fn watch(
    api: &Api<Allocation>,
    version: &str,
) -> Result<stream::BoxStream<'static, kube::Result<WatchEvent<PartialObjectMeta<Allocation>>>>> {
    let params = WatchParams::default().timeout(290);
    Ok(api.watch_metadata(&params, version).await.context("watching Allocations")?.boxed())
}
