//! `bench volumes`: 1,000 and 10,000 volumes of five claims each, and a tenth of the nodes lost. How long until the
//! claims of those are free, what each release writes, what a change of a volume costs, and what is left of it all when
//! nothing happens any more.
//!
//! Nodes and drivers exist as objects only; the bench answers for them what the controller asks, at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use drover_api::client_node::{CsiRequest, NodePhase};
use drover_api::{CSIVolume, ClientNode, Job, finalizer};
use drover_testkit::progress::{Progress, Step};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::args::BenchArgs;
use super::cluster::NAMESPACE;
use super::cluster_stage::{CLIENTS, Stage, cpu_nanos, node_name, since};
use super::waiting::{PATIENCE, until};
use crate::interruption::unless_interrupted;

/// How many volumes there are in each row.
const SIZES: [usize; 2] = [1000, 10_000];
/// Claims of each volume.
const CLAIMS: usize = 5;
/// Nodes, and how many of them are lost.
const NODES: usize = 100;
const LOST: usize = NODES / 10;
/// Drivers; each has its controller on a node of its own, among those that stay.
const PLUGINS: usize = 20;
/// Tasks of a group that runs them: fewer than a group may have.
const MOST_TASKS: usize = 10;
/// How many spans with changes are measured, each after one without, how long they are, and how many changes each has.
const SPANS: usize = 9;
const SPAN: Duration = Duration::from_secs(6);
const CHANGES: usize = 250;
const CHANGES_PER_SECOND: u32 = 50;
/// Memory of one allocation: all of a node's are as much as it has, so that what is lost is not placed elsewhere.
const MEMORY: usize = 10;
/// Nodes are missed after the bench's grace of a minute, and then the last claim is freed.
const RELEASED_WITHIN: Duration = Duration::from_mins(20);
/// What is watched settles within five minutes.
const SETTLED_WITHIN: Duration = Duration::from_mins(7);

/// Measures each size on a system of its own; on Ctrl-C everything that was started ends.
pub(super) async fn run(args: &BenchArgs, progress: &Progress) -> Result<Vec<Map<String, Value>>> {
    let sizes: Vec<usize> = SIZES.into_iter().filter(|size| args.count.is_none_or(|most| *size <= most)).collect();
    ensure!(!sizes.is_empty(), "--count must be at least {}", SIZES[0]);
    let mut rows = Vec::new();
    for size in sizes {
        let mut stage = Stage::open(args, progress).await?;
        let row = unless_interrupted(measure(&mut stage, size, progress)).await;
        rows.push(row?);
    }
    let cost = |row: Option<&Map<String, Value>>| row?.get("cpuSecondsPerChange")?.as_f64();
    let ratio = cost(rows.last()).zip(cost(rows.first())).map(|(last, first)| last / first);
    if let Some(row) = rows.last_mut() {
        row.insert("changeCostRatio".to_owned(), json!(ratio));
    }
    Ok(rows)
}

async fn measure(stage: &mut Stage, size: usize, progress: &Progress) -> Result<Map<String, Value>> {
    // Room for its claims' allocations and its plugins, and for nothing else.
    let n_tasks = size * CLAIMS / NODES + PLUGINS;
    stage.make_nodes_with(0..PLUGINS, i64::try_from((n_tasks + 1) * MEMORY)?, progress).await?;
    stage.make_nodes_with(PLUGINS..NODES, i64::try_from(n_tasks * MEMORY)?, progress).await?;
    make_plugins(stage).await?;
    set_plugins(stage, false).await?;
    make_volumes(stage, size, progress).await?;
    stage.start_controller()?;
    stage.leads(stage.newest()).await?;
    let (client, all): (_, Vec<usize>) = (stage.client.clone(), (0..NODES).collect());
    let (stays, goes) = all.split_at(NODES - LOST);
    let beating = async |nodes: &[usize]| -> Result<Map<String, Value>> {
        loop {
            Stage::beat_with(&client, nodes, 20).await?;
        }
    };
    let agents = Agents::default();
    let change_cost = tokio::select! {
        biased;
        stopped = beating(&all) => bail!("nodes beat no more: {stopped:?}"),
        cost = async {
            claim_all(stage, size, progress).await?;
            set_plugins(stage, true).await?;
            stage.quiet(progress).await?;
            changes(stage, size, progress).await
        } => cost?,
    };
    tokio::select! {
        biased;
        stopped = beating(stays) => stopped,
        stopped = agents.answer(stage) => stopped,
        row = lose(stage, Loss { size, numbers: goes, change_cost }, &agents, progress) => row,
    }
}

/// Makes the job that runs the drivers: each one's node half everywhere, and its controller on its node.
async fn make_plugins(stage: &Stage) -> Result<()> {
    let task = |of: usize, half: &str| {
        json!({ "name": plugin_id(of), "driver": "mock", "logs": { "maxFiles": 1, "maxFileSizeMB": 1 },
            "csiPlugin": { "id": plugin_id(of), "type": half }, "resources": { "cpu": 1, "memoryMB": MEMORY } })
    };
    let of_nodes = |from: usize| {
        let tasks: Vec<Value> = (from..PLUGINS.min(from + MOST_TASKS)).map(|of| task(of, "node")).collect();
        json!({ "name": format!("nodes-{from}"), "ephemeralDisk": { "sizeMB": 2 * MOST_TASKS }, "tasks": tasks })
    };
    let mut groups: Vec<Value> = (0..PLUGINS).step_by(MOST_TASKS).map(of_nodes).collect();
    groups.extend((0..PLUGINS).map(|of| {
        json!({ "name": format!("controller-{of}"), "ephemeralDisk": { "sizeMB": 10 },
            "constraints": [{ "lTarget": "${node.unique.name}", "operand": "=", "rTarget": node_name(of) }],
            "tasks": [task(of, "controller")] })
    }));
    let job = json!({ "apiVersion": drover_api::API_VERSION, "kind": "Job", "metadata": { "name": "plugins" },
        "spec": { "type": "system", "nodePool": "load", "update": { "maxParallel": 0 }, "groups": groups } });
    let job = serde_json::from_value(job).context("building the job of plugins")?;
    stage.api("Job", NAMESPACE).create(&PostParams::default(), &job).await.context("creating the job of plugins")?;
    Ok(())
}

/// Has each node say what its drivers are. While they have no controllers, claims are attached by being taken.
async fn set_plugins(stage: &Stage, has_controllers: bool) -> Result<()> {
    let nodes = stage.nodes();
    stream::iter(0..NODES)
        .map(async |number| {
            let plugin = |of: usize| {
                let is_controller = has_controllers && of == number;
                let capabilities: &[&str] = if is_controller { &["PUBLISH_UNPUBLISH_VOLUME"] } else { &[] };
                let info = json!({ "controller": is_controller, "node": true, "healthy": true, "nodeID": node_name(number),
                    "requiresControllerPlugin": has_controllers, "maxVolumes": 0, "capabilities": capabilities });
                (plugin_id(of), info)
            };
            let plugins: BTreeMap<String, Value> = (0..PLUGINS).map(plugin).collect();
            let patch = Patch::Merge(json!({ "status": { "fingerprint": { "csi": plugins } } }));
            let patched = nodes.patch_status(&node_name(number), &PatchParams::default(), &patch).await;
            patched.map(|_| ()).with_context(|| format!("writing the drivers of {}", node_name(number)))
        })
        .buffer_unordered(CLIENTS)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(())
}

fn plugin_id(number: usize) -> String {
    format!("disks-{number}")
}

/// Makes volumes that their providers have confirmed.
async fn make_volumes(stage: &Stage, size: usize, progress: &Progress) -> Result<()> {
    let step = progress.step(format!("making {size} volumes"));
    let volumes: Api<CSIVolume> = Api::namespaced(stage.client.clone(), NAMESPACE);
    stream::iter(0..size)
        .map(async |number| {
            let name = format!("data-{number}");
            let volume = json!({ "apiVersion": drover_api::API_VERSION, "kind": "CSIVolume",
                "metadata": { "name": name, "finalizers": [finalizer::RELEASE_CLAIMS] },
                "spec": { "id": format!("data[{number}]"), "pluginID": plugin_id(number % PLUGINS), "externalID": format!("vol-{number}"),
                    "capabilities": [{ "accessMode": "multi-node-multi-writer", "attachmentMode": "file-system" }] } });
            let volume = serde_json::from_value(volume).context("building a volume")?;
            volumes.create(&PostParams::default(), &volume).await.with_context(|| format!("creating {name}"))?;
            let status = json!({ "status": { "observedGeneration": 1, "validatedGeneration": 1, "phase": "available" } });
            let patched = volumes.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await;
            patched.map(|_| ()).with_context(|| format!("writing the status of {name}"))
        })
        .buffer_unordered(CLIENTS)
        .try_collect::<Vec<()>>()
        .await?;
    step.done("");
    Ok(())
}

/// Has five jobs use one volume for each of their allocations.
async fn claim_all(stage: &Stage, size: usize, progress: &Progress) -> Result<()> {
    let jobs = stage.api("Job", NAMESPACE);
    for number in 0..CLAIMS {
        let job = json!({ "apiVersion": drover_api::API_VERSION, "kind": "Job", "metadata": { "name": format!("users-{number}") },
            "spec": { "nodePool": "load", "update": { "maxParallel": 0 }, "groups": [{ "name": "g", "count": size,
                "ephemeralDisk": { "sizeMB": 10 },
                "volumes": [{ "name": "data", "type": "csi", "source": "data", "perAlloc": true,
                    "accessMode": "multi-node-multi-writer", "attachmentMode": "file-system" }],
                "tasks": [{ "name": "t", "driver": "mock", "logs": { "maxFiles": 1, "maxFileSizeMB": 1 },
                    "volumeMounts": [{ "volume": "data", "destination": "/data" }],
                    "resources": { "cpu": 1, "memoryMB": MEMORY } }] }] } });
        let job = serde_json::from_value(job).context("building a job")?;
        jobs.create(&PostParams::default(), &job).await.context("creating a job")?;
    }
    let step = progress.step(format!("placing {} allocations that take claims", size * CLAIMS));
    let (mut known, mut since) = (0, Instant::now());
    while known < size * CLAIMS {
        tokio::time::sleep(Duration::from_secs(3)).await;
        let n = count_claims(stage).await?;
        if n > known {
            (known, since) = (n, Instant::now());
        }
        if let Some(why) = refusal(stage).await? {
            bail!("{known} of {} claims are taken, and {why}", size * CLAIMS);
        }
        ensure!(since.elapsed() < PATIENCE, "{known} of {} claims are taken, and no other one since", size * CLAIMS);
        step.moved("", known as u64, (size * CLAIMS) as u64);
    }
    step.done("");
    stage.quiet(progress).await
}

/// Why a job is not placed at all, if one is not.
async fn refusal(stage: &Stage) -> Result<Option<String>> {
    let api: Api<Job> = Api::namespaced(stage.client.clone(), NAMESPACE);
    let all = api.list(&ListParams::default()).await.context("listing Jobs")?;
    Ok(all.items.into_iter().find_map(|job| {
        let columns = job.status?.columns;
        let is_refused = columns.reason == "InvalidSpec";
        is_refused.then(|| format!("djob/{} is refused: {}", job.metadata.name.unwrap_or_default(), columns.message))
    }))
}

/// How many claims all volumes have.
async fn count_claims(stage: &Stage) -> Result<usize> {
    let api: Api<CSIVolume> = Api::namespaced(stage.client.clone(), NAMESPACE);
    let all = api.list(&ListParams::default()).await.context("listing CSIVolumes")?;
    Ok(all.items.iter().map(|volume| volume.status.as_ref().map_or(0, |status| status.claims.len())).sum())
}

/// The claims on nodes that are lost, as a watch shows them.
struct Held<'a> {
    api: Api<CSIVolume>,
    version: String,
    nodes: &'a BTreeSet<String>,
    by_volume: BTreeMap<String, usize>,
    n: usize,
}

impl<'a> Held<'a> {
    async fn begin(stage: &Stage, nodes: &'a BTreeSet<String>) -> Result<Self> {
        let api: Api<CSIVolume> = Api::namespaced(stage.client.clone(), NAMESPACE);
        let all = api.list(&ListParams::default()).await.context("listing CSIVolumes")?;
        let version = all.metadata.resource_version.context("a list without resourceVersion")?;
        let mut held = Self { api, version, nodes, by_volume: BTreeMap::new(), n: 0 };
        all.items.iter().for_each(|volume| held.note(volume));
        Ok(held)
    }

    fn note(&mut self, volume: &CSIVolume) {
        let claims = volume.status.iter().flat_map(|status| &status.claims);
        let n = claims.filter(|claim| self.nodes.contains(&claim.node_name)).count();
        let before = self.by_volume.insert(volume.metadata.name.clone().unwrap_or_default(), n);
        self.n = self.n + n - before.unwrap_or(0);
    }

    /// Waits until none is left; returns when that was seen.
    async fn freed(mut self, step: &Step) -> Result<Instant> {
        let all = self.n;
        loop {
            let params = WatchParams::default().timeout(290);
            let mut events = self.api.watch(&params, &self.version).await.context("watching CSIVolumes")?.boxed();
            while let Some(event) = events.try_next().await.context("watching CSIVolumes")? {
                let volume = match event {
                    WatchEvent::Added(volume) | WatchEvent::Modified(volume) => volume,
                    WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => continue,
                    WatchEvent::Error(status) => bail!("watching CSIVolumes: {}", status.message),
                };
                self.version = volume.metadata.resource_version.clone().unwrap_or_default();
                self.note(&volume);
                step.moved("", (all - self.n.min(all)) as u64, all as u64);
                if self.n == 0 {
                    return Ok(Instant::now());
                }
            }
        }
    }
}

/// Processor seconds that the change of a volume costs the controller: the median of spans with changes, less that of
/// spans without. What the controller does from time to time, whatever happens, falls into few of them.
async fn changes(stage: &Stage, size: usize, progress: &Progress) -> Result<f64> {
    let controller = stage.running().context("no controller runs")?;
    let step = progress.step(format!("changing {CHANGES_PER_SECOND} of {size} volumes each second"));
    let volumes: Api<CSIVolume> = Api::namespaced(stage.client.clone(), NAMESPACE);
    let (mut calm, mut busy) = (Vec::new(), Vec::new());
    let n_changes = SPANS * CHANGES;
    for span in 0..SPANS {
        let before = cpu_nanos(controller)?;
        tokio::time::sleep(SPAN).await;
        calm.push(cpu_nanos(controller)? - before);
        let (before, began) = (cpu_nanos(controller)?, Instant::now());
        let mut pace = tokio::time::interval(Duration::from_secs(1) / CHANGES_PER_SECOND);
        for number in span * CHANGES..(span + 1) * CHANGES {
            pace.tick().await;
            let name = format!("data-{}", number * size / n_changes);
            let patch = Patch::Merge(json!({ "metadata": { "annotations": { "bench": number.to_string() } } }));
            volumes.patch(&name, &PatchParams::default(), &patch).await.with_context(|| format!("changing {name}"))?;
        }
        // What follows from the last change is part of its cost.
        tokio::time::sleep_until(began + SPAN).await;
        busy.push(cpu_nanos(controller)? - before);
        step.moved("", (span + 1) as u64, SPANS as u64);
    }
    let median = |spans: &mut Vec<u64>| {
        spans.sort_unstable();
        Duration::from_nanos(spans[spans.len() / 2]).as_secs_f64()
    };
    let each = (median(&mut busy) - median(&mut calm)).max(0.0) / f64::from(u32::try_from(CHANGES)?);
    step.done(format!("{:.0} µs of processor time each", each * 1e6));
    Ok(each)
}

/// The nodes that are lost, of how many volumes.
#[derive(Clone, Copy)]
struct Loss<'a> {
    size: usize,
    numbers: &'a [usize],
    /// Processor time of a change, in seconds.
    change_cost: f64,
}

/// Waits until all claims on nodes that beat no more are free, and until nothing is left to do.
async fn lose(stage: &Stage, away: Loss<'_>, agents: &Agents, progress: &Progress) -> Result<Map<String, Value>> {
    let Loss { size, numbers, change_cost } = away;
    let lost: BTreeSet<String> = numbers.iter().map(|number| node_name(*number)).collect();
    let held = Held::begin(stage, &lost).await?;
    let n_claims = held.n;
    let controller = stage.running().context("no controller runs")?;
    let nodes: Api<ClientNode> = Api::all(stage.client.clone());
    let (before, cpu) = (stage.writes().await?, cpu_nanos(controller)?);
    let first = lost.first().context("no node is lost")?;
    let step = progress.step(format!("waiting until {} nodes are missed and their {n_claims} claims free", lost.len()));
    let is_down = format!("{first} is down");
    let missed = until(&is_down, async || {
        let status = nodes.get(first).await.context("reading a node")?.status.unwrap_or_default();
        Ok(status.phase == NodePhase::Down)
    });
    let freed = async {
        let freed = tokio::time::timeout(RELEASED_WITHIN, held.freed(&step)).await;
        freed.with_context(|| format!("claims are not free after {RELEASED_WITHIN:?}"))?
    };
    let (missed_at, freed_at) = tokio::try_join!(missed, freed)?;
    let seconds = freed_at.duration_since(missed_at).as_secs_f64();
    step.done("");
    let cpu = Duration::from_nanos(cpu_nanos(controller)? - cpu).as_secs_f64();
    let written = since(&before, stage.writes().await?);
    let of = |resource: &str| *written.get(resource).unwrap_or(&0);
    let answered = agents.n_answers();
    let by_leader = (of("csivolumes") + of("clientnodes")).saturating_sub(answered);
    stage.quiet(progress).await?;
    let step = progress.step("waiting until nothing is kept for volumes any more");
    let settled = Instant::now() + SETTLED_WITHIN;
    let mut idle = stage.sum_of("drover_volume_tasks").await?;
    while idle > 0.0 && Instant::now() < settled {
        tokio::time::sleep(Duration::from_secs(1)).await;
        idle = stage.sum_of("drover_volume_tasks").await?;
    }
    step.done("");
    let released = f64::from(u32::try_from(n_claims)?);
    let row = json!({
        "volumes": size,
        "claims": size * CLAIMS,
        "releasedClaims": n_claims,
        "secondsToFree": seconds,
        "writesPerReleasedClaim": f64::from(u32::try_from(by_leader)?) / released,
        "answersPerReleasedClaim": f64::from(u32::try_from(answered)?) / released,
        "writesByKind": written,
        "callsInFlightPerPlugin": agents.most_in_flight(),
        "cpuSecondsPerReleasedClaim": cpu / released,
        "cpuSecondsPerChange": change_cost,
        "idleTasks": idle,
    });
    Ok(row.as_object().cloned().unwrap_or_default())
}

/// Agents that do at once what they are asked for.
#[derive(Debug, Default)]
struct Agents(std::sync::Mutex<ClaimSeen>);

#[derive(Debug, Default)]
struct ClaimSeen {
    n_answers: u64,
    most_in_flight: usize,
}

impl Agents {
    fn seen(&self) -> std::sync::MutexGuard<'_, ClaimSeen> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Writes of answers.
    fn n_answers(&self) -> u64 {
        self.seen().n_answers
    }

    /// Most calls of one driver's controller that were asked for at once.
    fn most_in_flight(&self) -> usize {
        self.seen().most_in_flight
    }

    /// Answers until it is dropped.
    async fn answer(&self, stage: &Stage) -> Result<Map<String, Value>> {
        let nodes: Api<ClientNode> = Api::all(stage.client.clone());
        loop {
            let all = nodes.list(&ListParams::default()).await.context("listing ClientNodes")?;
            let version = all.metadata.resource_version.unwrap_or_default();
            for node in &all.items {
                self.answer_of(&nodes, node).await?;
            }
            let events = nodes.watch(&WatchParams::default().timeout(290), &version).await.context("watching nodes")?;
            let answered = events.try_for_each_concurrent(CLIENTS, async |event| {
                if let WatchEvent::Added(node) | WatchEvent::Modified(node) = event {
                    // What goes wrong here is tried again with the next list.
                    self.answer_of(&nodes, &node).await.map_err(|error| kube::Error::Service(error.into()))?;
                }
                Ok(())
            });
            answered.await.context("answering for nodes")?;
        }
    }

    /// Answers what a node is asked for, and takes back what is no longer asked for.
    async fn answer_of(&self, nodes: &Api<ClientNode>, node: &ClientNode) -> Result<()> {
        let status = node.status.clone().unwrap_or_default();
        self.count(&status.csi_requests);
        let known = status.fingerprint.map(|print| print.csi_answers).unwrap_or_default();
        let new =
            status.csi_requests.keys().filter(|name| !known.contains_key(*name)).map(|name| (name.clone(), json!({})));
        let old = known
            .keys()
            .filter(|name| !status.csi_requests.contains_key(*name))
            .map(|name| (name.clone(), Value::Null));
        let answers: Map<String, Value> = new.chain(old).collect();
        if !answers.values().any(Value::is_object) {
            return Ok(());
        }
        self.seen().n_answers += 1;
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let patch = Patch::Merge(json!({ "status": { "fingerprint": { "csiAnswers": answers } } }));
        let patched = nodes.patch_status(name, &PatchParams::default(), &patch).await;
        patched.map(|_| ()).with_context(|| format!("answering for {name}"))
    }

    fn count(&self, requests: &BTreeMap<String, CsiRequest>) {
        let mut by_plugin: BTreeMap<&str, usize> = BTreeMap::new();
        for request in requests.values().filter(|request| request.call.takes_lock()) {
            *by_plugin.entry(&request.plugin_id).or_default() += 1;
        }
        let most = by_plugin.into_values().max().unwrap_or(0);
        let mut seen = self.seen();
        seen.most_in_flight = seen.most_in_flight.max(most);
    }
}
