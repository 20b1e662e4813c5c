//! `bench services`: what checks cost an agent, how long it takes until nothing finds an allocation whose check fails,
//! and what a controller writes for it.
//!
//! No Service may lead to the loopback, where the agent of a bench is. So the way is measured in two parts, the first
//! from the failed answer to the agent's word on a cluster with an agent, the second from that word to the slice on one
//! without; their p99 are added, which is no less than the p99 of both.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use drover_testkit::control_plane::{AuditLog, Role};
use drover_testkit::progress::Progress;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::args::BenchArgs;
use super::cluster::{Cluster, NAMESPACE, with_cluster};
use super::cluster_stage::{CLIENTS, Stage, node_name, paced, since};
use super::density::{counts, wait_until_quiet};
use super::echoes::cpu_of_thread;
use super::gateway::{SETTLED, WATCHED, fraction, raise_files};
use super::report::percentile;
use super::waiting::until;
use crate::interruption::unless_interrupted;

/// Tasks with a check, unless `--count` says otherwise.
const TASKS: usize = 200;
/// How often each is checked.
const INTERVAL: Duration = Duration::from_secs(1);
/// Tasks whose check is made to fail, one after the other.
const FAILURES: usize = 50;
/// Slices that one controller keeps, and the nodes of their allocations.
const SLICES: usize = 1000;
const NODES: usize = 20;
/// Changes of agents' words in a second, and how many come.
const CHANGES_PER_SECOND: u32 = 100;
const CHANGES: usize = 3000;
/// No answer is waited for longer than that.
const PATIENCE: Duration = Duration::from_mins(2);
const SERVICE: &str = "checked";

/// Measures; when it is interrupted, everything that was started ends.
pub(super) async fn run(args: &BenchArgs, progress: &Progress) -> Result<Map<String, Value>> {
    raise_files()?;
    let n_tasks = args.count.unwrap_or(TASKS);
    let mut row = with_cluster(args, true, progress, async |cluster| {
        checked(cluster, (n_tasks, args.idle_seconds()), progress).await
    })
    .await?;
    let mut stage = Stage::open(args, progress).await?;
    row.extend(unless_interrupted(kept(&mut stage, progress)).await?);
    let p99 = |name: &str| row.get(name).and_then(Value::as_f64).with_context(|| format!("no {name}"));
    let both = p99("failedToWordP99Seconds")? + p99("wordToSliceP99Seconds")?;
    row.insert("failedToSliceP99Seconds".to_owned(), json!(both));
    Ok(row)
}

/// What tasks answer to their checks: the bench does, in their stead.
#[derive(Clone, Debug, Default)]
struct Answers(Arc<Mutex<BTreeMap<SocketAddr, Option<Instant>>>>);

impl Answers {
    /// Checks of this address fail from now on.
    fn fail(&self, at: SocketAddr) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(at, None);
    }

    /// When the first one failed.
    fn failed(&self, at: SocketAddr) -> Option<Instant> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&at).copied().flatten()
    }

    /// Notes a request; the answer's status.
    fn status(&self, at: SocketAddr) -> &'static str {
        match self.0.lock().unwrap_or_else(PoisonError::into_inner).get_mut(&at) {
            Some(failed) => {
                failed.get_or_insert_with(Instant::now);
                "503 Service Unavailable"
            }
            None => "200 OK",
        }
    }

    async fn serve(self, listener: TcpListener, at: SocketAddr) -> Result<()> {
        loop {
            let (mut stream, _) = listener.accept().await.context("accepting a check")?;
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                if stream.read_buf(&mut head).await.context("reading a check")? == 0 {
                    break;
                }
            }
            let answer = format!("HTTP/1.1 {}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", self.status(at));
            stream.write_all(answer.as_bytes()).await.context("answering a check")?;
        }
    }
}

/// An allocation with a check.
#[derive(Clone, Debug)]
struct Checked {
    name: String,
    at: SocketAddr,
}

/// Tasks that are checked, and such whose check fails.
async fn checked(
    cluster: &Cluster<'_>,
    (n_tasks, idle_seconds): (usize, u64),
    progress: &Progress,
) -> Result<Map<String, Value>> {
    let step = progress.step(format!("starting {n_tasks} tasks with a check each"));
    let job = json!({
        "apiVersion": drover_api::API_VERSION, "kind": "Job", "metadata": { "name": SERVICE },
        "spec": { "update": { "maxParallel": 0 }, "groups": [{
            "name": "g", "count": n_tasks, "ephemeralDisk": { "sizeMB": 10 },
            "networks": [{ "ports": [{ "label": "http" }] }],
            "services": [{ "name": SERVICE, "portLabel": "http", "checks": [
                { "name": "up", "type": "http", "path": "/", "interval": seconds(INTERVAL), "timeout": "5s" }] }],
            "tasks": [{
                "name": "t", "driver": "raw_exec", "config": { "command": "/bin/sleep", "args": ["100000"] },
                "resources": { "cpu": 1, "memoryMB": 10 }, "logs": { "maxFiles": 1, "maxFileSizeMB": 1 } }],
        }] },
    });
    let job = serde_json::from_value(job).context("building a job")?;
    cluster.api("Job").create(&PostParams::default(), &job).await.context("creating a job")?;
    let allocs = cluster.api("Allocation");
    let (answers, mut serving, mut all) = (Answers::default(), JoinSet::new(), Vec::new());
    until("each has its port", async || Ok(allocs.list(&ListParams::default()).await?.items.len() == n_tasks)).await?;
    for alloc in allocs.list(&ListParams::default()).await.context("listing Allocations")? {
        let alloc = of_allocation(&alloc)?;
        let listener = TcpListener::bind(alloc.at).await.with_context(|| format!("listening on {}", alloc.at))?;
        serving.spawn(answers.clone().serve(listener, alloc.at));
        all.push(alloc);
    }
    until("all are found", async || {
        let all = allocs.list(&ListParams::default()).await.context("listing Allocations")?;
        let n_ready = all.iter().filter(|alloc| is_ready(alloc)).count();
        step.moved("", n_ready as u64, n_tasks as u64);
        Ok(n_ready == n_tasks)
    })
    .await?;
    step.done("");
    let mut log = AuditLog::at_end(&cluster.session.layout().audit_log())?;
    wait_until_quiet(&mut log, true, progress).await?;
    let agent = cluster.session.process(Role::Agent).context("the agent does not run")?;
    let step = progress.step(format!("watching {n_tasks} checks for {idle_seconds} s"));
    let cpu = fraction(agent, Duration::from_secs(idle_seconds)).await;
    let writes = log.read_new()?.iter().filter(|event| counts(event)).count();
    step.done("");
    let step = progress.step(format!("asking {n_tasks} addresses as often, beside which this is a ratio"));
    let addresses = all.iter().map(|alloc| alloc.at).collect();
    let asked = cpu_of_requests(addresses).await?;
    step.done("");
    let failed = failing(&allocs, &all, &answers, progress).await?;
    if let Some(ended) = serving.try_join_next() {
        ended.context("an answering task has panicked")??;
    }
    let row = json!({
        "tasks": n_tasks,
        "idleWrites": writes,
        "agentCpuFraction": cpu,
        "requestsCpuFraction": asked,
        "agentCpuToRequests": cpu / asked,
        "failures": failed.len(),
        "failedToWordP50Seconds": percentile(&failed, 50),
        "failedToWordP99Seconds": percentile(&failed, 99),
    });
    Ok(row.as_object().cloned().unwrap_or_default())
}

/// A duration as a manifest has it.
fn seconds(duration: Duration) -> String {
    format!("{}s", duration.as_secs())
}

fn of_allocation(alloc: &DynamicObject) -> Result<Checked> {
    let name = alloc.metadata.name.clone().context("an object without a name")?;
    let port = &alloc.data["spec"]["resources"]["ports"][0];
    let host = port["hostIP"].as_str().filter(|ip| !ip.is_empty()).unwrap_or("127.0.0.1");
    let number = port["value"].as_u64().with_context(|| format!("{name} has no port"))?;
    let at = format!("{host}:{number}").parse().with_context(|| format!("{name} has the port {port}"))?;
    Ok(Checked { name, at })
}

/// Whether the agent says that something answers.
fn is_ready(alloc: &DynamicObject) -> bool {
    alloc.data.pointer("/status/services/0/ready").and_then(Value::as_bool) == Some(true)
}

/// Makes checks fail; how long the agent's word took from the first failed answer, in order.
async fn failing(
    allocs: &Api<DynamicObject>,
    all: &[Checked],
    answers: &Answers,
    progress: &Progress,
) -> Result<Vec<f64>> {
    let n_failures = all.len().min(FAILURES);
    let step = progress.step(format!("making {n_failures} checks fail"));
    let version = allocs.list(&ListParams::default()).await.context("listing Allocations")?.metadata.resource_version;
    let version = version.context("a list without resourceVersion")?;
    let events = allocs.watch(&WatchParams::default().timeout(290), &version).await.context("watching Allocations")?;
    let mut events = std::pin::pin!(events);
    let mut took = Vec::new();
    for alloc in &all[..n_failures] {
        answers.fail(alloc.at);
        let word = async {
            while let Some(event) = events.try_next().await? {
                let at = Instant::now();
                match event {
                    WatchEvent::Modified(seen)
                        if seen.metadata.name.as_ref() == Some(&alloc.name) && !is_ready(&seen) =>
                    {
                        return Ok(at);
                    }
                    WatchEvent::Error(status) => bail!("the watch on Allocations failed: {}", status.message),
                    _ => {}
                }
            }
            bail!("the watch on Allocations ended")
        };
        let at = tokio::time::timeout(PATIENCE, word).await.with_context(|| format!("no word of {}", alloc.name))??;
        let failed = answers.failed(alloc.at).with_context(|| format!("{} was not asked", alloc.name))?;
        took.push(at.duration_since(failed).as_secs_f64());
        step.moved("", took.len() as u64, n_failures as u64);
    }
    step.done("");
    took.sort_by(f64::total_cmp);
    Ok(took)
}

/// Part of a core that a thread needs which asks each of these as often as its check does, over a connection of its own
/// each time, and does nothing else.
async fn cpu_of_requests(addresses: Vec<SocketAddr>) -> Result<f64> {
    let watched = async move {
        let mut asking = JoinSet::new();
        let n_addresses = u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
        for (n, address) in (0..).zip(addresses) {
            let first = Instant::now() + INTERVAL * n / n_addresses;
            asking.spawn(async move {
                let mut due = tokio::time::interval_at(first, INTERVAL);
                loop {
                    due.tick().await;
                    let mut stream = TcpStream::connect(address).await?;
                    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await?;
                    stream.read_to_end(&mut Vec::new()).await?;
                }
            });
        }
        let ended: Option<Result<std::io::Result<()>, _>> = asking.join_next().await;
        bail!("an address is not asked any more: {ended:?}")
    };
    cpu_of_thread(watched, SETTLED, WATCHED).await
}

/// Slices that a controller keeps while agents' words change.
async fn kept(stage: &mut Stage, progress: &Progress) -> Result<Map<String, Value>> {
    let step = progress.step(format!("making {NODES} nodes and {SLICES} allocations"));
    let cores: Api<Node> = Api::all(stage.client.clone());
    for n in 0..NODES {
        let (name, address) = (node_name(n), format!("10.77.0.{}", n + 1));
        let core = json!({ "metadata": { "name": name } });
        cores.create(&PostParams::default(), &serde_json::from_value(core)?).await.context("creating a node")?;
        let addresses = json!({ "status": { "addresses": [{ "type": "InternalIP", "address": address }] } });
        let patched = cores.patch_status(&name, &PatchParams::default(), &Patch::Merge(&addresses)).await;
        patched.with_context(|| format!("writing the addresses of {name}"))?;
        stage.make_node(name.clone(), "load", 1_000_000).await?;
        let networks = json!({ "status": { "fingerprint": {
            "hostNetworks": [{ "name": "default", "cidr": format!("{address}/32") }],
            "resources": { "cpu": 1_000_000 } } } });
        let patched = stage.nodes().patch_status(&name, &PatchParams::default(), &Patch::Merge(&networks)).await;
        patched.with_context(|| format!("writing the networks of {name}"))?;
    }
    let controller = stage.start_controller()?;
    stage.leads(stage.newest()).await?;
    let names: Vec<String> = (0..NODES).map(node_name).collect();
    let client = stage.client.clone();
    let row = tokio::select! {
        biased;
        row = changed(stage, step, progress) => row?,
        ended = Stage::keep_alive(&client, &names) => bail!("nodes are not kept alive any more: {ended:?}"),
    };
    ensure!(controller.is_alive(), "the controller has ended");
    Ok(row)
}

async fn changed(
    stage: &Stage,
    step: drover_testkit::progress::Step,
    progress: &Progress,
) -> Result<Map<String, Value>> {
    let job = json!({ "apiVersion": drover_api::API_VERSION, "kind": "Job", "metadata": { "name": SERVICE },
        "spec": { "nodePool": "load", "update": { "maxParallel": 0 }, "groups": [{ "name": "g", "count": SLICES,
            "ephemeralDisk": { "sizeMB": 10 }, "networks": [{ "ports": [{ "label": "http" }] }],
            "services": [{ "name": SERVICE, "portLabel": "http" }],
            "tasks": [{ "name": "t", "driver": "mock", "resources": { "cpu": 1, "memoryMB": 10 },
                "logs": { "maxFiles": 1, "maxFileSizeMB": 1 } }] }] } });
    let job = serde_json::from_value(job).context("building a job")?;
    stage.api("Job", NAMESPACE).create(&PostParams::default(), &job).await.context("creating a job")?;
    let allocs = stage.api("Allocation", NAMESPACE);
    until("all are placed", async || {
        let n_placed = allocs.list(&ListParams::default()).await.context("listing Allocations")?.items.len();
        step.moved("", n_placed as u64, SLICES as u64);
        Ok(n_placed == SLICES)
    })
    .await?;
    let all = allocs.list(&ListParams::default()).await.context("listing Allocations")?;
    let all = all.into_iter().filter_map(|alloc| Some((alloc.metadata.name?, alloc.metadata.uid?)));
    let all: Vec<(String, String)> = all.collect();
    let say = async |(name, uid): &(String, String), is_ready: bool| {
        let registration = json!({ "id": id(uid), "serviceName": SERVICE, "ready": is_ready });
        let status = json!({ "status": { "clientStatus": "running", "services": [registration] } });
        let patched = allocs.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await;
        patched.map(|_| ()).with_context(|| format!("writing the status of {name}"))
    };
    stream::iter(&all).map(|alloc| say(alloc, true)).buffer_unordered(CLIENTS).try_collect::<Vec<()>>().await?;
    let slices: Api<EndpointSlice> = Api::namespaced(stage.client.clone(), NAMESPACE);
    let ready = async || {
        let all = slices.list(&ListParams::default()).await.context("listing EndpointSlices")?;
        let words = all.items.iter().filter_map(|slice| Some((owner(slice)?, word(slice)?)));
        anyhow::Ok((words.collect::<BTreeMap<_, _>>(), all.metadata.resource_version.unwrap_or_default()))
    };
    until("all slices are ready", async || {
        let (words, _) = ready().await?;
        Ok(words.len() == SLICES && words.values().all(|is_ready| *is_ready))
    })
    .await?;
    step.done("");
    stage.quiet(progress).await?;

    let step = progress.step(format!("changing {CHANGES} words, {CHANGES_PER_SECOND} a second"));
    let (before, (_, version)) = (stage.all_writes().await?, ready().await?);
    let events = slices.watch(&WatchParams::default().timeout(290), &version).await.context("watching slices")?;
    let said: Mutex<BTreeMap<(String, bool), Instant>> = Mutex::default();
    let controller = stage.running().context("the controller has ended")?;
    let (began, computed) = (Instant::now(), controller.cpu_time());
    let says = async {
        let changes = (0..CHANGES).map(|n| (&all[n % all.len()], nth_word(n)));
        let sent = paced(changes, CHANGES_PER_SECOND).map(|(alloc, is_ready)| {
            said.lock().unwrap_or_else(PoisonError::into_inner).insert((alloc.0.clone(), is_ready), Instant::now());
            say(alloc, is_ready)
        });
        sent.buffer_unordered(CLIENTS).try_collect::<Vec<()>>().await
    };
    let sees = async {
        let mut events = std::pin::pin!(events);
        let mut took = Vec::new();
        while took.len() < CHANGES {
            let event = events.try_next().await?.context("the watch on slices ended")?;
            let at = Instant::now();
            let WatchEvent::Modified(slice) = event else { continue };
            let key = owner(&slice).zip(word(&slice)).context("a slice without an owner")?;
            // What is written twice is seen once.
            if let Some(sent) = said.lock().unwrap_or_else(PoisonError::into_inner).remove(&key) {
                took.push(at.duration_since(sent).as_secs_f64());
                step.moved("", took.len() as u64, CHANGES as u64);
            }
        }
        anyhow::Ok(took)
    };
    let both = async { tokio::try_join!(says, sees) };
    let (_, mut took) = tokio::time::timeout(PATIENCE, both).await.context("slices do not follow")??;
    let (elapsed, computed) = (began.elapsed(), controller.cpu_time().saturating_sub(computed));
    stage.quiet(progress).await?;
    let written = since(&before, stage.all_writes().await?);
    let (words, _) = ready().await?;
    let wrong = words.values().filter(|is_ready| **is_ready != nth_word(CHANGES - 1)).count();
    step.done("");
    took.sort_by(f64::total_cmp);
    let n_changes = f64::from(u32::try_from(CHANGES)?);
    let row = json!({
        "slices": words.len(),
        "changes": CHANGES,
        "changesPerSecond": n_changes / elapsed.as_secs_f64(),
        "slicesWrong": wrong,
        "wordToSliceP50Seconds": percentile(&took, 50),
        "wordToSliceP99Seconds": percentile(&took, 99),
        "writesPerChange": f64::from(u32::try_from(written.values().sum::<u64>())?) / n_changes,
        "controllerCpuFraction": computed.as_secs_f64() / elapsed.as_secs_f64(),
    });
    Ok(row.as_object().cloned().unwrap_or_default())
}

/// How agents name the service of an allocation.
fn id(uid: &str) -> String {
    format!("_nomad-task-{uid}-group-g-{SERVICE}-http")
}

/// Each allocation's word changes again after those of all others have.
const fn nth_word(n: usize) -> bool {
    n / SLICES % 2 == 1
}

/// The allocation of a slice.
fn owner(slice: &EndpointSlice) -> Option<String> {
    Some(slice.metadata.owner_references.as_ref()?.first()?.name.clone())
}

/// Whether a slice leads to what is ready.
fn word(slice: &EndpointSlice) -> Option<bool> {
    slice.endpoints.as_ref()?.first()?.conditions.as_ref()?.ready
}
