//! `bench agent`: what the agent adds to a task's start and costs while tasks run, for each driver of processes.
//!
//! A start is measured by the agent itself: from the event that it accepted the task to the time at which the process
//! ran, as its status says. Single starts come one after the other; for the rate the agent finds all of them at once.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use drover_testkit::control_plane::{AuditLog, Role};
use drover_testkit::process::{ProcessId, Signal};
use drover_testkit::progress::{Progress, Step};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DynamicObject, ListParams, PostParams};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::args::BenchArgs;
use super::cluster::{AllocSeen, Allocations, Cluster, with_cluster};
use super::density::counts;
use super::report::percentile;

/// The drivers, each with a row of its own.
const DRIVERS: [&str; 2] = ["raw_exec", "exec"];
/// The agent is idle when drover has written nothing for that long.
const QUIET_FOR: Duration = Duration::from_secs(4);
/// If it is not by then, that is the finding.
const QUIET_TIMEOUT: Duration = Duration::from_mins(3);
/// Nothing is waited for longer than that.
const EVENT_TIMEOUT: Duration = Duration::from_mins(1);
/// Starts that come one after the other.
const SINGLE_STARTS: usize = 30;

pub(super) async fn run(args: &BenchArgs, progress: &Progress) -> Result<Vec<Map<String, Value>>> {
    let mut rows = Vec::new();
    for driver in DRIVERS {
        // A system for each, so that neither pays for the other's tasks.
        rows.push(
            with_cluster(args, true, progress, async |cluster| measure(cluster, args, driver, progress).await).await?,
        );
    }
    Ok(rows)
}

async fn measure(
    cluster: &Cluster<'_>,
    args: &BenchArgs,
    driver: &str,
    progress: &Progress,
) -> Result<Map<String, Value>> {
    let n_tasks = args.count.unwrap_or(200);
    let mut allocations = cluster.watch_allocations().await?;
    let step = progress.step(format!("{driver}: starting {SINGLE_STARTS} tasks, one after the other"));
    for index in 0..SINGLE_STARTS {
        create(cluster, &format!("single-{index}"), driver, 1).await?;
        all_running(&mut allocations, &format!("single-{index}"), 1).await?;
    }
    step.done("");
    let singles = starts(cluster, "single-").await?;
    let mut seconds: Vec<f64> = singles.iter().map(Start::seconds).collect();
    seconds.sort_by(f64::total_cmp);

    let step = progress.step(format!("{driver}: starting {n_tasks} tasks at once"));
    let mut log = AuditLog::at_end(&cluster.session.layout().audit_log())?;
    let cpu = || -> Result<Duration> { Ok(processes(cluster)?.iter().map(|process| process.cpu_time()).sum()) };
    let before = cpu()?;
    start_burst(cluster, &mut allocations, driver, n_tasks, &step).await?;
    let start_cpu = cpu()?.saturating_sub(before).as_secs_f64();
    let burst = starts(cluster, "burst").await?;
    step.done("");
    let first = burst.iter().map(|start| start.received).min().context("no task was started")?;
    let last = burst.iter().map(|start| start.started).max().context("no task was started")?;
    let took = last.duration_since(first).as_secs_f64();

    let step = progress.step(format!("{driver}: waiting until everything about them is written"));
    let writes = writes_until_quiet(&mut log).await?;
    step.done("");
    let step = progress.step(format!("{driver}: watching them for {} s", args.idle_seconds()));
    let n_all = n_tasks + SINGLE_STARTS;
    let pss: u64 = processes(cluster)?.iter().map(|process| process.pss_bytes()).sum();
    let (before, began) = (cpu()?, Instant::now());
    tokio::time::sleep(Duration::from_secs(args.idle_seconds())).await;
    let idle = cpu()?.saturating_sub(before).as_secs_f64() / began.elapsed().as_secs_f64();
    step.done("");
    let step = progress.step(format!("{driver}: killing the agent and starting another one"));
    let restored = restore(cluster, n_all).await?;
    step.done("");

    let as_f64 = |n: usize| u32::try_from(n).map(f64::from).context("too many tasks");
    let row = json!({
        "driver": driver,
        "tasks": n_tasks,
        "startP50Seconds": percentile(&seconds, 50),
        "startP99Seconds": percentile(&seconds, 99),
        "startsPerSecond": as_f64(n_tasks)? / took.max(f64::EPSILON),
        "cpuSecondsPerStart": start_cpu / as_f64(n_tasks)?,
        "pssBytesPerTask": pss / u64::try_from(n_all)?,
        "idleCpuFraction": idle,
        "writesPerLife": as_f64(writes)? / as_f64(n_tasks)?,
        "restoreSeconds": restored.took.as_secs_f64(),
        "restoreEvents": restored.n_events,
    });
    row.as_object().cloned().context("a row")
}

/// Starts all tasks at once: the agent is held until all their allocations are there, for it is the agent's rate that
/// counts, not that of the controller and the API server, which share the machine.
async fn start_burst(
    cluster: &Cluster<'_>,
    allocations: &mut Allocations,
    driver: &str,
    n_tasks: usize,
    step: &Step,
) -> Result<()> {
    let agent = cluster.session.process(Role::Agent).context("the agent does not run")?;
    agent.signal(Signal::STOP)?;
    let placed = async {
        create(cluster, "burst", driver, n_tasks).await?;
        all_seen(allocations, "burst", n_tasks, |_| true, Some((step, "placed"))).await
    };
    let placed = placed.await;
    agent.signal(Signal::CONT)?;
    placed?;
    all_seen(allocations, "burst", n_tasks, |status| status == "running", Some((step, "running"))).await
}

/// Counts the status writes of allocations until nothing of drover's but Leases is written any more: health takes its
/// minimum time, and Events of many starts are written one by one.
async fn writes_until_quiet(log: &mut AuditLog) -> Result<usize> {
    let deadline = Instant::now() + QUIET_TIMEOUT;
    let (mut writes, mut quiet_since) = (0, Instant::now());
    while quiet_since.elapsed() < QUIET_FOR {
        if Instant::now() >= deadline {
            bail!("drover still writes after {} s", QUIET_TIMEOUT.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        let events = log.read_new()?;
        let is_status = |resource: &str| resource.starts_with("allocations") && resource.ends_with("/status");
        writes += events.iter().filter(|event| is_status(&event.resource)).count();
        if events.iter().any(counts) {
            quiet_since = Instant::now();
        }
    }
    Ok(writes)
}

/// What a new agent found of the tasks of one that was killed.
pub(super) struct Restored {
    pub(super) took: Duration,
    /// Events that tasks got by it.
    pub(super) n_events: usize,
}

pub(super) async fn restore(cluster: &Cluster<'_>, n_tasks: usize) -> Result<Restored> {
    let agent = cluster.session.process(Role::Agent).context("the agent does not run")?;
    let read = |file: &str| {
        let path = format!("/proc/{}/{file}", agent.pid);
        let bytes = std::fs::read(&path).with_context(|| format!("reading {path}"))?;
        let parts = bytes.split(|byte| *byte == 0).filter(|part| !part.is_empty());
        Ok::<_, anyhow::Error>(parts.map(|part| OsStr::from_bytes(part).to_owned()).collect::<Vec<OsString>>())
    };
    let (command, environment) = (read("cmdline")?, read("environ")?);
    let events_before = events_of_running(cluster, n_tasks).await?;
    let path = cluster.session.layout().log(Role::Agent);
    let log = std::fs::OpenOptions::new().append(true).open(&path).context("opening the agent's log")?;
    agent.signal(Signal::KILL)?;
    if !agent.wait_gone(EVENT_TIMEOUT).await? {
        bail!("the agent survives SIGKILL");
    }
    let before = found_again(&path)?;
    let began = Instant::now();
    let (program, arguments) = command.split_first().context("the agent has no command line")?;
    let pairs = environment.iter().filter_map(|entry| entry.to_str()?.split_once('='));
    let mut started = tokio::process::Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(pairs)
        .stdin(Stdio::null())
        .stdout(log.try_clone().context("sharing the agent's log")?)
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .context("starting the agent")?;
    while found_again(&path)? == before {
        if began.elapsed() > EVENT_TIMEOUT {
            bail!("the new agent does not find its tasks: see {}", path.display());
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let took = began.elapsed();
    // What it had to say about them would be written within a second.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let n_events = events_of_running(cluster, n_tasks).await?.saturating_sub(events_before);
    started.kill().await.context("ending the agent")?;
    Ok(Restored { took, n_events })
}

fn found_again(log: &Path) -> Result<usize> {
    let text = std::fs::read_to_string(log).with_context(|| format!("reading {}", log.display()))?;
    Ok(text.matches("every task was found again").count())
}

/// Counts events of tasks; every task must run.
async fn events_of_running(cluster: &Cluster<'_>, n_tasks: usize) -> Result<usize> {
    let listed = cluster.api("Allocation").list(&ListParams::default()).await.context("listing Allocations")?;
    let of = |object: &DynamicObject, pointer: &str| object.data.pointer(pointer).cloned().unwrap_or_default();
    let running = listed.items.iter().filter(|it| of(it, "/status/taskStates/sleep/state") == "running").count();
    if running != n_tasks {
        bail!("{running} of {n_tasks} tasks run");
    }
    let events = |it| of(it, "/status/taskStates/sleep/events").as_array().map_or(0, Vec::len);
    Ok(listed.items.iter().map(events).sum())
}

/// The agent and its supervisor.
pub(super) fn processes(cluster: &Cluster<'_>) -> Result<Vec<ProcessId>> {
    [Role::Agent, Role::Supervisor]
        .into_iter()
        .map(|role| cluster.session.process(role).with_context(|| format!("the {role} does not run any more")))
        .collect()
}

/// One start, as the agent tells it.
struct Start {
    received: Timestamp,
    started: Timestamp,
}

impl Start {
    fn seconds(&self) -> f64 {
        self.started.duration_since(self.received).as_secs_f64()
    }
}

async fn starts(cluster: &Cluster<'_>, job: &str) -> Result<Vec<Start>> {
    let listed = cluster.api("Allocation").list(&ListParams::default()).await.context("listing Allocations")?;
    let ours = listed.items.iter().filter(|object| {
        object.data.pointer("/spec/jobName").and_then(Value::as_str).is_some_and(|name| name.starts_with(job))
    });
    ours.map(|object| {
        let time = |pointer: &str| -> Result<Timestamp> {
            let text = object.data.pointer(pointer).and_then(Value::as_str);
            text.with_context(|| format!("an allocation without {pointer}"))?.parse().context("a time")
        };
        Ok(Start {
            received: time("/status/taskStates/sleep/events/0/time")?,
            started: time("/status/taskStates/sleep/startedAt")?,
        })
    })
    .collect()
}

pub(super) async fn all_running(allocations: &mut Allocations, wanted: &str, count: usize) -> Result<()> {
    all_seen(allocations, wanted, count, |status| status == "running", None).await
}

/// Waits until so many allocations of the job have been seen with such a status.
async fn all_seen(
    allocations: &mut Allocations,
    wanted: &str,
    count: usize,
    is_seen: impl Fn(&str) -> bool,
    step: Option<(&Step, &str)>,
) -> Result<()> {
    let mut seen = BTreeSet::new();
    while seen.len() < count {
        if let Some((step, what)) = step {
            step.moved(what, seen.len() as u64, count as u64);
        }
        match allocations.next().await?.1 {
            AllocSeen::Present { name, job, client_status, .. } if job == wanted => match client_status.as_str() {
                "failed" | "complete" | "lost" => bail!("the allocation {name} is {client_status}"),
                status if is_seen(status) => drop(seen.insert(name)),
                _ => {}
            },
            AllocSeen::Present { .. } => {}
            AllocSeen::Deleted { name } => bail!("the allocation {name} was deleted"),
        }
    }
    Ok(())
}

async fn create(cluster: &Cluster<'_>, name: &str, driver: &str, count: usize) -> Result<()> {
    let job: DynamicObject = serde_json::from_value(json!({
        "apiVersion": drover_api::API_VERSION,
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"type": "service", "groups": [{
            "name": "sleep",
            "count": count,
            "ephemeralDisk": {"sizeMB": 10},
            "tasks": [{
                "name": "sleep",
                "driver": driver,
                "config": {"command": "/bin/sleep", "args": ["100000"]},
                "killSignal": "SIGKILL",
                "resources": {"cpu": 4, "memoryMB": 10},
                "logs": {"maxFiles": 1, "maxFileSizeMB": 1},
            }],
        }]},
    }))
    .context("building the job")?;
    let created = cluster.api("Job").create(&PostParams::default(), &job).await;
    created.map(drop).with_context(|| format!("creating djob/{name}"))
}
